#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The overlay between hosts: seven network namespaces on one bridge, a leader in each. Leaders are killed and stopped,
links are cut, strangers knock. Skipped where namespaces are not permitted.

Usage: overlay_hosts_test.py OVERLAY_NODE
"""
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
from harness import patience  # noqa: E402
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
             f" s = socket.create_connection(('10.77.0.1', {port}), 10)\n"
             " s.settimeout(10)\n"
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
                command = ["unshare", *flags, "--kill-child", "--fork", sys.executable, *sys.argv]
                return subprocess.run(command, env={**os.environ, INSIDE: "1"}).returncode
        print("skipped: network namespaces are not permitted here")
        return 77
    network()
    hosts = Hosts(sys.argv[1])
    try:
        return run_checks([(check.__name__.replace("_", " "), lambda check=check: check(hosts))
                           for check in (everybody, strangers, stopped, cut, killed, divided, root_killed)])
    finally:
        hosts.close()


if __name__ == "__main__":
    sys.exit(main())
