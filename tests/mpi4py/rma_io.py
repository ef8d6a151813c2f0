# SPDX-License-Identifier: Apache-2.0
"""mpi4py, one-sided communication and files. Usage: rma_io.py FILE"""
import array
import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
me, peer = comm.rank, 1 - comm.rank

memory = array.array("l", [0] * 100)
win = MPI.Win.Create(memory, disp_unit=memory.itemsize, comm=comm)
win.Fence()
win.Put(array.array("l", [me + 1] * 10), peer)
win.Fence()
assert memory[9] == peer + 1 and memory[10] == 0
win.Lock(peer, MPI.LOCK_EXCLUSIVE)
win.Accumulate(array.array("l", [5] * 10), peer, op=MPI.SUM)
win.Unlock(peer)
comm.Barrier()
win.Lock(me)
assert memory[0] == peer + 6
win.Unlock(me)
win.Free()

file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
line = f"written by rank {me}\n".encode()
file.Write_at_all(me * len(line), line)
file.Sync()
comm.Barrier()
back = bytearray(len(line))
file.Read_at_all(peer * len(line), back)
assert back == f"written by rank {peer}\n".encode()
file.Close()
if me == 0:
    print("rma_io", open(sys.argv[1], encoding="ascii").read().strip())
