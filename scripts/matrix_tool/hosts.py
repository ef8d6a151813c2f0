# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine, for launchers: namespaces of networks, host names, processes, mounts and clocks, joined by a
bridge. Each has a /tmp, /run, /dev/shm and /proc of its own, an ssh daemon, and shares one folder with the others.

All of it lies in namespaces of one process (`inside`), and so is gone when that process is, however it ends. Touches the
folder that it is given."""
import os
import signal
import subprocess
import time

from .cells import Impossible
from .roots import PATH, TREE, need, need_root

MARK = "RESIL_MATRIX_INSIDE"  # set in the process whose namespaces these are
NAMES = ("head", "node1", "node2", "node3")
SHARED = "/shared"
KINDS = ("--net", "--uts", "--mount", "--pid", "--ipc")
SKEW = 5000  # seconds by which the monotonic clock of each host is ahead of the one before: hosts have started at other times
LEFT_OUT = "proc|sys|dev|tmp|run|src|shared|build|srv|work|mnt|media|boot|lost+found|old_root"

# $1 name, $2 system's folder, $3 this tree, $4 shared folder, $5 an empty folder. Runs as process 1.
HOST = """set -e
name=$1 base=$2 source=$3 shared=$4 root=$5
mount --make-rprivate /
hostname "$name"
mount -t tmpfs none "$root"
for path in "$base"/*; do
  entry=${path##*/}
  case "$entry" in %s) continue ;; esac
  if [ -L "$path" ]; then cp -P "$path" "$root/$entry"
  elif [ -d "$path" ]; then mkdir "$root/$entry"; mount --bind "$path" "$root/$entry"; fi
done
mkdir "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run" "$root/src" "$root/shared"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"  # with this host's network
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
for folder in dev/shm tmp run root; do mount -t tmpfs none "$root/$folder"; chmod 1777 "$root/$folder"; done
chmod 700 "$root/root"
mkdir "$root/run/sshd" "$root/run/slurmd"
chmod 755 "$root/run" "$root/run/sshd" "$root/run/slurmd"
mount --bind "$source" "$root/src"
mount -o remount,bind,ro "$root/src"
mount --bind "$shared" "$root/shared"
mount --bind "$shared/etc/hosts" "$root/etc/hosts"
mount --bind "$shared/etc/ssh_config" "$root/etc/ssh/ssh_config"
exec chroot "$root" /bin/sh -c 'touch "/shared/etc/up-$1"; while :; do sleep 1000 & wait; done' sh "$name"
""" % LEFT_OUT

SSHD = """Port 22
ListenAddress 0.0.0.0
HostKey /shared/etc/host_key
AuthorizedKeysFile /shared/etc/key.pub
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
PidFile /run/sshd.pid
MaxStartups 100
"""
SSH = """Host *
  IdentityFile /shared/etc/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  BatchMode yes
"""


def inside(line):
    """Runs this command in namespaces of its own; its status. Nothing that it started is left."""
    need_root()
    need("ip")
    trial = ["unshare", *KINDS, "--fork", "--mount-proc", "sh", "-c", "ip link add switch type bridge && "
             "ip link add port type veth peer name eth0 && hostname x && mount -t tmpfs none /tmp"]
    tried = subprocess.run(trial, capture_output=True, text=True, check=False)
    if tried.returncode:
        raise Impossible(f"namespaces of networks and processes are not permitted here: {tried.stderr.strip()}")
    process = subprocess.Popen(["unshare", *KINDS, "--fork", "--kill-child", "--mount-proc", *line],
                               env={**os.environ, MARK: "1"}, start_new_session=True)
    ended = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: ended.append(number) or process.kill())
    status = process.wait()
    return 128 + ended[0] if ended else status


class Hosts:
    """The hosts, all of one system. `base`: its root folder. `folder`: an empty one, for the shared files."""

    def __init__(self, base, folder, library, names=NAMES):
        assert os.environ.get(MARK), "hosts outside of their namespaces"
        self.base, self.folder, self.names, self.inits, self.started = base, folder, names, {}, []
        for name in ("shared", "shared/etc", "shared/log", "shared/bin", "root"):
            os.makedirs(os.path.join(folder, name))
        for path in ("etc/ssh/ssh_config", "usr/sbin/sshd", "usr/bin/ssh"):
            if not os.path.exists(os.path.join(base, path)):
                raise Impossible(f"openssh-server and openssh-client are not installed in {base}")
        subprocess.run(["cp", library, self.path("libresil.so")], check=True)
        self.write("etc/hosts", "127.0.0.1 localhost\n" + "".join(f"10.77.0.{i + 1} {name}\n" for i, name in enumerate(names)))
        self.write("etc/ssh_config", SSH)
        self.write("etc/sshd_config", SSHD)
        for key in ("key", "host_key"):
            subprocess.run([need("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", self.path("etc/" + key)], check=True)
        self.ip("link", "set", "lo", "up")
        self.ip("link", "add", "switch", "type", "bridge")
        self.ip("link", "set", "switch", "up")
        for number, name in enumerate(names):
            self.make(number, name)

    def path(self, name):
        """Of a shared file, as this process sees it."""
        return os.path.join(self.folder, "shared", name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def read(self, name):
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def make(self, number, name):
        """Its namespaces, a wire to the bridge, its ssh daemon."""
        root = os.path.join(self.folder, "root")
        with open(self.path(f"log/init-{name}"), "wb") as log:
            init = subprocess.Popen(
                ["unshare", *KINDS, "--time", "--monotonic", str(SKEW * (number + 1)), "--boottime", str(SKEW * (number + 1)), "--fork",
                 "--kill-child", "sh", "-c", HOST, "sh", name, self.base, TREE, os.path.join(self.folder, "shared"), root],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started.append(init)
        until(lambda: os.path.exists(self.path(f"etc/up-{name}")) or init.poll() is not None, f"{name} does not start", 60)
        if init.poll() is not None:
            raise Impossible(f"{name} cannot be made: {self.read(f'log/init-{name}').strip()}")
        with open(f"/proc/{init.pid}/task/{init.pid}/children", encoding="ascii") as file:
            pid = self.inits[name] = file.read().split()[0]
        self.ip("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        self.ip("link", "set", f"port{number}", "master", "switch", "up")
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            subprocess.run(["nsenter", "-t", pid, "--net", "ip", *words], check=True)
        self.daemon(name, "/usr/sbin/sshd", "-D", "-e", "-f", "/shared/etc/sshd_config")

    def line(self, name, words, cwd=SHARED):
        """The command that runs the words on a host."""
        return ["nsenter", "-t", self.inits[name], "--net", "--uts", "--mount", "--pid", "--ipc", "--time", "--root", "--wd", "--",
                "/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", cwd, *words]

    @staticmethod
    def environment(more=None):
        return {"HOME": "/root", "LC_ALL": "C.UTF-8", "PATH": PATH, "SLURM_CONF": "/shared/etc/slurm.conf", **(more or {})}

    def run(self, name, *words, env=None, timeout=120, cwd=SHARED):
        """A finished command: text in stdout and stderr; status 124 at its limit."""
        process = self.start(name, *words, env=env, cwd=cwd)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return subprocess.CompletedProcess(words, 124, out, err + f"\n(killed after {timeout} s)")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def start(self, name, *words, env=None, cwd=SHARED):
        return subprocess.Popen(self.line(name, words, cwd), env=self.environment(env), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)

    def daemon(self, name, *words):
        with open(self.path(f"log/{os.path.basename(words[0])}-{name}"), "ab") as log:
            process = subprocess.Popen(self.line(name, words), env=self.environment(), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
        self.started.append(process)
        return process

    def ranks(self, name):
        """Processes of a host that have the library loaded, as the host numbers them."""
        script = "for d in /proc/[0-9]*; do grep -q libresil.so $d/maps 2>/dev/null && echo ${d#/proc/}; done; true"
        return self.run(name, "/bin/sh", "-c", script).stdout.split()

    def clear(self):
        """Ends what a job has left on the hosts: its processes, its memory."""
        for name in self.names:
            left = self.ranks(name)
            if left:
                self.run(name, "kill", "-9", *left)
                self.run(name, "/bin/sh", "-c", "rm -f /dev/shm/resil-*")

    def close(self):
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.started:
            process.wait()


def until(condition, what, seconds):
    """The first true value. RuntimeError when it does not come."""
    over = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > over:
            raise RuntimeError(what() if callable(what) else what)
        time.sleep(0.1)
