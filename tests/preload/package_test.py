#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian package: made from the build, the same bytes twice, installed by dpkg into a root of its own, and a job of two
ranks run from there.

Usage: package_test.py BUILD VERSION MPI... [--lint]
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import installed, mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

# No address of the maintainers to be had, not uploaded to Debian, and a library without a version by intent: it is preloaded.
KNOWN = ("bogus-mail-host", "bogus-mail-host-in-debian-changelog", "initial-upload-closes-no-bugs", "shared-library-lacks-version")


WITH_LINT = "--lint" in sys.argv


def make(build):
    place = jobs.scratch()
    script = os.path.join(jobs.ROOT, "scripts", "packaging", "make_deb.py")
    done = subprocess.run([sys.executable, script, build, place], stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return done.stdout.strip()


def contents(package):
    with open(package, "rb") as file:
        return file.read()


def unpacked(package, version):
    """By dpkg itself, with a database of its own; its dependencies are this machine's."""
    root = jobs.scratch()
    for name in ("info", "updates", "triggers"):
        os.makedirs(os.path.join(root, "var", "lib", "dpkg", name))
    for name in ("status", "available"):
        with open(os.path.join(root, "var", "lib", "dpkg", name), "w", encoding="ascii"):
            pass
    if os.geteuid() == 0:
        subprocess.run(["dpkg", "--root=" + root, "--force-depends", "--force-not-root", "--log=/dev/null", "-i", package],
                       check=True, timeout=600, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        said = subprocess.run(["dpkg-query", "--root=" + root, "-W", "-f", "${Version} ${db:Status-Status}", "libresil"],
                              stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
        assert said == f"{version}-1 installed", said
    else:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True, timeout=600)
    return installed.Tree(os.path.join(root, "usr"))


def lint(package):
    if not WITH_LINT:
        raise LeftOut("by hand, with --lint: it takes a minute")
    subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", ",".join(KNOWN), package],
                   check=True, timeout=600, stderr=subprocess.DEVNULL)


def from_there(tree, version, mpi):
    summary = tree.job(mpi)
    assert list(summary["resil_version"]) == [version] and summary["ranks_reported"] == 2, summary


def the_same(build, package):
    assert contents(make(build)) == contents(package)


def main(build, version, *mpis):
    if not jobs.installed("dpkg-deb"):
        jobs.skip("dpkg-deb is not installed")
    package = make(build)
    tree = unpacked(package, version)
    return run_checks([("lintian", lambda: lint(package))] +
                      [(f"a job of {mpi}", lambda mpi=mpi: from_there(tree, version, mpi)) for mpi in mpis] +
                      [("the same bytes again", lambda: the_same(build, package))])


if __name__ == "__main__":
    sys.exit(main(*(word for word in sys.argv[1:] if word != "--lint")))
