# SPDX-License-Identifier: Apache-2.0
"""`resil show FILE…`: any file that resil writes, told by what is in it, call sites as function and line. Opens the files that it is
told to and, for the object files of the job, flight recorders beside them; changes nothing."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import time

from . import fold, gathered, layout, record_print, records, remote_stacks, report, runs, show_ring, symbols, waits
from . import findings as found_things
from . import recording as recordings
from .job import owner_name
from .recording import Recording, RecordingError
from .ring import Ring, RingError
from .summary import merge
from .text import bytes_text, clean, clip, integer, plural, rank_name, ranks_phrase, seconds_text, wrap
from .values import Invalid, items, moment, number, parse_object, read_bytes, text

LABEL = 11
LAST = 16              # records of a thread, calls of a recording
MOST_TEXT = 8 << 20    # bytes of a text file
MOST_SITES = 2000
MOST_GROUPS = 40
MOST_RINGS = 16

_RESIL_TEXT = re.compile(r"(hang\.log|hang-trace\.txt|verify-ignore-[0-9a-f]{16}\.txt|run\.conf|(hang|why|stacks)-\d{1,9}\.txt)$")
_LOG_LINE = re.compile(r"(\d{19}) (.*)$")
_DUMP = re.compile(r"^resil \S+ dump \d+ of ", re.M)


class Shown:
    """What is printed of one file. `value`: the same for --json; `status`: 0, 1 findings, 3 something of it cannot be used."""

    def __init__(self, path: str, kind: str):
        self.path, self.kind, self.lines, self.status = path, kind, [], 0
        self.value: dict = {"file": path, "kind": kind}

    def title(self, words: str) -> None:
        self.lines += wrap("%s: %s" % (clean(self.path), words), "", "  ", lines=3)

    def row(self, label: str, words: str, lines: int = 3) -> None:
        self.lines += wrap(words, label.ljust(LABEL), " " * LABEL, lines=lines)

    def problem(self, words: str) -> None:
        self.status = 3
        self.value.setdefault("problems", []).append(words)
        self.row("unusable", words)


def add_command(commands, job_help: str) -> None:
    del job_help
    parser = commands.add_parser(
        "show", help="any file of resil's: flight recorder, recording, dump, hang, report of a node",
        description="Tells by its contents what a file is, and shows it with functions and lines in place of addresses: flight recorders "
        "(rank-*.ring, those of running ranks in /dev/shm, too), recordings (rank-*.rec), state dumps (dump-*.txt), hangs and answers of "
        "resil why (hang-*.json, why-*.json), stacks (stacks-*.json), reports (node-*.jsonl, rank-*.json), hang.log. Of a directory: what "
        "resil report or resil recording says.",
        epilog="exit status: 0 shown, 1 there are findings in it, 2 usage (or no such file), 3 something is damaged, cut or no file of "
        "resil; what can be read is shown")
    parser.add_argument("files", nargs="+", metavar="FILE", help="file or directory")
    parser.add_argument("--last", type=int, default=LAST, metavar="N", help="of flight recorders and recordings: so many calls of each "
                        "thread, the newest; default %d" % LAST)
    parser.add_argument("--json", action="store_true", help="one object a line and file")
    parser.set_defaults(run=run)


def run(options) -> int:
    order, status = (0, 1, 3, 2), 0
    for number_, path in enumerate(options.files):
        try:
            shown = show(path, max(0, options.last))
        except FileNotFoundError:
            sys.stderr.write("resil: %s: no such file\n" % clean(path))
            status = 2
            continue
        except (Invalid, RingError, RecordingError, OSError) as error:
            words = str(error.strerror if isinstance(error, OSError) else error)
            words = words[len(path) + 1:].strip() if words.startswith(path + ":") else words
            if words == os.strerror(errno.EACCES):
                words = _refused(path)
            sys.stderr.write("resil: %s: %s\n" % (clean(path), clean(words)))
            status = max(status, 3, key=order.index)
            continue
        if options.json:
            print(json.dumps(shown.value))
        else:
            print("\n".join(([""] if number_ else []) + shown.lines))
        status = max(status, shown.status, key=order.index)
    return status


def _refused(path: str) -> str:
    """Whose file it is, where that may be known."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        owner = os.geteuid()
    return os.strerror(errno.EACCES) if owner == os.geteuid() else "belongs to %s: refused" % owner_name(owner)


def show(path: str, last: int = LAST) -> Shown:
    """Raises what says that it is no file of resil's, or cannot be read."""
    if os.path.isdir(path):
        return _directory(path)
    head = _head(path)
    if head[:8] == layout.MAGIC.to_bytes(8, "little"):
        return _ring(path, last)
    if head[:8] == recordings.FILE_MAGIC:
        return _recording(path, last)
    name = os.path.basename(path)
    if head.startswith(b"<!DOCTYPE html>") and b"Content-Security-Policy" in head:
        shown = Shown(path, "page of resil html")
        shown.title("a page of resil html, for a browser")
        return shown
    if head.lstrip()[:1] == b"{" or name.endswith((".json", ".jsonl")):
        return _json(path)
    data = read_bytes(path, MOST_TEXT).decode("utf-8", "replace")
    if _DUMP.search(data[:20000]):
        return _dump(path, data)
    if _RESIL_TEXT.search(name):
        return _text(path, data)
    if not head.strip(b"\0"):
        raise Invalid("empty" if not head else "zeroes")
    raise Invalid("not a file of resil")


def _head(path: str, most: int = 4096) -> bytes:
    """The first bytes of a regular file: neither is a link followed nor a pipe waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Invalid("a link: not followed") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Invalid("not a regular file")
        return os.pread(descriptor, most, 0)
    finally:
        os.close(descriptor)


def _started(path: str) -> float:
    """When the job of that file began; object files that changed later say nothing. Else when the file was written."""
    place = os.path.dirname(os.path.abspath(path))
    return runs.read_launch(place).time or os.stat(path).st_mtime


def _neighbours(path: str) -> records.Directory:
    """The directory of that file with what names object files: flight recorders, and one report."""
    place = os.path.dirname(os.path.abspath(path))
    directory = records.Directory(place)
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return directory
    for name in names:
        if name.endswith(".ring") and len(directory.rings) < MOST_RINGS:
            directory.rings[0, len(directory.rings)] = os.path.join(place, name)
    for name in [name for name in names if name.startswith(("node-", "rank-")) and name.endswith((".json", ".jsonl"))][:1]:
        try:
            head = _head(os.path.join(place, name), 1 << 20)
            rank = records.parse_rank(parse_object(head.split(b"\n")[0] if name.endswith("l") else head), 0, name, 0.0)
            directory.ranks[rank.key] = rank
        except (OSError, Invalid):
            pass
    return directory


def _objects(path: str) -> dict[str, str]:
    directory = _neighbours(path)
    return found_things.objects(directory, directory.ranks.values())


# -- what there is ----------------------------------------------------------------------------------------------------

def _directory(path: str) -> Shown:
    if any(re.match(r"rank-\d{5,9}\.rec$|recording\.json$", name) for name in os.listdir(path)):
        shown = Shown(path, "recording")
        shown.value.update(record_print.summary(path))
        shown.status = shown.value.pop("status")
        shown.lines = record_print.summary_lines(path, shown.value)
        return shown
    shown = Shown(path, "reports")
    summary = merge(report.load(path, may_collect=False))
    shown.value.update(summary)
    shown.lines, shown.status = report.render(summary), summary["exit_code"]
    return shown


def _ring(path: str, last: int) -> Shown:
    shown = Shown(path, "flight recorder")
    with Ring(path) as ring:
        shown.value.update(show_ring.as_object(ring, last))
        words, rows = show_ring.lines(ring, shown.value)
        shown.title(words)
        for label, said in rows:
            if label is None:
                shown.lines += wrap(said, "", " " * show_ring.INDENT, lines=3)
            else:
                shown.row(label, said)
        for note in ring.notes:
            shown.problem(clean(note))
    return shown


def _recording(path: str, last: int) -> Shown:
    shown = Shown(path, "recording of a rank")
    with Recording(path) as found:
        identity = found.identity
        key = identity.world, identity.rank
        shown.title("recording of %s of %d on %s, %s" % (rank_name(key), identity.world_size, clean(identity.host), found.end))
        shown.row("program", "%s, %s, resil %s%s" % (clean(identity.program), clean(identity.mpi), clean(identity.resil_version),
                                                     ", RESIL_REDUCE=" + clean(identity.reduce) if identity.reduce else ""))
        shown.row("time", "recorded %s" % _moment(identity.created))
        shown.row("size", "%s calls in %s, %s" % (integer(record_print.calls_of(found)), plural(len(found.streams), "thread"),
                                                   bytes_text(found.size)))
        shown.value.update(identity=identity._asdict(), end=found.end, calls=record_print.calls_of(found), bytes=found.size, threads=[])
        for stream in found.streams.values():
            title, told, objects = record_print.newest(found, stream, last)
            shown.lines += [title] + told
            shown.value["threads"].append({"stream": stream.id, "site": "%s+%#x" % stream.site if stream.site[0] else None, "newest": objects})
        if found.problem or found.end != "finished":
            shown.problem(clean(found.problem) or "it has no end: %s" % found.end)
    return shown


def _dump(path: str, data: str) -> Shown:
    shown = Shown(path, "state dump")
    objects = symbols.objects_of_dump(data)
    known = symbols.lookup(symbols.sites_in(data, objects)[:MOST_SITES], _started(path))
    shown.lines = [clean(symbols.resolve_sentence(line, objects, known), 4000) for line in data.rstrip("\n").split("\n")]
    shown.value["lines"] = shown.lines
    if "\nObjects named above" not in data:
        shown.problem("the dump has no end: the rank died while it wrote it")
    return shown


def _text(path: str, data: str) -> Shown:
    name = os.path.basename(path)
    shown = Shown(path, "log of hang detection" if name == "hang.log" else "text")
    objects = _objects(path) if "+0x" in data else {}
    known = symbols.lookup(symbols.sites_in(data, objects)[:MOST_SITES], _started(path)) if objects else {}
    for line in data.rstrip("\n").split("\n"):
        line = symbols.resolve_sentence(line, objects, known)
        stamp = _LOG_LINE.match(line) if name == "hang.log" else None
        said = clean(line, 4000)
        if stamp:
            at = _moment(int(stamp.group(1)) / 1e9)
            shown.lines += wrap(clean(stamp.group(2), 4000), at + " ", " " * 4, lines=20)
        else:
            shown.lines.append(said)
    shown.value["lines"] = [clean(line, 4000) for line in data.rstrip("\n").split("\n")]
    return shown


def _json(path: str) -> Shown:
    name = os.path.basename(path)
    if re.match(r"faults-\d{1,9}\.jsonl$", name):
        return _faults(path)
    if name.endswith(".jsonl"):
        return _node(path)
    data = read_bytes(path)
    value = _lenient(data) if name == "recording.json" else parse_object(data)
    if "rank" in value and "outcome" in value:
        return _node(path)
    if isinstance(value.get("stacks"), list) and "samples" in value:
        return _stacks(path, value)
    if "class" in value and "confidence" in value:
        return _hang(path, value)
    if name not in ("launch.json", "recording.json", "job.json"):
        raise Invalid("not a file of resil")
    shown = Shown(path, "description of a launch" if name == "launch.json" else "description of a recording" if name == "recording.json" else "job")
    shown.title(shown.kind)
    for key, one in list(value.items())[:100]:
        said = _moment(one) if key in ("time", "created") and isinstance(one, (int, float)) else one if isinstance(one, (str, int, float)) else json.dumps(one)
        shown.lines.append(clip("  %-16s %s" % (clean(key, 40), clean(said, 1000))))
    shown.value["lines"] = shown.lines[1:]
    return shown


def _lenient(data: bytes) -> dict:
    """recording.json has a number of its own."""
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise Invalid("not valid JSON") from None
    if not isinstance(value, dict) or "resil_recording" not in value:
        raise Invalid("not a recording of resil")
    return value


def _faults(path: str) -> Shown:
    """What RESIL_FAULT has damaged on purpose, a line each."""
    shown = Shown(path, "faults made on purpose")
    lines = [line for line in read_bytes(path).decode("utf-8", "replace").split("\n") if line.strip()]
    shown.title("%s made on purpose (RESIL_FAULT)" % plural(len(lines), "fault"))
    for number_, line in enumerate(lines[:MOST_SITES]):
        try:
            value = json.loads(line)
            words = ", ".join("%s %s" % (name, one) for name, one in value.items() if name not in ("launch", "spec"))
        except (ValueError, RecursionError, AttributeError):
            shown.problem("line %d: not valid JSON" % (number_ + 1))
            continue
        shown.lines += wrap(clean(words, 1000), "  ", "    ", lines=3)
    shown.value["lines"] = shown.lines[1:]
    return shown


def _hang(path: str, value: dict) -> Shown:
    asked = os.path.basename(path).startswith("why-")
    shown = Shown(path, "answer of resil why" if asked else "hang")
    directory = _neighbours(path)
    directory.findings = records.hang_findings(value, path)
    shown.value["launch"] = text(value.get("launch"), 32)
    directory_ranks = list(directory.ranks.values())
    for rank in directory_ranks:
        rank.findings = []
    merged = found_things.merge(directory, directory_ranks)
    shown.title("%s, %s, %s" % (shown.kind, text(value.get("class"), 40), _moment(number(value.get("time_ns")) / 1e9)))
    for one in merged:
        what = one["message"] if value.get("class") == "moving" else "%s, %s: %s" % (one["confidence"], one["kind"], one["message"])
        for label, said in [("what", what), ("to do", one["to_do"])]:
            for i, part in enumerate(re.split(r"(?<=[a-z\d)]\.) (?=[A-Z])", said) if said else []):
                shown.row(label if i == 0 else "", part, 6)
        for i, (name, said) in enumerate(found_things.shown_evidence(one)):
            shown.row("evidence" if i == 0 else "", "%s: %s" % (name, said), 4)
        for i, line in enumerate(waits.lines(graph) if (graph := next(iter(waits.of_findings([one])), None)) else []):
            shown.row("waits" if i == 0 else "", re.sub(r" {2,}", " ", line.strip()), 2)
    said = [((0, int(rank["rank"])), _state(rank)) for rank in items(value.get("ranks")) if isinstance(rank, dict) and isinstance(rank.get("rank"), int)]
    for i, (keys, words) in enumerate(fold.groups(said)[:MOST_GROUPS] if said else []):
        shown.row("ranks" if i == 0 else "", "%s: %s" % (ranks_phrase(keys), words), 2)
    if isinstance(value.get("stacks"), dict):
        _stack_rows(shown, value["stacks"], found_things.objects(directory, directory_ranks))
    shown.value.update({"class": text(value.get("class"), 40)}, ranks=[{"ranks": ranks_phrase(keys), "state": words} for keys, words in
                                                                    (fold.groups(said) if said else [])], lines=shown.lines, findings=[{k: v for k, v in one.items() if k != "hang"} for one in merged])
    shown.status = 0 if asked else 1
    return shown


def _state(rank: dict) -> str:
    state, call = text(rank.get("state"), 20) or "unknown", text(rank.get("call"), 60)
    age = number(rank.get("age"), None)
    sequence = number(rank.get("sequence"))
    return "%s%s%s%s" % (state, " in %s" % call if call and state in ("blocked", "polling") else "", " #%d" % sequence if call and sequence else "",
                         " for %s" % seconds_text(age) if age else "")


def _stacks(path: str, value: dict) -> Shown:
    shown = Shown(path, "stacks")
    shown.title("stacks of %s of %s, %s, with %s" % (plural(int(number(value.get("threads"))), "thread"), plural(int(number(value.get("ranks"))), "rank"),
                                                     _moment(number(value.get("time_ns")) / 1e9), text(value.get("of"), 64) or "nothing"))
    _stack_rows(shown, value, _objects(path))
    shown.value["lines"] = shown.lines
    return shown


def _stack_rows(shown: Shown, told: dict, objects: dict[str, str]) -> None:
    """As a tree with ranks. Threads of libraries come last and as a number: they wait for work."""
    started, libraries = _started(shown.path), gathered.of_libraries(told)
    stacks = {key: {number_: frames for number_, frames in threads.items() if number_ not in libraries}
              for key, threads in gathered.stacks(told, 0, objects, started).items()}
    tree = remote_stacks.tree({key: threads for key, threads in stacks.items() if threads})
    if tree:
        shown.lines.append("stacks (ranks, outermost first)")
        shown.lines += [clip("  " + line) for line in remote_stacks.lines(tree, 100)]
    if libraries:
        entries = [one for one in items(told.get("stacks")) if isinstance(one, dict) and one.get("library") is True]
        shown.row("left out", "%s that MPI or its libraries have started" % plural(sum(int(number(one.get("threads"))) for one in entries), "thread"))
    if number(told.get("unread")):
        shown.row("unread", "%s: waiting for a CPU meanwhile, or the kernel refused" % plural(int(number(told.get("unread"))), "thread"))
    for line in gathered.abnormal(told, objects, started):
        shown.row("steady", line)


def _node(path: str) -> Shown:
    """Reports: ranks that say the same on one line."""
    several = os.path.basename(path).endswith(".jsonl")
    shown = Shown(path, "reports of a node" if several else "report of a rank")
    directory = _neighbours(path)
    directory.ranks = {}
    records.read_file(directory, path)
    ranks = [directory.ranks[key] for key in sorted(directory.ranks)] + directory.rankless
    if not ranks:
        raise Invalid(directory.problems[0].message if directory.problems else "holds no report")
    hosts = sorted({rank.host for rank in ranks})
    shown.title("%s, %s%s" % (shown.kind, "of " + ", ".join(hosts[:3]) if several else "", "%s%s" % (", " if several else "", ranks_phrase([rank.key for rank in ranks]))))
    first = ranks[0]
    shown.row("program", "%s, %s, modes %s, resil %s, launch %s" % (first.executable or "?", first.mpi or "?", first.modes or "?", first.resil_version or "?",
                                                                    first.launch or "not known"))
    shown.row("time", "started %s" % _moment(min((rank.start_time for rank in ranks if rank.start_time), default=0.0)))
    for i, (keys, words) in enumerate(fold.groups([(rank.key, _outcome(rank)) for rank in ranks])[:MOST_GROUPS]):
        shown.row("ranks" if i == 0 else "", "%s: %s" % (ranks_phrase(keys), words), 2)
    merged = found_things.merge(directory, ranks)
    for i, one in enumerate(merged[:MOST_GROUPS]):
        shown.row("findings" if i == 0 else "", found_things.sentence(one), 6)
    notes = fold.groups([(rank.key, note) for rank in ranks for note in dict.fromkeys(rank.notes)])
    for i, (keys, note) in enumerate(notes[:MOST_GROUPS]):
        shown.row("notes" if i == 0 else "", "%s (%s)" % (note, ranks_phrase(dict.fromkeys(keys))))
    shown.value.update(ranks=[_rank_object(rank) for rank in ranks], findings=merged)
    shown.status = 1 if merged else 0
    for problem in directory.problems:
        shown.problem(problem.message)
    return shown


def _outcome(rank: records.Rank) -> str:
    calls = sum(count for count, _, _ in rank.calls.values())
    inside = sum(seconds for _, seconds, _ in rank.calls.values())
    if rank.outcome == "running":
        return "no final report: killed, stopped, or still running"
    status = " with status %d" % rank.exit_status if rank.exit_status else ""
    return "%s%s after %s, %s, %s in MPI" % (rank.outcome, status, seconds_text(rank.seconds), plural(calls, "call"), seconds_text(inside))


def _rank_object(rank: records.Rank) -> dict:
    return {"world": rank.world, "rank": rank.rank, "host": rank.host, "pid": rank.pid, "outcome": rank.outcome, "exit_status": rank.exit_status,
            "seconds": rank.seconds, "calls": {name: {"count": c[0], "seconds": c[1], "bytes": c[2]} for name, c in rank.calls.items()},
            "notes": rank.notes}


def _moment(seconds) -> str:
    """In the reader's own time; "?" for none."""
    seconds = moment(seconds)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) + ".%03d" % (seconds % 1 * 1000) if seconds else "?"
