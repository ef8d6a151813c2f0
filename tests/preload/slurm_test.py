#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine, started and stopped here: job arrays with another program in each task, steps side by side,
a job that is requeued, two users. Every step of it calls itself 0, and nobody's state is ever another's. And resil's own
option of srun (spank_checks.py), where the plugin was built.

Usage: slurm_test.py PROGRAMS_DIR [--tasks N] [--hold SECONDS] [--plugin FILE] [--only WORD]
Skipped where Slurm is not installed or cannot be started. Touches a scratch directory and the daemons that it starts.
"""
import argparse
import contextlib
import glob
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, neighbours, patience, report as reports  # noqa: E402
from harness.main import run_checks  # noqa: E402
import spank_checks  # noqa: E402

USER = "daemon"  # is on every Debian; the other one is root
# FirstJobId: a bare number that `resil` is asked for may also be that of a process, and is beyond any process id.
CONFIGURATION = """
ClusterName=resil-test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
FirstJobId=50000000
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
NodeName={host} NodeAddr=127.0.0.1 CPUs=256 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """The daemons; what is submitted to them."""

    def __init__(self, programs, hold):
        self.hold, self.folder, self.daemons = hold, jobs.scratch(), []
        self.program = os.path.join(os.path.abspath(programs), "neighbours.openmpi")
        os.chmod(self.folder, 0o755)
        self.host = os.uname().nodename.split(".")[0]
        self.environment = jobs.clean_environment({"SLURM_CONF": os.path.join(self.folder, "slurm.conf")})

    def start(self):
        for name in ("munge", "state", "spool"):
            os.mkdir(os.path.join(self.folder, name))
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as file:
            file.write(secrets.token_bytes(1024))
        os.chmod(key, 0o600)
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0)), other.bind(("127.0.0.1", 0))
            ports = one.getsockname()[1], other.getsockname()[1]
        with open(self.environment["SLURM_CONF"], "w", encoding="ascii") as file:
            file.write(CONFIGURATION.format(host=self.host, folder=self.folder, controller=ports[0], daemon=ports[1]))
        with open(os.path.join(self.folder, "plugstack.conf"), "wb"):
            pass
        place = os.path.join(self.folder, "munge")
        self.run_daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={place}/socket", f"--pid-file={place}/pid",
                        f"--log-file={place}/log", f"--seed-file={place}/seed")
        self.until(lambda: os.path.exists(os.path.join(place, "socket")), "munged does not start", 30)
        self.run_daemon("slurmctld", "-D", "-c")
        self.run_daemon("slurmd", "-D", "-c", "-N", self.host)
        self.until(lambda: self.ask("sinfo", "-h", "-o", "%T").stdout.strip() == b"idle", "its node does not come up", 60)

    def until(self, condition, what, seconds):
        left = patience.Patience(seconds)
        while not condition():
            dead = [" ".join(daemon.args) for daemon in self.daemons if daemon.poll() is not None]
            if dead or left.left() <= 0:
                self.stop()
                jobs.skip(f"Slurm cannot be started here: {what}{': ended: ' + dead[0] if dead else ''}")
            time.sleep(0.1)

    def run_daemon(self, *line):
        log = open(os.path.join(self.folder, line[0] + ".said"), "wb")
        self.daemons.append(subprocess.Popen(line, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             start_new_session=True))
        log.close()

    def stop(self):
        if len(self.daemons) == 3:
            for name in ("root", USER):
                self.ask("scancel", "--user=" + name)
            left = patience.Patience(30)
            while self.ask("squeue", "-h").stdout.strip() and left.left() > 0:
                time.sleep(0.1)
        for daemon in reversed(self.daemons):
            with contextlib.suppress(ProcessLookupError):
                daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []

    def ask(self, *line, user=None, cwd=None):
        words = (["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []) + list(line)
        return patience.run(words, capture_output=True, env=self.environment, cwd=cwd, timeout=120, check=False)

    def place(self, user=None):
        path = os.path.join(self.folder, "place-" + secrets.token_hex(4))
        os.mkdir(path)
        if user:
            import pwd
            os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        return path

    def step(self, number, place, directory="REPORT"):
        """The line of a batch script that starts a neighbour with two ranks. Wrong stories end it, and soon."""
        variables = f"LD_PRELOAD={jobs.library()} RESIL_HANG=abort RESIL_HANG_INTERVAL=0.02"
        if directory:
            variables += f" RESIL_DIR={place}/report-{number}"
        return (f"srun --mpi=pmix -n 2 --exact env {variables} OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader "
                f"{self.program} {number} {place}/ready-{number} {place}/go")

    def submit(self, place, script, *options, user=None):
        path = os.path.join(place, "script-" + secrets.token_hex(4))
        with open(path, "w", encoding="ascii") as file:
            file.write("#!/bin/bash\n" + script)
        done = self.ask("sbatch", "--parsable", f"--output={place}/output-%A_%a", *options, path, user=user, cwd=place)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip().split(";")[0]

    def ended(self, place):
        def output():
            texts = []
            for name in sorted(os.listdir(place)):
                if name.startswith("output-"):
                    with open(os.path.join(place, name), encoding="utf-8", errors="replace") as file:
                        texts.append(f"--- {name}\n{file.read()}")
            return "\n".join(texts)
        neighbours.wait_until(lambda: not self.ask("squeue", "-h").stdout.strip(), lambda: "jobs do not end:\n" + output())
        text = output()
        for wrong in ("hang [", "mismatch", "disagree", "without resil", "Killed", "Exited with"):
            assert wrong not in text, text
        return text


def ready(place, numbers):
    neighbours.wait_until(lambda: all(os.path.exists(f"{place}/ready-{number}") for number in numbers),
                          lambda: "never came to its call: " + str(os.listdir(place)))


def one(place, number):
    job = neighbours.Neighbour(number, 2, place, "", f"{place}/report-{number}")
    job.story = lambda: f"job {number} in {place}: {os.listdir(place)}"
    return job


def array_and_steps_and_users(slurm, tasks):
    """All at once: an array whose tasks run different programs, two steps side by side in one job, another user's array."""
    mine, other = slurm.place(), slurm.place(USER)
    array = "case $SLURM_ARRAY_TASK_ID in\n" + "".join(
        f"{i}) {slurm.step(i, mine)} ;;\n" for i in range(tasks)) + "esac\n"
    slurm.submit(mine, array, f"--array=0-{tasks - 1}", "-n", "2")
    slurm.submit(mine, f"{slurm.step(20, mine)} &\n{slurm.step(21, mine)} &\nwait\n", "-n", "4")
    theirs = "case $SLURM_ARRAY_TASK_ID in\n" + "".join(f"{i}) {slurm.step(30 + i, other)} ;;\n" for i in range(2)) + "esac\n"
    slurm.submit(other, theirs, "--array=0-1", "-n", "2", user=USER)
    here, there = [*range(tasks), 20, 21], [30, 31]
    ready(mine, here)
    ready(other, there)
    time.sleep(slurm.hold)
    rings = [report["ring"] for place, numbers in ((mine, here), (other, there)) for number in numbers
             for report in reports.load(f"{place}/report-{number}").values()]
    assert len(rings) == len(set(rings)) == 2 * len(here + there), rings
    assert all(os.path.exists(ring) for ring in rings), rings
    neighbours.release(f"{mine}/go")
    neighbours.release(f"{other}/go")
    text = slurm.ended(mine)
    slurm.ended(other)
    keys = [one(place, number).check_reports() for place, numbers in ((mine, here), (other, there)) for number in numbers]
    assert len(set(keys)) == len(keys), keys
    for number in here:
        assert f"job {number}: 2 of them" in text, text
    assert not [ring for ring in rings if os.path.exists(ring)]
    return f"{len(keys)} steps"


def requeued(slurm):
    """A job that is killed and put back has the same ids again, and the same report directory. The report is the second run's."""
    place = slurm.place()
    # The first run requeues itself while its ranks wait; go is there for the second.
    script = (f'if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then\n{slurm.step(40, place)} &\n'
              f"while [ ! -e {place}/ready-40 ]; do sleep 0.1; done\nscontrol requeue $SLURM_JOB_ID\nwait\nsleep 600\n"
              f"else\ntouch {place}/go\n{slurm.step(40, place)}\nfi\n")
    job = slurm.submit(place, script, "-n", "2", "--requeue")

    hastened = []

    def is_over():
        said = slurm.ask("scontrol", "-o", "show", "job", job).stdout.decode()
        words = dict(word.split("=", 1) for word in said.split() if "=" in word)
        if words.get("JobState") == "PENDING" and words.get("Restarts") == "1" and not hastened:
            # Slurm would wait two minutes. A start in the second in which the first run's credential was revoked fails.
            hastened.append(slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now+3"))
        return words.get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT") and words.get("Restarts") == "1"

    neighbours.wait_until(is_over, lambda: "the job does not end: " + slurm.ask(
        "scontrol", "show", "job").stdout.decode())
    found = jobs.run_tool("report", "--json", f"{place}/report-40")
    assert found["verdict"] == "CLEAN" and found["ranks_expected"] == found["ranks_reported"] == 2, (found["verdict"], found["reason"])
    calls = {call["name"]: call["count"] for call in found["calls"]}
    assert calls[neighbours.CALLS[40 % 3]] == 2 * 51, calls
    assert len(found["launches"]) == 1, found["launches"]


def told_status(slurm):
    """srun with --kill-on-bad-exit has resil's status of the job, not that of the ranks which it ends itself (143)."""
    place = slurm.place()
    unlike = f'[ "$SLURM_PROCID" = 1 ] && export RESIL_MODE=checksum; exec {slurm.program} 1 {place}/ready {place}/go'
    hangs = slurm.program.replace("neighbours.", "hangs.")
    for status, words, settings, line in (
            (93, "disagree", "", ("sh", "-c", unlike)), (93, "RESIL_MODE", ",RESIL_MODE=nonsense", (hangs, "cycle")),
            (92, "ending the job with exit status 92", ",RESIL_HANG=abort", (hangs, "cycle"))):
        done = slurm.ask("srun", "-Q", "--mpi=pmix", "--kill-on-bad-exit=1", "-n", "3",
                         f"--export=ALL,LD_PRELOAD={jobs.library()},RESIL_DIR={place}/report-{words[:4]}{settings}", "env", "OMPI_MCA_btl=self,vader", *line, cwd=place)
        text = done.stderr.decode()
        assert done.returncode == status and text.count(words) == 1, (status, done.returncode, text)


def as_printed(slurm):
    """README's line for Slurm, word for word."""
    place = launch_lines.place("openmpi")
    os.chmod(place, 0o755)
    slurm.environment.update(launch_lines.environment(place))
    done = slurm.ask("sh", "-c", launch_lines.line_for("Slurm"), cwd=place)
    assert done.returncode == 0, done.stderr.decode()
    launch_lines.check(place, 4, done.stdout)


def resil_run(slurm):
    """resil run srun, within an allocation of its own, which also chooses srun and its plug-in by itself."""
    tool = f"{sys.executable} {os.path.join(jobs.ROOT, 'scripts', 'resil')} run"
    for line in (f"{tool} srun --mpi=pmix -n 2 ./app", f"salloc -Q -n 2 {tool} -n 2 ./app"):
        place = launch_lines.place("openmpi")
        os.chmod(place, 0o755)
        slurm.environment.update(launch_lines.environment(place), RESIL_TOOL_LIBRARY=jobs.library())
        done = slurm.ask("sh", "-c", line, cwd=place)
        assert done.returncode == 0, done.stderr.decode()
        launch_lines.check(place, 2, done.stdout)


def pages_as_printed(slurm):
    """The pages' commands that need Slurm, as printed; those about a job that runs on one that srun has started."""
    said = 0
    for page in launch_lines.pages() + launch_lines.reference_pages():
        for block in launch_lines.blocks(page):
            if "slurm" in block.flags:
                block_as_printed(slurm, block)
                said += len(block.commands)
    assert said >= 4, said
    return f"{said} commands"


def block_as_printed(slurm, block):
    place, job = launch_lines.place("openmpi"), ""
    os.chmod(place, 0o755)
    launch_lines.add_command(place)
    launch_lines.compile_app(place, block.app)
    slurm.environment.update(launch_lines.environment(place), RESIL_TOOL_LIBRARY=jobs.library())
    if "beside" in block.flags:
        script = f"srun --mpi=pmix -n 2 --export=ALL,LD_PRELOAD={jobs.library()} ./app\n"
        job = slurm.submit(place, script, "-n", "2", "--overcommit")
        resil = ("srun", "--overlap", f"--jobid={job}", "-n1", os.path.join(place, "bin", "resil"))
        # Steps are numbered as they start: the job's own is 0, as the pages say, if it comes before those that ask.
        neighbours.wait_until(lambda: glob.glob(os.path.join(place, "resil-app-*")), lambda: f"job {job} never starts")
        neighbours.wait_until(lambda: b"MOVING" in slurm.ask(*resil, "status", job, cwd=place).stdout, lambda: f"job {job} never runs")
    for line, status in block.commands:
        done = slurm.ask("sh", "-c", line.replace("4711", job) if job else line, cwd=place)
        assert done.returncode == status, (line, done.stdout.decode(), done.stderr.decode())
    assert glob.glob(os.path.join(place, "resil-app-*")), (block.lines, os.listdir(place))
    if job:
        asked = [line for line, _ in block.commands if " dump " in line or "--signal=HUP" in line]
        dumps = os.path.join(place, "resil-app-*", "dump-*.txt")
        neighbours.wait_until(lambda: len(glob.glob(dumps)) == 2 * len(asked), lambda: f"after {asked}: {glob.glob(dumps)}")
        with open(os.path.join(place, "stop"), "wb"):
            pass
        slurm.ended(place)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--hold", type=float, default=2.0)
    parser.add_argument("--plugin", help="spank_resil.so")
    parser.add_argument("--only", default="", help="checks whose names have this word")
    options = parser.parse_args()
    jobs.require("slurmctld", "slurmd", "munged", "srun", "mpirun.openmpi", "setpriv")
    if os.geteuid() != 0:
        jobs.skip("Slurm's daemons need root")
    slurm = Slurm(options.programs, options.hold)
    try:
        slurm.start()
        if b"pmix" not in slurm.ask("srun", "--mpi=list").stderr + slurm.ask("srun", "--mpi=list").stdout:
            jobs.skip("this Slurm has no PMIx")
        checks = [("array, steps side by side, two users", lambda: array_and_steps_and_users(slurm, options.tasks)),
                  ("requeued", lambda: requeued(slurm)),
                  ("status of a job that resil ends", lambda: told_status(slurm)),
                  ("README's line, as printed", lambda: as_printed(slurm)),
                  ("resil run", lambda: resil_run(slurm)),
                  ("commands of the pages", lambda: pages_as_printed(slurm)), *spank_checks.checks(slurm, options.plugin)]
        status = run_checks([check for check in checks if options.only in check[0]])
    finally:
        slurm.stop()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of processor time")
    return status


if __name__ == "__main__":
    sys.exit(main())
