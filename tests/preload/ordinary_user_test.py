#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything of the command as an ordinary user, who is not the one that installed it: a job, its report in all forms, and a look at it while it
runs. A second ordinary user is refused with a sentence. As root, who lends the two users' ids (setpriv); their homes are scratch directories.

Usage: ordinary_user_test.py MPI
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, patience  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

USER, OTHER = 64011, 64012


class Place:
    """An installation of root's, and a home of each user."""

    def __init__(self, mpi):
        if os.geteuid() != 0 or not jobs.installed("setpriv"):
            raise LeftOut("needs root, who lends the ids of two users, and setpriv")
        self.path = launch_lines.place(mpi)
        os.chmod(self.path, 0o755)
        shutil.copytree(os.path.join(jobs.ROOT, "scripts"), os.path.join(self.path, "scripts"), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(os.path.join(jobs.ROOT, "meson.build"), self.path)
        library = os.path.join(self.path, "build", "libresil.so")
        os.unlink(library)
        shutil.copy(jobs.library(), library)
        self.homes = {}
        for uid in (USER, OTHER):
            self.homes[uid] = os.path.join(self.path, f"home-{uid}")
            os.mkdir(self.homes[uid], 0o700)
            os.chown(self.homes[uid], uid, uid)
        for name in ("ring", "long"):
            launch_lines.compile_app(self.path, name)
            os.rename(os.path.join(self.path, "app"), os.path.join(self.path, name))

    def line(self, uid, *words):
        home = self.homes[uid]
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", "env", f"--chdir={home}", f"HOME={home}",
                os.path.join(self.path, "scripts", "resil"), *words]

    def resil(self, uid, *words, status=0):
        done = jobs.start(self.line(uid, *words), env=launch_lines.environment(self.path), cwd="/", timeout=90)
        assert done.returncode == status and b"Traceback" not in done.stderr, (status, done.text())
        return done.stdout.decode(), done.stderr.decode()


def a_job_and_its_reports(place):
    said = place.resil(USER, "run", "--is-my-data-right", "mpirun", "-np", "2", os.path.join(place.path, "ring"))
    assert "resil: CLEAN: watch,checksum on 2 ranks" in said[1], said
    assert place.resil(USER, "report")[0].startswith("CLEAN: 2 of 2 ranks finished")
    report, = [name for name in os.listdir(place.homes[USER]) if name.startswith("resil-ring-")]
    for words in (("report", "--json", report), ("html", report), ("export", "--csv", report), ("export", "--prometheus", report),
                  ("export", "--jsonl", report), ("report", "--nagios", report), ("env", "--set"), ("help", "hang"), ("hosts", ".")):
        place.resil(USER, *words)
    home = place.homes[USER]
    assert {os.stat(os.path.join(home, report, name)).st_uid for name in os.listdir(os.path.join(home, report))} == {USER}
    os.chmod(home, 0o755)  # its reports are for all to read, by its umask: a reader gets the same
    assert place.resil(OTHER, "report", os.path.join(home, report))[0].startswith("CLEAN: 2 of 2 ranks finished")


def while_it_runs(place):
    home = place.homes[USER]
    job = jobs.Running(place.line(USER, "run", "--dir", "live", "mpirun", "-np", "2", os.path.join(place.path, "long")),
                       env=launch_lines.environment(place.path), cwd="/")
    launch_lines.wait_until_moving(job, lambda: jobs.start(place.line(USER, "status", "--json", "live"), cwd="/", timeout=60))
    assert "MPI_Allreduce" in place.resil(USER, "status", "live")[0]
    assert place.resil(USER, "why", "live")[0].startswith("MOVING")
    assert "2 of 2 answered" in place.resil(USER, "dump", "live")[0]
    os.chmod(home, 0o755)
    directory = os.path.join(home, "live")
    for words in (("status", directory), ("why", directory)):
        said = place.resil(OTHER, *words, status=2)[1]
        assert said == f"resil: {directory} belongs to uid {USER}: refused\n", (words, said)
    said = place.resil(OTHER, "dump", directory, status=3)[0]
    assert said.count(f"not signalled: it belongs to uid {USER}") == 2, said
    with open(os.path.join(home, "stop"), "wb"):
        pass
    patience.wait_for(lambda: job.poll() is not None, "the end", 60)
    done = job.end()
    assert done.returncode == 0, done.text()
    assert place.resil(USER, "report", "live")[0].startswith("CLEAN: 2 of 2 ranks finished")


def main(mpi):
    jobs.require(f"mpirun.{mpi}", f"mpicc.{mpi}")
    kept = []

    def place():
        if not kept:
            kept.append(Place(mpi))
        return kept[0]
    return run_checks([("a job and its reports", lambda: a_job_and_its_reports(place())), ("while it runs", lambda: while_it_runs(place()))])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
