# SPDX-License-Identifier: Apache-2.0
"""`scripts/resil html`: the report of a job as one file that a browser shows without a network. Reads what `report` reads, the
flight recorders of some ranks and the dumps; writes the file that --output names."""

from __future__ import annotations

import json
import os
import sys
import time

from . import balance, candidates, checksum, findings, fold, html_data, leftovers, output, place, recorded, reductions, runs, stacks, staging, verification, waits
from .html_parts import e, facts, graph, line_key, none, picture, section, table, tree
from .report import load
from .summary import merge
from .text import bytes_text, clean, integer, plural, ranges, ranks_word, seconds_text, significant

ASSETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets")
MOST_FINDINGS = 60
MOST_ROWS = 40
TONES = {"CLEAN": ("good", "✓"), "FINDINGS": ("bad", "✗"), "STANDING STILL": ("bad", "■"), "RUNNING": ("open", "▶"), "INCOMPLETE": ("open", "!")}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
TITLES = (("findings", "Findings"), ("hang", "Where the ranks are"), ("timeline", "Timeline"), ("time", "Time in MPI"), ("messages", "Traffic"),
          ("sizes-of-messages", "Message sizes"), ("coverage", "Coverage"), ("settings", "Configuration and versions"), ("files", "Files"))


def add_command(commands, job_help: str) -> None:
    parser = commands.add_parser(
        "html", help="the report as one file for a browser",
        description="Verdict, findings, timeline, traffic, time in MPI, stacks and settings in one self-contained file: no network is used.",
        epilog="exit status: 0 written, 2 usage error, 3 written, but files of the job cannot be used")
    parser.add_argument("job", nargs="?", metavar="JOB", help=job_help)
    parser.add_argument("--output", metavar="FILE", help="default report.html in the report directory; - is standard output")
    parser.add_argument("--json", action="store_true", help="what was written as JSON: file, bytes, verdict")
    parser.set_defaults(run=run)


def run(options) -> int:
    directory = load(options.job, may_collect=True)
    summary = merge(directory)
    page = build(directory, summary)
    path = options.output or os.path.join(directory.path, "report.html")
    if path == "-":
        sys.stdout.write(page)
    else:
        with output.whole(path) as file:
            file.write(page)
        size = len(page.encode("utf-8", "replace"))
        print(json.dumps({"file": os.path.abspath(path), "bytes": size, "verdict": summary["verdict"]}) if options.json else "%s (%s)" % (
            clean(path, 4096), bytes_text(size)))
    return 3 if directory.problems else 0


def asset(name: str) -> str:
    with open(os.path.join(ASSETS, name), encoding="utf-8") as file:
        return file.read()


def build(directory, s: dict) -> str:
    """The whole page of a job and its summary."""
    ranks = [directory.ranks[key] for key in sorted(directory.ranks)]
    named = {rank for finding in s["findings"] for rank in finding["culprit_ranks"][:64]}
    data = {"ranks": html_data.per_rank(ranks), "traffic": html_data.traffic(ranks), "time": html_data.over_time(directory, ranks, named),
            "statistics": html_data.statistics(directory)}
    bodies = {"findings": _findings(s), "hang": _hang(s, directory), "timeline": _timeline(data, s), "time": _time_in_mpi(s, data["ranks"]),
              "messages": _traffic(s, data["traffic"]), "sizes-of-messages": _sizes(s, data["time"]), "coverage": _coverage(s),
              "settings": _settings(s, ranks), "files": _files(s, directory)}
    program = os.path.basename(next(iter(s["executable"]), "")) or "a job"
    title = "%s: %s, %s" % (s["verdict"], program, os.path.basename(directory.path))
    numbers = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="%s">' % POLICY,
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>%s</title>' % e(title, 200),
        "<style>%s\n%s</style></head><body>" % (asset("uPlot.min.css"), asset("report.css")),
        '<a class="skip" href="#findings">Skip to the findings</a><header><h1>resil report of %s</h1>%s</header>' % (e(program, 80), _verdict(s)),
        '<nav aria-label="Sections"><ul>%s</ul></nav><main>' % "".join('<li><a href="#%s">%s</a></li>' % item for item in TITLES),
        *(section(name, words, bodies[name]) for name, words in TITLES),
        "<footer>Made by resil %s from %s on %s. Charts: uPlot, licence in the source of this page.</footer></main>" % (
            e(place.version(), 40), e(directory.path, 300), time.strftime("%Y-%m-%d %H:%M:%S")),
        '<script type="application/json" id="data">%s</script>' % numbers,
        "<script>/*\n%s\n*/\n%s</script>" % (asset("uPlot.LICENSE").strip(), asset("uPlot.iife.min.js")),
        "<script>%s</script></body></html>" % asset("report.js"), ""])


# -- sections ---------------------------------------------------------------------------------------------------------

def _verdict(s: dict) -> str:
    tone, sign = TONES[s["verdict"]]
    word = s["verdict"] + (" " + seconds_text(s["still_seconds"]) if s["verdict"] == "STANDING STILL" else "")
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(s["start_time"])) if s["start_time"] else ""
    lasted = seconds_text(s["seconds"]) + ("" if s["end_known"] else " to the last sign of life") if s["seconds"] is not None else ""
    to_do = next((finding["to_do"] for finding in s["findings"] if finding.get("to_do")), "")
    said = s["ending"]["accused"] if s["still_seconds"] is not None else ""
    first = "<p>%s</p>" % e(s["findings"][0]["message"]) if s["findings"] else "<p><b>Hang detection said last:</b> %s</p>" % e(said) if said else ""
    return '<div class="verdict %s"><strong><span aria-hidden="true">%s</span> %s</strong><p>%s</p>%s%s</div>%s' % (
        tone, sign, e(word), e(s["reason"]), first, "<p><b>To do:</b> %s</p>" % e(to_do) if to_do else "", facts([
            ("ranks", "%s of %s reported; %s" % (integer(s["ranks_reported"]), integer(s["ranks_expected"]), "; ".join(
                "%s: %s" % ("ended without MPI_Finalize" if state == "killed" else state, ranks[:120]) for state, ranks in s["outcomes"].items()))),
            ("no report of", s["missing_ranks"][:200]), ("hosts", "%s: %s" % (integer(len(s["hosts"])), fold.hosts(
                {host: len(waits.numbers(ranks)) for host, ranks in s["hosts"].items()}))), ("started", started), ("lasted", lasted),
            ("program", "; ".join(list(s["executable"])[:3])), ("MPI", "; ".join(list(s["mpi"])[:3])), ("modes", "; ".join(list(s["modes"])[:3]))]))


def _findings(s: dict) -> str:
    if not s["findings"]:
        said = "None%s." % (verification.scope(s["verify"]) if s["verify"] and not s["checksum"] else checksum.scope(s["checksum"]))
        return none(said)
    out = []
    for finding in s["findings"][:MOST_FINDINGS]:
        evidence = facts([(name, value) for name, value in findings.shown_evidence(finding)])
        who = ", ".join(filter(None, (
            "culprit: %s" % ranks_word(ranges(finding["culprit_ranks"], 12)) if finding["culprit_ranks"] else "",
            "peer (not accused): %s" % ranks_word(ranges(finding["peer_ranks"], 12)) if finding.get("peer_ranks") else "",
            "%s times" % integer(finding["count"]) if finding["count"] > 1 else "",
            "on %s" % " and ".join(dict.fromkeys(filter(None, finding["hosts"]))) if any(finding["hosts"]) else "",
            "follows from %s" % finding["follows"] if finding.get("follows") else "", finding["source"])))
        out.append('<article class="finding"><p><span class="kind">%s</span> <span class="badge">%s</span> %s</p><p>%s</p>%s%s</article>' % (
            e(finding["kind"] or "finding"), e(finding["confidence"] or "?"), e(who), e(finding["message"]),
            "<p><b>To do:</b> %s</p>" % e(finding["to_do"]) if finding.get("to_do") else "",
            "<details%s><summary>Evidence</summary>%s</details>" % ("" if out else " open", evidence) if finding["evidence"] else ""))
    extra = [findings.suspect_sentence(s["suspect_host"]), checksum.rate_sentence(s["checksum"]),
             "%s of which no details were kept." % plural(s["findings_dropped"], "more finding") if s["findings_dropped"] else "",
             "%s are in report --json only." % plural(len(s["findings"]) - MOST_FINDINGS, "more finding")
             if len(s["findings"]) > MOST_FINDINGS else "",
             "Data was damaged on purpose (RESIL_FAULT)." if s["faults_injected"] or s["fault_setting"] else ""]
    return "".join(out) + "".join("<p>%s</p>" % e(words) for words in extra if words)


def _hang(s: dict, directory) -> str:
    from .report import place_sentence  # pylint: disable=import-outside-toplevel
    out = []
    if s["places"]:
        out.append("<ul>%s</ul>" % "".join("<li>%s</li>" % e(place_sentence(where)) for where in s["places"][:MOST_ROWS]))
        if len(s["places"]) > MOST_ROWS:
            out.append(none("and %d more places in report --json" % (len(s["places"]) - MOST_ROWS)))
    else:
        out.append(none("All ranks came to their end." if "stopped" not in s["outcomes"] else
                        "resil ended the job: where the ranks were then, the findings say."))
    if s["ending"]["accused"] and s["still_seconds"] is not None and s["findings"]:  # else the verdict has it
        out.append("<p><b>Hang detection said last:</b> %s</p>" % e(s["ending"]["accused"]))
    for one in s["waits_for"][:4]:
        out.append("<h3>Who waits for whom (%s)</h3>%s<ul>%s</ul>" % (
            e(one["source"]), graph(one), "".join("<li>%s</li>" % e(" ".join(line.split())) for line in waits.lines(one)[:MOST_ROWS])))
    merged = stacks.tree(directory)
    if merged:
        out.append("<h3>Stacks of the main threads</h3><p>%s, the smallest groups first.</p>%s" % (
            "From the newest dump of %s" % plural(merged["dumps"], "rank"), tree(merged)))
    elif s["stacks"] and s["stacks"]["tree"]:
        out.append("<h3>Stacks</h3><p>%s, by the helper threads with %s; ranks where stacks part.</p><pre>%s</pre>" % (
            "Of the accused ranks" if s["stacks"]["accused_only"] else "Of all ranks", e(s["stacks"]["of"]), "\n".join(map(e, s["stacks"]["tree"]))))
    else:
        out.append(none("No stacks: no rank has written a dump (resil dump)."))
    return "".join(out)


def _timeline(data: dict, s: dict) -> str:
    t, out = data["time"], []
    if t:
        part = "" if t["of"] == t["ranks"] else " of %s of %s ranks" % (integer(t["of"]), integer(t["ranks"]))
        last = next((value for value in reversed(t["outside"]) if value is not None), None)
        out.append("<h3>Ranks outside MPI</h3>" + picture("outside", "From the flight recorders%s, their last calls, %s: the share of ranks that are outside MPI%s" % (
            part, seconds_text(t["width"] * html_data.BINS), "" if last is None else "; %.0f %% at the end" % last)))
        if t["progress"]:
            what = "step" if t["steps"] else "collective on MPI_COMM_WORLD (the program names no steps)"
            keys = line_key("#d9690f", False, "last rank") + line_key("#2f7fc1", True, "first rank")
            out.append("<h3>Progress</h3>" + picture("progress", "The %s that the first and the last rank have reached" % what, keys))
    else:
        out.append(none("No flight recorder of this job is here: nothing is known over time."))
    if data["statistics"]:
        out.append("<h3>S_out as hang detection saw it</h3>" + picture("s-out", "Share of ranks outside MPI at each look, from hang-trace.txt"))
    else:
        out.append(none("S_out as hang detection saw it is recorded with RESIL_LOG=debug only."))
    return "".join(out)


def _time_in_mpi(s: dict, r: dict) -> str:
    known = sorted((share, i) for i, share in enumerate(r["share"]) if share is not None)
    out = []
    if known:
        low, middle, high = known[0], known[len(known) // 2], known[-1]
        out.append(picture("rank-times", "Time in MPI of each rank: least %.1f %% (rank %d), middle %.1f %%, most %.1f %% (rank %d). Who is least in MPI "
                           "lets the others wait%s" % (low[0], r["rank"][low[1]], middle[0], high[0], r["rank"][high[1]],
                                                      "" if len(r["rank"]) <= 64 else "; circled: far below the others")))
        ends = known[:8] + known[max(8, len(known) - 4):]
        out.append(table("Ranks with the least and the most time in MPI", ["rank", "host", "in MPI", "seconds in MPI", "duration"], [
            [r["rank"][i], r["hosts"][r["host"][i]], "%.1f %%" % share, significant(r["mpi"][i]), significant(r["seconds"][i]) + " s"] for share, i in ends], {2, 3, 4}))
    else:
        out.append(none("No rank reports calls and a duration."))
    if balance.sentence(s["balance"]):
        out.append("<p>Time %s.</p>" % e(balance.sentence(s["balance"])))
    out.append('<p class="finder"><label>Look up a rank: <input id="which" inputmode="numeric" autocomplete="off"></label> <span id="told" '
               'aria-live="polite"></span></p>')
    if s["calls"]:
        out.append(table("Calls by function, the longest first", ["function", "count", "bytes", "seconds", "least a rank", "mean", "most", "on rank"], [
            [call["name"], integer(call["count"]), bytes_text(call["bytes"]), *(significant(call[name]) for name in ("seconds", "min", "mean", "max")),
             call["max_rank"]] for call in s["calls"][:MOST_ROWS]], {1, 2, 3, 4, 5, 6, 7}))
    return "".join(out)


def _traffic(s: dict, t: dict | None) -> str:
    if not t:
        return none("The ranks' reports name no point-to-point traffic.")
    m = s["messages"]
    what = "ranks" if t["group"] == 1 else "groups of %d ranks" % t["group"]
    sums = [cell[2] for cell in t["cells"] if cell[2]]
    keys = '<p><span class="key">%s <span class="ramp"></span> %s (logarithmic; empty: none)</span></p>' % (
        bytes_text(min(sums)), bytes_text(max(sums))) if sums and min(sums) < max(sums) else ""
    out = [picture("traffic", "Point-to-point bytes between %s, senders down, receivers across: %s in %s messages" % (
        what, bytes_text(m["sent_bytes"]), integer(m["sent"])), keys)]
    out.append(table("Busiest pairs", ["from rank", "to rank", "messages", "bytes"], [
        [pair["from"], pair["to"], integer(pair["messages"]), bytes_text(pair["bytes"])] for pair in t["pairs"]], {0, 1, 2, 3}))
    out = ['<div class="beside">%s</div>' % "".join(out)]
    if t["elsewhere"]:
        out.append("<p>%s more went to ranks beyond the reports' tables.</p>" % e(bytes_text(t["elsewhere"])))
    return "".join(out)


def _sizes(s: dict, t: dict | None) -> str:
    out = []
    if t and t["sizes"]:
        out.append(picture("sizes", "Calls by size, from the last records of %s" % plural(t["of"], "rank")))
    else:
        out.append(none("The flight recorders that are here hold no call with data." if t else
                        "No flight recorder is here: single sizes are not known, only the means below."))
    rows = [[call["name"], integer(call["count"]), bytes_text(call["bytes"] / call["count"])] for call in s["calls"] if call["bytes"] and call["count"]]
    if rows:
        out.append(table("Mean size by function, over the whole run", ["function", "count", "mean bytes"], rows[:MOST_ROWS], {1, 2}))
    return "".join(out)


def _coverage(s: dict) -> str:
    pairs = list(checksum.sentences(s["checksum"])[:20]) if s["checksum"] else []
    if not s["checksum"] and not s["verify"]:
        pairs.append(("contents", "not checked (mode checksum is off)"))
    for name, member, module in (("verify", "verify", verification), ("recorded", "record", recorded), ("reductions", "reductions", reductions),
                                 ("devices", "staging", staging)):
        if s[member]:
            pairs.append((name, module.sentence(s[member])))
    pairs.append(("any source", candidates.sentence(s["any_source"])))
    pairs += [("left over", line) for line in leftovers.lines(s["leftovers"])] if s["leftovers"] else []
    pairs += [("not seen", "%s %s" % (integer(count), name.replace("_", " "))) for name, count in s["uncovered"].items()]
    pairs += [("note", note["text"] + (" (%s)" % ranks_word(note["ranks"][:80]) if note["ranks"] else "")) for note in s["notes"][:MOST_ROWS]]
    return "<dl>%s</dl>" % "".join("<dt>%s</dt><dd>%s</dd>" % (e(name or "…"), e(value)) for name, value in pairs if value)


def _settings(s: dict, ranks) -> str:
    versions = [(name, "%s (ranks %s)" % (value, those[:120]) if len(s[member]) > 1 else value)
                for name, member in (("resil", "resil_version"), ("MPI", "mpi"), ("modes", "modes"), ("program", "executable"))
                for value, those in list(s[member].items())[:8]]
    out = [facts(versions), facts([("overhead, by estimate", "%s at most on a rank" % seconds_text(s["overhead_seconds"]))])]
    config = html_data.settings(ranks)
    out.append("<details><summary>%s</summary>%s</details>" % (plural(len(config), "setting"), table(
        "Settings of the first rank that reports; a job with different ones does not start", ["variable", "value"], [list(one) for one in config]))
        if config else none("No report holds the settings."))
    rows = [[host, ranks_of[:80]] for host, ranks_of in list(s["hosts"].items())[:256]]
    out.append("<details><summary>%s</summary>%s</details>" % (plural(len(s["hosts"]), "host"), table("Ranks by host", ["host", "ranks"], rows)))
    return "".join(out)


def _files(s: dict, directory) -> str:
    top = directory.path
    pairs = [("directory", top), ("reports", integer(s["ranks_reported"])), ("flight recorders", integer(len(directory.rings))),
             ("dumps", integer(len(s["dumps"])))]
    out = [facts(pairs)]
    for title, files in (("Files that cannot be used", s["unreadable"]), ("Files of another run", s["other_runs"])):
        if files:
            out.append(table(title, ["file", "why"], [[os.path.relpath(one["path"], top), one["message"]] for one in files[:MOST_ROWS]]))
            if len(files) > MOST_ROWS:
                out.append(none("and %s" % plural(len(files) - MOST_ROWS, "more file")))
    if directory.launches:
        out.append("<h3>Other runs here</h3><ul>%s</ul>" % "".join("<li>%s</li>" % e(runs.line(one, top)) for one in directory.launches[:20]))
    return "".join(out)
