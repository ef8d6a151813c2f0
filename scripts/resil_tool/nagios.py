# SPDX-License-Identifier: Apache-2.0
"""`resil report --nagios`, `resil hosts --nagios`: one line with performance data and exit status 0 to 3, as plugins of Nagios, Icinga
and their kin print it (guidelines of the Monitoring Plugins project). Touches no file."""

from __future__ import annotations

from .text import clean, plural

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
OK, WARNING, CRITICAL, UNKNOWN = range(4)
CERTAIN = ("proved", "verified")


def line(state: int, text: str, values: list[tuple] = ()) -> str:
    """`values`: (label, number, unit, warning, critical, least); None where there is none."""
    told = "RESIL %s - %s" % (STATES[state], clean(text, 300).replace("|", "/"))
    data = ["'%s'=%s" % (label.replace("'", "").replace("=", ""), ";".join(
        [_number(number) + unit] + ["" if one is None else _number(one) for one in limits]).rstrip(";"))
            for label, number, unit, *limits in values if number is not None]
    return told + (" | " + " ".join(data) if data else "")


def _number(value) -> str:
    return "%d" % value if isinstance(value, int) else ("%.6f" % value).rstrip("0").rstrip(".")


def of_job(s: dict) -> tuple[int, str]:
    """Of a merged summary: (exit status, line)."""
    certain = sum(1 for finding in s["findings"] if finding["confidence"] in CERTAIN)
    if s["verdict"] == "FINDINGS":
        state = CRITICAL if certain or s["stopped"] else WARNING
    else:
        state = {"CLEAN": OK, "RUNNING": OK}.get(s["verdict"], WARNING)
    values = [("findings", len(s["findings"]), "", None, None, 0), ("certain_findings", certain, "", None, 0, 0),
              ("ranks_reported", s["ranks_reported"], "", None, None, 0), ("ranks_expected", s["ranks_expected"], "", None, None, 0),
              ("time", s["seconds"], "s", None, None, 0), ("still", s["still_seconds"], "s", None, None, 0),
              ("unusable_files", len(s["unreadable"]), "", 0, None, 0)]
    if s["mpi_share"] is not None:
        values.append(("mpi", 100 * s["mpi_share"], "%", None, None, 0))
    if s["checksum"]:
        values += [(label, s["checksum"].get(name), unit, None, critical, 0) for label, name, unit, critical in (
            ("checked", "messages_checked", "c", None), ("mismatches", "mismatches", "c", 0))
                   if isinstance(s["checksum"].get(name), int)]
    return state, line(state, "%s: %s" % (s["verdict"], s["reason"]), values)


def of_hosts(hosts: int, read: dict, rows: list[dict]) -> tuple[int, str]:
    """A host that keeps showing up is a suspicion: a warning."""
    named = list(dict.fromkeys(row["host"] for row in rows if row["keeps_showing_up"]))
    values = [("hosts", hosts, "", None, None, 0), ("jobs", read["jobs"], "", None, None, 0),
              ("suspect_hosts", len(named), "", 0, None, 0), ("unusable_files", len(read["unusable"]), "", None, None, 0)]
    if not read["jobs"]:
        return UNKNOWN, line(UNKNOWN, "no report could be read", values)
    if named:
        return WARNING, line(WARNING, "keeps showing up: %s" % ", ".join(named[:8]) + (", …" if len(named) > 8 else ""), values)
    return OK, line(OK, "no host stands out in %s" % plural(read["jobs"], "job"), values)


def guarded(make) -> int:
    """Prints what `make` gives. A plugin that cannot look says UNKNOWN on standard output, and why."""
    from .job import Usage
    try:
        state, told = make()
    except (Usage, OSError) as error:
        state, told = UNKNOWN, line(UNKNOWN, str(getattr(error, "strerror", None) or error))
    print(told)
    return state
