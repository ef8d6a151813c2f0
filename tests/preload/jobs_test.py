#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Preloading into jobs that are not simple: launchers, other tools, ranks without the library, bad configuration,
directories that cannot be written, two MPIs in a process.

Usage: jobs_test.py BUILD openmpi|mpich      (BUILD holds p2p.MPI, ends.MPI, plugin*.MPI, counting_tool.MPI.so)
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, patience, report as reports, transparent  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402

BUILD = MPI = ""


def program(name):
    return os.path.join(BUILD, f"{name}.{MPI}")


def said(result):
    """What the library said, less its closing line."""
    return [line for line in transparent.own_lines(result.stderr) if "finished" not in line]


def launcher_preloaded():
    """LD_PRELOAD in the user's shell reaches the launcher, its helpers, and the ranks: only ranks report."""
    directory, here = os.path.join(jobs.scratch(), "report"), jobs.scratch()
    line = jobs.launcher(MPI, 2, {}) + [program("p2p")]
    result = jobs.start(line, directory, env={"LD_PRELOAD": jobs.library(), "RESIL_DIR": directory}, cwd=here)
    assert result.returncode == 0, result.text()
    transparent.clean_report(result, 2)
    assert os.listdir(here) == [], os.listdir(here)


def bind_now():
    result = jobs.run(MPI, 2, [program("p2p")], env={"LD_BIND_NOW": "1"})
    assert result.returncode == 0, result.text()
    transparent.clean_report(result, 2)


def default_directory():
    """Without RESIL_DIR the reports are in one directory for the job, named after program and time and in the last line."""
    here = jobs.scratch()
    line = jobs.launcher(MPI, 2, {"LD_PRELOAD": jobs.library()}) + [program("p2p")]
    result = jobs.start(line, cwd=here)
    made = os.listdir(here)
    assert len(made) == 1 and re.match(r"resil-p2p\.%s-\d{8}T\d{4}Z-" % MPI, made[0]), f"{made}\n{result.text()}"
    result.directory = os.path.join(here, made[0])
    transparent.clean_report(result, 2)
    assert made[0] in result.stderr.decode(), result.text()


def quiet():
    result = jobs.run(MPI, 2, [program("p2p")], env={"RESIL_LOG": "quiet"})
    assert result.returncode == 0 and transparent.own_lines(result.stderr) == [], result.text()


def stacked(first):
    """With another tool before or behind: both count every call once, and neither sees the other's own traffic."""
    tool = os.path.join(os.environ.get("COUNTING_TOOL_DIR", BUILD), f"counting_tool.{MPI}.so")
    counts = os.path.join(jobs.scratch(), "counts")
    chain = {"tools_before": [tool]} if first else {"tools_after": [tool]}
    result = jobs.run(MPI, 2, [program("p2p")], env={"COUNTING_TOOL": counts}, **chain)
    assert result.returncode == 0, result.text()
    ours = reports.counts(transparent.clean_report(result, 2)[0])
    with open(counts, encoding="ascii") as file:
        theirs = next(line for line in file if line.startswith("0 "))
    theirs = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", theirs)}
    assert theirs["inits"] == 1 and theirs["sends"] == 11 and theirs["receives"] == 8, theirs
    assert ours["MPI_Send"] == 11 and ours["MPI_Recv"] == 8 and ours["MPI_Init"] == 1, ours
    assert ours["MPI_Finalize"] == 1 and "MPI_Allreduce" not in ours or first, f"the tool's traffic: {ours}"


def small_tool(first):
    """A tool that wraps two functions, not MPI_Init, and comes back from what it calls: each call is counted once all the same."""
    tool = os.path.join(os.environ.get("COUNTING_TOOL_DIR", BUILD), f"small_tool.{MPI}.so")
    result = jobs.run(MPI, 2, [program("p2p")], **({"tools_before": [tool]} if first else {"tools_after": [tool]}))
    assert result.returncode == 0, result.text()
    ours = reports.counts(transparent.clean_report(result, 2)[0])
    plain = reports.counts(transparent.clean_report(jobs.run(MPI, 2, [program("p2p")]), 2)[0])
    for counts in (ours, plain):  # loops of polls, and of MPI_Waitsome, last as long as they last
        for name in [name for name in counts if re.match(r"MPI_(Test|Waitsome|Iprobe|Improbe|Request_get_status)", name)]:
            del counts[name]
    if first:  # the tool's own calls are the program's, as far as anybody can see
        assert all(ours[name] == plain[name] for name in ("MPI_Send", "MPI_Recv", "MPI_Sendrecv", "MPI_Finalize")), (ours, plain)
    else:
        assert ours == plain, {name: (ours.get(name), plain.get(name)) for name in {**ours, **plain} if ours.get(name) != plain.get(name)}


LIMIT_BYTES = 400 << 20


def memory_group():
    """A control group of 400 MiB for the test's own processes; None: none may be made here."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        for line in file:
            _, controllers, path = line.strip().split(":", 2)
            base, limit = ("/sys/fs/cgroup" + path, "memory.max") if not controllers else ("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes")
            if controllers not in ("", "memory") or not os.path.isdir(base):
                continue
            group = os.path.join(base, f"resil-test-{os.getpid()}")
            try:
                os.mkdir(group)
            except OSError:
                continue
            try:
                with open(os.path.join(group, limit), "w", encoding="ascii") as file_of_limit:
                    file_of_limit.write(str(LIMIT_BYTES))
                for name, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(LIMIT_BYTES))):  # nor in swap
                    if os.path.exists(os.path.join(group, name)):
                        with open(os.path.join(group, name), "w", encoding="ascii") as file_of_limit:
                            file_of_limit.write(value)
                return group
            except OSError:
                os.rmdir(group)
    return None


def out_of_memory():
    """The kernel's out-of-memory killer takes a rank, and the launcher ends the others: the report says which, and why."""
    group = memory_group()
    if group is None:
        raise LeftOut("no memory control group may be made here")
    entered = os.path.join(jobs.scratch(), "entered")
    with open(entered, "w", encoding="ascii") as file:  # the launcher and what it starts are in the group, the test is not
        file.write(f"#!/bin/sh\necho $$ > {group}/cgroup.procs || exit 99\nexec \"$@\"\n")
    os.chmod(entered, 0o700)
    directory = os.path.join(jobs.scratch(), "report")
    try:
        result = jobs.start([entered, *jobs.launcher(MPI, 3, jobs.rank_environment(True, directory, {"RESIL_LOG": "quiet"})), program("greedy")], directory, timeout=120)
        assert result.returncode not in (0, 99), result.text()
        told = jobs.run_tool("report", directory, "--json")
        said = " ".join(patience.run([sys.executable, os.path.join(jobs.ROOT, "scripts", "resil"), "report", directory], capture_output=True,
                                     timeout=60).stdout.decode().split())
        assert told["ending"]["out_of_memory"] == "1", (said, told["ending"])
        assert "rank 1 ran out of memory: the kernel's out-of-memory killer has ended processes of this job there" in said, said
        assert "rank 1 was killed by the out-of-memory killer outside MPI, last call MPI_Allreduce #50" in said, said
    finally:
        patience.wait_for(lambda: not open(os.path.join(group, "cgroup.procs"), encoding="ascii").read(), "the job's end", 60)
        os.rmdir(group)


def mixed():
    """One of two ranks without the library: the job ends as it should, and the gap is said, with the remedy."""
    directory = os.path.join(jobs.scratch(), "report")
    preloaded = {"LD_PRELOAD": jobs.library(), "RESIL_DIR": directory}
    line = jobs.launcher_of_parts(MPI, [(preloaded, [program("p2p")]), ({}, [program("p2p")])])
    result = jobs.start(line, directory, timeout=30)
    assert not result.timed_out, f"a mixed job hangs\n{result.text()}"
    assert result.returncode == 0 and result.stdout.startswith(b"p2p "), result.text()
    ranks = result.ranks()
    assert list(ranks) == [0] and ranks[0]["outcome"] == "finished", ranks
    assert ranks[0]["all_ranks_preloaded"] is False
    lines = said(result)
    assert len(lines) == 1 and "rank 1" in lines[0] and "LD_PRELOAD" in lines[0], lines


def asked_of_pmix(preload, **env):
    """A job beside the witness: its result, and the words of each rank (pmix_witness.c)."""
    witness = os.path.join(os.environ.get("COUNTING_TOOL_DIR", BUILD), "pmix_witness.so")
    path = os.path.join(jobs.scratch(), "asked")
    result = jobs.run(MPI, 2, [program("p2p")], env={"PMIX_WITNESS": path, **env}, preload=preload,
                      tools_after=[witness])
    assert result.returncode == 0, result.text()
    words = []
    for rank in range(2):
        if os.path.exists(f"{path}.{rank}"):
            with open(f"{path}.{rank}", encoding="ascii") as file:
                words.append(file.read().split())
    return result, words


def presence_leaves_pmix_to_mpi():
    """Of PMIx nothing may be touched before the MPI library has: Open MPI 5 and 6 then end in MPI_Init."""
    _, plain = asked_of_pmix(False)
    if not plain:
        return "(this MPI does not use libpmix by its names)"
    result, words = asked_of_pmix(True)
    assert all(rank["all_ranks_preloaded"] for rank in result.ranks().values()), result.text()
    for own, without in zip(words, plain):
        assert own[0] == "init" and own.count("presence") == 1 and own[own.index("presence") + 1] == "commit", own
        own.remove("presence")
        assert own == without, f"{own}, without the library {without}"


def presence_refused():
    """A carrier that fails on one rank costs what ranks would check between them, not the job."""
    result, words = asked_of_pmix(True, PMIX_WITNESS_REFUSE="1")
    if not words:
        return "(this MPI does not use libpmix by its names)"
    assert [rank["all_ranks_preloaded"] for rank in result.ranks().values()] == [False, False], result.text()
    assert [rank["outcome"] for rank in result.ranks().values()] == ["finished", "finished"], result.text()
    assert any("could not tell the other ranks" in note for note in result.ranks()[1]["notes"]), result.ranks()[1]


def mixed_values():
    """Ranks with different values of what must be the same: exit 93, and the message names the ranks."""
    directory = os.path.join(jobs.scratch(), "report")
    parts = [({"LD_PRELOAD": jobs.library(), "RESIL_DIR": directory, "RESIL_MODE": mode}, [program("p2p")])
             for mode in ("watch", "off")]
    result = jobs.start(jobs.launcher_of_parts(MPI, parts), directory, timeout=30)
    assert not result.timed_out, f"different modes: hangs\n{result.text()}"
    text = result.stderr.decode()
    # Switched off is as good as not preloaded; anything else that differs stops the job.
    assert result.returncode in (0, 93) and re.search(r"resil: .*rank.* [01]", text), result.text()
    jobs.remove_rings(directory)


# (variable, value, what the one line must contain)
BAD = [
    ("RESIL_MODE", "nonsense", "watch"), ("RESIL_MODE", "off,watch", "RESIL_MODE"), ("RESIL_MODE", "", "RESIL_MODE"),
    ("RESIL_SIGNAL", "SIGWHAT", "RESIL_SIGNAL"), ("RESIL_SIGNAL", "KILL", "RESIL_SIGNAL"),
    ("RESIL_LOG", "loud", "quiet"), ("RESIL_NODE_RANKS", "-1", "RESIL_NODE_RANKS"),
]


def bad_values():
    """Exit 93 inside MPI_Init, with one line: variable, value, what is allowed. An empty value counts as unset."""
    for variable, value, allowed in BAD:
        result = jobs.run(MPI, 2, [program("p2p")], env={variable: value}, timeout=30)
        lines = said(result)
        if value == "":
            assert result.returncode == 0 and not lines, result.text()
            continue
        assert result.returncode == 93, f"{variable}={value}\n{result.text()}"
        assert len(lines) == 1 and variable in lines[0] and value in lines[0] and allowed in lines[0], lines
        assert b"p2p" not in result.stdout, "the program ran"
        jobs.remove_rings(result.directory)


def unknown_name():
    result = jobs.run(MPI, 2, [program("p2p")], env={"RESIL_MOED": "watch", "RESIL_DIRR": "x"})
    assert result.returncode == 0, result.text()
    lines = said(result)
    assert len(lines) == 2, lines
    assert any("RESIL_MOED" in line and "RESIL_MODE" in line for line in lines), lines
    assert any("RESIL_DIRR" in line and re.search(r"RESIL_DIR\b", line) for line in lines), lines


def unwritable(directory, why):
    """One warning, the job goes on, and the end says that there are no reports."""
    result = jobs.run(MPI, 2, [program("p2p")], directory=directory)
    assert result.returncode == 0 and result.stdout.startswith(b"p2p "), result.text()
    lines = transparent.own_lines(result.stderr)
    assert len(lines) == 2, f"not one warning and one closing line: {lines}"
    assert re.search(why, lines[0]) and directory in lines[0], lines
    assert re.search(r"[Nn][Oo] reports", lines[-1]), lines


def below_a_file():
    path = os.path.join(jobs.scratch(), "file")
    with open(path, "w", encoding="ascii"):
        pass
    unwritable(os.path.join(path, "report"), "Not a directory")


def mounted(options, check):
    """A little file system of our own, if we may mount."""
    point = jobs.scratch()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", point], check=False,
                      capture_output=True).returncode:
        return "(not permitted to mount: not checked)"
    try:
        return check(point)
    finally:
        subprocess.run(["umount", "-l", point], check=True)


def read_only():
    return mounted("size=64k,ro", lambda point: unwritable(os.path.join(point, "report"), "Read-only"))


def full():
    """No byte is left on the disk: the directory can be made, the files cannot be written."""
    def check(point):
        with open(os.path.join(point, "fill"), "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        result = jobs.run(MPI, 2, [program("p2p")], directory=os.path.join(point, "report"))
        assert result.returncode == 0 and result.stdout.startswith(b"p2p "), result.text()
        lines = transparent.own_lines(result.stderr)
        assert len(lines) == 2 and "ranks 0,1: " in lines[0] and "No space" in lines[0], lines  # once for the job
        for name in os.listdir(os.path.join(point, "report")):  # what is there must be whole
            if name.endswith(".json"):
                with open(os.path.join(point, "report", name), encoding="utf-8") as file:
                    json.load(file)
    return mounted("size=64k", check)


def two_mpis():
    """A plug-in brings a second MPI into the process: a warning, and the first one is watched as before."""
    other = "mpich" if MPI == "openmpi" else "openmpi"
    second = os.path.join(BUILD, f"plugin.{other}.so")
    if not os.path.exists(second):
        return "(the other MPI is not installed)"
    if os.environ.get("RESIL_TEST_MPI_LIBRARY"):
        raise LeftOut("both plug-ins are of the standard ABI, and so of the one MPI")
    command = [program("plugin_host"), os.path.join(BUILD, f"plugin.{MPI}.so"), second]
    plain, preloaded = jobs.run(MPI, 2, command, preload=False), jobs.run(MPI, 2, command)
    transparent.same_end(plain, preloaded)
    assert plain.returncode == 0, plain.text()
    lines = said(preloaded)
    assert lines and len(set(lines)) == 1 and re.search("two MPI", lines[0]), lines
    assert len(lines) == 1, f"one warning for the job, not one of each rank: {lines}"
    assert reports.counts(preloaded.ranks()[0])["MPI_Allreduce"] == 5
    return ""


def not_preloaded_by_name():
    """A program whose ranks are started by a script: bash, env and the program carry the library; one reports."""
    directory = os.path.join(jobs.scratch(), "report")
    script = f"/bin/true; /usr/bin/env {program('p2p')}; status=$?; /bin/true; exit $status"
    result = jobs.run(MPI, 2, ["/bin/bash", "-c", script], directory=directory)
    assert result.returncode == 0, result.text()
    transparent.clean_report(result, 2)


def example_module():
    """The contributors' module: its message comes round on the private communicator, its member is in the report."""
    result = jobs.run(MPI, 2, [program("p2p")], env={"RESIL_EXAMPLE": "1"})
    assert result.returncode == 0, result.text()
    for rank, report in result.ranks().items():
        assert "example: token came round" in report["notes"], (rank, report["notes"])
        assert report["example"]["longest_run_without_collective"] > 0, (rank, report["example"])
        assert report["private_communicator"] is True, rank


def node_files(result):
    """[{rank: outcome}] of each node's file, by the last line of the rank."""
    assert result.returncode == 0, result.text()
    names = [n for n in os.listdir(result.directory) if n.endswith((".json", ".jsonl")) and n != "launch.json"]
    assert all(n.startswith("node-" + os.uname().nodename) for n in names), names
    nodes = []
    for name in sorted(names):
        with open(os.path.join(result.directory, name), encoding="utf-8") as file:
            nodes.append({report["rank"]: report["outcome"] for report in map(json.loads, file)})
    return nodes


def merged_reports():
    """Above 64 ranks a node there is one file for the node, a line for each state of each rank."""
    assert node_files(jobs.run(MPI, 2, [program("p2p")], env={"RESIL_NODE_RANKS": "65"})) == [{0: "finished", 1: "finished"}]


def nodes_of_one_name():
    """Two containers that share the host's name are two nodes to the reports: a file each, two hosts on the screen."""
    container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if patience.run([*container, "true"], capture_output=True, timeout=60, check=False).returncode != 0:
        raise LeftOut("pid namespaces are not permitted")
    wrapper = os.path.join(jobs.scratch(), "second-in-a-container")
    with open(wrapper, "w", encoding="ascii") as script:
        script.write('#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec %s "$@"\nexec "$@"\n' % " ".join(container))
    os.chmod(wrapper, 0o755)
    result = jobs.run(MPI, 2, [wrapper, program("p2p")], env={"RESIL_NODE_RANKS": "65"})
    assert sorted(map(str, node_files(result))) == ["{0: 'finished'}", "{1: 'finished'}"], os.listdir(result.directory)
    host = os.uname().nodename
    assert jobs.run_tool("report", result.directory, "--json")["hosts"] in (
        {host: "0", host + " (2)": "1"}, {host: "1", host + " (2)": "0"})


def main(build, mpi):
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = build, mpi
    jobs.require(f"mpirun.{mpi}")
    checks = [launcher_preloaded, bind_now, default_directory, quiet, mixed, mixed_values, bad_values, unknown_name,
              below_a_file, read_only, full, two_mpis, not_preloaded_by_name, example_module, merged_reports, out_of_memory]
    named = shared([(check.__name__.replace("_", " "), check) for check in checks]
                   + [("another tool before", lambda: stacked(True)), ("another tool behind", lambda: stacked(False)),
                      ("a small tool before", lambda: small_tool(True)), ("a small tool behind", lambda: small_tool(False))], mpi)
    if mpi == "openmpi":
        named += [(check.__name__.replace("_", " "), check) for check in (presence_leaves_pmix_to_mpi, presence_refused,
                                                                             nodes_of_one_name)]
    return run_checks([(f"{name} ({mpi})", check) for name, check in named])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
