# SPDX-License-Identifier: Apache-2.0
"""`scripts/resil report`: one screen about one job. Reads the report directory and this node's rings."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time

from . import balance, candidates, checksum, findings, fold, leftovers, nagios, recorded, reductions, staging, verification, waits
from . import job as jobs
from . import place as shown
from . import records, runs, values
from .attach import attach
from .job import Usage
from .summary import merge, rank_objects, scope
from .text import WIDTH, bytes_text, clean, clip, colour, integer, plural, ranks_word, seconds_text, significant, wrap
from .wording import polls

LINES = 40
TOP_CALLS = 8
LABEL = 11  # width of the left column

COLOURS = {"CLEAN": "32", "FINDINGS": "1;31", "INCOMPLETE": "33", "RUNNING": "36", "STANDING STILL": "1;33"}


def load(word: str | None, may_collect: bool = True) -> records.Directory:
    """The report directory that JOB means, joined with the rings. Raises Usage."""
    job = choose(word)
    if not job.directory:
        raise Usage("the ranks of this job write no reports (RESIL_DIR could not be written)")
    try:
        directory = records.read_directory(job.directory)
    except OSError as error:
        raise Usage("%s cannot be listed: %s" % (clean(job.directory), error.strerror)) from None
    directory.launches = runs.others(job.directory)
    attach(directory, job.rings, may_collect)
    if directory.empty():
        inner = runs.within(job.directory)
        raise Usage("%s holds no reports of resil%s" % (clean(job.directory), "; these directories in it do: %s%s" % (
            ", ".join(clean(name, 120) for name in inner[:8]), ", … (%d in all)" % len(inner) if len(inner) > 8 else "") if inner else ""))
    return directory


def choose(word: str | None) -> jobs.Job:
    """Like job.resolve. Without a word: the job that reports to the current directory, else the newest reports there, else the only job
    on this node. A choice among several is told."""
    if word is not None:
        job = jobs.resolve(word)
        found = runs.find(word) if os.path.isdir(word) and not os.path.exists(os.path.join(word, "launch.json")) else []
        if len(found) > 1 and found[0].path == os.path.abspath(job.directory):
            sys.stderr.write("resil: %s: the newest of %d reports in %s; name another one to see it\n" % (
                clean(os.path.relpath(found[0].path, word), 120), len(found), clean(word, 120)))
        return job
    running = [job for job in jobs.group(jobs.scan()) if any(ring.alive for ring in job.rings)]
    here = jobs.reporting_here(running)
    if len(here) == 1:
        return here[0]
    found = [] if here else runs.find(".")
    if found:
        others = (["the newest of %d reports here" % len(found)] if len(found) > 1 else []) + (
            ["%s of yours running on this node not among them" % plural(len(running), "job")] if running else [])
        if others:
            sys.stderr.write("resil: %s: %s; name another one to see it\n" % (clean(os.path.relpath(found[0].path), 120), ", ".join(others)))
        return jobs.Job(found[0].path, jobs.in_directory(found[0].path, jobs.scan()))
    try:
        return jobs.resolve(None)
    except Usage as error:
        if "several" in str(error):
            raise
    raise Usage("no job of yours runs on this node, and there is no resil-* directory here: name a report directory")


def run(word: str | None, as_json: bool, exclude: bool = False, as_plugin: bool = False) -> int:
    if as_plugin:
        return nagios.guarded(lambda: nagios.of_job(merge(load(word))))
    directory = load(word)
    summary = merge(directory)
    if exclude:
        print(",".join(findings.to_exclude(summary["findings"], summary["suspect_host"])))
    elif as_json:
        json.dump(dict(summary, ranks=rank_objects(directory)), sys.stdout, indent=1)
        print()
    else:
        print("\n".join(render(summary)))
    return summary["exit_code"]


def row(label: str, text: str, lines: int = 1) -> list[str]:
    return wrap(text, label.ljust(LABEL), " " * LABEL, lines=lines)


def render(summary: dict) -> list[str]:
    """At most LINES lines of at most WIDTH columns: the sections below, the longer ones cut to what is left."""
    verdict, head = _verdict(summary), _head(summary)
    tail = _coverage(summary) + _files(summary) + _next(summary)
    places = _places(summary, 6 if not summary["findings"] else 3 if len(summary["places"]) == 3 else 2)
    room = LINES - len(verdict) - len(head) - len(tail) - len(places)
    told = _stacks(summary, 7)
    found = _findings(summary, max(4, min(20, room - 3 - len(told))))
    graph = _graph(summary, min(4, room - len(found) - len(told) - 3)) + told
    accused = _accused(summary) if room - len(found) - len(graph) > 5 else []
    calls = _calls(summary, min(TOP_CALLS, room - len(found) - len(graph) - len(accused) - 3))
    lines = verdict + (found + graph + head if summary["findings"] else head + places + accused + graph + found)
    lines += (places if summary["findings"] else []) + calls + tail
    return lines[:LINES - 1] + lines[-1:] if len(lines) > LINES else lines


def _variant(values: dict[str, str]) -> str:
    if len(values) <= 1:
        return "".join(values)
    return "; ".join("%s (ranks %s)" % (value, ranks) for value, ranks in list(values.items())[:3])


def _verdict(s: dict) -> list[str]:
    word = s["verdict"]
    if word == "STANDING STILL":
        word += " " + seconds_text(s["still_seconds"])
    verdict = wrap(s["reason"], word + ": ", "  ", lines=3)
    verdict[0] = verdict[0].replace(word, colour(word, COLOURS[s["verdict"]]), 1)
    return verdict


def _head(s: dict) -> list[str]:
    program = _variant({os.path.basename(name): ranks for name, ranks in s["executable"].items()}) or "?"
    if re.match(r"python|perl|julia", program) and s["program"] and not program.startswith(s["program"]):
        program = "%s (%s)" % (s["program"], program)
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(s["start_time"])) if s["start_time"] else "?"
    if len(s["hosts"]) <= 4:
        hosts = ", ".join("%s (rank%s %s)" % (host, "s" if set(ranks) & set(",-") else "", ranks) for host, ranks in s["hosts"].items())
    else:
        hosts = fold.hosts({host: len(waits.numbers(ranks)) for host, ranks in s["hosts"].items()})
    lines = row("reports", s["directory"])
    lines += row("program", "%s, modes %s, resil %s" % (program, _variant(s["modes"]) or "?",
                                                         _variant(s["resil_version"]) or "?"))
    lines += row("mpi", _variant(s["mpi"]) or "?")
    lines += row("hosts", "%d: %s" % (len(s["hosts"]), hosts))
    lines += row("time", "started %s, %s%s" % (started, _duration(s), _overhead(s)), 2)
    lines += row("ranks", _outcomes(s), 2)
    return lines


def _duration(s: dict) -> str:
    """Of the job, not that of the last record."""
    if s["seconds"] is None:
        return "duration not known"
    lasted = seconds_text(s["seconds"])
    if "running" in s["outcomes"]:
        return "%s ago" % lasted
    return "took %s" % lasted if s["end_known"] else "last sign of life after %s" % lasted


def _overhead(s: dict) -> str:
    """Of the rank that it cost most: what the library measured of itself (docs/REPORT.md)."""
    share = s["overhead_share"]
    return "" if share is None else "; set-up and recorder %.2g %% of it at most (estimate)" % (100 * share)


def _outcomes(s: dict) -> str:
    names = {"killed": "ended without MPI_Finalize", "unknown": "not known", "running": "running"}
    words = []
    for state in ("finished", "running", "killed", "aborted", "stopped", "unknown"):
        if state in s["outcomes"]:
            extra = ""
            if state == "stopped" and s["stopped"]:
                extra = " by resil with status %s" % ",".join(map(str, s["stopped"]))
            if state == "aborted" and s["error_codes"]:
                extra = " with error code %s" % ",".join(map(str, s["error_codes"][:4]))
            words.append("%s%s: %s" % (names.get(state, state), extra, _cut(s["outcomes"][state])))
    if s["missing_ranks"]:
        words.append("no report: %s" % _cut(s["missing_ranks"]))
    return "%s; " % plural(s["ranks_reported"], "report") + "; ".join(words)


def _cut(ranks: str, limit: int = 48) -> str:
    return ranks if len(ranks) <= limit else ranks[:limit].rsplit(",", 1)[0] + ",…"


def place_sentence(place: dict, now: float | None = None) -> str:
    """"rank 2 was killed in MPI_Allreduce #17 on MPI_COMM_WORLD, called at …"."""
    now = time.time() if now is None else now
    many, name = place["count"] > 1, clip(place["name"], 40)
    at = ", called at %s" % place["site"] if place["site"] and place["call"] else ""
    age = " for %s" % seconds_text(max(0.0, now - place["since"])) if place["since"] else ""
    if place["state"] == "aborted":
        return "%s aborted in %s%s" % (name, place["call"], at)
    if place.get("exit_in_init") is not None and place["state"] == "killed":
        return "%s exited with status %d within MPI_Init" % (name, place["exit_in_init"])
    if place["state"] == "killed" and not place["from_ring"] and place.get("owner"):
        return "%s %s gone; the ring belongs to %s, who may read it" % (name, "are" if many else "is", place["owner"])
    if place["state"] == "killed":
        if place["inside_mpi"] and place["phase"] == "starting" and not place.get("ended_by") \
                and place.get("end", "killed") == "killed":
            return "%s ended within MPI_Init (exited, or %s killed)" % (name, "were" if many else "was")
        if not place["from_ring"]:
            return "%s %s gone, and left no ring: the last call is not known" % (name, "are" if many else "is")
        if place["inside_mpi"]:
            return "%s %s %s in %s%s" % (name, "were" if many else "was", place.get("end", "killed"),
                                         place["call"] or "MPI", at)
        last = ", last call %s%s" % (place["call"], at) if place["call"] else ", before any MPI call"
        if place.get("ended_by"):
            return "%s %s ended by %s outside MPI%s" % (name, "were" if many else "was", place["ended_by"], last)
        if place.get("end") == "killed by the out-of-memory killer":
            return "%s %s killed by the out-of-memory killer outside MPI%s" % (name, "were" if many else "was", last)
        return "%s ended outside MPI (killed, or left without MPI_Finalize)%s" % (name, last)
    if not place["from_ring"] and place.get("owner"):
        return "%s belong%s to %s: no live numbers for another user" % (name, "" if many else "s", place["owner"])
    if not place["from_ring"]:
        return "%s run%s, with the ring in private memory: no live numbers" % (name, "" if many else "s")
    if place["inside_mpi"]:
        doing = "%s with" % ("poll" if many else "polls") if polls(place["call"].split(" ")[0]) else "%s in" % ("are" if many else "is")
        return "%s %s %s%s%s" % (name, doing, place["call"] or "MPI", age, at)
    last = "; last call %s%s" % (place["call"], at) if place["call"] else "; no MPI call yet"
    return "%s %s outside MPI%s%s" % (name, "are" if many else "is", age, last)


def _places(s: dict, most: int) -> list[str]:
    places, lines = s["places"], []
    for i, place in enumerate(places[:most]):
        lines += row("where" if i == 0 else "", place_sentence(place), 2 if len(places) <= 5 else 1)
    if len(places) > most:
        lines += row("", "and %s in %s (--json lists them)" % (
            plural(sum(p["count"] for p in places[most:]), "rank"), plural(len(places) - most, "other place")))
    return lines


def _accused(s: dict) -> list[str]:
    """What hang detection said last of a job that stands still or was ended so."""
    if s["still_seconds"] is None or not s["ending"]["accused"]:
        return []
    return row("hang log", s["ending"]["accused"], 3)


def _findings(s: dict, most: int) -> list[str]:
    """The findings on at most about `most` lines: the evidence of the first one where there is room."""
    after = []
    suspicion, rate = findings.suspect_sentence(s["suspect_host"]), checksum.rate_sentence(s["checksum"])
    if suspicion:
        after += row("suspect", suspicion, 2)
    if rate:
        after += row("rate", rate, 3)
    if s["findings_dropped"]:
        after += row("", "and %s of which no details were kept" % plural(s["findings_dropped"], "more finding"))
    if s["faults_injected"] or s["fault_setting"]:
        # A rank that is killed takes its count with it: the setting is known all the same.
        made = ", ".join("%s %s" % (integer(count), name) for name, count in s["faults_injected"].items())
        after += row("faults", "made on purpose: %s%s" % (made or "no rank that wrote a final report made one", "".join(
            "; RESIL_FAULT=%s" % clip(setting, 60) for setting in s["fault_setting"])), 2)
    found = s["findings"]
    if not found:
        lost = [os.path.basename(file["path"]) for file in s["unreadable"] if os.path.basename(file["path"]).startswith("hang-")]
        return row("findings", "none%s%s" % (" that can be read: %s cannot" % ", ".join(map(clean, lost[:3])) if lost else "", scope(s))) + after
    lines, room = [], max(2, most - len(after))
    lines += _story(findings.sentence(found[0]))  # the most certain and most frequent one in full
    if found[0].get("to_do"):
        lines += row("to do", found[0]["to_do"], 4)
    per = 1 if len(found) > (room - len(lines)) // 2 else 2
    shown = found[:1 + max(0, room - len(lines)) // per]
    spare = room - len(lines) - per * (len(shown) - 1)
    width = min(28, max([len(name) for name in found[0]["evidence"]] or [0]))
    for name, value in findings.shown_evidence(found[0]):
        more = wrap(value, " " * (LABEL + 2) + clip(name, 28).ljust(width) + "  ", " " * (LABEL + 4 + width), lines=2)
        if len(more) <= spare:
            lines, spare = lines + more, spare - len(more)
    for group in shown[1:]:
        lines += row("", findings.sentence(group), per)
    if len(found) > len(shown):
        lines += row("", "and %d more (--json lists them)" % (len(found) - len(shown)))
    return lines + after


def _story(said: str) -> list[str]:
    """Long ones a sentence a line."""
    parts = re.split(r"(?<=[a-z\d)]\.) (?=[A-Z])", said) if len(said) > 2 * WIDTH else [said]
    lines: list[str] = []
    for i, part in enumerate(parts[:8]):
        lines += row("findings" if i == 0 else "", part, 7 if len(parts) == 1 else 5)
    return lines if len(lines) <= 10 else lines[:9] + [clip(lines[9] + " …")]


def _graph(s: dict, most: int) -> list[str]:
    """Who waits for whom, of the first hang."""
    if not s["waits_for"] or most < 2:
        return []
    told = [line.strip() for line in waits.lines(s["waits_for"][0])]
    lines: list[str] = []
    for i, line in enumerate(told[:most if len(told) <= most else most - 1]):
        lines += row("waits" if i == 0 else "", re.sub(r" {2,}", " ", line), 1)
    if len(told) > most:
        lines += row("", "and %d more: %s graph %s" % (len(told) - most + 1, tool_command(), shlex.quote(s["directory"])))
    return lines


def _stacks(s: dict, most: int) -> list[str]:
    """Where the accused ranks' threads are, as far as the helper threads have gathered it."""
    stacks = s["stacks"]
    if not stacks or most < 2:
        return []
    path = os.path.join(s["directory"], stacks["of"] if re.match(r"(hang|why)-\d+\.json$", stacks["of"]) else stacks["file"])
    lines = row("stacks", "%s of %s%s: %s show %s" % (plural(stacks["threads"], "thread"), plural(stacks["ranks"], "rank"), "; of the accused" if stacks["accused_only"]
                                                     else "", tool_command(), shlex.quote(path)), 2)
    if stacks["unread"]:
        lines += row("", "%s not read: waiting for a CPU meanwhile, or the kernel refused" % plural(stacks["unread"], "thread"), 1)
    for line in stacks["tree"][:max(0, min(12, most - len(lines)))]:
        lines.append(" " * LABEL + clip(line, WIDTH - LABEL))
    for line in stacks["abnormal"][:max(0, min(2, most - len(lines)))]:
        lines += row("", line, 1)
    return lines


def _calls(s: dict, most: int) -> list[str]:
    if not s["calls"]:
        return row("calls", "none recorded")
    share = "" if s["mpi_share"] is None else "; %.1f %% of the ranks' time is in MPI" % (100 * s["mpi_share"])
    lines = row("calls", "%s by %s%s" % (
        plural(sum(c["count"] for c in s["calls"]), "call"), plural(len(s["calls"]), "function"), share))
    wide = WIDTH >= 96  # on 80 columns without the least
    columns = [(name, said) for name, said in (("seconds", "seconds"), ("min", "min/rank"), ("mean", "mean"), ("max", "max")) if wide or name != "min"]
    room = 24 if wide else 19
    if most > 0:
        lines.append("  %s %12s %10s %s  %s" % ("function".ljust(room), "count", "bytes", " ".join("%9s" % said for _, said in columns), "on"))
    for call in s["calls"][:max(0, most)]:
        lines.append(clip("  %s %12s %10s %s  %s" % (clip(call["name"], room).ljust(room), integer(call["count"]), bytes_text(call["bytes"]), " ".join(
            "%9s" % significant(call[name]) for name, _ in columns), call["max_rank"])))
    if balance.sentence(s["balance"]):
        lines += row("balance", balance.sentence(s["balance"]), 3)
    m = s["messages"]
    if m["sent"] or m["received"]:
        pair = m["busiest_pair"]
        busiest = "; most from %s to %s: %s, %s" % (
            pair["from"], pair["to"], integer(pair["messages"]), bytes_text(pair["bytes"])) if pair else ""
        lines += row("messages", "sent %s, %s; received %s, %s%s" % (
            integer(m["sent"]), bytes_text(m["sent_bytes"]), integer(m["received"]), bytes_text(m["received_bytes"]),
            busiest), 2)
    return lines


def _coverage(s: dict) -> list[str]:
    lines = []
    if s["checksum"]:
        for label, text in checksum.sentences(s["checksum"])[:10]:
            lines += row(label, text, 2)
    elif s["ranks_reported"] and not s["verify"]:
        lines += row("coverage", "message contents were not checked (mode checksum is off)")
    if s["verify"]:
        lines += row("verify", verification.sentence(s["verify"]), 3)
        if verification.advice(s["verify"]):
            lines += row("may ignore", verification.advice(s["verify"]), 8)
    if s["record"]:
        lines += row("recorded", recorded.sentence(s["record"]), 3)
    if s["reductions"]:
        lines += row("reductions", reductions.sentence(s["reductions"]), 3)
    if s["staging"]:
        lines += row("devices", staging.sentence(s["staging"]), 3)
    if candidates.sentence(s["any_source"]):
        lines += row("any source", candidates.sentence(s["any_source"]), 2)
    if s["leftovers"]:
        for i, text in enumerate(leftovers.lines(s["leftovers"])):
            lines += row("left over" if i == 0 else "", text, 3 if i == 0 else 1)
    if s["uncovered"]:
        reasons = sorted(s["uncovered"].items(), key=lambda item: -item[1])
        text = "not seen: " + ", ".join("%s %s" % (integer(count), name.replace("_", " "))
                                           for name, count in reasons[:6]) + (", …" if len(reasons) > 6 else "")
        lines += row("" if lines else "coverage", text, 2)
    for i, note in enumerate(s["notes"][:3]):
        lines += row("notes" if i == 0 else "", note["text"] + (" (%s)" % ranks_word(_cut(note["ranks"])) if note["ranks"]
                                                                else ""), 3)
    if len(s["notes"]) > 3:
        lines += row("", "and %s (--json lists them)" % plural(len(s["notes"]) - 3, "more note"))
    return lines


def _files(s: dict) -> list[str]:
    lines = []
    for i, run in enumerate(s["launches"][:2]):
        lines += row("other runs" if i == 0 else "", run["line"])
    if len(s["launches"]) > 2:
        lines += row("", "and %s" % plural(len(s["launches"]) - 2, "older run"))
    for label, files, most in (("unusable", s["unreadable"], 3), ("not ours", s["other_runs"], 2)):
        for i, file in enumerate(files[:most]):
            name = os.path.relpath(file["path"], s["directory"])
            lines += row(label if i == 0 else "", "%s: %s" % (clean(name, 60), file["message"]))
        if len(files) > most:
            lines += row("", "and %s" % plural(len(files) - most, "more file"))
    if s["from_ring"]:
        lines += row("from rings", "calls of %s" % ranks_word(_cut(s["from_ring"])))
    if s["dumps"]:
        names = [clean(os.path.relpath(path, s["directory"]), 60) for path in s["dumps"]]
        lines += row("dumps", "%d: %s%s" % (len(names), ", ".join(names[:3]), ", …" if len(names) > 3 else ""))
    return lines


def next_command(s: dict) -> tuple[str, str]:
    """What to type next, and why. The command is never cut."""
    tool, place = tool_command(), shlex.quote(s["directory"])
    if "running" in s["outcomes"]:
        return "%s dump %s" % (tool, place), "what each rank is doing right now"
    if "unknown" in s["outcomes"]:
        return "%s report %s" % (tool, place), "on those ranks' hosts: collects their rings"
    if s["findings"]:
        path = os.path.join(s["directory"], s["findings"][0]["source"])
        if re.match(r"hang-\d+\.json$", os.path.basename(path)) and os.path.exists(path):
            return "%s show %s" % (tool, shlex.quote(path)), ""
    if s["dumps"]:
        return "%s show %s" % (tool, shlex.quote(_telling(s))), ""
    return "%s html %s" % (tool, place), "the same with pictures, for a browser"


def _telling(s: dict) -> str:
    """The dump to look at first: the newest one of a rank that the others wait for, else of the rank in the oddest place."""
    wanted = [rank for those in [s["ending"]["outside_mpi"]] + [place["ranks"] for place in s["places"]] for rank in sorted(waits.numbers(those))[:4]]
    for rank in wanted:
        found = [path for path in s["dumps"] if re.search(r"/dump-0*%d-\d+\.txt$" % rank, path)]
        if found:
            return max(found, key=lambda path: int(re.search(r"-(\d+)\.txt$", path).group(1)))
    return s["dumps"][-1]


def tool_command() -> str:
    """How the user called this tool."""
    return clean(shown.command(), 200)


def _next(s: dict) -> list[str]:
    command, why = next_command(s)
    line = "next".ljust(LABEL) + clean(command, 8192)
    return [line + "   # " + why if why and len(line) + len(why) + 5 <= WIDTH else line]
