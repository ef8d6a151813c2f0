#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a Debian package of a finished build: installs it into a scratch folder, moves that to /usr (the tree is relocatable),
and packs it. The same build gives the same bytes. Needs meson and dpkg-deb; no root.

Usage: make_deb.py BUILD OUTDIR
Prints the package's path.
"""
import glob
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAINTAINER = "resil developers <resil@localhost>"
CONTROL = """\
Package: libresil
Version: {version}-1
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kilobytes}
Depends: libc6 (>= 2.17), python3 (>= 3.9)
Recommends: binutils
Suggests: openmpi-bin | mpich
Section: science
Priority: optional
Description: finds hangs, wrong data and irreproducible results of MPI programs
 A library that is preloaded into unchanged MPI programs, and the command resil
 that starts jobs with it and reads what it found. It names the rank, the call
 and the source line of a deadlock, the message that changed on its way, and
 the first call at which two runs differ. It works with Open MPI, with MPICH
 and its family, and with the MPI-5 standard ABI.
"""


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def version():
    with open(os.path.join(SOURCE, "meson.build"), encoding="utf-8") as file:
        return re.search(r"\n  version : '([^']+)'", file.read()).group(1)


def date():
    """Seconds since the epoch, for every file: SOURCE_DATE_EPOCH, else the last commit's, else a constant."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return int(os.environ["SOURCE_DATE_EPOCH"])
    done = subprocess.run(["git", "-C", SOURCE, "log", "-1", "--format=%ct"], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 1700000000


def compress(path):
    with open(path, "rb") as file:
        data = file.read()
    with open(path + ".gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
        packed.write(data)
    os.unlink(path)


def debianise(root):
    """What Debian wants otherwise: pages compressed, its interpreter, its names in doc/, the licence by reference."""
    share = os.path.join(root, "usr", "share")
    for section in ("man1", "man5", "man7"):
        for name in os.listdir(os.path.join(share, "man", section)):
            compress(os.path.join(share, "man", section, name))
    os.rename(os.path.join(share, "doc", "resil"), os.path.join(share, "doc", "libresil"))
    os.unlink(os.path.join(share, "doc", "libresil", "LICENSE"))
    shutil.move(os.path.join(share, "doc", "libresil", "docs", "CHANGELOG.md"), os.path.join(share, "doc", "libresil", "changelog"))
    compress(os.path.join(share, "doc", "libresil", "changelog"))
    with open(os.path.join(share, "doc", "libresil", "changelog.Debian"), "w", encoding="ascii") as file:
        file.write("libresil (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n" % (
            version(), MAINTAINER, output("date", "-u", "-R", "-d", "@%d" % date())))
    compress(os.path.join(share, "doc", "libresil", "changelog.Debian"))
    with open(os.path.join(share, "doc", "libresil", "copyright"), "w", encoding="ascii") as file:
        file.write("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: resil\n\n"
                   "Files: *\nCopyright: 2026 resil developers\nLicense: Apache-2.0\n On Debian systems the licence is in "
                   "/usr/share/common-licenses/Apache-2.0.\n")
    tool, installed = os.path.join(share, "resil", "resil"), os.path.join(share, "resil", "resil_tool", "installed.py")
    for path, old, new in ((tool, "#!/usr/bin/env python3", "#!/usr/bin/python3"),
                           (installed, "/doc/resil", "/doc/libresil")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new, 1))


def prefix_of(root):
    """The folder that has bin/resil: the build's prefix, wherever it points."""
    for folder, _, files in os.walk(root):
        if os.path.basename(folder) == "bin" and "resil" in files:
            return os.path.dirname(folder)
    raise SystemExit("make_deb: no bin/resil was installed")


def main(build, place):
    architecture = output("dpkg", "--print-architecture")
    triplet = output("dpkg-architecture", "-qDEB_HOST_MULTIARCH") if shutil.which("dpkg-architecture") else \
        {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[architecture]
    with tempfile.TemporaryDirectory(prefix="resil-deb-") as scratch:
        stage, root = os.path.join(scratch, "stage"), os.path.join(scratch, "root")
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", stage], check=True,
                       stdout=subprocess.DEVNULL)
        os.mkdir(root)
        os.chmod(root, 0o755)
        shutil.move(prefix_of(stage), os.path.join(root, "usr"))
        if not os.path.isfile(os.path.join(root, "usr", "lib", triplet, "libresil.so")):
            raise SystemExit("make_deb: the build has its library elsewhere: meson setup --libdir=lib/%s" % triplet)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment",
                            *glob.glob(os.path.join(root, "usr", "lib", triplet, "**", "*.so"), recursive=True)], check=True)
        debianise(root)
        files = sorted(os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names)
        sizes = sum(os.lstat(os.path.join(root, name)).st_size for name in files)
        control = os.path.join(root, "DEBIAN")
        os.mkdir(control)
        os.chmod(control, 0o755)
        with open(os.path.join(control, "control"), "w", encoding="ascii") as file:
            file.write(CONTROL.format(version=version(), architecture=architecture, maintainer=MAINTAINER,
                                      kilobytes=(sizes + 1023) // 1024))
        with open(os.path.join(control, "md5sums"), "w", encoding="utf-8") as file:
            for name in files:
                if not os.path.islink(os.path.join(root, name)):
                    with open(os.path.join(root, name), "rb") as content:
                        file.write("%s  %s\n" % (hashlib.md5(content.read()).hexdigest(), name))
        with open(os.path.join(control, "triggers"), "w", encoding="ascii") as file:
            file.write("activate-noawait ldconfig\n")
        for folder, names, files in os.walk(root):
            for name in names + files:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    program = os.stat(path).st_mode & 0o100 and not name.endswith(".so")
                    os.chmod(path, 0o755 if os.path.isdir(path) or program else 0o644)
        package = os.path.join(os.path.abspath(place), "libresil_%s-1_%s.deb" % (version(), architecture))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", root, package], check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, SOURCE_DATE_EPOCH=str(date())))
    print(package)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
