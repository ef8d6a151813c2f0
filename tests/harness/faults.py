# SPDX-License-Identifier: Apache-2.0
"""Fault injection: what was injected (faults-*.jsonl) against what was found (findings of the rank reports).

Used by scripts/campaign and tests/faults. Touches report directories only.
"""
import collections
import glob
import json
import os
import re

from . import report as reports

KINDS = ("flip", "swap", "zero", "stale", "duplicate", "truncate", "transpose", "modify", "early")
RIGHT = {"flip": "transit or staging", "swap": "transit or staging", "zero": "transit or staging",
         "truncate": "transit or staging", "stale": "nothing delivered", "duplicate": "packet of another slot",
         "transpose": "packet of another slot", "modify": "send buffer modified while pending",
         "early": "completed before the data landed"}
UNDETERMINED = "undetermined"
# Open MPI 4.1's own one-sided modules: osc/ucx loses data now and then, osc/rdma crashes, without any tool.
OPTIONS = {"openmpi": ["--mca", "osc", "pt2pt,sm"], "mpich": []}
# Kinds of findings that are about one packet.
ABOUT_DATA = ("message_corrupted", "send_buffer_modified", "collective_mismatch", "one_sided_corrupted")


class Injection:
    def __init__(self, row):
        self.__dict__.update(row)
        self.remark = row.get("remark", "")
        sending = self.side == "send"
        self.sender, self.receiver = (self.rank, self.peer) if sending else (self.peer, self.rank)
        self.verdicts = []  # of the findings that are this injection's
        # How many with one key: both packets of an exchange; of messages each has a key of its own.
        self.findings = 2 if self.kind == "transpose" and self.tag == -1 else 1

    @property
    def found(self):
        return bool(self.verdicts)

    def right_verdicts(self):
        """Two where the fault is both: nothing of the packet was left, or it landed after resil's last look."""
        late = self.kind == "early" and "call ended" in self.remark
        nothing = late or (self.kind == "truncate" and self.position == 0)
        return (RIGHT[self.kind], RIGHT["stale"]) if nothing else (RIGHT[self.kind],)

    def explain(self, finding):
        """Takes the finding as one of this injection; its verdict, or whether it names the right rank."""
        verdict = finding["evidence"].get("verdict")
        if finding["kind"] == "collective_mismatch" and verdict is None:
            named = finding["culprit_ranks"]  # where the wrong data is
            wrong = self.side == "receive" and named and self.rank not in named
            verdict = UNDETERMINED if not named else f"names ranks {named}" if wrong else RIGHT[self.kind]
        self.verdicts.append(verdict or UNDETERMINED)

    def outcome(self):
        """missed, right, undetermined or wrong."""
        if not self.verdicts:
            return "missed"
        right = self.right_verdicts()
        if any(v not in right and v != UNDETERMINED for v in self.verdicts):
            return "wrong"
        return "right" if any(v in right for v in self.verdicts) else UNDETERMINED

    def text(self):
        remark = ", " + self.remark if self.remark else ""
        return (f"{self.kind} of {self.bytes} bytes in {self.call} of rank {self.rank} ({self.side}, peer {self.peer}, "
                f"tag {self.tag}, collective {self.sequence}{remark}): {self.verdicts or 'missed'}")


def injections(directory):
    rows = []
    for path in sorted(glob.glob(os.path.join(directory, "faults-*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            rows += [Injection(json.loads(line)) for line in file]
    return rows


def findings(directory):
    """[(rank, finding)] of all ranks, and the number of those that the reports had no room for."""
    found, dropped = [], 0
    for rank, report in sorted(reports.load(directory).items()):
        found += [(rank, finding) for finding in report["findings"]]
        dropped += report.get("findings_dropped", 0)
    return found, dropped


def keys_of_finding(rank, finding):
    """What the finding says it is about, as keys that an injection may have."""
    evidence = finding["evidence"]
    comm = re.search(r"id ([0-9a-f]{16})", evidence.get("communicator", ""))
    comm = comm[1] if comm else ""
    packet = re.match(r"number \d+ of rank (\d+) to rank (\d+), (tag|collective number) (\d+)",
                      evidence.get("packet", ""))
    if packet:
        sender, receiver, what, number = int(packet[1]), int(packet[2]), packet[3], int(packet[4])
        if what == "tag":
            return [("message", sender, receiver, number)]
        return [("block", comm, number, sender, receiver), ("collective", comm, number)]
    if finding["kind"] == "collective_mismatch":
        number = re.search(r"\d+", evidence.get("sequence", ""))
        return [("collective", comm, int(number[0]))] if number else []
    if finding["kind"] == "one_sided_corrupted":
        origin, target = (re.match(r"rank (\d+)", evidence.get(name, "")) for name in ("origin", "target"))
        if origin and target:
            return [("put", int(origin[1]), int(target[1]), int(evidence["bytes"]))]
    return []


def keys_of_injection(injection):
    if injection.sequence:
        return [("block", injection.comm, injection.sequence, injection.sender, injection.receiver),
                ("collective", injection.comm, injection.sequence)]
    if re.match(r"MPI_(R?put|get)", injection.call, re.I):
        return [("put", injection.rank, injection.peer, injection.bytes)]
    keys = [("message", injection.sender, injection.receiver, injection.tag)]
    if injection.kind == "transpose":
        keys.append(("message", injection.other_peer, injection.rank, injection.other_tag))
    return keys


def match(injected, found):
    """Gives each finding to the injection that it is about; the findings that are nobody's (false alarms)."""
    waiting = collections.defaultdict(list)
    for injection in injected:
        for key in keys_of_injection(injection):
            waiting[key].append(injection)
    strangers = []
    for rank, finding in found:
        if finding["kind"] not in ABOUT_DATA:
            continue
        key = next((key for key in keys_of_finding(rank, finding) if key in waiting), None)
        if key is None:
            strangers.append((rank, finding))
        elif key[0] in ("block", "collective"):
            for injection in waiting[key]:  # two faults in one block, or in one result, are found together
                injection.explain(finding)
        else:
            # Equal keys (a tag used again): the one that has none yet, in the order of time; else one more for it.
            next((i for i in waiting[key] if len(i.verdicts) < i.findings), waiting[key][0]).explain(finding)
    return strangers


def read(directory):
    """(injections, with their verdicts; findings that no injection explains; findings dropped by the reports)."""
    injected = injections(directory)
    found, dropped = findings(directory)
    return injected, match(injected, found), dropped
