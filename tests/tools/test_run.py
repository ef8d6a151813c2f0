# SPDX-License-Identifier: Apache-2.0
"""resil run: what it makes of a command line, and what it refuses. Nothing of MPI is started."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import support  # noqa: E402

from resil_tool import cli, elf, launch, launchers, questions  # noqa: E402
from resil_tool.job import Usage  # noqa: E402

LIBRARY = "/opt/resil/libresil.so"
VERSIONS = {"openmpi": "mpirun (Open MPI) 5.0.7", "old": "mpirun.openmpi (OpenRTE) 4.1.4", "prterun": "prterun (PRRTE) 3.0.2",
            "mpich": "HYDRA build details:\n    Version:                                 4.0.2", "odd": "launcher of somebody 1.0"}


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Forwarding(unittest.TestCase):
    def variables(self, settings=None, chosen=(), **environment):
        return launchers.Variables(LIBRARY, settings or {}, set(chosen), environment)

    def of(self, kind, words, variables):
        return launchers.forward(launchers.Launcher(kind, kind), words.split(), variables)

    def test_open_mpi_names_them_for_each_program(self):
        words, added = self.of("openmpi", "-np 1 sh a : -np 2 sh b", self.variables({"RESIL_MODE": "checksum"}))
        front = "-x LD_PRELOAD=%s -x RESIL_MODE=checksum" % LIBRARY
        self.assertEqual(" ".join(words), "%s -np 1 sh a : %s -np 2 sh b" % (front, front))
        self.assertEqual(added, {})

    def test_what_the_site_preloads_is_kept(self):
        for kind, words in (("openmpi", "-x LD_PRELOAD=/site/x.so:/site/y.so -np 1 sh"), ("openmpi", "-x LD_PRELOAD -np 1 sh"),
                            ("hydra", "-genv LD_PRELOAD /site/x.so:/site/y.so -n 1 sh"), ("srun", "--export=ALL,LD_PRELOAD -n1 sh"),
                            ("srun", "--export ALL,LD_PRELOAD=/site/x.so:/site/y.so -n1 sh"), ("openmpi", "-np 1 sh"),
                            ("hydra", "-n 1 sh"), ("srun", "-n1 sh"), ("environment", "sh")):
            words, added = self.of(kind, words, self.variables(LD_PRELOAD="/site/x.so /site/y.so"))
            said = " ".join(words) + " LD_PRELOAD=%s" % added.get("LD_PRELOAD", "")
            self.assertEqual(said.count(LIBRARY + ":/site/x.so:/site/y.so"), 1, said)
            self.assertEqual(said.count("/site/x.so"), 1, said)

    def test_another_resil_gives_way(self):
        self.assertEqual(launchers.with_library("/old/libresil.so:/site/x.so", LIBRARY), LIBRARY + ":/site/x.so")

    def test_hydra_env_of_one_program_is_kept(self):
        words, _ = self.of("hydra", "-n 1 -env LD_PRELOAD /a.so sh : -n 1 sh", self.variables())
        self.assertEqual(" ".join(words), "-genv LD_PRELOAD %s -n 1 -env LD_PRELOAD %s:/a.so sh : -n 1 sh" % (LIBRARY, LIBRARY))

    def test_srun_settings_go_by_the_environment(self):
        words, added = self.of("srun", "-n 2 sh", self.variables({"RESIL_FAULT": "flip,nth=2"}))
        self.assertEqual(words[0], "--export=ALL,LD_PRELOAD=" + LIBRARY)
        self.assertEqual(added, {"RESIL_FAULT": "flip,nth=2"})

    def test_srun_with_a_list_names_them(self):
        for how in ("NIL", "HOME"):
            words, _ = self.of("srun", "--export=%s -n 2 sh" % how, self.variables({"RESIL_FAULT": "flip,nth=2"}))
            self.assertEqual(words[0], "--export=%sRESIL_FAULT,LD_PRELOAD=%s" % ("HOME," if how == "HOME" else "", LIBRARY))

    def test_srun_export_none_is_refused(self):
        for words, environment in (("--export=NONE -n 2 sh", {}), ("-n 2 sh", {"SLURM_EXPORT_ENV": "NONE"})):
            with self.assertRaisesRegex(Usage, "NONE keeps every variable"):
                self.of("srun", words, self.variables(**environment))

    def test_an_option_of_the_launcher_that_says_something_else(self):
        variables = self.variables({"RESIL_MODE": "checksum"}, chosen=["RESIL_MODE"])
        for kind, words in (("openmpi", "-x RESIL_MODE=record -np 2 sh"), ("hydra", "-genv RESIL_MODE record -n 2 sh"),
                            ("srun", "--export=ALL,RESIL_MODE=record -n 2 sh")):
            with self.assertRaisesRegex(Usage, "set twice"):
                self.of(kind, words, variables)

    def test_an_option_of_the_launcher_beats_the_environment(self):
        words, _ = self.of("openmpi", "-x RESIL_LOG=quiet -np 2 sh", self.variables({"RESIL_LOG": "debug"}))
        self.assertIn("RESIL_LOG=quiet", words)
        self.assertNotIn("RESIL_LOG=debug", words)

    def test_the_program_s_own_arguments_are_left_alone(self):
        words, _ = self.of("openmpi", "-np 2 sh -x LD_PRELOAD=/mine.so --app x", self.variables())
        self.assertEqual(words[2:], "-np 2 sh -x LD_PRELOAD=/mine.so --app x".split())

    def test_refused_by_open_mpi(self):
        for words, environment in (("--app file", {}), ("--mca mca_base_env_list A=1 sh", {}),
                                   ("-np 1 sh", {"OMPI_MCA_mca_base_env_list": "A=1"})):
            with self.assertRaises(Usage):
                self.of("openmpi", words, self.variables(**environment))


class Commands(unittest.TestCase):
    """The command itself, with launchers that print their version and nothing else."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="resil-test-")
        for name, text in VERSIONS.items():
            path = os.path.join(cls.folder.name, "mpirun." + name)
            with open(path, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\ncat <<'END'\n%s\nEND\n" % text)
            os.chmod(path, 0o755)
        cls.library = os.path.join(cls.folder.name, "libresil.so")
        with open(cls.library, "wb") as file:
            file.write(b"\x7fELF")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_tool(self, *arguments, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("RESIL_", "SLURM_", "LD_PRELOAD"))}
        clean.update(environment, PATH=self.folder.name + os.pathsep + os.environ["PATH"], RESIL_TOOL_LIBRARY=self.library)
        return subprocess.run([sys.executable, support.TOOL, "run", *arguments], env=clean, capture_output=True, text=True, timeout=60,
                              cwd=self.folder.name, check=False)

    def plan(self, *arguments, **environment):
        done = self.run_tool("--dry-run", "--json", *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_launchers_are_known_by_what_they_say(self):
        for name, option in (("openmpi", "-x"), ("old", "-x"), ("prterun", "-x"), ("mpich", "-genv")):
            self.assertEqual(self.plan("mpirun." + name, "-n", "2", "sh")["command"][1], option)
        done = self.run_tool("mpirun.odd", "-n", "2", "sh")
        self.assertEqual(done.returncode, 2)
        self.assertIn("does not know", done.stderr)

    def test_modes_and_questions(self):
        for options, wanted in ((["--checksum"], {"RESIL_MODE": "checksum"}), ([], {}), (["--watch"], {"RESIL_MODE": "watch"}),
                                (["--is-my-data-right", "--record"], {"RESIL_MODE": "checksum,record"}),
                                (["--who-changed-my-data", "--same-bits"], {"RESIL_MODE": "checksum", "RESIL_BLAME": "full",
                                                                            "RESIL_REDUCE": "order"}),
                                (["--set", "on_mismatch=log"], {"RESIL_ON_MISMATCH": "log"}),
                                (["--is-my-computation-right", "--is-my-data-right"], {"RESIL_REPLICAS": "2", "RESIL_MODE": "checksum"}),
                                (["--why-do-runs-differ"], {"RESIL_MODE": "record"})):
            added = self.plan(*options, "sh", "-c", "true")["environment"]
            self.assertEqual({name: value for name, value in added.items() if name != "LD_PRELOAD"}, wanted, options)

    def test_why_do_runs_differ_verifies_when_there_is_a_recording(self):
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "rank-00000.rec"), "wb"):
                pass
            added = self.plan("--why-do-runs-differ", "sh", RESIL_RECORD=place)
            self.assertEqual(added["environment"]["RESIL_MODE"], "verify")
            added = self.plan("--why-do-runs-differ", "--set", "record=" + place, "sh")  # looked in ./resil-record, and recorded again
            self.assertEqual((added["environment"]["RESIL_MODE"], added["environment"]["RESIL_RECORD"]), ("verify", place))

    def test_asked_twice(self):
        for options in (["--record", "--verify"], ["--set", "blame=cheap", "--who-changed-my-data"], ["--set", "mode=off", "--checksum"],
                        ["--set", "dir=/x", "--dir", "/y"], ["--set", "x"], ["-n", "x"]):
            self.assertEqual(self.run_tool(*options, "sh").returncode, 2, options)

    def test_each_question_s_settings_are_the_library_s(self):
        with open(os.path.join(support.ROOT, "docs", "CONFIGURATION.md"), encoding="utf-8") as file:
            page = file.read()
        for question in questions.QUESTIONS:
            for name, value in question.settings:
                line, = [line for line in page.split("\n") if line.startswith("| `%s` |" % name)]
                self.assertTrue("`%s`" % value in line or value.isdecimal(), (name, value))
        for mode in questions.MODES:
            self.assertIn("\n| `%s` | " % mode, page)

    def test_documented(self):
        with open(os.path.join(support.ROOT, "docs", "TOOL.md"), encoding="utf-8") as file:
            page = file.read()
        for question in questions.QUESTIONS:
            self.assertIn("| `--%s` | %s | %s |" % (question.option, question.answer, question.cost), page)

    def test_refused_with_the_reason(self):
        static = os.path.join(self.folder.name, "static")
        with open("/bin/true", "rb") as file:
            image = bytearray(file.read())
        count, size = int.from_bytes(image[56:58], "little"), int.from_bytes(image[54:56], "little")
        for i in range(count):  # without a loader
            at = int.from_bytes(image[32:40], "little") + i * size
            if image[at] == 3:
                image[at] = 0
        self.program(static, image)
        other = os.path.join(self.folder.name, "other")
        image[18] = 8  # MIPS
        self.program(other, image)
        for program, words in ((static, "linked statically"), (other, "another machine"), (self.setuid(), "setuid")):
            for kind, command in (("openmpi", ["mpirun", "-np", "2", "--map-by", "core", program]), ("srun", ["srun", "-n2", program]),
                                  ("hydra", ["mpirun", "-genv", "A", "sh", "-n", "2", program]), (None, [program])):
                launcher = launchers.Launcher(kind, kind) if kind else None
                reason, = launch.refusals(launcher, command)
                self.assertIn(words, reason)
        done = self.run_tool(static)
        self.assertEqual((done.returncode, "linked statically" in done.stderr), (2, True), done.stderr)
        self.assertEqual(self.run_tool("--force", "--dry-run", static).returncode, 0)
        done = self.run_tool("sbatch", "job.sh")
        self.assertEqual((done.returncode, "only submits" in done.stderr), (2, True))

    def setuid(self):
        path = os.path.join(self.folder.name, "setuid")
        with open("/bin/true", "rb") as file:
            self.program(path, file.read())
        os.chmod(path, 0o755 | stat.S_ISUID)
        return path

    def program(self, path, image):
        with open(path, "wb") as file:
            file.write(image)
        os.chmod(path, 0o755)

    def test_no_library(self):
        done = self.run_tool("sh", "-c", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        os.rename(self.library, self.library + "-")
        try:
            self.assertEqual(self.run_tool("sh", "-c", "true").returncode, 2)
        finally:
            os.rename(self.library + "-", self.library)

    def test_the_status_is_the_job_s(self):
        self.assertEqual(self.run_tool("sh", "-c", "exit 41").returncode, 41)
        self.assertEqual(self.run_tool("sh", "-c", "kill -TERM $$").returncode, -15)
        self.assertEqual(self.run_tool("no-such-program").returncode, 2)

    def test_no_colour_and_no_traceback_without_a_command(self):
        for arguments in ([], ["--"], ["--checksum"]):
            done = self.run_tool(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertNotIn("Traceback", done.stderr)


class Programs(unittest.TestCase):
    def test_of_this_machine(self):
        program = elf.read("/bin/true")
        self.assertEqual((program.bits, program.machine, program.dynamic, program.mpi), (64, elf.machine_here(), True, ""))
        self.assertIn("libc.so.6", program.needed)
        self.assertIsNone(elf.read(support.TOOL))
        self.assertIsNone(elf.read("/"))

    def test_damaged(self):
        with open("/bin/true", "rb") as file:
            image = file.read()
        with tempfile.NamedTemporaryFile() as file:
            for cut in range(0, 4096, 37):
                file.seek(0)
                file.truncate()
                file.write(image[:cut] + b"\xff" * 64 + image[cut + 64:])
                file.flush()
                elf.read(file.name)  # a program or None, never an exception

    def test_every_command_has_help(self):
        for name in ("run", "report"):
            with self.assertRaises(SystemExit) as end:
                cli.main([name, "--help"])
            self.assertEqual(end.exception.code, 0)


if __name__ == "__main__":
    unittest.main()
