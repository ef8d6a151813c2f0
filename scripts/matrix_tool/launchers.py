# SPDX-License-Identifier: Apache-2.0
"""What is checked of each launcher (launcher_bench.py) on several hosts (hosts.py). The library is the one that was built
here; the programs are tests/mpi/neighbours.c and hangs.c, compiled in the system that runs them."""
import json
import os
import re
import shutil
import sys
import tempfile
import time

from . import results
from .cells import DEBIAN, Impossible
from .hosts import MARK, SHARED, Hosts, inside, until
from .launcher_bench import ALL, END, LIBRARY, OPENMPI, TOOL, Bench, Failed, Short, must
from .roots import TREE, host_release
from .slurm import Slurm

sys.path.insert(0, os.path.join(TREE, "scripts"))
from resil_tool import questions  # noqa: E402  # pylint: disable=wrong-import-position

PARTS = "/src/scripts/packaging/slurm"


def waiting(bench, settings=None, **more):
    """A job of neighbours.c that waits for its file `go`."""
    folder = bench.fresh()
    place = f"{SHARED}/{folder}"
    settings = {"RESIL_DIR": f"{place}/report", **(settings or {})}
    bench.start(bench.line(bench.program("neighbours", "1", f"{place}/ready", f"{place}/go"), settings, **more), folder)
    until(lambda: os.path.exists(bench.hosts.path(f"{folder}/ready")) or os.path.exists(bench.hosts.path(f"{folder}/status")),
          lambda: "does not begin: " + bench.story(folder), END)
    must(not os.path.exists(bench.hosts.path(f"{folder}/status")), "ended early", bench.story(folder))
    return folder


def go(bench, folder):
    bench.hosts.write(f"{folder}/go", "")


def all_dumped(bench, folder, seconds=30):
    """Every rank has one dump more than it had."""
    place = bench.hosts.path(f"{folder}/report")
    until(lambda: {int(name[5:10]) for name in os.listdir(place) if name.startswith("dump-")} == set(range(bench.ranks)),
          lambda: f"dumps: {sorted(os.listdir(place))}", seconds)


def check_presence(bench):
    """All ranks know of all others, each is known to be on its node, all reports are there and clean."""
    folder = waiting(bench)
    go(bench, folder)
    must(bench.status(folder) == 0, bench.story(folder))
    found = bench.reports(folder)
    must(sorted(found) == list(range(bench.ranks)), sorted(found))
    must(len({one["launch"] for one in found.values()}) == 1, "several launch keys")
    for rank, one in found.items():
        must(one["launch_agreed"] and one["all_ranks_preloaded"] and one["world_size"] == bench.ranks, rank, one["notes"])
        must(one["outcome"] == "finished" and not one["findings"], rank, one["outcome"], one["findings"])
        must(one["private_communicator"], rank, one["notes"])
    err = bench.hosts.read(f"{folder}/err")
    must(err.count("resil:") == 1 and f"watch on {bench.ranks} ranks" in err, err)
    must("job 1: %d of them" % bench.ranks in bench.hosts.read(f"{folder}/out"), bench.story(folder))


def check_nodes(bench):
    """Each rank is on the host where it runs, its ring in that host's memory, and nothing is left there."""
    folder = waiting(bench)
    here = {host: bench.hosts.run(host, "ls", "/dev/shm").stdout.count(".ring") for host in bench.nodes}
    go(bench, folder)
    must(bench.status(folder) == 0, bench.story(folder))
    found = bench.reports(folder)
    must({rank: one["host"] for rank, one in found.items()} == bench.node_of, {rank: one["host"] for rank, one in found.items()})
    must(here == {host: bench.launcher.each for host in bench.nodes}, here)
    namespaces = {one["host"]: one["pid_namespace"] for one in found.values()}
    must(len(set(namespaces.values())) == bench.launcher.nodes, namespaces)
    left = {host: bench.hosts.run(host, "/bin/sh", "-c", "ls /dev/shm | grep resil; true").stdout for host in bench.nodes}
    must(not any(left.values()), left)


def hung(bench, settings, folder):
    """A job of hangs.c that RESIL_HANG=abort ends: rank 1, on the second node, receives what nobody sends. The status."""
    bench.start(bench.line(bench.program("hangs", "missing"), {"RESIL_HANG": "abort", **settings}, cyclic=True), folder)
    return bench.status(folder)


def found_and_ended(bench, folder, status):
    err = bench.hosts.read(f"{folder}/err")
    ranks = bench.ranks
    must(re.search(rf"hang \[\w+, proved\] .*\b{ranks - 1} of {ranks}\b.* in call \d+ of MPI_Barrier", err), "not proved over nodes", err)
    must("Rank 1 waits in MPI_Recv from rank 0, tag 9" in err, err)
    must(re.search(rf"where: (rank 0 on {bench.cyclic[0]}, pid \d+; )?rank 1 on {bench.cyclic[1]}, pid ", err), err)
    must("ending the job with exit status 92" in err and status == 92, f"status {status}", bench.story(folder))


def check_hang(bench):
    """A hang of ranks on all nodes is proved, told with the right rank and nodes, and the job ends with status 92."""
    folder = bench.fresh()
    found_and_ended(bench, folder, hung(bench, {"RESIL_DIR": f"{SHARED}/{folder}/report"}, folder))
    with open(bench.hosts.path(f"{folder}/report/hang-0.json"), encoding="utf-8") as file:
        found = json.load(file)
    culprits = [1] if bench.ranks > 2 else [0, 1]  # of two ranks neither is the odd one
    must(found["confidence"] == "proved" and found["culprit_ranks"] == culprits and not found["unanswered"], found)
    must([one["rank"] for one in found["ranks"]] == list(range(bench.ranks)), found["ranks"])
    must({one["rank"]: bench.nodes[one["node"]] for one in found["ranks"]} == bench.cyclic, found["ranks"])
    bench.aborted = folder


def check_after(bench):
    """After an abort the reports of all ranks are there, those of other nodes too, and nothing runs any more."""
    folder = getattr(bench, "aborted", None)
    must(folder, "no hang was found before")
    for host in bench.nodes:
        until(lambda host=host: not bench.hosts.ranks(host), f"ranks are left on {host}", 20)
    said = json.loads(bench.tool(bench.hosts.names[0], "report", "--json", f"{SHARED}/{folder}/report"))
    must(said["ranks_reported"] == bench.ranks and said["verdict"] == "FINDINGS", said["verdict"], said["reason"])
    for host in bench.nodes:
        said = json.loads(bench.tool(host, "report", "--json", f"{SHARED}/{folder}/report"))
    calls = {call["name"]: call["count"] for call in said["calls"]}
    must(calls.get("MPI_Recv") == 1 and calls.get("MPI_Init") == bench.ranks, calls)


def check_dump(bench):
    """`resil dump` on each node has an answer of each of its ranks, and names the others' nodes; the job goes on."""
    folder = waiting(bench)
    for host in bench.nodes:
        mine = [rank for rank, node in bench.node_of.items() if node == host]
        said = bench.tool(host, "dump", f"{SHARED}/{folder}/report")
        must(f"{len(mine)} of {len(mine)} answered" in said, said)
        for other in bench.nodes:
            must(other == host or re.search(rf"\b{other}: ", said), said)
    all_dumped(bench, folder)
    go(bench, folder)
    must(bench.status(folder) == 0, bench.story(folder))


def check_status(bench):
    """`resil status --all` on one node has every rank of every node, by srun in a Slurm job and else by ssh."""
    folder = waiting(bench)
    told = json.loads(bench.tool(bench.nodes[0], "status", "--all", "--json", f"{SHARED}/{folder}/report"))
    must({one["rank"] for one in told["ranks"]} == set(range(bench.ranks)) and not told["unanswered"], told)
    must(told["hosts"] == {node: bench.launcher.each for node in bench.nodes}, told["hosts"])
    must(f"ranks      {bench.ranks} of {bench.ranks} on " in bench.tool(bench.nodes[-1], "status", "--all", f"{SHARED}/{folder}/report"))
    go(bench, folder)
    must(bench.status(folder) == 0, bench.story(folder))


def check_alone(bench):
    """Each node has its own report directory, and no file is shared: presence and the hang are found all the same; or one line
    says that this launcher's ranks need a shared one."""
    folder = bench.fresh()
    status = hung(bench, {"RESIL_DIR": f"/tmp/{folder}", "RESIL_FILES": "all"}, folder)
    err = bench.hosts.read(f"{folder}/err")
    for host in bench.nodes:
        names = bench.hosts.run(host, "ls", f"/tmp/{folder}").stdout.split()
        mine = {f"rank-{rank:05}.json" for rank, node in bench.cyclic.items() if node == host}
        must(mine == {name for name in names if name.startswith("rank-") and name.endswith(".json")}, host, names)
    if "on nodes that do not share this report directory" in err:
        raise Short("each node by itself, and it says so")
    found_and_ended(bench, folder, status)


def check_lacking(bench):
    """One node's ranks have no library: the job runs, one line names them."""
    folder = bench.fresh()
    place, last = f"{SHARED}/{folder}", bench.nodes[-1]
    bench.hosts.write(f"{folder}/unless", f'#!/bin/sh\n[ "$(hostname)" = {last} ] || export LD_PRELOAD={LIBRARY}\nexec "$@"\n', 0o755)
    bench.hosts.write(f"{folder}/go", "")
    program = [f"{place}/unless", *bench.program("neighbours", "1", f"{place}/ready", f"{place}/go")]
    bench.start(bench.line(program, {"RESIL_DIR": f"{place}/report"}, preload=False), folder)
    must(bench.status(folder) == 0, bench.story(folder))
    err = bench.hosts.read(f"{folder}/err")
    lacking = [rank for rank, node in bench.node_of.items() if node == last]
    words = f"rank {lacking[0]}" if len(lacking) == 1 else "ranks " + ",".join(map(str, lacking))
    must(re.search(rf"resil: .*\b{words}\b", err), "does not name " + words, err)
    must(sorted(bench.reports(folder)) == [rank for rank in range(bench.ranks) if rank not in lacking], sorted(bench.reports(folder)))


def check_settings(bench):
    """One node's ranks have other settings: status 93, one line, the ranks named."""
    folder = bench.fresh()
    place, last = f"{SHARED}/{folder}", bench.nodes[-1]
    bench.hosts.write(f"{folder}/unless", f'#!/bin/sh\n[ "$(hostname)" = {last} ] && export RESIL_MODE=checksum\nexec "$@"\n', 0o755)
    bench.hosts.write(f"{folder}/go", "")
    program = [f"{place}/unless", *bench.program("neighbours", "1", f"{place}/ready", f"{place}/go")]
    # LD_PRELOAD of the shell is harmless: nothing is done in other processes.
    bench.start(bench.line(program, {"RESIL_DIR": f"{place}/report"}), folder)
    status = bench.status(folder)
    err = bench.hosts.read(f"{folder}/err")
    must(status == 93, f"status {status}", bench.story(folder))
    must(sum("resil:" in line and "RESIL_MODE" in line for line in err.splitlines()) == 1, err)


def check_init(bench):
    """One node's ranks come late to MPI_Init: after 30 s one line says which; then the job goes on."""
    folder = bench.fresh()
    place, last = f"{SHARED}/{folder}", bench.nodes[-1]
    bench.hosts.write(f"{folder}/late", f'#!/bin/sh\n[ "$(hostname)" = {last} ] && while [ ! -e {place}/go ]; do sleep 0.2; done\nexec "$@"\n', 0o755)
    program = [f"{place}/late", *bench.program("neighbours", "1", f"{place}/ready", f"{place}/go")]
    bench.start(bench.line(program, {"RESIL_DIR": f"{place}/report"}), folder)
    lacking = [str(rank) for rank, node in bench.node_of.items() if node == last]
    # Where nobody of another node is there, nothing tells whether the directory is shared.
    what = rf"\branks? {'.'.join(lacking)} (is|are) not there" if bench.launcher.nodes > 2 else \
        rf"{len(lacking)} ranks? of other nodes cannot be seen from here"
    words = re.compile(rf"MPI_Init has not returned for 30 s on {bench.nodes[0]}\. .*{what}")
    until(lambda: os.path.exists(bench.hosts.path(f"{folder}/err")) and words.search(bench.hosts.read(f"{folder}/err")),
          lambda: "no such line: " + bench.story(folder), END)
    go(bench, folder)
    must(bench.status(folder) == 0, bench.story(folder))


def check_signal(bench):
    """scancel --signal=HUP: every rank of the step dumps and goes on."""
    folder = waiting(bench)
    steps = [step for step in bench.slurm.ask("squeue", "-s", "-h", "-o", "%i").split() if re.fullmatch(r"\d+\.\d+", step)]
    must(len(steps) == 1, steps)
    bench.slurm.ask("scancel", "--signal=HUP", steps[0])
    all_dumped(bench, folder)
    go(bench, folder)
    must(bench.status(folder) == 0, bench.story(folder))


def batch_output(bench, folder):
    """What the batch jobs of a folder printed."""
    files = sorted(name for name in os.listdir(bench.hosts.path(folder)) if "-output-" in name)
    return "\n".join(f"{name}: {bench.hosts.read(f'{folder}/{name}')[-1000:]}" for name in files)


def step(bench, number, place, ranks=None, settings=""):
    """A line of a batch script: neighbour NUMBER on all nodes of the job."""
    one = bench.launcher
    return (f"{one.how} -n {ranks or bench.ranks} -N {one.nodes} --exact --export=ALL,LD_PRELOAD={LIBRARY},RESIL_DIR={place}/report-{number}{settings} "
            f"{SHARED}/bin/neighbours.{one.mpi} {number} {place}/ready-{number} {place}/go")


def begun(bench, folder, numbers, job):
    until(lambda: all(os.path.exists(bench.hosts.path(f"{folder}/ready-{number}")) for number in numbers),
          lambda: f"not begun: {os.listdir(bench.hosts.path(folder))} {bench.slurm.facts(job).get('JobState')} {batch_output(bench, folder)}", END)


def right(bench, folder, number, name=None):
    """The reports of a neighbour: its ranks with its own calls, and nobody else's. The launch."""
    found = bench.reports(folder, name or f"report-{number}")
    must(sorted(found) == list(range(bench.ranks)), number, sorted(found))
    call = ("MPI_Allreduce", "MPI_Bcast", "MPI_Barrier")[number % 3]
    for rank, one in found.items():
        must(one["outcome"] == "finished" and one["launch_agreed"] and not one["findings"], number, rank, one["outcome"], one["notes"])
        must(one["calls"][call]["count"] == 11 + number, number, rank, one["calls"])
    keys = {one["launch"] for one in found.values()}
    must(len(keys) == 1, keys)
    return keys.pop()


def array_and_steps(bench):
    """sbatch: an array of three tasks, and beside it two steps at once in one job, all on the same nodes."""
    folder = bench.fresh()
    place, one, slurm = f"{SHARED}/{folder}", bench.launcher, bench.slurm
    size = ("-N", str(one.nodes), f"--ntasks-per-node={one.each}")
    array = slurm.submit(step(bench, "$SLURM_ARRAY_TASK_ID", place), "--array=1-3", *size, name=f"{folder}/array")
    double = (*size[:2], f"--ntasks-per-node={2 * one.each}")
    both = slurm.submit(f"{step(bench, 7, place)} &\n{step(bench, 8, place)} &\nwait\n", *double, name=f"{folder}/steps")
    begun(bench, folder, (1, 2, 3, 7, 8), array)
    go(bench, folder)
    for job in (array, both):
        slurm.ended(job)
    keys = [right(bench, folder, number) for number in (1, 2, 3, 7, 8)]
    must(len(set(keys)) == 5, keys)


def requeued(bench):
    """A job that is put back while it runs: the second run's reports are in a directory of their own in the first one's, whole
    and clean, and are what is shown."""
    folder = bench.fresh()
    place, one, slurm = f"{SHARED}/{folder}", bench.launcher, bench.slurm
    script = (f'if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then\n{step(bench, 4, place)} &\nwhile [ ! -e {place}/ready-4 ]; do sleep 0.1; done\n'
              f"scontrol requeue $SLURM_JOB_ID\nwait\nsleep 100\nelse\ntouch {place}/go\n{step(bench, 4, place)}\necho $? > {place}/status\nfi\n")
    job = slurm.submit(script, "-N", str(one.nodes), f"--ntasks-per-node={one.each}", "--requeue", name=f"{folder}/requeue")
    hastened = []

    def ended():
        facts = slurm.facts(job)
        if facts.get("JobState") == "PENDING" and facts.get("Restarts") == "1" and not hastened:
            hastened.append(slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now+3"))  # it would wait two minutes
        return os.path.exists(bench.hosts.path(f"{folder}/status"))
    until(ended, lambda: f"does not end: {slurm.facts(job)}", 150)
    slurm.ended(job)
    second = [name for name in os.listdir(bench.hosts.path(f"{folder}/report-4")) if name.startswith("resil-neighbours")]
    must(len(second) == 1, second, batch_output(bench, folder))
    right(bench, folder, 4, f"report-4/{second[0]}")
    said = json.loads(bench.tool(bench.hosts.names[0], "report", "--json", f"{place}/report-4"))
    must(said["verdict"] == "CLEAN" and said["ranks_reported"] == bench.ranks, said["verdict"], said["reason"])


def time_limit(bench):
    """A job that Slurm ends at its time limit: the report says of every rank where it was, on all nodes."""
    folder = bench.fresh()
    place, one, slurm = f"{SHARED}/{folder}", bench.launcher, bench.slurm
    job = slurm.submit(step(bench, 5, place), "-N", str(one.nodes), f"--ntasks-per-node={one.each}", "--time=1", name=f"{folder}/limit")
    begun(bench, folder, (5,), job)
    slurm.ended(job, 240)
    must(slurm.facts(job).get("JobState") == "TIMEOUT", slurm.facts(job))
    for host in bench.nodes:
        said = json.loads(bench.tool(host, "report", "--json", f"{place}/report-5"))
    calls = {call["name"]: call["count"] for call in said["calls"]}
    must(calls.get("MPI_Barrier") == 16 * bench.ranks - 1 and said["ranks_reported"] == bench.ranks, calls, said["reason"])
    text = bench.tool(bench.nodes[0], "report", f"{place}/report-5")
    must("SIGTERM" in text or "time limit" in text or "signal 15" in text, text)


CHECKS = {"presence": check_presence, "nodes told apart": check_nodes, "hang over nodes, 92": check_hang, "reports after it": check_after,
          "dump": check_dump, "no shared directory": check_alone, "a node without the library": check_lacking,
          "a node with other settings, 93": check_settings, "MPI_Init: who is not there": check_init}
SLURM_CHECKS = {"scancel --signal=HUP": check_signal, "array, two steps at once": array_and_steps, "requeue": requeued,
                "time limit": time_limit}


def batch(bench, command, *options):
    """The example batch script with a command, submitted in a fresh folder: (folder, job)"""
    folder, one = bench.fresh(), bench.launcher
    script = (f"cd {SHARED}/{folder}\nexport PATH={SHARED}/bin:$PATH SLURM_MPI_TYPE={one.how.split('=')[1]} RESIL_HANG_INTERVAL=0.02\n"
              f"bash {PARTS}/job.sh {command}\n")
    return folder, bench.slurm.submit(script, "--requeue", "--open-mode=append", *options, name=f"{folder}/job")


def restarted(bench, folder, job):
    """Waits until Slurm has put the job back, and does not let it wait two minutes."""
    until(lambda: bench.slurm.facts(job).get("Restarts") == "1" and bench.slurm.facts(job)["JobState"] == "PENDING",
          lambda: f"not put back: {bench.slurm.facts(job)} {batch_output(bench, folder)}", END)
    bench.slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now+5")


def plugin_environment(bench):
    """srun --resil reaches the ranks of all nodes, and nobody whom it was not asked for; a mode that there is not starts nothing."""
    folder, one, head = bench.fresh(), bench.launcher, bench.hosts.names[0]
    line = ["-N", str(one.nodes), "-n", str(bench.ranks), f"--ntasks-per-node={one.each}", f"{SHARED}/bin/spank_app.{one.mpi}"]
    cwd = f"{SHARED}/{folder}"
    for options in ((), ("--resil=checksum",)):
        done = bench.hosts.run(head, *one.how.split(), *options, *line, env={**OPENMPI, "RESIL_DIR": f"{cwd}/report"}, cwd=cwd)
        must(done.returncode == 0 and f"{bench.ranks} ranks" in done.stdout, options, done.returncode, done.stderr)
        must(bool(options) == os.path.exists(bench.hosts.path(f"{folder}/report")), options, done.stderr)
    found = bench.reports(folder)
    must({rank: told["host"] for rank, told in found.items()} == bench.node_of, {rank: told["host"] for rank, told in found.items()})
    must(all(told["modes"] == "watch,checksum" and told["all_ranks_preloaded"] for told in found.values()), found[0]["modes"])
    done = bench.hosts.run(head, "srun", "--resil=chekcsum", "-N", str(one.nodes), "touch", f"{cwd}/started")
    must(done.returncode and "is no mode" in done.stderr and not os.path.exists(bench.hosts.path(f"{folder}/started")), done)


def put_back(bench):
    """job.sh: a hang of ranks on all nodes is put back, and the second run is clean; where a message was damaged on one node, the
    second run is on another one."""
    one, app = bench.launcher, f"{SHARED}/bin/spank_app.{bench.launcher.mpi}"
    first = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && '
    hung, job = batch(bench, f"sh -c '{first} exec {app} hang || exec {app}'", "-N", str(one.nodes), "-n", str(bench.ranks))
    restarted(bench, hung, job)
    bench.slurm.ended(job)
    must(bench.slurm.facts(job)["JobState"] == "COMPLETED", bench.slurm.facts(job), batch_output(bench, hung))
    for run, verdict in ((0, "FINDINGS"), (1, "CLEAN")):
        said = json.loads(bench.tool(bench.nodes[0], "report", "--json", f"{SHARED}/{hung}/resil-{job}-run-{run}"))
        must(said["verdict"] == verdict and said["ranks_reported"] == bench.ranks, run, said["verdict"], said["reason"])
    folder, job = batch(bench, f"sh -c '{first} export RESIL_FAULT=flip,nth=5; exec {app}'", "-N", "1", "-n", "2")
    restarted(bench, folder, job)
    bench.slurm.ended(job)
    runs = [bench.reports(folder, f"resil-{job}-run-{run}") for run in (0, 1)]
    must(any(told["findings"] for told in runs[0].values()), batch_output(bench, folder))
    facts, (bad, good) = bench.slurm.facts(job), (run[0]["host"] for run in runs)
    must(facts["JobState"] == "COMPLETED" and facts["ExcNodeList"] == bad != good, facts, bad, good, batch_output(bench, folder))


def limit_and_epilog(bench):
    """--signal before the time limit: dumps of all ranks. Then the ranks are killed: slurmd's epilog puts the recorders of all nodes
    beside the reports, nothing is left in their memory, one line is in the log."""
    one = bench.launcher
    with open(os.path.join(TREE, "scripts", "packaging", "slurm", "epilog"), encoding="utf-8") as file:
        script = file.read()
    place = bench.fresh()
    for name, value in (("resil", f"{SHARED}/bin/resil"), ("reports", f"{SHARED}/{place}"), ("log", f"{SHARED}/{place}/log")):
        script = re.sub(rf"^{name}=[^\s#]*", f"{name}={value}", script, flags=re.M)
    try:
        folder, job = batch(bench, f"{SHARED}/bin/spank_app.{one.mpi} wait ready", "-N", str(one.nodes), "-n", str(bench.ranks), "--time=10",
                            "--signal=HUP@530")
        report = f"{folder}/resil-{job}-run-0"
        os.symlink(f"../{report}", bench.hosts.path(f"{place}/resil-app-20260101T0000Z-{job}.0"))
        until(lambda: os.path.isdir(bench.hosts.path(report)) and {name[:10] for name in os.listdir(bench.hosts.path(report))} >=
              {f"dump-{rank:05}" for rank in range(bench.ranks)}, lambda: f"no dumps: {batch_output(bench, folder)}", END)
        must(bench.slurm.facts(job)["JobState"] == "RUNNING", bench.slurm.facts(job))
        bench.hosts.write("etc/epilog", script, 0o755)
        for host in bench.nodes:
            bench.hosts.run(host, "kill", "-9", *bench.hosts.ranks(host))
        bench.slurm.ended(job)
        until(lambda: {f"rank-{rank:05}.ring" for rank in range(bench.ranks)} <= set(os.listdir(bench.hosts.path(report))),
              lambda: f"not collected: {sorted(os.listdir(bench.hosts.path(report)))}", END)
        until(lambda: os.path.exists(bench.hosts.path(f"{place}/log")), "no line in the log", END)
        left = {host: bench.hosts.run(host, "/bin/sh", "-c", "ls /dev/shm | grep resil.*ring; true").stdout for host in bench.nodes}
        said = bench.hosts.read(f"{place}/log")
        must(not any(left.values()) and said.count("\n") == 1 and f"job {job} uid 0" in said and "INCOMPLETE: " in said, left, said)
    finally:
        bench.hosts.write("etc/epilog", "#!/bin/sh\n", 0o755)


SPANK_CHECKS = {"plugin: srun --resil": plugin_environment, "plugin: put back, a node excluded": put_back,
                "plugin: dump before the limit, epilog": limit_and_epilog}
STATUS_CHECKS = {"status over nodes": check_status}  # of the tool; no column of the page
EVERY = {**CHECKS, **SLURM_CHECKS, **STATUS_CHECKS, **SPANK_CHECKS}


def checks_of(launcher):
    return {**CHECKS, **STATUS_CHECKS, **({**SLURM_CHECKS, **SPANK_CHECKS} if "srun" in launcher.how else {})}


def compile_plugin(hosts):
    """Against the header of the Slurm that loads it: libslurm-dev in that system. Without it there is no --resil."""
    modes = ",".join(questions.MODES)
    done = hosts.run(hosts.names[0], "cc", "-std=gnu11", "-O2", "-fPIC", "-shared", f'-DRESIL_MODES="{modes}"', f'-DRESIL_MODES_TEXT="{modes}"',
                     "-o", f"{SHARED}/bin/spank_resil.so", f"{PARTS}/spank_resil.c")
    if done.returncode == 0:
        hosts.write("etc/plugstack.conf", f"required {SHARED}/bin/spank_resil.so library={LIBRARY}\n")
        hosts.write("bin/resil", f'#!/bin/sh\nexec {" ".join(TOOL)} "$@"\n', 0o755)
    else:
        print(f"matrix: no plugin of Slurm: {done.stderr.strip()[:200]}", file=sys.stderr)


def compile_programs(hosts, mpis):
    for mpi in mpis:
        for name in ("mpi/neighbours", "mpi/hangs", "preload/spank_app"):
            done = hosts.run(hosts.names[0], f"mpicc.{mpi}", "-O1", "-g", "-w", "-I/src/tests/mpi", "-o",
                             f"{SHARED}/bin/{os.path.basename(name)}.{mpi}", f"/src/tests/{name}.c")
            if done.returncode:
                raise Impossible(f"mpicc.{mpi}: {done.stderr[:500]}")


def facts_of(bench):
    """What the page says of a launcher beside its checks."""
    one, head = bench.launcher, bench.hosts.names[0]
    said = bench.hosts.run(head, "srun", "-N1", "-n1", "--mpi=pmix", "printenv", "PMIX_VERSION").stdout.split()
    text = bench.hosts.run(head, *(("mpirun.openmpi", "--version") if one.mpi == "openmpi" else ("mpichversion",)), env=OPENMPI).stdout
    mpi = ("Open MPI " if one.mpi == "openmpi" else "MPICH ") + re.search(r"\d+\.\d+\S*", text)[0]
    how = one.how
    if one.how.startswith("srun") or "sbatch" in one.how:
        how += f", Slurm {bench.slurm.ask('srun', '--version').split()[-1]}"
    if "pmix" in one.how:
        how += f", PMIx {''.join(said)}"
    return {"MPI": mpi, "launcher": how, "system": f"Debian {DEBIAN[one.release]}", "hosts": f"{one.nodes} x {one.each}"}


def tried(bench, check):
    """(result, why) of one check. MPICH 4.0.2 hangs between hosts in MPI_Finalize by itself, in one of four native runs: then
    once more."""
    for attempt in range(1, 5):
        try:
            check(bench)
            return "OK", f"{attempt} tries: MPICH 4.0.2 hung in MPI_Finalize, as it does natively" if attempt > 1 else ""
        except Short as what:
            return "SHORT", str(what)
        except Failed as what:
            return "FAIL", str(what)
        except RuntimeError as what:
            own = bench.launcher.release == "bookworm" and bench.launcher.mpi == "mpich" and "does not end" in str(what)
            if not own or attempt == 4:
                return "FAIL", str(what)
            bench.hosts.clear()
    return "FAIL", ""


def run_release(options, launchers, folder):
    """All launchers of one system, on hosts of their own. 1: something failed."""
    release, failed = launchers[0].release, False
    base = "/" if host_release() == release else os.path.join(options.roots, release)
    library = results.build_id(options.library)
    hosts = Hosts(base, folder, options.library)
    try:
        slurm = Slurm(hosts)
        compile_programs(hosts, sorted({one.mpi for one in launchers}))
        compile_plugin(hosts)
        for one in launchers:
            kept = results.Kept(options.roots, f"launcher-{one.name}")
            bench = Bench(one, hosts, slurm)
            kept.facts.update(facts_of(bench))
            for name, check in checks_of(one).items():
                if options.checks and name not in options.checks or name in SPANK_CHECKS and not os.path.exists(hosts.path("etc/plugstack.conf")):
                    continue
                if name != "reports after it":  # those are of the check before
                    hosts.clear()
                began = time.monotonic()
                result, why = tried(bench, check)
                kept.note(name, result, time.monotonic() - began, library, why)
                kept.save()
                failed = failed or result == "FAIL"
                print(f"{one.name}: {name}: {result} ({time.monotonic() - began:.0f} s){': ' + why if why else ''}", flush=True)
    finally:
        hosts.close()
    return 1 if failed else 0


def campaign(options):
    """The verb `launchers`: each system in namespaces of its own, this script once more in them."""
    wanted = [ALL[name] for name in options.names] if options.names else list(ALL.values())
    if os.environ.get(MARK):
        return run_release(options, wanted, options.folder)
    statuses = []
    for release in dict.fromkeys(one.release for one in wanted):
        if host_release() != release and not os.path.exists(os.path.join(options.roots, release, ".done-packages")) and \
                not os.path.exists(os.path.join(options.roots, release, "usr")):
            print(f"matrix: {release}: not run: no root yet: scripts/matrix root {release}-openmpi", file=sys.stderr)
            statuses.append(3)
            continue
        folder = tempfile.mkdtemp(prefix="launchers-", dir=options.roots if os.path.isdir(options.roots) else None)
        try:
            names = [one.name for one in wanted if one.release == release]
            line = [sys.executable, os.path.join(TREE, "scripts", "matrix"), "launchers", *names, "--roots", options.roots,
                    "--library", os.path.abspath(options.library), "--folder", folder]
            statuses.append(inside(line + (["--checks", *options.checks] if options.checks else [])))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return max(statuses, key=lambda status: (status == 1, status))
