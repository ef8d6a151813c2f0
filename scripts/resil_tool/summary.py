# SPDX-License-Identifier: Apache-2.0
"""Merges the ranks of one job into one summary and gives the verdict. Works on records only; touches no file but for
the symbols of the few call sites that are shown."""

from __future__ import annotations

import os

from . import (balance, candidates, checksum, ending, findings, fold, gathered, leftovers, recorded, reductions, remote_stacks, runs, staging,
               symbols, verification, waits)
from .job import owner_name
from .records import Directory
from .text import clean, rank_label, rank_set, ranks_phrase, seconds_text
from .values import integer, text

MOST_GROUPS = 200  # groups of ranks in one place that keep their own sentence
MOST_NOTES = 8  # of the whole job that keep their own numbers
MOST_PLACES = 6   # groups with the same story; beyond, those that differ in numbers only are told together
EXIT_CODES = {"CLEAN": 0, "FINDINGS": 1, "RUNNING": 3, "STANDING STILL": 3, "INCOMPLETE": 3}


def merge(directory: Directory) -> dict:
    """The summary as `report --json` prints it; report.py makes text of it."""
    ranks = [directory.ranks[key] for key in sorted(directory.ranks)]
    states: dict[str, list] = {}
    for rank in ranks:
        states.setdefault(rank.state, []).append(rank.key)
    ending.one_sender(ranks)
    told = ending.tell(directory, ranks)
    missing = [(world, r) for world, size in sorted(directory.expected.items())
               for r in range(min(size, 1 << 22)) if (world, r) not in directory.ranks]
    summary = {
        "schema_version": 1, "directory": directory.path,
        "worlds": {str(world): size for world, size in sorted(directory.expected.items())},
        "ranks_expected": sum(directory.expected.values()), "ranks_reported": len(ranks),
        "outcomes": {state: rank_set(keys, 10**6) for state, keys in sorted(states.items())},
        "missing_ranks": rank_set(missing, 10**6), "hosts": _hosts(ranks),
        "mpi": _variants(ranks, "mpi"), "modes": _variants(ranks, "modes"),
        "executable": _variants(ranks, "executable"), "resil_version": _variants(ranks, "resil_version"),
        "start_time": min((r.start_time for r in ranks if r.start_time), default=None),
        "seconds": told["seconds"], "end_known": told["end_known"], "still_seconds": told["still_seconds"],
        "ending": dict(_ending(told), accused=findings.named(directory, ranks, told["accused"])),
        "overhead_seconds": max((r.overhead_seconds for r in ranks), default=0.0),
        "overhead_share": max((min(1.0, r.overhead_seconds / r.seconds) for r in ranks if r.seconds and r.overhead_seconds
                               and r.state == "finished"), default=None),
        "calls": _calls(ranks), "messages": _messages(ranks),
        "findings": findings.merge(directory, ranks), "findings_dropped": sum(r.findings_dropped for r in ranks),
        "checksum": checksum.merge(ranks), "reductions": reductions.merge(ranks),
        "verify": verification.merge(ranks),
        "record": recorded.merge(ranks),
        "leftovers": leftovers.merge(ranks),
        "any_source": candidates.merge(ranks, not missing and not directory.rankless and not directory.problems
                                       and all(rank.state == "finished" for rank in ranks)),
        "staging": staging.merge(ranks), "faults_injected": _sum(r.faults for r in ranks),
        "fault_setting": _variants(ranks, "fault_setting"),
        "uncovered": _sum(r.uncovered for r in ranks), "notes": _notes(directory, ranks),
        "unreadable": [vars(p) for p in directory.problems],
        "other_runs": [vars(p) for p in directory.strangers],
        "program": clean(directory.program, 48),
        "launches": [{"path": run.path, "time": run.time, "program": run.program, "line": runs.line(run, directory.path)}
                     for run in directory.launches],
        "dumps": sorted(directory.dumps), "from_ring": rank_set((r.key for r in ranks if r.from_ring), 10**6),
    }
    leftovers.name_sites(summary["leftovers"], lambda: findings.objects(directory, ranks), summary["start_time"] or 0.0)
    summary["stacks"] = _stacks(directory, ranks, summary)
    summary["mpi_share"] = _share(ranks)
    summary["balance"] = balance.merge(ranks)
    summary["suspect_host"] = findings.suspect(summary["findings"], ranks)
    summary["places"] = _places(ranks)
    summary["unconfirmed"] = rank_set((r.key for r in ranks if r.outcome == "running"
                                       and r.state in ("finished", "aborted", "stopped")), 10**6)
    summary["stopped"] = sorted({r.exit_status for r in ranks if r.state == "stopped" and r.exit_status})
    summary["error_codes"] = sorted({r.exit_status for r in ranks if r.state == "aborted"
                                     and r.exit_status is not None})
    summary["rank_not_known"] = [{"host": r.host, "pid": r.pid, "state": r.state} for r in directory.rankless]
    summary["waits_for"] = waits.of_findings(summary["findings"])
    summary["verdict"], summary["reason"] = _verdict(summary, states, missing, directory, told)
    summary["findings"] = [{name: value for name, value in finding.items() if name != "hang"} for finding in summary["findings"]]
    summary["exit_code"] = EXIT_CODES[summary["verdict"]]
    return summary


def rank_objects(directory: Directory) -> list[dict]:
    """One small object a rank, for --json."""
    return [{"world": r.world, "rank": r.rank, "host": r.host, "pid": r.pid, "outcome": r.outcome, "state": r.state,
             "exit_status": r.exit_status, "seconds": r.seconds, "inside_mpi": r.inside if r.from_ring else None,
             "call": r.call, "site": "%s+%#x" % r.site if r.site else "", "since": r.since, "phase": r.phase,
             "pending_requests": r.pending_requests if r.from_ring else None, "source": r.source}
            for r in (directory.ranks[key] for key in sorted(directory.ranks))]


def _stacks(directory, ranks, summary: dict) -> dict | None:
    """What the helper threads gathered with the first hang: the accused ranks' stacks as a tree, of all ranks where nobody is accused, and
    threads that never moved. None: nothing was gathered. Threads that MPI has started say nothing, unless a call does not come back from MPI."""
    names = gathered.files(directory.path)
    told = gathered.read(os.path.join(directory.path, names[0])) if names else None
    if not told:
        return None
    hang = next((one for one in summary["findings"] if one.get("hang")), {})
    known, started = findings.objects(directory, ranks), summary["start_time"] or 0.0
    libraries = set() if hang.get("kind") == "hang: inside_mpi" else gathered.of_libraries(told)
    stacks = {key: {number: frames for number, frames in threads.items() if number not in libraries}
              for key, threads in gathered.stacks(told, 0, known, started).items()}
    own = {key: {number: frames for number, frames in threads.items() if any(frame["source"] for frame in frames)} for key, threads in stacks.items()}
    accused = {key: threads for key, threads in own.items() if threads and key[1] in hang.get("culprit_ranks", [])}
    tree = remote_stacks.tree(accused or {key: threads for key, threads in own.items() if threads} or {key: threads for key, threads in stacks.items() if threads})
    return {"file": names[0], "of": text(told.get("of"), 64), "threads": integer(told.get("threads")), "ranks": integer(told.get("ranks")),
            "unread": integer(told.get("unread")), "accused_only": bool(accused), "tree": remote_stacks.lines(tree) if tree else [], "abnormal": gathered.abnormal(told, known, started)}


def _ending(told: dict) -> dict:
    """What --json says of the end, or of the standstill."""
    return {"inside_mpi": rank_set(told["inside"], 10**6), "outside_mpi": rank_set(told["outside"], 10**6),
            "polling": rank_set(told["polling"], 10**6), "accused": told["accused"], "slurm": told["slurm"], "out_of_memory": rank_set(told["memory"], 10**6),
            "senders": [{"name": sender, "signal": signal, "ranks": rank_set(keys, 10**6), "means": ending.reason(sender)}
                        for (sender, signal), keys in sorted(told["senders"].items())]}


def _verdict(summary, states, missing, directory, told) -> tuple[str, str]:
    in_init = sum(1 for r in directory.rankless if r.state == "running")
    alive = len(states.get("running", [])) + in_init
    if summary["findings"] or states.get("stopped"):
        what = findings.headline(summary["findings"]) if summary["findings"] else "resil stopped the job"
        if summary["faults_injected"] or summary["fault_setting"]:
            what += "; data was DAMAGED ON PURPOSE (RESIL_FAULT)"
        if missing:
            what += "; no report of %s" % ranks_phrase(missing)
        if alive:
            what += ", standing still for %s" % seconds_text(told["still_seconds"]) if told["stands"] else ", still running"
        elif states.get("killed") and told["senders"] and not states.get("stopped"):
            what += "; %s" % "; ".join(_ends(directory, states["killed"], told))
        return "FINDINGS", what
    if alive and told["stands"]:
        return "STANDING STILL", "no rank has entered or left an MPI call; %s" % ending.standstill(told)
    if alive:
        reason = "%d of %d ranks run" % (alive, max(summary["ranks_expected"], summary["ranks_reported"]))
        others = [(word, states[word]) for word in ("killed", "aborted") if states.get(word)]
        return "RUNNING", reason + "".join("; %s %s" % (ranks_phrase(keys), "are gone without a final report"
                                                        if word == "killed" and len(keys) > 1 else
                                                        "is gone without a final report" if word == "killed" else
                                                        "called MPI_Abort") for word, keys in others)
    reasons = []
    if states.get("aborted"):
        reasons.append("%s called MPI_Abort" % ranks_phrase(states["aborted"]))
    if states.get("killed"):
        reasons += _ends(directory, states["killed"], told)
    if states.get("unknown"):
        reasons.append("%s left no final report and cannot be seen from this host" % ranks_phrase(states["unknown"]))
    if summary["unconfirmed"]:
        reasons.append("final report missing, counters from the ring: rank%s %s" % (
            "s" if set("-,") & set(summary["unconfirmed"]) else "", summary["unconfirmed"]))
    if missing:
        reasons.append("no report of %s" % ranks_phrase(missing))
    if directory.rankless:
        reasons.append("%d process%s did not get out of MPI_Init" % (len(directory.rankless), "" if len(
            directory.rankless) == 1 else "es"))
    if checksum.gap(summary["checksum"]):
        reasons.append(checksum.gap(summary["checksum"]))
    if directory.problems:
        reasons.append("%d file%s cannot be used" % (len(directory.problems), "" if len(directory.problems) == 1
                                                     else "s"))
    if not summary["ranks_reported"] and not reasons:
        reasons.append("no rank's report is here")
    if reasons:
        return "INCOMPLETE", "; ".join(reasons)
    size = summary["ranks_expected"] or summary["ranks_reported"]
    if summary["fault_setting"]:
        return "CLEAN", "data was DAMAGED ON PURPOSE, no findings%s" % scope(summary)
    return "CLEAN", "%d of %d ranks finished, no findings%s" % (summary["ranks_reported"], size, scope(summary))


def scope(summary) -> str:
    """What "no findings" holds for."""
    checked = "" if summary["verify"] and not summary["checksum"] else checksum.scope(summary["checksum"])
    return checked + (verification.scope(summary["verify"]) if summary["verify"] else "")


def _ends(directory, keys, told) -> list[str]:
    """Ranks without a final report: those that were sent a signal by the launcher are not where it began."""
    sent: dict[str, list] = {}
    for key in keys:
        sent.setdefault(directory.ranks[key].ended_by, []).append(key)
    first = sent.pop("", [])
    if not first:
        return ending.how(told, first)
    if told["still_seconds"] is not None and sent:  # SIGKILL may have come before the note of SIGTERM was made
        return ["%s %s ended by %s" % (ranks_phrase(keys), "was" if len(keys) == 1 else "were", who) for who, keys in sorted(sent.items())] \
            + ["%s ended first, or by a signal that leaves no trace" % ranks_phrase(first)] + ending.how(told, first)
    order = " first" if sent else ", which of them first is not known" if len(first) > 1 else ""
    reasons = ["%s ended without MPI_Finalize%s" % (ranks_phrase(first), order), *filter(None, [ending.memory(told)])]
    reasons += ["%s %s then ended by %s" % (ranks_phrase(keys), "was" if len(keys) == 1 else "were", who)
                for who, keys in sorted(sent.items())]
    return reasons + ending.how(told, first)


def _hosts(ranks) -> dict[str, str]:
    """Ranks by host. Machines and containers that share a host name are "NAME", "NAME (2)", and so on."""
    hosts: dict[str, list] = {}
    seen: dict[str, list] = {}
    for rank in ranks:
        host, place = rank.host or "?", (rank.boot_id, rank.pid_namespace)
        places = seen.setdefault(host, [])
        if place not in places and rank.boot_id:  # an older version's: nothing is known but the name
            places.append(place)
        number = places.index(place) + 1 if place in places else 1
        hosts.setdefault(host if number == 1 else "%s (%d)" % (host, number), []).append(rank.key)
    return {host: rank_set(keys, 10**6) for host, keys in hosts.items()}


def _variants(ranks, name: str) -> dict[str, str]:
    """Value: ranks that have it. One entry in a sane job."""
    values: dict[str, list] = {}
    for rank in ranks:
        if getattr(rank, name):
            values.setdefault(getattr(rank, name), []).append(rank.key)
    return {value: rank_set(keys, 10**6) for value, keys in values.items()}


def _sum(counters) -> dict[str, int]:
    total: dict[str, int] = {}
    for counter in counters:
        for name, count in counter.items():
            total[name] = total.get(name, 0) + count
    return total


def _calls(ranks) -> list[dict]:
    """Per function, slowest first. min, mean and max are seconds over all ranks that report calls."""
    reporting = sum(1 for r in ranks if r.calls)
    totals: dict[str, list] = {}
    for rank in ranks:
        for name, (count, seconds, bytes_) in rank.calls.items():
            total = totals.get(name)
            if total is None:
                totals[name] = [count, seconds, bytes_, seconds, seconds, rank.key, 1]
                continue
            total[0] += count
            total[1] += seconds
            total[2] += bytes_
            total[3] = min(total[3], seconds)
            if seconds > total[4]:
                total[4], total[5] = seconds, rank.key
            total[6] += 1
    return [{"name": name, "count": t[0], "seconds": t[1], "bytes": t[2],
             "min": t[3] if t[6] == reporting else 0.0, "mean": t[1] / reporting, "max": t[4],
             "max_rank": rank_label(t[5]), "ranks": t[6]}
            for name, t in sorted(totals.items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))]


def _share(ranks) -> float | None:
    """Part of the ranks' time spent in MPI, 0..1 and more with threads; None without durations."""
    known = [r for r in ranks if r.seconds and r.calls]
    wall = sum(r.seconds for r in known)
    inside = sum(call[1] for r in known for call in r.calls.values())
    return inside / wall if wall > 0 else None


def _messages(ranks) -> dict:
    sent, received, sent_bytes, received_bytes, busiest = 0, 0, 0, 0, None
    for rank in ranks:
        for other, (messages, bytes_, in_messages, in_bytes) in rank.peers.items():
            sent, sent_bytes = sent + messages, sent_bytes + bytes_
            received, received_bytes = received + in_messages, received_bytes + in_bytes
            if messages and other >= 0 and (busiest is None or (bytes_, messages) > busiest[:2]):
                busiest = (bytes_, messages, rank_label(rank.key), rank_label((rank.world, other)))
    pair = {"from": busiest[2], "to": busiest[3], "messages": busiest[1], "bytes": busiest[0]} if busiest else None
    return {"sent": sent, "sent_bytes": sent_bytes, "received": received, "received_bytes": received_bytes,
            "busiest_pair": pair}


def _notes(directory: Directory, ranks) -> list[dict]:
    """Each note once, with the ranks that wrote it; ranks "" for the whole job. More than MOST_NOTES: those that differ in numbers only
    are one."""
    notes: dict[str, list] = {note: [] for note in directory.notes}
    for rank in ranks:
        for note in dict.fromkeys(rank.notes):
            notes.setdefault(note, []).append(rank.key)
    if len(notes) > MOST_NOTES:
        together: dict[tuple, list[str]] = {}
        for note, keys in notes.items():
            together.setdefault((bool(keys), fold.template(note)), []).append(note)
        notes = {fold.merge(same): sorted({key for note in same for key in notes[note]}) for same in together.values()}
    return [{"text": clean(note), "ranks": rank_set(keys, 10**6)} for note, keys in notes.items()]


def _places(ranks) -> list[dict]:
    """Where the ranks are, or were when they died: ranks with the same story together, the smallest group first,
    because the odd one out is the interesting one."""
    groups: dict[tuple, list] = {}
    for rank in ranks:
        if rank.state in ("killed", "running") or (rank.state == "aborted" and rank.call):
            groups.setdefault((rank.state, rank.inside, rank.call, rank.site, rank.phase, rank.from_ring,
                               rank.ended_by, rank.owner, rank.exit_in_init, rank.by_memory),
                              []).append(rank)
    order = ("aborted", "killed", "running")
    chosen = sorted(groups.items(), key=lambda item: (order.index(item[0][0]), len(item[1]), item[1][0].key))
    if len(chosen) > MOST_PLACES:
        chosen = _folded(chosen)
    chosen = chosen[:MOST_GROUPS]
    stopped = any(rank.state == "stopped" for rank in ranks)
    started = min((r.start_time for r in ranks if r.start_time), default=0.0)
    known = symbols.lookup([key[3] for key, _ in chosen[:16] if key[3]], started)
    places = []
    for (state, inside, call, site, phase, from_ring, ended_by, owner, exit_in_init, by_memory), members in chosen:
        since = [r.since for r in members if r.since]
        places.append({"ranks": rank_set((r.key for r in members), 10**6), "count": len(members),
                       "end": "ended by the stop" if stopped else "ended by %s" % ended_by if ended_by else
                       "killed by the out-of-memory killer" if by_memory else "killed",
                       "ended_by": ended_by, "owner": owner_name(owner) if owner >= 0 else "",
                       "exit_in_init": exit_in_init,
                       "name": ranks_phrase([r.key for r in members]), "state": state, "inside_mpi": inside,
                       "call": call, "site": symbols.site_text(site, known), "phase": phase, "from_ring": from_ring,
                       "since": min(since) if since else None})
    return places


def _folded(groups: list) -> list:
    """Groups whose calls differ in numbers only, a peer or a count, as one."""
    together: dict[tuple, list] = {}
    for key, members in groups:
        together.setdefault((*key[:2], fold.template(key[2]), *key[3:]), []).append((key, members))
    folded = []
    for same in together.values():
        call = fold.merge([key[2] for key, _ in same])
        folded.append(((*same[0][0][:2], call, *same[0][0][3:]), sorted((rank for _, members in same for rank in members),
                                                                       key=lambda rank: rank.key)))
    order = ("aborted", "killed", "running")
    return sorted(folded, key=lambda item: (order.index(item[0][0]), len(item[1]), item[1][0].key))
