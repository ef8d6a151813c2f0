# SPDX-License-Identifier: Apache-2.0
"""Classes of stuck.c in Python, with mpi4py: stuck.py CLASS RANK FOLDER."""
import os
import signal
import sys
import time

from mpi4py import MPI

KIND, CULPRIT, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
signal.alarm(600)
field = MPI.COMM_WORLD.Dup()
field.Set_name("field")
copy = field.Dup()
me, size = field.rank, field.size
following = (me + 1) % size


def step():
    time.sleep(0.002)
    field.sendrecv(me, following, 1, source=(me - 1) % size, recvtag=1)
    assert field.allreduce(1) == size


def relax():
    x = 1.0
    while True:
        x = x * 0.999 + 1  # AT computing


def checkpoint():
    with open(os.path.join(FOLDER, "fifo"), encoding="utf-8") as file:  # AT file_open
        file.read()


def stand_still():
    guilty, partner = me == CULPRIT, me == (CULPRIT + 1) % size
    if guilty:
        with open(os.path.join(FOLDER, "injected"), "w", encoding="utf-8"):
            pass
    if KIND == "cycle":
        field.recv(source=following, tag=7)  # AT cycle
    elif KIND == "order":
        (copy if guilty else field).Barrier()  # AT order
        (field if guilty else copy).Barrier()
    elif KIND == "tag":
        if guilty:
            field.Send(bytearray(8), following, 9)
        if partner:
            field.Recv(bytearray(8), CULPRIT, 8)  # AT tag
    elif KIND == "computing" and guilty:
        relax()
    elif KIND == "stopped" and guilty:
        os.kill(os.getpid(), signal.SIGSTOP)  # AT stopped
    elif KIND == "killed" and guilty:
        os.kill(os.getpid(), signal.SIGKILL)
    elif KIND == "file_open" and guilty:
        checkpoint()
    elif KIND == "slow":
        for _ in range(6):
            if guilty:
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    sum(range(100000))
            step()


for _ in range(60):
    step()
field.Barrier()
stand_still()
step()
if me == 0:
    print("stuck right")
