# SPDX-License-Identifier: Apache-2.0
"""Findings of a job: each once, those with the same story together, the hosts that they have in common, call sites as
function and line. Works on records; the call sites run addr2line (symbols.py) and read the rings' lists of objects."""

from __future__ import annotations

import math
import os
import re

from . import symbols
from .ring import Ring, RingError
from .text import clip, integer, plural, ranges, ranks_word

MOST_FINDINGS = 5000     # of a whole job that are looked at
MOST_SITES = 64          # call sites that are looked up
LUCK = 0.01              # chance, over all hosts, below which a host that is in most findings is named

# Kinds of docs/REPORT.md: one of them, more of them, and whether the fault lies on the way (hosts are of interest).
KINDS = {
    "message_corrupted": ("corrupted message", "corrupted messages", True),
    "send_buffer_modified": ("send buffer modified while the send was pending",
                             "send buffers modified while the send was pending", False),
    "receive_buffer_modified": ("receive buffer modified while the receive was pending",
                                "receive buffers modified while the receive was pending", False),
    "receive_buffer_touched": ("buffer of a pending receive that the program wrote into",
                               "buffers of pending receives that the program wrote into", False),
    "send_buffer_touched": ("buffer of a pending send that the program wrote into",
                            "buffers of pending sends that the program wrote into", False),
    "one_sided_race": ("pair of conflicting accesses to a window", "pairs of conflicting accesses to windows", False),
    "call_mismatch": ("pair of calls that do not match", "pairs of calls that do not match", False),
    "collective_mismatch": ("collective with different results on different ranks",
                            "collectives with different results on different ranks", True),
    "double_run": ("step with different results in two runs of it", "steps with different results in two runs",
                   False),
    "parts_differ": ("part of the job that has diverged", "parts of the job that have diverged", False),
    "part_dropped": ("part of the job that was dropped", "parts of the job that were dropped", False),
    "replica_mismatch": ("particle that differs from its replica", "particles that differ from their replicas", False),
    "particle_changed": ("particle whose data changed while a kernel read it", "particles whose data changed while kernels read it",
                         False),
    "one_sided_corrupted": ("corrupted one-sided transfer", "corrupted one-sided transfers", True),
    "premature_sync": ("wait for a device that returned too early", "waits for a device that returned too early", False),
    "lost_completion": ("wait for a device that does not return", "waits for a device that do not return", False),
    "device_copy_corrupted": ("copy between device and host memory that changed the data",
                              "copies between device and host memory that changed the data", True),
    "device_copy_failed": ("copy between device and host memory that failed",
                           "copies between device and host memory that failed", False),
    "device_copy_early": ("copy between device and host memory that was called complete too early",
                          "copies between device and host memory that were called complete too early", True),
    "divergence": ("rank that diverges from the recording", "ranks that diverge from the recording", False),
    "divergent_input": ("rank that received other data than recorded", "ranks that received other data than recorded", False),
    "replay_stuck": ("rank that waits for a recorded message", "ranks that wait for a recorded message", False),
}
# Against a recording: where it began comes before those that it reached, whatever the confidence.
CAUSE = {"divergence": 0, "divergent_input": 1, "replay_stuck": 2}
EVIDENCE = ("stage", "device", "sender_site", "receiver_site", "call_site", "site", "other_site", "first_difference", "expected", "found",
            "distance", "xor", "after", "inputs_agreed", "unrecorded", "backtrace_0", "differing", "differing_pieces", "element",
            "other_packet", "other_packet_call", "verdict_certainty", "packet")
WEIGHT = {"proved": 0, "verified": 1, "suspected": 2}

_SENDING = re.compile(r"send|source|from|origin", re.IGNORECASE)
_RECEIVING = re.compile(r"rec(ei)?v|dest|\bto\b|target", re.IGNORECASE)
_HOST = re.compile(r"host|node", re.IGNORECASE)
_PLACE = re.compile(r"rank (\d{1,9}) on ([A-Za-z0-9][A-Za-z0-9._-]{0,63})")  # in evidence "origin", "rank_host"
_WAY = re.compile(r"of rank (\d{1,9}) to rank (\d{1,9})")  # in evidence "packet"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def collect(directory, ranks) -> list[dict]:
    """Findings of the job and of the ranks. What several ranks say in the same words is one; what one rank says
    several times happened several times (`count`)."""
    unique: dict[tuple, dict] = {}
    sources = [(None, directory.findings)] + [(rank, rank.findings) for rank in ranks]
    for rank, found in sources:
        here: dict[tuple, int] = {}
        for finding in found:
            key = (finding["kind"], finding["message"], tuple(finding["culprit_ranks"]))
            here[key] = here.get(key, 0) + 1
            one = unique.get(key)
            if one is None:
                if len(unique) >= MOST_FINDINGS:
                    continue
                one = unique[key] = dict(finding, reports=0, count=0, world=rank.world if rank else 0,
                                         source=os.path.relpath(finding["source"], directory.path))
            one["reports"] += here[key] == 1
            one["count"] = max(one["count"], here[key])
    return list(unique.values())


def name_origin(found: list[dict]):
    """A run diverges from its recording in one rank first; the others get other data from it. What a rank sends is compared before it leaves: when nobody gave something else first, the first one that got it is where it
    changed, on the way there or in its memory."""
    worlds = {finding["world"] for finding in found if finding["kind"] == "divergent_input"}
    for world in worlds:
        parts = sorted((f for f in found if f["world"] == world and f["kind"] in ("divergence", "divergent_input")),
                       key=lambda f: (CAUSE[f["kind"]], _time(f)))
        own = [f for f in parts if f["kind"] == "divergence"]
        origin = own[0]["culprit_ranks"] if own else parts[0]["culprit_ranks"] or parts[0]["victim_ranks"]
        for finding in parts[len(own):]:
            finding["culprit_ranks"] = list(origin)


def _time(finding: dict) -> float:
    try:
        return float(finding["evidence"].get("time", "inf"))
    except ValueError:
        return float("inf")


def merge(directory, ranks) -> list[dict]:
    """One entry for each story: kind, verdict and the two hosts. The most certain and most frequent first."""
    hosts = {rank.key: rank.host for rank in ranks}
    groups: dict[tuple, dict] = {}
    totals: dict[str, int] = {}
    collected = collect(directory, ranks)
    name_origin(collected)
    for finding in collected:
        finding["way"] = way(finding)
        both = ends(finding, hosts)
        verdict = finding["evidence"].get("verdict", "")
        totals[finding["kind"]] = totals.get(finding["kind"], 0) + finding["count"]
        # A kind that is not known here, or has no hosts, is not lumped together: its sentences may mean anything.
        known = finding["kind"] in KINDS and any(both) and finding["kind"] != "divergence"
        key = (finding["kind"], verdict, both) if known else \
            (finding["kind"],) if finding["kind"] == "systemic" else \
            (finding["kind"], finding["message"], tuple(finding["culprit_ranks"]))
        group = groups.get(key)
        if group is None:
            groups[key] = dict(finding, verdict=verdict, hosts=list(both), others=[])
            continue
        group["count"] += finding["count"]
        group["reports"] += finding["reports"]
        if len(group["others"]) < 50:
            group["others"].append(finding["message"])
        for name in ("culprit_ranks", "victim_ranks"):
            group[name] = sorted(set(group[name]) | set(finding[name]))[:1000]
        group["way"] = tuple(ours | theirs for ours, theirs in zip(group["way"], finding["way"]))
        if WEIGHT.get(finding["confidence"], 3) < WEIGHT.get(group["confidence"], 3):
            group["confidence"] = finding["confidence"]
    for group in groups.values():
        group["of"] = totals[group["kind"]]
        group["senders"], group["receivers"] = (sorted(ends)[:1000] for ends in group.pop("way"))
    ordered = sorted(groups.values(), key=lambda g: (g["kind"] == "systemic", CAUSE.get(g["kind"], 0),
                                                     _time(g) if g["kind"] in CAUSE else 0,
                                                     WEIGHT.get(g["confidence"], 3), -g["count"], g["message"]))
    name_followers(ordered)
    name_sites(directory, ranks, ordered)
    return ordered


def name_followers(ordered: list[dict]):
    """A hang that was found after another one, and accuses the same ranks, has the same cause most likely: `follows` names it."""
    hangs = sorted((f for f in ordered if f["kind"].startswith("hang: ")), key=lambda f: (f.get("time", 0.0), f["source"]))
    for i, finding in enumerate(hangs):
        for earlier in hangs[:i]:
            accused = set(earlier["culprit_ranks"])
            if not earlier.get("follows") and (accused & set(finding["culprit_ranks"]) or not finding["culprit_ranks"]
                                               and accused & set(finding["victim_ranks"])):
                finding["follows"] = earlier["source"]
                break
    ordered.sort(key=lambda f: bool(f.get("follows")))  # stable: the cause first


def way(finding: dict) -> tuple[set, set]:
    """World ranks of the sending and of the receiving side."""
    evidence = finding["evidence"]
    way = _WAY.search(evidence.get("packet", ""))
    if way:
        return {int(way.group(1))}, {int(way.group(2))}
    places = [_PLACE.fullmatch(evidence.get(name, "")) for name in ("origin", "target")]
    if all(places):
        return {int(places[0].group(1))}, {int(places[1].group(1))}
    return set(finding["culprit_ranks"]), set(finding["victim_ranks"])


def ends(finding: dict, hosts: dict) -> tuple[str, str]:
    """(host of the sender, host of the receiver) as the evidence says, else from the ranks named; "" unknown. Of a
    collective: twice the host of the rank that is wrong, or the hosts of the two that disagree."""
    sender = receiver = ""
    if finding["kind"] == "collective_mismatch":
        where = {int(rank): host for rank, host in _PLACE.findall(finding["evidence"].get("rank_host", ""))}
        where = {rank: where.get(rank) or hosts.get((finding["world"], rank), "")
                 for rank in list(where) + finding["culprit_ranks"] + finding["victim_ranks"]}
        wrong = finding["culprit_ranks"] or list(where)
        found = sorted({where[rank] for rank in wrong})
        return (found[0], found[-1]) if 1 <= len(found) <= 2 else ("", "")
    for name, value in finding["evidence"].items():
        place = _PLACE.fullmatch(value)
        if place and name == "origin":
            sender = place.group(2)
        elif place and name == "target":
            receiver = place.group(2)
    for name, value in finding["evidence"].items():
        if _HOST.search(name) and _NAME.fullmatch(value):
            if _SENDING.search(name):
                sender = value
            elif _RECEIVING.search(name):
                receiver = value
    for which, ranks in zip(("sender", "receiver"), finding["way"]):
        found = {hosts.get((finding["world"], rank), "") for rank in ranks}
        if len(found) == 1:
            if which == "sender":
                sender = sender or found.pop()
            else:
                receiver = receiver or found.pop()
    return sender, receiver


def total(findings: list[dict]) -> int:
    """How many there are; a rate ("systemic") is about others and counts only alone."""
    return sum(f["count"] for f in findings if f["kind"] != "systemic") or len(findings)


def suspect(findings: list[dict], ranks) -> dict | None:
    """The host that is an end of clearly more findings than its share of the traffic explains. None where the
    evidence points to no single host; then not a word about hosts is the honest answer."""
    ends: dict[str, int] = {}
    partners: dict[str, set] = {}
    pairs = 0
    for finding in findings:
        if not KINDS.get(finding["kind"], ("", "", False))[2] or not all(finding["hosts"]):
            continue
        pairs += finding["count"]
        for host in set(finding["hosts"]):
            ends[host] = ends.get(host, 0) + finding["count"]
            partners.setdefault(host, set()).update(set(finding["hosts"]) - {host})
    everyone = {rank.host for rank in ranks if rank.host}
    if pairs < 2 or len(everyone | set(ends)) < 3:
        return None  # with two hosts every message between them has both ends in both
    host = max(ends, key=lambda name: (ends[name], name))
    others = max((count for name, count in ends.items() if name != host), default=0)
    expected = _traffic_share(host, ranks)
    if ends[host] == others or 2 * ends[host] <= pairs:
        return None
    chance = _at_least(ends[host], pairs, expected) * max(3, len(everyone))
    if chance >= LUCK:
        return None
    return {"host": host, "findings": ends[host], "of": pairs, "share_of_messages": expected,
            "partners": len(partners[host])}


def to_exclude(findings: list[dict], suspicion: dict | None) -> list[str]:
    """Hosts to leave out of the next run: the one that stands out, else the ends of the first finding whose fault lies on the
    way between them (docs/CHECKSUM.md: either may be it). None where the program itself is at fault."""
    if suspicion:
        return [suspicion["host"]]
    first = next((f for f in findings if KINDS.get(f["kind"], ("", "", False))[2] and all(f["hosts"])), None)
    return [host for host in sorted(set(first["hosts"])) if _NAME.fullmatch(host)] if first else []


def _traffic_share(host: str, ranks) -> float:
    """Share of the job's messages with an end on that host; without counters as if all pairs of hosts were alike."""
    hosts = {rank.key: rank.host for rank in ranks}
    all_messages = touching = 0
    for rank in ranks:
        for other, (sent, _, _, _) in rank.peers.items():
            all_messages += sent
            if rank.host == host or hosts.get((rank.world, other)) == host:
                touching += sent
    if all_messages:
        return min(1.0, max(touching, 1) / all_messages)
    return min(1.0, 2.0 / max(1, len(set(hosts.values()))))


def _at_least(count: int, trials: int, chance: float) -> float:
    """Probability of `count` or more hits in `trials`, each with probability `chance`."""
    if chance >= 1:
        return 1.0
    if trials > 2000:  # the shape is the same, and the sum stays short
        count, trials = max(0, count * 2000 // trials), 2000
    return min(1.0, sum(math.comb(trials, k) * chance**k * (1 - chance)**(trials - k)
                        for k in range(count, trials + 1)))


def suspect_sentence(s: dict | None) -> str:
    if not s:
        return ""
    part = 100 * s["share_of_messages"]
    return "%s is an end of %d of %s findings, but of only %s %% of all messages%s: suspect this host first" % (
        clip(s["host"], 40), s["findings"], integer(s["of"]), "%.0f" % part if part >= 1 else "%.1g" % part,
        ", and its partners differ" if s["partners"] > 1 else "")


def sentence(group: dict) -> str:
    """One entry in words: the finding itself, or how many of a kind share its story."""
    culprits = " (culprit: %s%s)" % (ranks_word(ranges(group["culprit_ranks"], 6)), "; peer, not accused: %s" % ranks_word(
        ranges(group["peer_ranks"], 6)) if group.get("peer_ranks") else "") if group["culprit_ranks"] else ""
    if group.get("follows"):
        return "follows from %s (the same ranks are accused): %s, %s: %s%s [%s]" % (
            group["follows"], group["confidence"] or "?", group["kind"], group["message"], culprits, group["source"])
    if group["count"] == 1 or group["kind"] == "systemic":
        return "%s, %s: %s%s [%s]" % (group["confidence"] or "?", group["kind"] or "?", group["message"], culprits,
                                      group["source"])
    way = ""
    if group["kind"] in KINDS:
        what = KINDS[group["kind"]][1]
        sender, receiver = group["hosts"] if group["hosts"] else ("", "")
        way = " on %s" % clip(" and ".join(dict.fromkeys((sender, receiver))), 40) \
            if group["kind"] == "collective_mismatch" and sender and receiver else " came over %s -> %s" % (clip(sender, 30), clip(receiver, 30)) if sender and receiver \
            and sender != receiver else " stayed within %s" % clip(sender, 30) if sender and receiver \
            else " on %s" % clip(sender or receiver, 30) if sender or receiver else ""
    else:
        what = "of kind %s" % (group["kind"] or "?")
    if group["kind"] in CAUSE:
        way = ""  # whose rank it is, not which path
    who = ranges(group["senders"], 4), ranges(group["receivers"], 4)
    ranks = " (%s)" % ranks_word(ranges(set(group["culprit_ranks"] or group["victim_ranks"]), 6)) \
        if group["kind"] == "collective_mismatch" else " (ranks %s -> %s)" % who if all(who) else " (%s)" % ranks_word(who[0] or who[1]) if any(who) else ""
    verdict = ": %s" % group["verdict"] if group["verdict"] else ""
    return "%s: %s of %s %s%s%s%s; the first: %s [%s]" % (
        group["confidence"] or "?", integer(group["count"]), integer(group["of"]), what, way, ranks, verdict,
        group["message"], group["source"])


def shown_evidence(group: dict) -> list[tuple[str, str]]:
    """Evidence for the screen: what the sentence does not say, where and what differs before digests."""
    said = sentence(group)
    items = [(name, value) for name, value in group["evidence"].items() if len(value) <= 8 or value not in said]
    return sorted(items, key=_order)


def _order(item: tuple[str, str]) -> tuple[int, int]:
    """Frames of one stack stand together, in their order."""
    name, _, number = item[0].rpartition("_")
    if name == "backtrace" and number.isdecimal() and len(number) < 6:
        return EVIDENCE.index("backtrace_0"), int(number)
    return EVIDENCE.index(item[0]) if item[0] in EVIDENCE else len(EVIDENCE) + ("digest" in item[0]), 0


def headline(findings: list[dict]) -> str:
    """"13 findings: 12 corrupted messages, 1 …"."""
    kinds: dict[str, int] = {}
    for group in findings:
        if group["kind"] != "systemic":
            kinds[group["kind"]] = kinds.get(group["kind"], 0) + group["count"]
    words = ["%s %s" % (integer(count), KINDS[kind][count != 1]) for kind, count in kinds.items() if kind in KINDS]
    count = plural(total(findings), "finding")
    following = sum(1 for group in findings if group.get("follows"))
    if following:
        return "%s, %s of the same cause" % (count, "one" if following == 1 else "%d" % following)
    return "%s: %s" % (count, ", ".join(words)) if words and len(words) == len(kinds) else count


# -- call sites ---------------------------------------------------------------------------------------------------

def objects(directory, ranks) -> dict[str, str]:
    """Short name: path of the object files of this job; a name that means two files is left out."""
    paths = {rank.executable for rank in ranks if rank.executable}
    for path in list(directory.rings.values())[:16]:
        try:
            with Ring(path) as ring:
                paths.update(ring.object_files())
        except RingError:
            continue
    named: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path)
        named[name] = path if named.get(name, path) == path else ""
    return {name: path for name, path in named.items() if path}


def named(directory, ranks, words: str) -> str:
    """A sentence with "function at file:line" in place of what is known. A computation is sampled: "app+0x12 to 0x34" is one place."""
    if "+0x" not in words:
        return words
    known_objects = objects(directory, ranks)
    words = re.sub(r"(\+0x[0-9a-f]+) to 0x[0-9a-f]+", r"\1", words) if symbols.sites_in(words, known_objects) else words
    known = symbols.lookup(symbols.sites_in(words, known_objects)[:MOST_SITES], min((r.start_time for r in ranks if r.start_time), default=0.0))
    return symbols.resolve_sentence(words, known_objects, known)


def name_sites(directory, ranks, findings: list[dict]) -> None:
    """Puts "function at file:line" in front of every "object+0xoffset" of messages and evidence that is known."""
    texts = [text for f in findings[:MOST_SITES] for text in [f["message"], f["to_do"], *f["evidence"].values()]]
    if not any("+0x" in text for text in texts):
        return
    known_objects = objects(directory, ranks)
    sites = [site for text in texts for site in symbols.sites_in(text, known_objects)][:MOST_SITES]
    known = symbols.lookup(sites, min((r.start_time for r in ranks if r.start_time), default=0.0))
    for f in findings[:MOST_SITES]:
        f["message"] = symbols.resolve_sentence(f["message"], known_objects, known)
        f["to_do"] = symbols.resolve_sentence(f["to_do"], known_objects, known)
        f["evidence"] = {name: symbols.resolve_sentence(value, known_objects, known)
                         for name, value in f["evidence"].items()}
