#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and installs by the recipes of package managers, and tries what came of it: version, paths, a job of two ranks. By hand: each builds
the library anew.

    scripts/packaging/try_recipes.py [--library FILE] [--roots DIR] [rpm] [spack] [easybuild] [apptainer]     none: all

--library: everything but the compilation: this library is installed in place of one that the recipe compiles.

rpm        rpmbuild itself (Debian: package rpm), with Fedora's macros and compiler flags, which Debian's rpm lacks; the package's list of files,
           what it requires, and the package installed by rpm into a root of its own
spack      no Spack here: the recipe's class, on a stand-in of spack.package that carries out what Spack's MesonPackage does with it
easybuild  no EasyBuild here: the easyconfig's values, used as the easyblock MesonNinja does
apptainer  Apptainer itself, which only Debian unstable has: in a root of that (debootstrap); as root, and with Debian's mirror in reach

--roots DIR: where the roots of Debian unstable and 12 are made, and kept.

Touches a scratch directory only. Exit status: 0 all is well, 1 something failed, 3 something could not be tried."""

import argparse
import ast
import ctypes
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = os.path.join(ROOT, "scripts", "packaging")
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402

# redhat-rpm-config of Fedora 40 and meson's macros there. Debian's rpm has neither. Not in it: annobin, a plugin of Fedora's compiler that notes
# its options, and -specs=redhat-hardened-*, which make programs position-independent: a library is already.
FLAGS = ("-O2 -flto=auto -ffat-lto-objects -fexceptions -g -grecord-gcc-switches -pipe -Wall -Werror=format-security -Wp,-U_FORTIFY_SOURCE,"
         "-D_FORTIFY_SOURCE=3 -Wp,-D_GLIBCXX_ASSERTIONS -fstack-protector-strong -m64 -march=x86-64 -mtune=generic "
         "-fasynchronous-unwind-tables -fstack-clash-protection -fcf-protection -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer")
LINK_FLAGS = "-Wl,-z,relro -Wl,--as-needed -Wl,-z,pack-relative-relocs -Wl,-z,now -Wl,--build-id=sha1 -flto=auto -ffat-lto-objects"
SETUP = ("meson setup --buildtype=plain --prefix=%{_prefix} --libdir=%{_libdir} --bindir=%{_bindir} --includedir=%{_includedir} "
         "--datadir=%{_datadir} --mandir=%{_mandir} --sysconfdir=%{_sysconfdir} --auto-features=enabled . redhat-linux-build")


LIBRARY = ROOTS = ""
# What the target `package` makes beside the library.
BESIDE = "scripts/packaging/resil.1 scripts/packaging/spank_resil.so"


def compiled(build, targets):
    """Shell: the library and what belongs to it, in that build folder."""
    return f"ninja -C {build} -j2 {targets}" if not LIBRARY else f"ninja -C {build} -j2 {BESIDE} && cp {LIBRARY} {build}/libresil.so"


def installs(build, targets="install"):
    return f"ninja -C {build} -j2 {targets}" if not LIBRARY else f"meson install -C {build} --no-rebuild"


class Impossible(Exception):
    """It cannot be tried here."""


def run(*line, **more):
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, errors="replace", **more)
    if done.returncode:
        raise AssertionError("%s: status %d\n%s" % (" ".join(line), done.returncode, done.stdout[-3000:]))
    return done.stdout


def version():
    with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as file:
        return re.search(r"version : '([\d.]+)'", file.read())[1]


def tarball(place):
    """As docs/RELEASING.md makes it, of the working tree's files."""
    path, name = os.path.join(place, f"resil-{version()}.tar.gz"), f"resil-{version()}"
    state = run("git", "-C", ROOT, "stash", "create").strip() or "HEAD"  # makes a commit of what is changed, and changes nothing
    run("git", "-C", ROOT, "archive", f"--prefix={name}/", "-o", path, state)
    return path


def tried(prefix, libdir="lib"):
    """An installation: it names its version, nothing in it names the build, and a job of two ranks is watched from there."""
    tool, library = os.path.join(prefix, "bin", "resil"), os.path.join(prefix, libdir, "libresil.so")
    said = run(tool, "--version")
    assert version() in said and library in said.replace(os.path.realpath(prefix), prefix), said
    needed = run("readelf", "-d", library)
    assert re.findall(r"NEEDED.*\[(.*)\]", needed) == ["libc.so.6"], needed
    for words in ({}, {"LD_BIND_NOW": "1"}):
        done = subprocess.run(["/bin/true"], env={"LD_PRELOAD": library, **words}, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr
    for name in ("lib*/pkgconfig/resil.pc", "share/man/man1/resil.1*", "include/resil.h", "share/resil/slurm/job.sh", "share/doc/resil/README.md"):
        assert glob.glob(os.path.join(prefix, name)), name
    if not jobs.installed("mpirun.openmpi") or not jobs.installed("mpicc.openmpi"):
        return "no job: Open MPI is not installed"
    place = jobs.scratch()
    program = os.path.join(place, "app")
    run("mpicc.openmpi", "-O1", "-o", program, os.path.join(ROOT, "tests", "preload", "files_app.c"))
    report = os.path.join(place, "report")
    done = jobs.start(jobs.launcher("openmpi", 2, {"LD_PRELOAD": library, "RESIL_DIR": report}) + [program], timeout=120)
    assert done.returncode == 0 and b"resil: CLEAN: " in done.stderr, done.text()
    said = subprocess.run([tool, "report", report], stdout=subprocess.PIPE, text=True, check=False)
    assert said.returncode == 0 and said.stdout.startswith("CLEAN: 2 of 2 ranks finished"), said.stdout
    return "two ranks watched"


def rpm(place):
    for program in ("rpmbuild", "rpm", "rpm2cpio"):
        if not shutil.which(program):
            raise Impossible(f"{program} is not installed (Debian: rpm)")
    top = os.path.join(place, "rpmbuild")
    os.makedirs(os.path.join(top, "SOURCES"))
    shutil.copy(tarball(place), os.path.join(top, "SOURCES"))
    define = [word for name, value in (
        ("_topdir", top), ("optflags", FLAGS), ("meson", f"export CFLAGS='{FLAGS}' CXXFLAGS='{FLAGS}' LDFLAGS='{LINK_FLAGS}'; {SETUP}"),
        ("meson_build() ", compiled("redhat-linux-build", "%{*}")), ("meson_install", "DESTDIR=%{buildroot} meson install -C redhat-linux-build --no-rebuild"),
        ("autosetup", "%setup -q"), ("_build_id_links", "none"), ("debug_package", "%{nil}")) for word in ("--define", f"{name} {value}")]
    # BuildRequires are names of RPM packages, which no database here has.
    run("rpmbuild", "-ba", "--nodeps", "--with", "slurm", *define, os.path.join(PARTS, "resil.spec"), timeout=3000)
    packages = sorted(glob.glob(os.path.join(top, "RPMS", "*", "*.rpm")))
    assert [os.path.basename(path).rsplit("-", 2)[0] for path in packages] == ["resil", "resil-slurm"], packages
    assert glob.glob(os.path.join(top, "SRPMS", f"resil-{version()}-1*.src.rpm")), os.listdir(os.path.join(top, "SRPMS"))
    listed = set(run("rpm", "-qlp", packages[0]).split())
    for name in ("/usr/bin/resil", "/usr/lib64/libresil.so", "/usr/include/resil.h", "/usr/share/man/man1/resil-run.1.gz", "/usr/share/resil/resil"):
        assert name in listed or name.removesuffix(".gz") in listed, (name, sorted(listed)[:40])
    needs = run("rpm", "-qRp", packages[0])
    assert "python3 >= 3.9" in needs and not re.search(r"lib(stdc\+\+|gcc_s|mpi|slurm)", needs), needs
    root = os.path.join(place, "root")
    os.mkdir(root)
    run("rpm", "--root", root, "--dbpath", "/var/lib/rpm", "-i", "--nodeps", "--noscripts", *packages)
    assert "resil-slurm" in run("rpm", "--root", root, "--dbpath", "/var/lib/rpm", "-qa")
    assert os.path.exists(os.path.join(root, "usr", "lib64", "slurm", "spank_resil.so"))
    return tried(os.path.join(root, "usr"), "lib64") + f"; {len(listed)} files"


STAND_IN = '''
import subprocess
class _Spec(str):
    version = "{version}"
def _nothing(*words, **more): pass
version = depends_on = requires = license = variant = patch = conflicts = _nothing
def join_path(*parts): return "/".join(map(str, parts))
class _Prefix(str):
    def __getattr__(self, name): return _Prefix(self + "/" + name)
def which(path):
    return lambda *words, output=None: subprocess.run([path, *words], stdout=subprocess.PIPE, text=True, check=True).stdout
class MesonPackage: pass
'''


def spack(place):
    """Spack's MesonPackage: meson setup with these options, ninja with build_targets, ninja with install_targets."""
    source = unpacked(place)
    prefix, build = os.path.join(place, "spack-prefix"), os.path.join(place, "spack-build")
    scope = {}
    exec(compile(STAND_IN.format(version=version()), "spack/package.py", "exec"), scope)  # pylint: disable=exec-used
    with open(os.path.join(PARTS, "spack", "package.py"), encoding="utf-8") as file:
        recipe = file.read().replace("from spack.package import *", "")
    exec(compile(recipe, "package.py", "exec"), scope)  # pylint: disable=exec-used
    package = scope["Resil"]()
    package.prefix, package.spec = scope["_Prefix"](prefix), scope["_Spec"]()
    options = [] if not hasattr(package, "meson_args") else package.meson_args()
    run("meson", "setup", f"-Dprefix={prefix}", f"-Dlibdir={prefix}/lib", "-Dbuildtype=release", "-Dstrip=false", "-Ddefault_library=shared",
        "-Dwrap_mode=nodownload", *options, source, build)
    run("sh", "-c", compiled(build, " ".join(package.build_targets)), timeout=3000)
    run("sh", "-c", installs(build, " ".join(getattr(package, "install_targets", ["install"]))), timeout=3000)
    package.test_version()
    seen = {}
    package.setup_run_environment(type("Environment", (), {"set": staticmethod(lambda name, value: seen.update({name: value}))}))
    assert os.path.isfile(seen["LIBRESIL"]), seen
    return tried(prefix)


def unpacked(place):
    source = os.path.join(place, "source")
    if not os.path.isdir(source):
        os.mkdir(source)
        run("tar", "-xzf", tarball(place), "-C", source, "--strip-components=1")
    return source


def easybuild(place):
    """MesonNinja: meson setup --prefix CONFIGOPTS, ninja BUILDOPTS, ninja INSTALLOPTS install; then the sanity checks."""
    source = unpacked(place)
    prefix, build = os.path.join(place, "easybuild-prefix"), os.path.join(place, "easybuild-build")
    path = glob.glob(os.path.join(PARTS, "easybuild", "*.eb"))[0]
    with open(path, encoding="utf-8") as file:
        text = file.read()
    ast.parse(text)
    easyconfig = {"SOURCELOWER_TAR_GZ": "%(namelower)s-%(version)s.tar.gz"}
    exec(compile(text, path, "exec"), easyconfig)  # pylint: disable=exec-used
    assert easyconfig["easyblock"] == "MesonNinja" and easyconfig["version"] == version()
    run("sh", "-c", f"meson setup --prefix={prefix} {easyconfig['configopts']} {source} {build}")
    run("sh", "-c", compiled(build, easyconfig["buildopts"]), timeout=3000)
    run("sh", "-c", installs(build, f"{easyconfig.get('installopts', '')} install"), timeout=3000)
    for name in easyconfig["sanity_check_paths"]["files"]:
        assert os.path.isfile(os.path.join(prefix, name)), name
    for name in easyconfig["sanity_check_paths"]["dirs"]:
        assert os.listdir(os.path.join(prefix, name)), name
    for line in easyconfig["sanity_check_commands"]:
        run("sh", "-c", line, env={**os.environ, "PATH": os.path.join(prefix, "bin") + os.pathsep + os.environ["PATH"]})
    assert os.path.isfile(easyconfig["modextravars"]["LIBRESIL"] % {"installdir": prefix})
    return tried(prefix)


def debian(root, suite, *packages):
    """A root of that suite by debootstrap; one that is there already (--roots) is taken."""
    if not os.path.isdir(os.path.join(root, "etc", "apt")):
        if not shutil.which("debootstrap"):
            raise Impossible("debootstrap is not installed")
        run("debootstrap", "--variant=minbase", "--include=" + ",".join(("ca-certificates", *packages)), suite, root, timeout=3000)
    return root


def within(root, binds, line):
    """What a shell says in that root. It is root of a user namespace with all its users: Apptainer wants every capability, which a
    machine may lack, and no chroot. binds: {folder: where in the root}."""
    for target in ("old", *binds.values()):
        os.makedirs(os.path.join(root, target), exist_ok=True)
    script = ["set -e", f"mount --rbind {root} {root}", *(f"mount --rbind /{name} {root}/{name}" for name in ("proc", "dev", "sys")),
              *(f"mount --bind {folder} {root}/{target}" for folder, target in binds.items()), f"cd {root}", "pivot_root . old",
              f"exec chroot . sh -e -c {shlex.quote('umount -l /old; ' + line)} 2>&1"]
    with tempfile.TemporaryFile() as said:
        entered, mapped = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            if not ctypes.CDLL(None).unshare(0x10020000):  # CLONE_NEWUSER | CLONE_NEWNS
                os.write(entered[1], b"x")
                os.read(mapped[0], 1)
                os.execvp("sh", ["sh", "-c", "\n".join(script)])
            os._exit(125)
        os.close(entered[1])
        if os.read(entered[0], 1):
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{child}/{name}", "w", encoding="ascii") as file:
                    file.write("0 0 65536\n")
            os.write(mapped[1], b"x")
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        text = said.read().decode(errors="replace")
    assert status == 0, "%s: status %d\n%s" % (line, status, text[-3000:])
    return text


def apptainer(place):
    """The definition but for its first two lines: no registry of images is in reach, so the base is what debootstrap makes of the same Debian.
    Then a job in a container of that image, and the library bound into one of an image that has no resil."""
    if os.geteuid() != 0:
        raise Impossible("needs root (debootstrap, mounts)")
    roots = ROOTS or place
    tool, base = debian(os.path.join(roots, "sid"), "sid", "apptainer"), debian(os.path.join(roots, "bookworm"), "bookworm")
    shutil.rmtree(os.path.join(base, "dev"))  # nobody makes devices in a user namespace
    os.mkdir(os.path.join(base, "dev"))
    for name in ("hosts", "resolv.conf"):
        shutil.copy(os.path.join("/etc", name), os.path.join(tool, "etc", name))
    work = os.path.join(place, "image")
    os.mkdir(work)
    package = run(sys.executable, os.path.join(PARTS, "make_deb.py"), os.path.dirname(LIBRARY) if LIBRARY else os.path.join(ROOT, "build"), work).strip()
    with open(os.path.join(PARTS, "apptainer", "resil.def"), encoding="utf-8") as file:
        text = file.read()
    head = "Bootstrap: docker\nFrom: debian:12\n"
    assert head in text and os.path.basename(package) in text, text
    with open(os.path.join(work, "resil.def"), "w", encoding="utf-8") as file:
        file.write(text.replace(head, "Bootstrap: localimage\nFrom: /base\n"))
    with open(os.path.join(work, "bare.def"), "w", encoding="utf-8") as file:
        file.write("Bootstrap: localimage\nFrom: /base\n%post\n    apt-get update\n    apt-get install --yes --no-install-recommends openmpi-bin\n")
    run("mpicc.openmpi", "-O1", "-o", os.path.join(work, "app"), os.path.join(ROOT, "tests", "preload", "files_app.c"))
    shutil.copy(LIBRARY or os.path.join(ROOT, "build", "libresil.so"), work)
    quiet = ("export APPTAINER_TMPDIR=/work OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none; "
             "cd /work; ")

    def said(line):
        return within(tool, {base: "base", work: "work", "/tmp": "tmp"}, quiet + line)

    assert f"resil {version()}" in said("apptainer build resil.sif resil.def && apptainer test resil.sif && apptainer run resil.sif --version")
    job = said("apptainer exec --bind /work resil.sif sh -c 'cd /work && resil run --dir /work/report mpirun --oversubscribe -np 2 ./app && "
               "resil report /work/report'")
    assert "CLEAN: 2 of 2 ranks finished" in job, job
    bound = said("apptainer build --sandbox bare bare.def && APPTAINERENV_LD_PRELOAD=/opt/resil/libresil.so APPTAINERENV_RESIL_DIR=/work/bound "
                 "apptainer exec --bind /work --bind /work:/opt/resil bare /work/app")
    assert "resil: CLEAN: watch on 1 rank" in bound, bound
    return "%s: built, tested, two ranks watched in it; the library bound into another image" % said("apptainer --version").strip()


TRIES = {"rpm": rpm, "spack": spack, "easybuild": easybuild, "apptainer": apptainer}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *TRIES], help="rpm, spack, easybuild, apptainer")
    parser.add_argument("--library", default="", help="built before, in place of one that the recipe compiles")
    parser.add_argument("--roots", default="", help="folder of the roots that apptainer needs; they are kept there")
    options = parser.parse_args()
    global LIBRARY, ROOTS  # pylint: disable=global-statement
    ROOTS = os.path.abspath(options.roots) if options.roots else ""
    LIBRARY = os.path.abspath(options.library) if options.library else ""
    names = options.names or list(TRIES)
    status, place = 0, tempfile.mkdtemp(prefix="resil-recipes-")
    try:
        for name in names:
            try:
                print(f"{name}: ok: {TRIES[name](place)}", flush=True)
            except Impossible as why:
                print(f"{name}: not tried: {why}", flush=True)
                status = status or 3
            except (AssertionError, subprocess.SubprocessError) as why:
                print(f"{name}: FAILED: {why}", flush=True)
                status = 1
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
