# SPDX-License-Identifier: Apache-2.0
"""`scripts/resil export`: what a job left, for other programs: a trace, findings as JSON Lines, Prometheus text, a table a rank. Reads
report directories and recordings; writes standard output or the file that --output names."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import sys

from . import otf2_trace, output, progress, trace, waits
from .job import Usage
from .report import load
from .summary import merge, rank_objects
from .text import clean, plural

FORMULA = "=+-@\t\r"  # what a spreadsheet would calculate

COLUMNS = ("directory", "launch", "program", "world", "rank", "host", "pid", "state", "exit_status", "seconds", "mpi_seconds", "calls",
           "sent_messages", "sent_bytes", "received_messages", "received_bytes", "messages_checked", "mismatches", "findings")

METRICS = {  # name: (type, help)
    "resil_job_info": ("gauge", "1 for each job; verdict, program, MPI and version as labels."),
    "resil_job_exit_code": ("gauge", "Exit status of resil report: 0 clean, 1 findings, 3 incomplete."),
    "resil_job_seconds": ("gauge", "Duration of the job."),
    "resil_job_start_time_seconds": ("gauge", "Start of the job since 1970."),
    "resil_job_still_seconds": ("gauge", "Seconds for which no rank had entered or left an MPI call at the end, or now."),
    "resil_job_ranks": ("gauge", "Ranks by state."),
    "resil_job_findings": ("gauge", "Findings by kind and confidence."),
    "resil_job_mpi_share": ("gauge", "Part of the ranks' time in MPI."),
    "resil_job_messages_checked": ("gauge", "Messages whose contents were compared."),
    "resil_job_messages": ("gauge", "Messages that there were to check."),
    "resil_job_mismatches": ("gauge", "Messages that differ."),
    "resil_job_unusable_files": ("gauge", "Files of the job that cannot be used."),
}


def add_command(commands, job_help: str) -> None:
    parser = commands.add_parser(
        "export", help="a trace for Perfetto or in OTF2, findings as JSON Lines, Prometheus text, CSV",
        description="Flight recorders or a recording as Chrome/Perfetto trace events; what the report says for monitoring and tables.",
        epilog="exit status: 0 written, 2 usage error, 3 written, but something of the job cannot be used")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--perfetto", action="store_true", help="the last calls of every rank and thread; JOB may be a recording, too")
    what.add_argument("--otf2", metavar="DIR", help="the same as an OTF2 archive, for Vampir and others; DIR is made; needs python3-otf2")
    what.add_argument("--jsonl", action="store_true", help="one finding a line")
    what.add_argument("--prometheus", action="store_true", help="text format, for node_exporter's textfile collector")
    what.add_argument("--csv", action="store_true", help="a line a rank")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=job_help)
    parser.add_argument("--output", metavar="FILE", help="default standard output")
    parser.add_argument("--ranks", metavar="LIST", help="of a trace: these ranks only, e.g. 0-3,17")
    parser.add_argument("--last", type=float, metavar="SECONDS", help="of a trace: the last seconds only")
    parser.set_defaults(run=run)


def run(options) -> int:
    wanted = None
    if options.ranks is not None:
        wanted = waits.numbers(options.ranks)
        if not wanted:
            raise Usage("--ranks %s names no rank" % clean(options.ranks, 60))
    traced = options.perfetto or options.otf2
    if traced and len(options.jobs) > 1:
        raise Usage("a trace is of one job")
    jobs = options.jobs or [None]
    if traced and jobs[0] and _is_recording(jobs[0]):
        return _trace(options, lambda out: trace.of_recording(jobs[0], out, wanted))
    directories = [load(job, may_collect=False) for job in jobs]
    if traced:
        ranks = [rank for key, rank in sorted(directories[0].ranks.items()) if wanted is None or key[1] in wanted]
        return _trace(options, lambda out: trace.of_rings(directories[0], ranks, out, options.last))
    if options.jsonl:
        return _write(options.output, lambda file: _findings(directories, file))
    return _write(options.output, lambda file: (_prometheus if options.prometheus else _csv)(directories, file))


def _trace(options, make) -> int:
    if not options.otf2:
        return _write(options.output, lambda file: _told(make(trace.Writer(file)), "a Perfetto or Chrome trace viewer"))
    if options.output:
        raise Usage("--otf2 names the directory to write: no --output")
    out = otf2_trace.Writer(options.otf2)
    try:
        done = make(out)
    except BaseException:
        out.abandon()
        raise
    return _told(done, "a viewer of OTF2: %s" % clean(os.path.join(options.otf2, "traces.otf2")))


def _is_recording(place: str) -> bool:
    try:
        return os.path.exists(os.path.join(place, "recording.json")) or any(name.endswith(".rec") for name in os.listdir(place))
    except OSError:
        return False


def _write(path: str | None, make) -> int:
    """A file is there as a whole or not at all: monitoring reads it while it is written."""
    if not path or path == "-":
        with progress.silent() if sys.stdout.isatty() else contextlib.nullcontext():
            return make(sys.stdout)
    with output.whole(path) as file:
        return make(file)


def _told(done: dict, viewer: str) -> int:
    for problem in done["problems"][:5]:
        sys.stderr.write("resil: %s\n" % problem)
    if len(done["problems"]) > 5:
        sys.stderr.write("resil: and %d more\n" % (len(done["problems"]) - 5))
    if not done["ranks"]:
        sys.stderr.write("resil: nothing to draw: a clean run keeps no flight recorders; resil run --set files=rings keeps them\n")
        return 3
    sys.stderr.write("resil: %s of %s; open it in %s\n" % (plural(done["events"], "event"), plural(done["ranks"], "rank"), viewer))
    return 3 if done["problems"] else 0


def _launch(directory) -> str:
    return next((rank.launch for rank in directory.ranks.values() if rank.launch), "")


def _findings(directories, file) -> int:
    status = 0
    for directory in directories:
        summary = merge(directory)
        status = 3 if summary["unreadable"] else status
        job = {"schema_version": 1, "directory": directory.path, "launch": _launch(directory),
               "program": next(iter(summary["executable"]), ""), "start_time": summary["start_time"],
               "job_verdict": summary["verdict"]}
        for finding in summary["findings"]:
            file.write(json.dumps(dict(job, **finding), default=list) + "\n")
    return status


def label(value) -> str:
    """A value of a Prometheus label."""
    return '"%s"' % clean(value, 200).replace("\\", "\\\\").replace('"', '\\"')


def _prometheus(directories, file) -> int:
    samples: dict[str, list[str]] = {name: [] for name in METRICS}
    status = 0

    def sample(name, job, value, **labels):
        if value is not None:
            told = ",".join("%s=%s" % (key, label(text)) for key, text in dict(job, **labels).items())
            samples[name].append("%s{%s} %s" % (name, told, repr(float(value)) if isinstance(value, float) else value))

    for directory in directories:
        s = merge(directory)
        status = 3 if s["unreadable"] else status
        job = {"job_directory": directory.path, "launch": _launch(directory)}
        sample("resil_job_info", job, 1, verdict=s["verdict"], program=os.path.basename(next(iter(s["executable"]), "")),
               mpi=next(iter(s["mpi"]), ""), resil=next(iter(s["resil_version"]), ""))
        sample("resil_job_exit_code", job, s["exit_code"])
        sample("resil_job_seconds", job, s["seconds"])
        sample("resil_job_start_time_seconds", job, s["start_time"])
        sample("resil_job_still_seconds", job, s["still_seconds"])
        sample("resil_job_mpi_share", job, s["mpi_share"])
        sample("resil_job_unusable_files", job, len(s["unreadable"]))
        states: dict[str, int] = {}
        for rank in directory.ranks.values():
            states[rank.state] = states.get(rank.state, 0) + 1
        for state, number in sorted(states.items()):
            sample("resil_job_ranks", job, number, state=state)
        kinds: dict[tuple, int] = {}
        for finding in s["findings"]:
            kinds[finding["kind"], finding["confidence"]] = kinds.get((finding["kind"], finding["confidence"]), 0) + finding["count"]
        for (kind, confidence), number in sorted(kinds.items()):
            sample("resil_job_findings", job, number, kind=kind, confidence=confidence)
        for name, member in (("messages_checked", "messages_checked"), ("messages", "messages_total"), ("mismatches", "mismatches")):
            if s["checksum"] and isinstance(s["checksum"].get(member), int):
                sample("resil_job_" + name, job, s["checksum"][member])
    for name, lines in samples.items():
        if lines:
            file.write("# HELP %s %s\n# TYPE %s %s\n%s\n" % (name, METRICS[name][1], name, METRICS[name][0], "\n".join(lines)))
    return status


def cell(value):
    """Text that a spreadsheet does not take for a formula."""
    if isinstance(value, str) and value[:1] and value[0] in FORMULA and not re.fullmatch(r"-?\d+(\.\d+)?", value):
        return "'" + value
    return value


def _csv(directories, file) -> int:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(COLUMNS)
    status = 0
    for directory in directories:
        status = 3 if directory.problems else status
        for one in rank_objects(directory):
            rank = directory.ranks[one["world"], one["rank"]]
            sums = [sum(peer[i] for peer in rank.peers.values()) for i in range(4)]
            out.writerow([cell(value) for value in (
                directory.path, rank.launch, rank.executable, rank.world, rank.rank, rank.host, rank.pid, rank.state,
                "" if rank.exit_status is None else rank.exit_status, "" if rank.seconds is None else round(rank.seconds, 6),
                round(sum(call[1] for call in rank.calls.values()), 6), sum(call[0] for call in rank.calls.values()), *sums,
                rank.checksum.get("messages_checked", "") if rank.checksum else "",
                rank.checksum.get("mismatches", "") if rank.checksum else "", len(rank.findings))])
    return status
