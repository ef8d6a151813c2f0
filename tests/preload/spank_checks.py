# SPDX-License-Identifier: Apache-2.0
"""The SPANK plugin, the example batch script and the epilog of scripts/packaging/slurm on the Slurm of slurm_test.py: one node, whose
plugstack.conf each check writes for itself (srun and slurmstepd read it when they start)."""
import os
import re
import subprocess

from harness import mpi as jobs, neighbours, report as reports

PARTS = os.path.join(jobs.ROOT, "scripts", "packaging", "slurm")
TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
APP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "spank_app.c")
OTHER = "libm.so.6"  # something that a site preloads
MANY = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class Spank:
    """A Slurm with the plugin, and a place with the program."""

    def __init__(self, slurm, plugin):
        self.slurm, self.plugin = slurm, plugin
        self.place = slurm.place()
        subprocess.run(["mpicc.openmpi", "-O1", "-o", "app", APP], cwd=self.place, check=True)
        slurm.environment.update(MANY)

    def stack(self, *arguments):
        with open(os.path.join(self.slurm.folder, "plugstack.conf"), "w", encoding="ascii") as file:
            file.write(" ".join(["optional", self.plugin, f"library={jobs.library()}", *arguments]) + "\n")

    def run(self, *line, **more):
        """A command in a folder of its own that has ./app."""
        place = self.fresh()
        self.slurm.environment.update(more)
        done = self.slurm.ask(*line, cwd=place)
        for name in more:
            del self.slurm.environment[name]
        return done, place

    def fresh(self):
        place = self.slurm.place()
        os.symlink(os.path.join(self.place, "app"), os.path.join(place, "app"))
        return place

    def seen(self, *options, **more):
        """(LD_PRELOAD, RESIL_MODE, other RESIL_ variables) of a task."""
        done, _ = self.run("srun", "-Q", *options, "-n", "1", "env", **more)
        assert done.returncode == 0 and not done.stderr, (options, done.returncode, done.stderr)
        found = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if "=" in line)
        others = {name: value for name, value in found.items() if re.match("RESIL_(?!TOOL_|MODE$|FILES$)", name)}
        return found.get("LD_PRELOAD", ""), found.get("RESIL_MODE", ""), others


def report_of(place, ranks, modes):
    found = [name for name in os.listdir(place) if name.startswith("resil-app-")]
    assert len(found) == 1, os.listdir(place)
    told = reports.load(os.path.join(place, found[0]))
    assert sorted(told) == list(range(ranks)), sorted(told)
    for one in told.values():
        assert one["modes"] == modes and one["outcome"] == "finished" and one["all_ranks_preloaded"], one
    return told


def environment(spank):
    """What a task gets, by whom it was asked for; and nothing where nobody asks."""
    library = jobs.library()
    spank.stack()
    assert spank.seen() == ("", "", {})
    assert spank.seen("--resil") == (library, "watch", {})
    assert spank.seen("--resil=checksum,on_mismatch=log,RESIL_LOG=quiet") == (
        library, "checksum", {"RESIL_ON_MISMATCH": "log", "RESIL_LOG": "quiet"})
    before = f"/elsewhere/libresil.so:{OTHER}"
    exported = "--export=PATH,LD_PRELOAD=" + OTHER
    assert spank.seen("--resil=checksum", exported, RESIL_MODE="watch") == (f"{library}:{OTHER}", "checksum", {})
    assert spank.seen("--resil", f"--export=PATH,LD_PRELOAD={before}") == (f"{library}:{OTHER}", "watch", {})
    assert spank.seen(SLURM_RESIL="record") == (library, "record", {})
    assert spank.seen("--resil=verify", SLURM_RESIL="record") == (library, "verify", {})
    spank.stack("default=watch,hang=report")
    assert spank.seen() == (library, "watch", {"RESIL_HANG": "report"})
    assert spank.seen(RESIL_MODE="checksum", RESIL_HANG="abort") == (library, "checksum", {"RESIL_HANG": "abort"})
    assert spank.seen(RESIL_MODE="off") == ("", "off", {})
    assert spank.seen("--resil=off") == ("", "", {})
    assert spank.seen("--resil=checksum") == (library, "checksum", {})


def refused(spank):
    """A mode that there is not: a sentence, and nothing starts. A mistake of the site's: a sentence, and all goes on."""
    spank.stack()
    for words, why in (("chekcsum", "'chekcsum' is no mode; allowed are off, watch, checksum, record, verify"), ("off,watch", "off stands alone"),
                       ("record,verify", "recorded or verified, not both"), ("mode=watch", "'mode=watch' is no setting"), ("=3", "'=3' is no setting")):
        for line in (["srun", f"--resil={words}", "-n", "1", "touch", "started"], ["sbatch", f"--resil={words}", "--wrap=touch started"],
                     ["salloc", f"--resil={words}", "touch", "started"]):
            done, place = spank.run(*line)
            assert done.returncode != 0 and why in done.stderr.decode(), (line, done)
            assert "started" not in os.listdir(place), line
    done, place = spank.run("srun", "-n", "1", "touch", "started", SLURM_RESIL="nonsense")
    assert done.returncode != 0 and b"SLURM_RESIL: 'nonsense' is no mode" in done.stderr and "started" not in os.listdir(place), done
    spank.stack("default=nonsense")
    done, place = spank.run("srun", "-n", "1", "sh", "-c", "touch started-$LD_PRELOAD")
    assert done.returncode == 0 and b"plugstack.conf: default: 'nonsense' is no mode" in done.stderr and "started-" in os.listdir(place), done
    spank.stack("library=/nowhere/libresil.so")
    done, _ = spank.run("srun", "--resil", "-n", "1", "sh", "-c", "echo with=$LD_PRELOAD")
    assert done.returncode == 0 and done.stdout == b"with=\n" and b"/nowhere/libresil.so cannot be read on this node" in done.stderr, done


def as_printed(spank):
    """The commands of docs/SLURM.md, word for word."""
    spank.stack()
    with open(os.path.join(jobs.ROOT, "docs", "SLURM.md"), encoding="utf-8") as file:
        lines = re.findall(r"^\| [^|]+ \| `([^`]+)` \|$", file.read().split("\n\n## ", 1)[0], re.M)
    assert len(lines) == 6, lines
    modes = {"--resil": "watch", "--resil=checksum": "watch,checksum", "--resil=checksum,record,on_mismatch=log": "watch,checksum,record"}
    for line in lines:
        place = spank.fresh()
        with open(os.path.join(place, "batch.sh"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nsrun --mpi=pmix ./app\n")
        done = spank.slurm.ask("sh", "-c", line, cwd=place)
        assert done.returncode == 0, (line, done)
        word = next(word for word in line.split() if word.startswith("--resil"))
        if word == "--resil=off":
            assert not [name for name in os.listdir(place) if name.startswith("resil-")] and done.stdout == b"4 ranks\n", (line, done)
        else:
            report_of(place, 4, modes[word])


def _batch(spank, line, *options, **settings):
    """Submits job.sh with the command behind it: (folder, id)"""
    place = spank.fresh()
    os.symlink(TOOL, os.path.join(place, "resil"))
    spank.slurm.environment.update(settings)
    path = spank.slurm.environment["PATH"]
    spank.slurm.environment["PATH"] = place + os.pathsep + path
    done = spank.slurm.ask("sbatch", "--parsable", "-n", "2", f"--output={place}/output", *options, os.path.join(PARTS, "job.sh"), *line, cwd=place)
    spank.slurm.environment["PATH"] = path
    for name in settings:
        del spank.slurm.environment[name]
    assert done.returncode == 0, done
    return place, done.stdout.decode().strip()


def _facts(spank, job):
    said = spank.slurm.ask("scontrol", "-o", "show", "job", job).stdout.decode()
    return dict(word.split("=", 1) for word in said.split() if "=" in word)


def _put_back(spank, place, job):
    """Waits until the job has been put back once, and its ExcNodeList is that of the first run's findings."""
    def pending():
        facts = _facts(spank, job)
        return facts.get("Restarts") == "1" and facts.get("JobState") == "PENDING" and facts
    neighbours.wait_until(pending, lambda: f"not put back: {_facts(spank, job)} {os.listdir(place)} {_output(place)}")
    return pending() or _facts(spank, job)


def _output(place):
    path = os.path.join(place, "output")
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def put_back(spank):
    """job.sh. 92: put back, and the second run is clean. 90: put back, and the node is excluded, which was the only one."""
    spank.stack()
    hang = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && exec ./app hang || exec ./app'
    flip = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && export RESIL_FAULT=flip,nth=5; exec ./app'
    mpi = {"SLURM_MPI_TYPE": "pmix", "RESIL_HANG_INTERVAL": "0.02"}
    first, hung = _batch(spank, ["sh", "-c", hang], **mpi)
    second, damaged = _batch(spank, ["sh", "-c", flip], **mpi)
    facts = _put_back(spank, first, hung)
    assert facts["ExcNodeList"] == "(null)", facts
    spank.slurm.ask("scontrol", "update", f"JobId={hung}", "StartTime=now+3")  # Slurm would wait two minutes
    _put_back(spank, second, damaged)
    neighbours.wait_until(lambda: _facts(spank, damaged).get("ExcNodeList") == spank.slurm.host,
                          lambda: f"not excluded: {_facts(spank, damaged)} {_output(second)}")
    found = reports.load(os.path.join(second, f"resil-{damaged}-run-0"))
    assert any(one["findings"] for one in found.values()), found
    spank.slurm.ask("scancel", damaged)
    neighbours.wait_until(lambda: _facts(spank, hung).get("JobState") in ("COMPLETED", "FAILED"), lambda: f"{_facts(spank, hung)} {_output(first)}")
    assert _facts(spank, hung)["JobState"] == "COMPLETED" and "2 ranks" in _output(first), _output(first)
    for run, verdict in ((0, "FINDINGS"), (1, "CLEAN")):
        told = jobs.run_tool("report", "--json", os.path.join(first, f"resil-{hung}-run-{run}"))
        assert told["verdict"] == verdict, (run, told["verdict"], told["reason"])


def before_the_limit(spank):
    """--signal=HUP@…, as job.sh has it: each rank writes a dump while it runs on."""
    spank.stack()
    place, job = _batch(spank, ["./app", "wait", "ready"], "--time=10", "--signal=HUP@530", SLURM_MPI_TYPE="pmix")
    reports_there = os.path.join(place, f"resil-{job}-run-0")
    neighbours.wait_until(lambda: all(os.path.exists(f"{place}/ready-{rank}") for rank in (0, 1)), lambda: _output(place))
    neighbours.wait_until(lambda: {name[:10] for name in os.listdir(reports_there) if name.startswith("dump-")} == {"dump-00000", "dump-00001"},
                          lambda: f"no dumps: {os.listdir(reports_there)} {_output(place)}")
    for one in reports.load(reports_there).values():
        os.kill(one["pid"], 0)
    return place, job


def epilog(spank):
    """After a job whose ranks were killed: the recorders lie beside the reports, one line is in the log. Run as slurmd runs it."""
    place, job = before_the_limit(spank)
    folder = os.path.join(place, f"resil-{job}-run-0")
    told = reports.load(folder)
    site = os.path.join(place, "site")
    os.mkdir(site)
    os.symlink(folder, os.path.join(site, f"resil-app-20261123T0000Z-{job}.0"))
    with open(os.path.join(PARTS, "epilog"), encoding="utf-8") as file:
        script = file.read()
    for name, value in (("resil", TOOL), ("reports", site), ("log", os.path.join(place, "log"))):
        script, count = re.subn(rf"^{name}=[^\s#]*", f"{name}={value}", script, flags=re.M)
        assert count == 1, name
    path = os.path.join(place, "epilog")
    with open(path, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(path, 0o755)
    for one in told.values():
        os.kill(one["pid"], 9)
    neighbours.wait_until(lambda: _facts(spank, job).get("JobState") not in ("RUNNING", "COMPLETING"), lambda: f"{_facts(spank, job)}")
    given = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": str(os.geteuid())}
    spank.slurm.environment.update(given)
    done = spank.slurm.ask(path)
    for name in given:
        del spank.slurm.environment[name]
    assert done.returncode == 0 and not done.stdout and not done.stderr, done
    # Or another job of this user's that began meanwhile has: it does the same.
    assert not [one["ring"] for one in told.values() if os.path.exists(one["ring"])]
    assert {"rank-00000.ring", "rank-00001.ring"} <= set(os.listdir(folder)), os.listdir(folder)
    with open(os.path.join(place, "log"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert len(lines) == 1 and re.fullmatch(rf"\S+Z job {job} uid {os.geteuid()} {site}/\S+ INCOMPLETE: .*", lines[0]), lines


def checks(slurm, plugin):
    if not plugin or not os.path.exists(plugin):
        return []
    made = []

    def spank():
        if not made:
            made.append(Spank(slurm, plugin))
        return made[0]
    return [(f"plugin: {name}", lambda check=check: check(spank())) for name, check in (
        ("what a task gets", environment), ("what is refused", refused), ("docs/SLURM.md, as printed", as_printed),
        ("put back, a node excluded", put_back), ("dump before the time limit, epilog", epilog))]
