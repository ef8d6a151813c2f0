# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on the hosts of hosts.py: the controller on the first, a slurmd on each of the others."""
import os
import secrets

from .cells import Impossible
from .hosts import until

CONFIGURATION = """ClusterName=resil-matrix
SlurmctldHost={head}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldTimeout=600
SlurmdTimeout=600
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
ReturnToService=2
KillWait=5
OverTimeLimit=0
SlurmdParameters=config_overrides
PlugStackConfig=/shared/etc/plugstack.conf
Epilog=/shared/etc/epilog
{nodes}
PartitionName=test Nodes={all} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    def __init__(self, hosts):
        self.hosts, self.head, self.nodes = hosts, hosts.names[0], hosts.names[1:]
        for program in ("slurmctld", "slurmd", "munged", "srun"):
            if not any(os.path.exists(os.path.join(hosts.base, folder, program)) for folder in ("usr/sbin", "usr/bin")):
                raise Impossible(f"{program} is not installed in {hosts.base}")
        with open(hosts.path("etc/munge.key"), "wb") as file:
            file.write(secrets.token_bytes(1024))
        os.chmod(hosts.path("etc/munge.key"), 0o400)
        hosts.write("etc/slurm.conf", CONFIGURATION.format(
            head=self.head, all=",".join(self.nodes), nodes="\n".join(f"NodeName={name} CPUs=16 State=UNKNOWN" for name in self.nodes)))
        if self.version() >= (22, 5):
            hosts.write("etc/cgroup.conf", "" if self.version() < (23, 2) else "CgroupPlugin=disabled\n")
        hosts.write("etc/epilog", "#!/bin/sh\n", 0o755)
        for name in hosts.names:
            hosts.run(name, "mkdir", "-m", "755", "-p", "/run/munge", "/run/slurmctld")
            # Its folders must belong to it or to root, and nobody else may write there; the key lies in a shared folder.
            hosts.daemon(name, "/usr/sbin/munged", "--foreground", "--force", "--key-file=/shared/etc/munge.key", "--socket=/run/munge/munge.socket.2",
                         "--pid-file=/run/munge/pid", "--log-file=/run/munge/log", "--seed-file=/run/munge/seed")
        for name in hosts.names:
            until(lambda name=name: hosts.run(name, "test", "-S", "/run/munge/munge.socket.2").returncode == 0, f"munged of {name} does not start", 60)
        hosts.daemon(self.head, "/usr/sbin/slurmctld", "-D", "-c")
        for name in self.nodes:
            hosts.daemon(name, "/usr/sbin/slurmd", "-D", "-c", "-N", name)
        until(lambda: self.ask("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(self.nodes),
              lambda: "Slurm's nodes do not come up: " + self.ask("sinfo", "-N", "-l"), 120)

    def version(self):
        words = self.hosts.run(self.head, "srun", "--version").stdout.split()
        return tuple(int(part) for part in words[-1].split(".")[:2]) if words else (0,)

    def ask(self, *words):
        return self.hosts.run(self.head, *words).stdout

    def submit(self, script, *options, name="batch"):
        """The number of a batch job whose output goes to /shared/NAME-output-…"""
        self.hosts.write(f"{name}.sh", "#!/bin/bash\n" + script, 0o755)
        done = self.hosts.run(self.head, "sbatch", "--parsable", f"--output=/shared/{name}-output-%A_%a", *options, f"/shared/{name}.sh")
        if done.returncode:
            raise RuntimeError(f"sbatch: {done.stderr}")
        return done.stdout.strip().split(";")[0]

    def facts(self, job):
        """What scontrol says of a job."""
        said = self.ask("scontrol", "-o", "show", "job", job)
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def ended(self, job, seconds=120):
        until(lambda: not self.ask("squeue", "-h", "-j", job, "-t", "PD,R,CG,CF,S,RQ").strip(),
              lambda: f"job {job} does not end: {self.ask('squeue')}", seconds)
