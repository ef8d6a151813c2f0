# SPDX-License-Identifier: Apache-2.0
"""Coverage of a checksum run: what one rank's report says of it, the sum over the job, and the sentences. Touches no
file; trusts no number."""

from __future__ import annotations

from .text import bytes_text, clean, integer, plural, rank_set
from .values import integer as number_of
from .values import members, number, rank_list, text

SYSTEMIC_RATE = 1e-3    # differing packets of those checked: above this it is no stray bit
SYSTEMIC_LEAST = 3      # one differing packet in a short run is no rate
BY_PROGRAM = ("send_buffer_modified_while_pending", "receive_buffer_modified_while_pending")  # verdicts that say nothing of hardware or MPI
FINAL = ("finished", "aborted", "stopped")

# Why something was not checked, in the words of the person who wrote the program. ledger/record.h has the names.
REASONS = {
    "device_buffer": "the data is, or may be, in a GPU's memory",
    "datatype": "datatypes that cannot be read from outside",
    "error": "the call failed, or the receive buffer was too short for the message",
    "not_connected": "the ranks have no channel of resil's: some run without it, or only with MPI sessions",
    "other_world": "the partner is in another MPI_COMM_WORLD (spawn, connect)",
    "unknown_communicator": "the communicator was made where resil could not see it",
    "order_lost": "receives whose order could not be followed",
    "memory": "resil's memory for records was full",
    "reduction": "reductions whose arithmetic is done inside MPI (floating point, products)",
    "user_operator": "reductions by an operator of the program",
    "passive_target": "one-sided, under a shared lock",
    "accumulate": "one-sided accumulation",
    "overlapped": "one-sided, more than one operation on the same memory in an epoch",
    "shared_window": "windows in shared memory, used by plain loads and stores",
    "one_sided": "other one-sided traffic",
    "file": "MPI file reads and writes",
    "collective": "collectives of a form that has no check",
    "request_freed": "receives whose request the program freed before the end",
    "no_status": "receives of which the MPI does not say what they took",
    "given_back": "receives that MPI_Request_get_status told to be complete before MPI_Wait",
    "calls_differ": "calls on both sides that do not belong together",
    "early": "one-sided reads that the MPI called complete before their data was there",
}

COUNTERS = ("messages_total", "messages_checked", "bytes_total", "bytes_checked", "unverified", "deferred",
            "mismatches")


def parse(value) -> dict:
    """Member "checksum" of one rank's report with every value checked; {} where it is none."""
    if not isinstance(value, dict):
        return {}
    drains = value.get("drains") if isinstance(value.get("drains"), dict) else {}
    one = {name: number_of(value.get(name)) for name in COUNTERS}
    one.update(
        mode=text(value.get("mode"), 20), blame=text(value.get("blame"), 20),
        connected=value["connected"] if isinstance(value.get("connected"), bool) else None,
        systemic=value["systemic"] if isinstance(value.get("systemic"), bool) else None,
        messages_uncovered=counts(value.get("messages_uncovered")),
        bytes_uncovered=counts(value.get("bytes_uncovered")), verdicts=counts(value.get("verdicts")),
        drains={"count": number_of(drains.get("count")), "seconds": number(drains.get("seconds")),
                "timeouts": number_of(drains.get("timeouts")), "silent_ranks": rank_list(drains.get("silent_ranks"))},
        collectives=_flat(value.get("collectives")), one_sided=_flat(value.get("one_sided")))
    return one


def counts(value) -> dict[str, int]:
    """{name: count} of an object of counts; what is none is left out."""
    return {clean(name, 40): number_of(count, 1) for name, count in members(value) if number_of(count, 1)}


def _flat(value, prefix: str = "", depth: int = 3) -> dict[str, int]:
    """Counters of nested objects as {"a b": n}."""
    flat = {}
    for name, item in members(value):
        name = prefix + clean(name, 40)
        if isinstance(item, dict) and depth:
            flat.update(_flat(item, name + " ", depth - 1))
        elif number_of(item, 1):
            flat[name] = number_of(item, 1)
    return flat


def _add(into: dict, more: dict) -> None:
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


def merge(ranks) -> dict | None:
    """Sums over the ranks whose report is final: before that, its counters are those of MPI_Init. None: no rank has
    the mode on."""
    on = [rank for rank in ranks if "checksum" in rank.modes.replace(" ", "").split(",") or rank.checksum]
    if not on:
        return None
    final = [rank for rank in on if rank.checksum and rank.outcome in FINAL]
    total = {name: sum(rank.checksum[name] for rank in final) for name in COUNTERS}
    total.update({name: {} for name in ("messages_uncovered", "bytes_uncovered", "verdicts", "collectives",
                                        "one_sided")})
    silent, modes, blames = set(), {}, {}
    drains = {"count": 0, "timeouts": 0, "seconds_max": 0.0}
    for rank in final:
        one = rank.checksum
        for name in ("messages_uncovered", "bytes_uncovered", "verdicts", "collectives", "one_sided"):
            _add(total[name], one[name])
        modes.setdefault(one["mode"] or "?", []).append(rank.key)
        blames.setdefault(one["blame"] or "?", []).append(rank.key)
        drains["count"] += one["drains"]["count"]
        drains["timeouts"] += one["drains"]["timeouts"]
        drains["seconds_max"] = max(drains["seconds_max"], one["drains"]["seconds"])
        silent.update((rank.world, other) for other in one["drains"]["silent_ranks"])
    for what in ("messages", "bytes"):
        # A counter that a dying rank did not write must not make the share larger than it is.
        known = total[what + "_checked"] + sum(total[what + "_uncovered"].values()) + (
            total["mismatches"] if what == "messages" else 0)
        total[what + "_total"] = max(total[what + "_total"], known + (total["unverified"] if what == "messages" else 0))
        whole = total[what + "_total"]
        total[what + "_share"] = (total[what + "_checked"] + (total["mismatches"] if what == "messages" else 0)
                                  ) / whole if whole else None
        total[what + "_unaccounted"] = whole - known - (total["unverified"] if what == "messages" else 0)
    total["messages_compared"] = total["messages_checked"] + total["mismatches"]
    total["mismatch_rate"] = total["mismatches"] / max(1, total["messages_compared"])
    total["systemic"] = _systemic(final, total["messages_compared"])
    total["modes"] = {mode: rank_set(keys, 10**6) for mode, keys in modes.items()}
    total["blame"] = {blame: rank_set(keys, 10**6) for blame, keys in blames.items()}
    total["not_connected"] = rank_set((r.key for r in final if r.checksum["connected"] is False), 10**6)
    total["silent_ranks"] = rank_set(silent, 10**6)
    total["drains"] = drains
    total["ranks"] = len(final)
    total["ranks_unknown"] = rank_set((r.key for r in ranks if r not in final), 10**6)
    return total


def _systemic(final, compared: int) -> bool:
    """A rank says so, or all together are above the rate. A rank that had enough mismatches and does not say so knows
    why: one lost message puts a whole lane out of step."""
    events = 0
    for one in (rank.checksum for rank in final):
        mine = max(0, one["mismatches"] - sum(one["verdicts"].get(name, 0) for name in BY_PROGRAM))
        events += mine if one["systemic"] is None else min(mine, SYSTEMIC_LEAST)
    return any(rank.checksum["systemic"] for rank in final) or (
        events >= SYSTEMIC_LEAST and events > SYSTEMIC_RATE * compared)


def share(part: int, whole: int, what: str) -> str:
    """"99.98 % of 1,234 messages": rounded down; "all 1,234 messages" and "none of …" where that is so."""
    if part >= whole:
        return "all %s" % what
    hundredths = 10000 * part // whole
    return "%s of %s" % ("none" if part <= 0 else "%d.%02d %%" % divmod(hundredths, 100) if hundredths
                         else "less than 0.01 %", what)


def _shares(c: dict) -> str:
    messages = share(c["messages_compared"], c["messages_total"], plural(c["messages_total"], "message"))
    return messages + (", " + share(c["bytes_checked"], c["bytes_total"], bytes_text(c["bytes_total"]))
                       if c["bytes_total"] else "")


def scope(c: dict | None) -> str:
    """What "no findings" and the number of findings hold for; goes into the line of the verdict."""
    if c is None:
        return "; message contents were not checked"
    if not c["ranks"]:
        return "; what was checked is not known"
    if not c["messages_total"] and not c["bytes_total"]:
        return "; there was no message to check"
    if not c["messages_compared"]:
        return "; NO message was checked"
    return " in %s%s" % (_shares(c), " (rank %s not known)" % _few(c["ranks_unknown"]) if c["ranks_unknown"] else "")


def gap(c: dict | None) -> str:
    """Why a job whose ranks all finished is not CLEAN: it asked for checks and did not get them. Else ""."""
    if c is None or not c["ranks"]:
        return ""
    if c["unverified"]:
        return "%s unverified%s" % (plural(c["unverified"], "message"), owed(c))
    if c["messages_total"] and not c["messages_compared"]:
        return "not one of %s could be checked" % plural(c["messages_total"], "message")
    return ""


def owed(c: dict) -> str:
    return "; %s owed records" % _few("rank%s %s" % ("s" if set(c["silent_ranks"]) & set(",-") else "",
                                                     c["silent_ranks"])) if c["silent_ranks"] else ""


def _few(ranks: str, limit: int = 24) -> str:
    return ranks if len(ranks) <= limit else ranks[:limit].rsplit(",", 1)[0] + ",…"


def sentences(c: dict) -> list[tuple[str, str]]:
    """[(label, text)] for the screen: what was checked, what was not and why, and what is still open."""
    if not c["ranks"]:
        return [("coverage", "not known: no rank of the checksum mode left a final report")]
    how = ", ".join(filter(None, ("/".join(c["modes"]), "blame " + "/".join(c["blame"]))))
    if c["messages_total"] or c["bytes_total"]:
        lines = [("coverage", "checked: %s (%s)" % (_shares(c), how))]
    else:
        lines = [("coverage", "there was no message to check (%s)" % how)]
    lines += [("", line) for line in _why_not(c)]
    agreed, compared = (c["collectives"].get("calls_" + name, 0) for name in ("agreement_only", "checked"))
    if agreed:
        lines.append(("", "of %s only that all ranks got the same, their arithmetic was not checked; %s in full" % (
            plural(agreed, "collective call"), plural(compared, "call"))))
    if c["unverified"]:
        lines.append(("", "UNVERIFIED: %s, of which the sender's record did not come%s" % (
            plural(c["unverified"], "received message"), owed(c))))
    elif c["drains"]["timeouts"]:
        lines.append(("", "%s ran out of time%s; all was verified later" % (
            plural(c["drains"]["timeouts"], "drain"), owed(c))))
    if c["deferred"]:
        lines.append(("", "%s checked after the receive had returned, although the mode is strict" % plural(
            c["deferred"], "message")))
    if c["not_connected"]:
        lines.append(("", "no channel between the ranks on %s: nothing could be compared there" % (
            "rank %s" % _few(c["not_connected"]))))
    if c["ranks_unknown"]:
        lines.append(("", "not known: coverage of rank %s, without a final report of the mode" % _few(
            c["ranks_unknown"])))
    return lines


def _why_not(c: dict, most: int = 6) -> list[str]:
    reasons = sorted(set(c["messages_uncovered"]) | set(c["bytes_uncovered"]),
                     key=lambda name: (-c["messages_uncovered"].get(name, 0), -c["bytes_uncovered"].get(name, 0)))
    lines = ["NOT checked: %s, %s: %s" % (plural(c["messages_uncovered"].get(name, 0), "message"),
                                          bytes_text(c["bytes_uncovered"].get(name, 0)),
                                          REASONS.get(name, name.replace("_", " "))) for name in reasons[:most]]
    rest = reasons[most:]
    if rest:
        lines.append("NOT checked: %s, %s for %s (--json lists them)" % (
            plural(sum(c["messages_uncovered"].get(n, 0) for n in rest), "message"),
            bytes_text(sum(c["bytes_uncovered"].get(n, 0) for n in rest)), plural(len(rest), "further reason")))
    if c["messages_unaccounted"] > 0:
        lines.append("NOT checked: %s without a stated reason" % plural(c["messages_unaccounted"], "message"))
    return lines


def rate_sentence(c: dict | None) -> str:
    """"13 of 9,000 checked messages differ (1 in 692)", with what to do when that is too many; "" without any."""
    if not c or not c["mismatches"]:
        return ""
    checked = c["messages_compared"]
    words = "%s of %s checked message%s %s (1 in %s)" % (
        integer(c["mismatches"]), integer(checked), "" if checked == 1 else "s",
        "differs" if c["mismatches"] == 1 else "differ", integer(checked // c["mismatches"]))
    if c["systemic"]:
        words += ": SYSTEMIC (more than 1 in 1,000): no stray bit but a fault of the machine or its communication " \
            "software. Stop, do not use the results, escalate to the facility with this report"
    return words
