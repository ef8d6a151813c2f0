#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`meson install`, then the tree moved to a place whose name has a blank: jobs of both MPIs run from there, and everything
finds everything else. Recipes of package managers name this version.

Usage: install_test.py BUILD VERSION MPI...
"""
import ast
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import installed, mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

PACKAGING = os.path.join(jobs.ROOT, "scripts", "packaging")

TCL = """
set ModulesCurrentModulefile [lindex $argv 0]
proc module-whatis {text} {}
proc conflict {name} {}
proc prepend-path {name value} { puts "$name=$value" }
proc append-path {name value} { puts "+$name=$value" }
proc setenv {name value} { puts "$name=$value" }
source $ModulesCurrentModulefile
"""
LUA = """
function myFileName() return arg[1] end
function pathJoin(...) return table.concat({...}, "/") end
function whatis(text) end
function help(text) end
function family(name) end
function prepend_path(name, value) print(name .. "=" .. value) end
function append_path(name, value) print("+" .. name .. "=" .. value) end
setenv = prepend_path
dofile(arg[1])
"""
CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(user LANGUAGES NONE)
find_package(resil %s REQUIRED)
get_target_property(where resil::resil INTERFACE_INCLUDE_DIRECTORIES)
file(WRITE ${CMAKE_BINARY_DIR}/found "${where}\\n${resil_PRELOAD}\\n${resil_FORTRAN_SOURCE}\\n")
"""


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600, **options).stdout


def need(program):
    if not shutil.which(program):
        raise LeftOut(f"{program} is not installed")


def versions_agree(tree, version):
    said = tree.resil("--version").stdout.decode()
    assert said.startswith(f"resil {version} ") and f"library {tree.library}: {version}\n" in said, said
    need("strings")
    assert f"resil {version}" in output("strings", tree.library).splitlines()


def job(tree, version, mpi):
    summary = tree.job(mpi)
    assert list(summary["resil_version"]) == [version] and summary["verdict"] == "CLEAN", summary
    assert summary["ranks_reported"] == 2, summary


def nothing_of_the_build(tree, build):
    """No file but documents names the build folder or the place that was installed to first."""
    for folder, _, names in os.walk(tree.prefix):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                assert "doc" in folder or os.path.realpath(build).encode() not in file.read(), path
    assert not os.path.isabs(os.readlink(tree.command)), os.readlink(tree.command)


def module_file(tree, interpreter, suffix, script, *names):
    need(interpreter)
    path = os.path.join(jobs.scratch(), "driver" + suffix)
    with open(path, "w", encoding="ascii") as file:
        file.write(script)
    values = dict(line.split("=", 1) for line in output(interpreter, path, tree.path(*names)).splitlines())
    assert os.path.samefile(values["LIBRESIL"], tree.library), values
    assert os.path.samefile(values["PATH"], tree.path("bin")), values
    assert os.path.samefile(values["LD_LIBRARY_PATH"], tree.libdir), values
    assert values.pop("+MANPATH") == "", values  # else man finds the pages of nothing else any more
    assert all(os.path.isdir(value) and "/.." not in value for name, value in values.items() if name != "LIBRESIL"), values
    assert "LD_PRELOAD" not in values and not [name for name in values if name.startswith("RESIL_")], values


def pkg_config(tree, version):
    need("pkg-config")
    environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(tree.libdir, "pkgconfig"))
    asked = {name: output("pkg-config", "--variable=" + name, "resil", env=environment).strip().replace("\\ ", " ")
             for name in ("preload", "fortran_source", "includedir")}
    assert output("pkg-config", "--modversion", "resil", env=environment).strip() == version
    assert os.path.samefile(asked["preload"], tree.library) and os.path.isfile(asked["fortran_source"]), asked
    assert os.path.isfile(os.path.join(asked["includedir"], "resil.h")), asked


def cmake(tree, version):
    need("cmake")
    place = jobs.scratch()
    with open(os.path.join(place, "CMakeLists.txt"), "w", encoding="ascii") as file:
        file.write(CMAKE % version)
    output("cmake", "-S", place, "-B", os.path.join(place, "b"), "-DCMAKE_PREFIX_PATH=" + tree.prefix,
           "-DCMAKE_LIBRARY_ARCHITECTURE=" + os.path.basename(tree.libdir), stderr=subprocess.STDOUT)
    with open(os.path.join(place, "b", "found"), encoding="utf-8") as file:
        include, preload, fortran = file.read().splitlines()
    assert os.path.isfile(os.path.join(include, "resil.h")) and os.path.samefile(preload, tree.library), (include, preload)
    assert os.path.isfile(fortran), fortran


HELP = """
import argparse, json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from resil_tool import cli
top = cli.parser("resil")
commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction)).choices
print(json.dumps({name: [word for action in sub._actions for word in action.option_strings] for name, sub in commands.items()}))
"""


def manual(tree):
    """A page for each command, without errors, with each of its options in it."""
    commands = json.loads(output(sys.executable, "-c", HELP, tree.path("share", "resil")))
    assert {"run", "report", "doctor"} <= set(commands), commands
    for command, options in commands.items():
        with open(tree.path("share", "man", "man1", f"resil-{command}.1"), encoding="utf-8") as file:
            text = file.read().replace("\\-", "-")
        assert [word for word in options if f"\\fB{word}\\fR" not in text] == [], (command, options)
    with open(tree.path("share", "man", "man7", "libresil.7"), encoding="utf-8") as file:
        assert "RESIL_MODE" in file.read()
    with open(tree.path("share", "man", "man5", "resil.conf.5"), encoding="utf-8") as file:
        assert "limit NAME=VALUES" in file.read()
    need("mandoc")
    for section in ("man1", "man5", "man7"):
        for name in os.listdir(tree.path("share", "man", section)):
            output("mandoc", "-T", "lint", "-W", "error", tree.path("share", "man", section, name))


def completion(tree):
    script = tree.path("share", "bash-completion", "completions", "resil")

    def offered(*words):
        line = f'source "{script}"; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _resil; echo "${{COMPREPLY[@]}}"'
        return output("bash", "-c", line).split()
    assert {"report", "recording"} <= set(offered("resil", "re")) and "dump" not in offered("resil", "re")
    assert offered("resil", "dump", "--sig") == ["--signal-only"], offered("resil", "dump", "--sig")
    assert offered("resil", "smoke", "--memory", "de") == ["device"]
    need("shellcheck")
    output("shellcheck", "-s", "bash", script)


def completion_of_fish(tree):
    """Asked as the shell itself does; in a home of its own."""
    script = tree.path("share", "fish", "vendor_completions.d", "resil.fish")
    need("fish")
    output("fish", "--no-execute", script)

    def offered(line):
        said = output("fish", "--private", "-c", 'source "$argv[1]"; complete --do-complete "$argv[2]"', script, line)
        return [one.split("\t")[0] for one in said.splitlines()]
    assert {"report", "recording"} <= set(offered("resil re")) and "dump" not in offered("resil re"), offered("resil re")
    assert offered("resil dump --sig") == ["--signal-only"], offered("resil dump --sig")
    assert offered("resil smoke --memory de") == ["device"], offered("resil smoke --memory de")
    assert "--otf2" in offered("resil export --o") and "--otf2" not in offered("resil report --o"), offered("resil export --o")


ZSH = r"""
_describe() { print -rl -- ${(P)4} }
_arguments() { print -rl -- "$@" }
complete_line() { local -a words=("${@:2}"); local CURRENT=${#words}; source "$1" }
complete_line "$@"
"""


def completion_of_zsh(tree):
    """What the function hands to zsh's own helpers, which are stand-ins here: an interactive shell takes a terminal."""
    script = tree.path("share", "zsh", "site-functions", "_resil")
    need("zsh")
    output("zsh", "-n", script)

    def offered(*words):
        return output("zsh", "-f", "-c", ZSH, "zsh", script, *words, stderr=subprocess.STDOUT).splitlines()
    said = offered("resil", "re")
    assert "report:one screen about a job" in said and "--version[versions of the command and of its library]" in said, said
    said = offered("resil", "report", "--j")
    assert "--json[the merged summary as JSON]" in said and "*:file:_files" in said and not [line for line in said if line.startswith("--otf2")], said
    assert any(line.endswith(":value:(host device both)") for line in offered("resil", "smoke", "--memory", "de")), said
    assert "*::launch line:_normal" in offered("resil", "run", "mp"), said


def recipes(version):
    """Each says this version, and is at least well-formed."""
    with open(os.path.join(PACKAGING, "spack", "package.py"), encoding="utf-8") as file:
        text = file.read()
    ast.parse(text)
    assert f'version("{version}")' in text and f"resil-{version}.tar.gz" in text
    easyconfig = f"resil-{version}-GCCcore-12.3.0.eb"
    assert os.listdir(os.path.join(PACKAGING, "easybuild")) == [easyconfig]
    with open(os.path.join(PACKAGING, "easybuild", easyconfig), encoding="utf-8") as file:
        text = file.read()
    ast.parse(text)
    assert f"version = '{version}'" in text
    with open(os.path.join(PACKAGING, "apptainer", "resil.def"), encoding="utf-8") as file:
        assert f"libresil_{version}-1_" in file.read()
    with open(os.path.join(PACKAGING, "resil.spec"), encoding="utf-8") as file:
        assert re.search(rf"(?m)^Version: +{re.escape(version)}$", file.read())
    need("rpmspec")
    parsed = output("rpmspec", "-P", os.path.join(PACKAGING, "resil.spec"), stderr=subprocess.DEVNULL)
    assert "%files" in parsed, parsed


def main(build, version, *mpis):
    tree = installed.install(build, os.path.join(jobs.scratch(), "pre fix"))
    return run_checks(
        [("versions agree", lambda: versions_agree(tree, version))] +
        [(f"a job of {mpi} from there", lambda mpi=mpi: job(tree, version, mpi)) for mpi in mpis] +
        [("nothing names the build", lambda: nothing_of_the_build(tree, build)),
         ("module file", lambda: module_file(tree, "tclsh", ".tcl", TCL, "share", "modulefiles", "resil", version)),
         ("Lmod file", lambda: module_file(tree, "lua5.4", ".lua", LUA, "share", "lmod", "modulefiles", "resil", version + ".lua")),
         ("pkg-config", lambda: pkg_config(tree, version)),
         ("CMake", lambda: cmake(tree, version)),
         ("manual pages", lambda: manual(tree)),
         ("completion", lambda: completion(tree)), ("completion of fish", lambda: completion_of_fish(tree)),
         ("completion of zsh", lambda: completion_of_zsh(tree)),
         ("recipes of package managers", lambda: recipes(version))])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
