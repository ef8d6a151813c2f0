# SPDX-License-Identifier: Apache-2.0
"""Names and lines of stripped programs, whose debugging information lies elsewhere: beside them, in /usr/lib/debug, by build id; and from a
server only when the user says so. Also inlined frames of what the helper threads have read."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import unittest.mock

import support
from resil_tool import gathered, remote_stacks, symbols
from support import Case

SOURCE = """volatile int sink;
static inline __attribute__((always_inline)) int relax(int x) {
  return sink = 3 * x;
}
static __attribute__((noinline)) int solve(int x) {
  return relax(x) + 1;
}
int main(int argc, char** argv) {
  (void)argv;
  return solve(argc);
}
"""
PLACE = "solve at app.c:6"
CONTAINED = """program heat
  implicit none
  integer :: i
  do i = 1, 3
    call halo(i)
  end do
contains
  subroutine halo(i)
    integer, intent(in) :: i
    call exchange(i)
  end subroutine
end program
"""
ASK = """
import sys
sys.path.insert(0, %r)
from resil_tool import symbols
print(symbols.lookup([(sys.argv[1], int(sys.argv[2], 16))]).get((sys.argv[1], int(sys.argv[2], 16)), ""))
""" % os.path.join(support.ROOT, "scripts")


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def in_own_mounts(words):
    """The command in a mount namespace of its own in which /usr/lib/debug is empty; None: not permitted here."""
    for flags in (["-m"], ["-Urm"]):
        start = ["unshare", *flags, "sh", "-c", "mount -t tmpfs none /usr/lib/debug && exec \"$@\"", "sh"]
        if shutil.which("unshare") and subprocess.run([*start, "true"], capture_output=True, check=False).returncode == 0:
            return [*start, *words]
    return None


class DebugInformation(Case):
    def setUp(self):
        super().setUp()
        if not all(map(shutil.which, ("cc", "addr2line", "objcopy", "strip", "nm"))):
            self.skipTest("no compiler, or no binutils")
        source = self.write("app.c", SOURCE, self.top)
        self.whole, self.bare, self.debug = (os.path.join(self.top, name) for name in ("whole", "bare", "bare.debug"))
        subprocess.run(["cc", "-O1", "-g", "-Wl,--build-id=sha1", "-o", self.whole, source], check=True)
        subprocess.run(["objcopy", "--only-keep-debug", self.whole, self.debug], check=True)
        subprocess.run(["strip", "-o", self.bare, self.whole], check=True)
        table = subprocess.run(["nm", self.whole], stdout=subprocess.PIPE, check=True).stdout.decode()
        start = next(int(line.split()[0], 16) for line in table.splitlines() if line.endswith(" solve"))
        lines = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--start-address=%#x" % start, "--stop-address=%#x" % (start + 64), self.whole],
                               stdout=subprocess.PIPE, check=True).stdout.decode()
        body = re.split(r"(?m)^[0-9a-f]+ <", lines)[1]
        self.addresses = [int(word, 16) for word in re.findall(r"(?m)^ +([0-9a-f]+):", body)]

    def test_contained_procedure(self):
        """One of Fortran that was inlined goes by its own name; without elfutils by that of the procedure around it, never by another one."""
        if not shutil.which("gfortran"):
            self.skipTest("no gfortran")
        source, program = self.write("heat.f90", CONTAINED, self.top), os.path.join(self.top, "heat")
        exchange = self.write("exchange.c", "void exchange_(const int* i) { (void)i; }\n", self.top)
        subprocess.run(["cc", "-c", "-o", exchange + ".o", exchange], check=True)
        subprocess.run(["gfortran", "-O2", "-g", "-fno-unroll-loops", "-o", program, source, exchange + ".o"], check=True)
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], stdout=subprocess.PIPE, check=True).stdout.decode()
        returns = [int(word, 16) for word in re.findall(r"(?:call|bl) .*<exchange_>\n +([0-9a-f]+):", text)]
        self.assertTrue(returns, text)
        sites = [(program, address) for address in returns]
        which = shutil.which
        for names, tools in (({"halo"}, ("addr2line", "eu-addr2line")), ({"heat"}, ("addr2line",))):
            if not all(map(which, tools)):
                continue
            with unittest.mock.patch.object(shutil, "which", lambda name, tools=tools: which(name) if name in tools else None):
                self.assertEqual({symbols.lookup(sites)[site] for site in sites}, {f"{name} at heat.f90:10" for name in names})
                self.assertEqual({symbols.chains(sites)[site][0] for site in sites}, {(name, "heat.f90:10") for name in names})

    def test_contained_in_the_main_program(self):
        """As binutils 2.40 and elfutils 0.188 tell of a program whose MAIN__ is not inlined in main: it was "program at …"."""
        said = {"addr2line": "0x00000000000012bc\nMAIN__\n/home/ada/fort.f90:20\ndeadlock\n/home/ada/fort.f90:10\n",
                "eu-addr2line": "0x00000000000012bc\nhalo inlined at /home/ada/fort.f90:10:16 in deadlock\n/home/ada/fort.f90:20:90\ndeadlock\n"
                                "/home/ada/fort.f90:10:16\n"}
        for name, tools in (("halo", ("addr2line", "eu-addr2line")), ("deadlock", ("addr2line",))):
            with unittest.mock.patch.object(shutil, "which", lambda tool, tools=tools: tool if tool in tools else None), \
                    unittest.mock.patch.object(symbols, "_run", lambda tool, *_: said[tool]):
                self.assertEqual(symbols.lookup([(self.whole, 0x12bd)]), {(self.whole, 0x12bd): name + " at fort.f90:20"})

    def found(self, path, **settings):
        """What is known of any address in solve."""
        env = dict(os.environ, **settings)
        command = [sys.executable, "-c", ASK, path, "%x" % self.inside]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, env=env).stdout.decode().strip()

    @property
    def inside(self):
        known = symbols.lookup([(self.whole, address) for address in self.addresses])
        return next(address for (_, address), words in known.items() if words == PLACE)

    def test_stripped_has_no_name(self):
        self.assertEqual(self.found(self.bare), "")

    def test_beside_the_program(self):
        subprocess.run(["objcopy", "--add-gnu-debuglink=" + self.debug, self.bare], check=True, cwd=self.top)
        self.assertEqual(self.found(self.bare), PLACE)

    def test_in_usr_lib_debug_by_build_id_and_by_name(self):
        build = subprocess.run(["readelf", "-n", self.whole], stdout=subprocess.PIPE, check=True).stdout.decode()
        number = re.search(r"Build ID: ([0-9a-f]{40})", build).group(1)
        places = {"by build id": (self.bare, "/usr/lib/debug/.build-id/%s/%s.debug" % (number[:2], number[2:]))}
        named = os.path.join(self.top, "named")
        subprocess.run(["objcopy", "--add-gnu-debuglink=" + self.debug, "--remove-section=.note.gnu.build-id", self.bare, named], check=True)
        places["by name"] = (named, "/usr/lib/debug%s/bare.debug" % self.top)
        inside, moved = self.inside, self.debug + ".moved"
        os.rename(self.debug, moved)
        for what, (program, place) in places.items():
            script = 'mkdir -p "$(dirname "%s")" && cp %s "%s" && exec "$@"' % (place, moved, place)
            command = in_own_mounts(["sh", "-c", script, "sh", sys.executable, "-c", ASK, program, "%x" % inside])
            if command is None:
                self.skipTest("no mount namespace is permitted here")
            done = subprocess.run(command, capture_output=True, check=False)
            self.assertEqual((what, done.stdout.decode().strip()), (what, PLACE), done.stderr)

    def test_a_server_is_asked_only_if_the_user_says_so(self):
        tools = os.path.join(self.top, "bin")
        for name in ("addr2line", "eu-stack"):
            os.chmod(self.write(name, '#!/bin/sh\nenv > "%s/%s.env"\n' % (self.top, name), tools), 0o755)
        asked = {"PATH": tools + ":" + os.environ["PATH"], "DEBUGINFOD_URLS": "http://127.0.0.1:9/", "LD_PRELOAD": ""}
        before = dict(os.environ)
        try:
            for wanted in (False, True):
                os.environ.update(asked, **({"RESIL_TOOL_DEBUGINFOD": "1"} if wanted else {}))
                symbols.lookup([(self.bare, 64)])
                remote_stacks._run("eu-stack", os.getpid(), 10)
                for name in ("addr2line", "eu-stack"):
                    with open(os.path.join(self.top, name + ".env"), encoding="utf-8") as file:
                        self.assertEqual("DEBUGINFOD_URLS=http" in file.read(), wanted, name)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def test_inlined_frames_of_what_the_helper_threads_read(self):
        chains = symbols.chains([(self.whole, address) for address in self.addresses])
        inner = next(address for (_, address), chain in chains.items() if len(chain) == 2)
        self.assertEqual(chains[self.whole, inner], [("relax", "app.c:3"), ("solve", "app.c:6")])
        told = {"of": "hang-0.json", "ranks": 2, "threads": 2, "stacks": [
            {"ranks": "0-1", "threads": 2, "frames": ["libc.so.6+0x1", "whole+%#x" % inner, "libresil.so+0x5", "libmpi.so+0x7"]}]}
        stacks = gathered.stacks(json.loads(json.dumps(told)), 0, {"whole": self.whole}, 0.0)
        self.assertEqual(remote_stacks.lines(remote_stacks.tree(stacks)), ["0-1: solve at app.c:6", "  relax at app.c:3"])


if __name__ == "__main__":
    unittest.main()
