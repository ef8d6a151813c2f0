#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The overlay between hosts: seven network namespaces on one bridge, a leader in each. Leaders are killed and stopped,
links are cut, the way between two hosts is lost, strangers knock. Skipped where namespaces are not permitted.

By hand, with --job: a real job of Open MPI over TCP, one rank a host, in which the way between two hosts is lost before a
message; the finding must name the two nodes, and the job must end by itself when the way is back. 40 s of two cores.

Usage: overlay_hosts_test.py OVERLAY_NODE [--job]
"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, patience  # noqa: E402
from harness.main import run_checks  # noqa: E402

HOSTS, FAN_OUT, PATIENCE = 7, 2, 60
INSIDE = "OVERLAY_HOSTS_INSIDE"
#     0
#   1   2       parents before anything happens
#  3 4 5 6


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=600)


def network():
    """Bridge in the test's own namespace; host N is 10.77.0.(N+1), the stranger 10.77.0.99."""
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True, capture_output=True)
    ip("link", "set", "lo", "up")
    ip("link", "add", "switch", "type", "bridge")
    ip("link", "set", "switch", "up")
    for host in [*range(HOSTS), 98]:
        ip("netns", "add", f"h{host}")
        ip("link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0", "netns", f"h{host}")
        ip("link", "set", f"port{host}", "master", "switch", "up")
        ip("-n", f"h{host}", "link", "set", "lo", "up")
        ip("-n", f"h{host}", "addr", "add", f"10.77.0.{host + 1}/24", "dev", "eth0")
        ip("-n", f"h{host}", "link", "set", "eth0", "up")


class Node:
    """One process on one host."""

    def __init__(self, program, directory, host, role="leader"):
        self.host, self.path = host, os.path.join(directory, f"log-{role}-{host}")
        with open(self.path, "w", encoding="ascii") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", f"h{host}", program, directory, str(host), str(HOSTS), str(FAN_OUT), role],
                stdout=log, stderr=subprocess.STDOUT)

    def said(self, pattern):
        """All that matches, oldest first."""
        with open(self.path, encoding="ascii") as log:
            return re.findall(f"(?m)^{pattern}$", log.read())

    def last(self, pattern):
        found = self.said(pattern)
        return found[-1] if found else None

    def parent(self):
        return int(self.last(r"parent (-?\d+)") or -1)

    def root(self):
        return int(self.last(r"root (-?\d+)") or -1)

    def lacks(self):
        """Nodes missing in the last round that this node led; None: it led none."""
        last = self.last(r"round \d+ lacks \[([\d ]*)\] has \d+")
        return None if last is None else [int(number) for number in last.split()]

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Hosts:
    def __init__(self, program):
        self.directory = tempfile.mkdtemp(prefix="overlay-")
        self.nodes = [Node(program, self.directory, host) for host in range(HOSTS)]
        self.standby = Node(program, self.directory, 0, "standby")

    def wait(self, what, condition):
        limit = patience.Patience(PATIENCE)
        while not condition():
            if limit.over():
                logs = []
                for node in [*self.nodes, self.standby]:
                    with open(node.path, encoding="ascii") as log:
                        logs.append(f"{os.path.basename(node.path)}:\n{log.read()}")
                raise AssertionError(f"{what} did not come\n" + "\n".join(logs))
            time.sleep(0.02)

    def parents(self, expected):
        self.wait(f"parents {expected}", lambda: all(self.nodes[node].parent() == parent
                                                     for node, parent in expected.items()))

    def lacking(self, root, expected):
        self.wait(f"a round of {root.path} without {expected}", lambda: root.lacks() == expected)

    def close(self):
        for node in [*self.nodes, self.standby]:
            node.kill()
        shutil.rmtree(self.directory)


def own_place():
    return {node: (node - 1) // FAN_OUT for node in range(1, HOSTS)}


def everybody(hosts):
    hosts.parents(own_place())
    hosts.lacking(hosts.nodes[0], [])
    for node in hosts.nodes:
        assert node.said(r"listens (.*)") == [f"10.77.0.{node.host + 1}"], node.said("listens .*")


def strangers(hosts):
    """Another host with a free hand: its connections end without a byte, and the tree does not notice."""
    with open(os.path.join(hosts.directory, "leader-0"), "rb") as file:
        address = file.read()
    port = int.from_bytes(address[16:18], sys.byteorder)
    knock = ("import socket\n"
             "for i in range(50):\n"
             f" s = socket.create_connection(('10.77.0.1', {port}), 300)\n"
             " s.settimeout(300)\n"
             " try:\n"
             "  s.sendall(b'RSLO' * 100)\n"
             "  assert s.recv(100) == b''\n"
             " except ConnectionError: pass\n"
             " s.close()\n")
    subprocess.run(["ip", "netns", "exec", "h98", "/usr/bin/python3", "-c", knock], check=True, timeout=600)
    hosts.wait("strangers", lambda: hosts.nodes[0].last(r"strangers refused (\d+)") == "50")
    hosts.lacking(hosts.nodes[0], [])


def stopped(hosts):
    hosts.nodes[1].signal(signal.SIGSTOP)
    hosts.lacking(hosts.nodes[0], [1])
    hosts.parents({3: 0, 4: 0})
    hosts.nodes[1].signal(signal.SIGCONT)
    hosts.parents(own_place())
    hosts.lacking(hosts.nodes[0], [])


def cut(hosts):
    """A link without a word to anybody: those behind node 2 find another way, node 2 comes back by itself."""
    ip("link", "set", "port2", "down")
    hosts.lacking(hosts.nodes[0], [2])
    hosts.parents({5: 0, 6: 0})
    hosts.wait("node 2 on its own", lambda: hosts.nodes[2].root() == 2)
    ip("link", "set", "port2", "up")
    hosts.parents(own_place())
    hosts.lacking(hosts.nodes[0], [])


def lose(one, other, lost):
    """Whether frames between two hosts get lost on their way, and only these: their neighbour's address is nobody's."""
    for here, there in ((one, other), (other, one)):
        words = ["lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", "permanent"] if lost else ["dev", "eth0"]
        ip("-n", f"h{here}", "neigh", "replace" if lost else "del", f"10.77.0.{there + 1}", *words)


def pair(hosts):
    """The way between two nodes only is lost, while both reach the root, and all others both: by a vote."""
    root = hosts.nodes[0]
    lose(4, 5, True)
    with open(os.path.join(hosts.directory, "waits"), "w", encoding="ascii") as file:
        file.write("5 4")
    hosts.wait("a vote", lambda: root.last(r"way 5-4 (.*)") == "4 failures 2 asked 5 from 5 to 5 both 5")
    hosts.lacking(root, [])
    lose(4, 5, False)
    hosts.wait("the way", lambda: (root.last(r"way 5-4 (.*)") or "").startswith("2 failures 0"))


def pair_in_tree(hosts):
    """The same between a node and its parent: it finds another place, and the vote is the same."""
    root = hosts.nodes[0]
    lose(2, 6, True)
    with open(os.path.join(hosts.directory, "waits"), "w", encoding="ascii") as file:
        file.write("2 6")
    hosts.parents({6: 0})
    hosts.wait("a vote", lambda: re.fullmatch(r"4 failures 2 asked ([1-5]) from \1 to \1 both \1", root.last(r"way 2-6 (.*)") or ""))
    hosts.lacking(root, [])
    lose(2, 6, False)
    hosts.parents(own_place())


def vote_on_cut(hosts):
    """Nobody reaches a node whose link is cut: that is no matter of two nodes."""
    with open(os.path.join(hosts.directory, "waits"), "w", encoding="ascii") as file:
        file.write("3 6")
    root = hosts.nodes[0]
    ip("link", "set", "port6", "down")
    hosts.wait("a vote", lambda: re.fullmatch(r"4 failures 2 asked ([1-5]) from \1 to 0 both 0", root.last(r"way 3-6 (.*)") or ""))
    os.unlink(os.path.join(hosts.directory, "waits"))
    ip("link", "set", "port6", "up")
    hosts.lacking(root, [])
    hosts.parents(own_place())


def killed(hosts):
    hosts.nodes[1].kill()
    hosts.lacking(hosts.nodes[0], [1])
    hosts.parents({3: 0, 4: 0})


def divided(hosts):
    """Node 0 is cut off: the lowest of the others leads them, and hands over when the link is back."""
    ip("link", "set", "port0", "down")
    hosts.lacking(hosts.nodes[2], [0, 1])
    hosts.lacking(hosts.nodes[0], [1, 2, 3, 4, 5, 6])
    ip("link", "set", "port0", "up")
    hosts.wait("node 0 leading again", lambda: all(hosts.nodes[node].root() == 0 for node in (2, 3, 4, 5, 6)))
    hosts.lacking(hosts.nodes[0], [1])


def root_killed(hosts):
    """Its standby takes over."""
    hosts.nodes[0].kill()
    hosts.standby.signal(signal.SIGUSR1)
    hosts.lacking(hosts.standby, [1])
    hosts.wait("all with the standby", lambda: all(hosts.nodes[node].root() == 0 for node in (2, 3, 4, 5, 6)))


APP = r"""
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, size, token = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int to = 0; to < size; ++to)
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + to) % size, 3, &token, 1, MPI_INT, (rank + size - to) % size, 3,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 0) {
    fclose(fopen(argv[1], "w"));
    while (access(argv[2], F_OK) != 0) usleep(10000);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) MPI_Send(&rank, 1, MPI_INT, 3, 7, MPI_COMM_WORLD);
  if (rank == 3) MPI_Recv(&token, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("token %d\n", rank);
  MPI_Finalize();
  return 0;
}
"""


def job():
    """A message between two hosts that do not reach each other any more: which two, by the vote of the others."""
    folder = jobs.scratch()
    source, program, agent = (os.path.join(folder, name) for name in ("app.c", "app", "agent"))
    ready, go, report = (os.path.join(folder, name) for name in ("ready", "go", "report"))
    with open(source, "w", encoding="ascii") as file:
        file.write(APP)
    subprocess.run(["mpicc.openmpi", "-O1", "-g", "-o", program, source], check=True)
    with open(agent, "w", encoding="ascii") as file:
        file.write('#!/bin/bash\nhost=$1\nshift\nexec ip netns exec h$((${host##*.} - 1)) sh -c "$*"\n')
    os.chmod(agent, 0o700)
    settings = {"plm_rsh_agent": agent, "plm_rsh_no_tree_spawn": "1", "oob_tcp_if_include": "10.77.0.0/24", "pml": "ob1",
                "btl": "tcp,self", "btl_tcp_if_include": "10.77.0.0/24", "mpi_yield_when_idle": "1"}
    line = ["ip", "netns", "exec", "h0", "mpirun.openmpi", "--host", ",".join(f"10.77.0.{host + 1}" for host in range(4)), "-np", "4",
            *(word for name, value in settings.items() for word in ("--mca", name, value)),
            "-x", f"LD_PRELOAD={jobs.library()}", "-x", "RESIL_NODE_RANKS=1", "-x", f"RESIL_DIR={report}", "-x", "RESIL_LOG=quiet"]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with subprocess.Popen([*line, program, ready, go], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            patience.wait_for(lambda: os.path.exists(ready), "the job", 60)
            lose(1, 3, True)
            with open(go, "w", encoding="ascii"):
                pass
            patience.wait_for(lambda: glob.glob(os.path.join(report, "hang-*.json")), "a finding", 120)
            lose(1, 3, False)
            out, said = running.communicate(timeout=600)
        finally:
            running.kill()
    with open(glob.glob(os.path.join(report, "hang-*.json"))[0], encoding="utf-8") as file:
        found = json.load(file)
    assert running.returncode == 0 and out == b"token 0\n", (running.returncode, out, said)
    assert found["class"] == "inside_mpi" and not found["culprit_ranks"], found["message"]
    assert re.search(r"Node 1 \([^)]*rank 1\) and node 3 \([^)]*rank 3\) do not reach each other: \d+ probes in [\d.]+ s had no reply, "
                     "and 2 of 2 other nodes reach both", found["message"]), found["message"]
    errors = {(one["sources"], one["destination"]): one for one in found["errors"]}
    assert errors["3", 1]["status"] == "path broken" and errors["3", 1]["vote"]["reach_both"] == 2, errors
    with open(os.path.join(report, "hang.log"), encoding="utf-8") as file:
        assert "notice node 1" in file.read()


def main():
    if not shutil.which("ip") or not shutil.which("unshare"):
        print("skipped: no ip or unshare")
        return 77
    if INSIDE not in os.environ:
        # Namespaces of its own for the whole test: nothing of it is left, whatever happens.
        for flags in (["-nmp"], ["-Urnmp"]):
            try_it = "mount -t tmpfs none /run && ip netns add x && ip netns exec x true && " \
                     "ip link add port0 type veth peer name eth0 && ip link add switch type bridge"
            if subprocess.run(["unshare", *flags, "--fork", "sh", "-c", try_it], capture_output=True).returncode == 0:
                command = ["unshare", *flags, "--mount-proc", "--kill-child", "--fork", sys.executable, *sys.argv]
                return subprocess.run(command, env={**os.environ, INSIDE: "1"}).returncode
        print("skipped: network namespaces are not permitted here")
        return 77
    network()
    if "--job" in sys.argv:
        return run_checks([("a job with a broken way", job)])
    hosts = Hosts(sys.argv[1])
    try:
        return run_checks([(check.__name__.replace("_", " "), lambda check=check: check(hosts))
                           for check in (everybody, strangers, stopped, cut, pair, pair_in_tree, vote_on_cut, killed, divided, root_killed)])
    finally:
        hosts.close()


if __name__ == "__main__":
    sys.exit(main())
