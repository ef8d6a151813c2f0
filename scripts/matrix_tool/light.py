# SPDX-License-Identifier: Apache-2.0
"""Small roots for continuous integration: Debian packages that are fetched and unpacked, and no more. No package's script
runs, nothing is compiled in them, debootstrap is not needed, and they are there in some ten seconds.

Touches the folder that it is given only, and asks apt for nothing but packages' files: this machine's own list of packages,
sources and keys stay as they are. Signatures are checked by this machine's keys."""
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time

from .cells import Impossible
from .roots import OLD_OPENMPI_PARAMETERS, OPENMPI_PARAMETERS, need

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
BASE = ("base-files", "bash", "binutils", "coreutils", "dash", "grep", "hostname", "libc-bin", "libgfortran5", "mount", "procps",
        "python3", "sed", "util-linux")
# UCX's plug-in for AMD's devices wants them, and they want a compiler: most of what there would be to fetch.
NOT_WANTED = ("libamdhip64-5", "libamdhip64-6", "libamdhip64-7")
# The age is not asked for: a mirror may stand still, and the version of the MPI is looked at.
APT = """Dir::State "{apt}"; Dir::State::lists "{apt}/lists"; Dir::State::status "{apt}/status";
Dir::State::extended_states "{apt}/extended"; Dir::Cache "{apt}"; Dir::Cache::archives "{apt}/archives";
Dir::Etc "{apt}/etc"; Dir::Log "{apt}"; APT::Architecture "{machine}"; APT::Architectures {{ "{machine}"; }}; APT::Install-Recommends "false"; APT::Sandbox::User "root";
Acquire::Languages "none"; Acquire::http::Timeout "15"; Acquire::Retries "1"; Acquire::Check-Valid-Until "false";
"""
INSTALLED = "Package: {}\nStatus: install ok installed\nVersion: 999\nArchitecture: all\nMaintainer: none\nDescription: none\n\n"


class Clock:
    """What is left of a number of seconds."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())


def run(clock, what, *words, **options):
    """The command's output. Impossible when it fails, or is not done when the time is over; then it is killed with what it
    started."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True, **options)
    try:
        text, _ = process.communicate(timeout=clock.left())
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Impossible(f"no time left: {what}") from None
    if process.returncode:
        lines = [line for line in text.splitlines() if line.startswith(("E:", "Err:"))] or text.splitlines()[-2:]
        raise Impossible(f"{what}: status {process.returncode}: {' '.join(lines)[:300]}")
    return text


@contextlib.contextmanager
def alone(path, clock):
    """One at a time makes this root."""
    with open(path, "a", encoding="ascii") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not clock.left():
                    raise Impossible("no time left: another run makes this root") from None
                time.sleep(0.5)
        yield


def configure(release, machine, apt):
    """A folder for apt, as if nothing were installed but what is not wanted; its environment."""
    for folder in ("lists/partial", "archives/partial", "etc/apt.conf.d", "etc/preferences.d", "etc/trusted.gpg.d"):
        os.makedirs(os.path.join(apt, folder), exist_ok=True)
    mirror = os.environ.get("DEBIAN_MIRROR") or "http://deb.debian.org/debian"
    for name, text in (("status", "".join(map(INSTALLED.format, NOT_WANTED))), ("apt.conf", APT.format(apt=apt, machine=machine)),
                       ("etc/sources.list", f"deb [arch={machine} signed-by={KEYS}] {mirror} {release} main\n")):
        with open(os.path.join(apt, name), "w", encoding="utf-8") as file:
            file.write(text)
    return {**os.environ, "APT_CONFIG": os.path.join(apt, "apt.conf"), "LC_ALL": "C.UTF-8"}


def settle(root, release):
    """What packages' scripts would have left, as far as jobs need it."""
    for name, text in (("passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"),
                       ("group", "root:x:0:\nnogroup:x:65534:\n"), ("hosts", "127.0.0.1 localhost\n")):
        with open(os.path.join(root, "etc", name), "w", encoding="ascii") as file:
            file.write(text)
    for name in ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf"):
        if os.path.exists(name):
            shutil.copy(name, root + name)
    os.makedirs(os.path.join(root, "root/.openmpi"), exist_ok=True)
    with open(os.path.join(root, "root/.openmpi/mca-params.conf"), "w", encoding="ascii") as file:
        file.write(OLD_OPENMPI_PARAMETERS if release in ("bullseye", "bookworm") else OPENMPI_PARAMETERS)
    if not os.path.exists(os.path.join(root, "usr/bin/sh")):
        os.symlink("dash", os.path.join(root, "usr/bin/sh"))


def unpack(new, release, machine, packages, unpacked, clock):
    """Fetches packages with what they depend on, `unpacked` without, and unpacks all of them."""
    apt = f"{new}.apt-{machine}"
    archives, environment = os.path.join(apt, "archives"), configure(release, machine, apt)
    what = f"fetching the packages of {release}, {machine}"
    run(clock, f"apt-get update of {release} (no network?)", "apt-get", "-q", "--error-on=any", "update", env=environment)
    run(clock, what, "apt-get", "-q", "-y", "--download-only", "install", *packages, env=environment)
    if unpacked:
        run(clock, what, "apt-get", "-q", "download", *unpacked, env=environment, cwd=archives)
    # base-files first: /bin and /lib are links.
    for file in sorted(os.listdir(archives), key=lambda name: not name.startswith("base-files_")):
        if file.endswith(".deb"):
            run(clock, f"unpacking the packages of {release}", "dpkg-deb", "-x", os.path.join(archives, file), new)
    shutil.rmtree(apt)


def make(root, release, packages, unpacked, clock, machine="amd64"):
    """The root. packages: with what they depend on; unpacked: without, for the sake of a file in them. Of another machine are the
    packages alone: the shell, Python and the like are this machine's, which runs them without emulation."""
    need("apt-get")
    need("dpkg-deb")
    if not os.path.exists(KEYS):
        raise Impossible(f"{KEYS} is missing: the package debian-archive-keyring")
    os.makedirs(os.path.dirname(root), exist_ok=True)
    wanted = " ".join((machine, *sorted((*BASE, *packages, *unpacked))))
    mark = os.path.join(root, ".packages")
    with alone(f"{root}.lock", clock):
        if os.path.exists(root):
            if os.path.exists(mark):
                with open(mark, encoding="ascii") as file:
                    if file.read() == wanted:
                        return
            raise Impossible(f"{root} was made otherwise: remove it")
        new = f"{root}.new"
        shutil.rmtree(new, ignore_errors=True)  # of a run that was ended
        os.makedirs(new)
        if machine == "amd64":
            unpack(new, release, machine, (*BASE, *packages), unpacked, clock)
        else:
            unpack(new, release, machine, ("base-files", "libgfortran5", *packages), unpacked, clock)
            unpack(new, release, "amd64", BASE, (), clock)
        settle(new, release)
        with open(os.path.join(new, ".packages"), "w", encoding="ascii") as file:
            file.write(wanted)
        os.rename(new, root)
