#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Report directories and recordings that another user made, or may write to: jobs run as ever, no file of their user is
overwritten or created elsewhere, nothing waits, and one line says so. The other user is real, so this runs as root; see
docs/SECURITY.md, whose lines name the checks here.

Usage: hostile_directory_test.py BUILD MPI...      (BUILD holds nested.MPI)
"""
import glob
import json
import os
import re
import shutil
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports  # noqa: E402
from harness.main import run_checks  # noqa: E402

BUILD = ""
LIMIT = 300
VICTIM, ATTACKER = 64001, 64002
# Names that resil writes or reads in a report directory, before and after this rule was made.
NAMES = ["rank-00000.json", "rank-00001.json", "rank-00000.json.tmp", "rank-00001.json.tmp", "rank-00000.ring", "rank-00000.ring.tmp",
         "rank-00001.ring", "rank-00001.ring.tmp", "hang-0.json", "hang-0.json.tmp", "hang-0.txt.tmp", "hang.log", "launch.json",
         "dump-00000-0.txt", "faults-00000.jsonl", ".present", ".taken"]
WAYS = ("links", "pipes", "folders", "devices")


def as_user(uid, *command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", *command]


def open_place():
    """A directory that all users reach, and the library and the test programs in it."""
    place = jobs.scratch()
    os.chmod(place, 0o755)
    return place


def precious(place, uid):
    """A file of the victim's, and a directory of its with a report in it."""
    folder = os.path.join(place, "home")
    os.mkdir(folder, 0o755)
    for name in ("precious", "rank-00000.json"):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write("precious\n")
        os.chown(os.path.join(folder, name), uid, uid)
    os.chown(folder, uid, uid)
    return folder


def untouched(folder):
    names = sorted(os.listdir(folder))
    assert names == ["precious", "rank-00000.json"], names
    for name in names:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            assert file.read() == "precious\n", name


def plant(directory, how, folder, uid):
    """Puts something odd under every name, as that user."""
    for name in NAMES:
        path = os.path.join(directory, name)
        if how == "links":
            os.symlink(folder if name == ".present" else os.path.join(folder, "precious"), path)
        elif how == "pipes":
            os.mkfifo(path, 0o666)
            os.chmod(path, 0o666)
        elif how == "folders":
            os.mkdir(path, 0o777)
        else:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(5, 0))  # /dev/tty
        os.lchown(path, uid, uid)


def start(mpi, directory, uid=0, cwd=None, env=None, ranks=2):
    """The program `nested` under the library: two ranks of a launcher, or as another user one process without."""
    values = {"RESIL_DIR": directory, **(env or {})}
    command = [os.path.join(BUILD, f"nested.{mpi}"), "true"]
    if uid == 0:
        return jobs.run(mpi, ranks, command, env=values, directory=directory, timeout=LIMIT)
    place = open_place()
    for path in (jobs.library(), command[0]):
        shutil.copy(path, place)
    library = os.path.join(place, os.path.basename(jobs.library()))
    return jobs.start(as_user(uid, "env", f"LD_PRELOAD={library}", os.path.join(place, os.path.basename(command[0])), "true"),
                      directory, env=values, timeout=LIMIT, cwd=cwd)


def report_of(directory, *, uid=0):
    """What `scripts/resil report --json` says."""
    told = jobs.run_tool("report", "--json", directory)
    assert told["verdict"] == "CLEAN", (told["verdict"], told["reason"], told["unreadable"])
    assert os.stat(told["directory"]).st_uid == uid, told["directory"]
    return told


def foreign_directory(how, mpi, uid):
    """The directory belongs to an attacker, who has put something under every name in it."""
    def check():
        place = open_place()
        folder = precious(place, uid)
        directory = os.path.join(place, "report")
        os.mkdir(directory)
        plant(directory, how, folder, ATTACKER)
        os.chown(directory, ATTACKER, ATTACKER)
        os.chmod(directory, 0o777)
        result = start(mpi, directory, uid, cwd=place)
        assert result.returncode == 0, result.text()
        untouched(folder)
        lines = [line for line in result.stderr.decode().splitlines() if f"belongs to another user (uid {ATTACKER})" in line]
        assert len(lines) == 1, result.text()
        made = glob.glob(os.path.join(directory, "resil-*"))
        assert len(made) == 1 and made[0] in lines[0], (made, lines)
        assert os.stat(made[0]).st_uid == uid and report_of(made[0], uid=uid)["directory"] == made[0]
    return check


def shared_directory(how):
    """The directory is the victim's own, but everybody may write to it, and has."""
    def check():
        place = open_place()
        folder = precious(place, 0)
        directory = os.path.join(place, "report")
        os.mkdir(directory)
        os.chmod(directory, 0o777)
        plant(directory, how, folder, ATTACKER)
        result = start("mpich", directory)
        assert result.returncode == 0, result.text()
        untouched(folder)
        made = glob.glob(os.path.join(directory, "resil-*"))
        assert len(made) == 1 and report_of(made[0])["ranks_reported"] == 2, made
        # The tool reads the hostile directory itself without waiting or following.
        told = jobs.run_tool("report", "--json", directory)
        assert told["directory"] == made[0], told["directory"]
    return check


def writable_by_everybody():
    """Such a directory is used, when it is the user's own and empty, and one line says what that means."""
    directory = os.path.join(open_place(), "report")
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    result = start("mpich", directory)
    lines = [line for line in result.stderr.decode().splitlines() if "everybody may write to" in line]
    assert result.returncode == 0 and len(lines) == 1, result.text()
    assert report_of(directory)["directory"] == directory


def foreign_reports():
    """What another user adds to a report directory is not believed."""
    directory = os.path.join(open_place(), "report")
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    assert start("mpich", directory).returncode == 0
    with open(os.path.join(directory, "rank-00001.json"), encoding="utf-8") as file:
        report = json.load(file)
    report["findings"] = [{"kind": "message_corrupted", "confidence": "proved", "message": "made up", "culprit_ranks": [1]}]
    hang = {"schema_version": 1, "class": "deadlock", "confidence": "proved", "message": "made up", "launch": report["launch"]}
    for name, value in (("rank-00007.json", dict(report, rank=7)), ("hang-0.json", hang), ("node-x.jsonl", report)):
        path = os.path.join(directory, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.chown(path, ATTACKER, ATTACKER)
    told = jobs.run_tool("report", "--json", directory)
    assert not told["findings"] and told["ranks_reported"] == 2, told["findings"]
    assert len(told["unreadable"]) == 3 and all("not believed" in item["message"] for item in told["unreadable"]), told["unreadable"]


def foreign_claim():
    """launch.json of another user, with the very name of this launch: the directory counts as used."""
    directory = os.path.join(open_place(), "report")
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    step = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "PMI_RANK": "0"}
    claim = {"schema_version": 1, "launch": "", "claim": "00000000000000ff", "name": "7.0.", "origin": "", "program": "x", "time": 3999999999.000}
    path = os.path.join(directory, "launch.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(claim, indent=2))
    os.chown(path, ATTACKER, ATTACKER)
    result = jobs.start([os.path.join(BUILD, "nested.mpich"), "true"], directory,
                        env={**step, "RESIL_DIR": directory, "LD_PRELOAD": jobs.library()}, timeout=LIMIT)
    assert result.returncode == 0, result.text()
    assert not os.path.exists(os.path.join(directory, "rank-00000.json")), os.listdir(directory)
    assert len(glob.glob(os.path.join(directory, "resil-*", "rank-00000.json"))) == 1, os.listdir(directory)


def recordings():
    """RESIL_RECORD with odd files under its names: told at once, nothing followed, nothing waited for."""
    for how in ("links", "pipes"):
        place = open_place()
        folder = precious(place, 0)
        directory = os.path.join(place, "record")
        os.mkdir(directory)
        for name in ("recording.json", "rank-00000.rec", f"recording.json.{os.getpid()}"):
            path = os.path.join(directory, name)
            if how == "links":
                os.symlink(os.path.join(folder, "precious"), path)
            else:
                os.mkfifo(path)
        for mode in ("record", "verify"):
            result = start("mpich", os.path.join(place, "report-" + mode), env={"RESIL_MODE": mode, "RESIL_RECORD": directory})
            assert result.returncode == 93, result.text()
            assert directory in result.stderr.decode(), result.text()
            untouched(folder)


def recorded_again():
    """A recording that is made anew removes the older one's files, and nothing through a link."""
    place = open_place()
    directory, other = os.path.join(place, "record"), os.path.join(place, "other")
    for target in (directory, other):
        assert start("mpich", os.path.join(place, "report"), env={"RESIL_MODE": "record", "RESIL_RECORD": target}).returncode == 0
    os.symlink(other, os.path.join(directory, "world-1"))
    before = sorted(os.listdir(other))
    start("mpich", os.path.join(place, "report"), env={"RESIL_MODE": "record", "RESIL_RECORD": directory})
    assert sorted(os.listdir(other)) == before and "rank-00001.rec" in before, (before, os.listdir(other))


def permissions():
    """Reports: what the umask leaves of 0666 and 0777. Node-local memory: for the user alone."""
    for mask, want in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        directory = os.path.join(open_place(), "report")
        script = f"umask {mask:o}; exec \"$0\" \"$@\""
        line = ["/bin/bash", "-c", script, os.path.join(BUILD, "nested.mpich"),
                "grep -ho '/dev/shm/[^\"]*' \"$RESIL_DIR\"/rank-0000?.json | xargs ls -ln"]
        result = jobs.run("mpich", 2, line, directory=directory, timeout=LIMIT)
        assert result.returncode == 0, result.text()
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o777 & ~mask
        names = sorted(os.listdir(directory))
        assert {"launch.json", "rank-00000.json", "rank-00001.ring"} <= set(names), names
        for name in names:
            assert stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode) == want, (oct(mask), name)
        rings = [text for text in result.stdout.decode().splitlines() if re.search(r"/resil-0-.*\.ring$", text)]
        assert len(rings) == 2 and all(text.startswith("-rw-------") for text in rings), rings


def another_users_job():
    """`report` and `dump` of a job that belongs to somebody else say so."""
    place = open_place()
    os.mkdir(os.path.join(place, "cwd"))
    os.chown(os.path.join(place, "cwd"), VICTIM, VICTIM)
    directory = os.path.join(place, "cwd", "report")
    for path in (jobs.library(), os.path.join(BUILD, "nested.mpich")):
        shutil.copy(path, place)
    shutil.copytree(os.path.join(jobs.ROOT, "scripts"), os.path.join(place, "scripts"))
    shutil.copy(os.path.join(jobs.ROOT, "meson.build"), place)
    library = os.path.join(place, os.path.basename(jobs.library()))
    gate = os.path.join(place, "cwd", "gate")
    os.mkfifo(gate)
    os.chown(gate, VICTIM, VICTIM)
    line = as_user(VICTIM, "env", f"LD_PRELOAD={library}", f"RESIL_DIR={directory}", os.path.join(place, "nested.mpich"), f"cat {gate}")
    job = jobs.Running(line, directory, cwd=os.path.join(place, "cwd"))
    try:
        with open(gate, "w", encoding="ascii"):  # opens once the rank is past MPI_Init
            tool = [sys.executable, os.path.join(place, "scripts", "resil")]
            for words, wanted in ((["report", directory], f"rank 0 belongs to uid {VICTIM}: no live numbers for another user"),
                                  (["dump", directory], f"it belongs to uid {VICTIM}")):
                done = subprocess.run(as_user(ATTACKER, *tool, *words), capture_output=True, timeout=LIMIT, check=False, cwd="/")
                text = (done.stdout + done.stderr).decode()
                assert wanted in text and "no ring" not in text and "Traceback" not in text, text
            assert job.poll() is None
        job.process.wait(LIMIT)
    finally:
        result = job.end()
    assert result.returncode == 0, result.text()
    text = subprocess.run(as_user(ATTACKER, *tool, "report", directory), capture_output=True, timeout=LIMIT, check=False, cwd="/").stdout.decode()
    assert text.startswith("CLEAN"), text


def main():
    global BUILD  # pylint: disable=global-statement
    BUILD, *mpis = sys.argv[1:]
    if os.geteuid() != 0:
        jobs.skip("a second user needs root")
    jobs.require("setpriv")
    if "mpich" not in mpis:
        jobs.skip("MPICH is not installed")
    merged = start("mpich", os.path.join(jobs.scratch(), "merged"), env={"RESIL_NODE_RANKS": "65"})  # its name goes by the machine
    NAMES.extend(name for name in os.listdir(merged.directory) if name.startswith("node-"))
    assert NAMES[-1].startswith("node-"), NAMES
    checks = [(f"foreign directory, {how}", foreign_directory(how, "mpich", 0)) for how in WAYS]
    checks += [(f"foreign directory, {how}, as a user", foreign_directory(how, "mpich", VICTIM)) for how in ("links", "pipes")]
    if "openmpi" in mpis:
        checks += [("foreign directory, links (openmpi)", foreign_directory("links", "openmpi", 0))]
    checks += [(f"shared directory, {how}", shared_directory(how)) for how in WAYS]
    checks += [("writable by everybody", writable_by_everybody), ("foreign reports", foreign_reports), ("foreign claim", foreign_claim),
               ("recordings", recordings), ("recorded again", recorded_again), ("permissions", permissions), ("another user's job", another_users_job)]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main())
