# SPDX-License-Identifier: Apache-2.0
"""mpi4py, spawn: the parents start two children with this file and exchange objects with them."""
import sys

from mpi4py import MPI

parent = MPI.Comm.Get_parent()
if parent != MPI.COMM_NULL:
    task = parent.bcast(None, root=0)
    parent.gather(task * MPI.COMM_WORLD.rank, root=0)
    parent.Disconnect()
else:
    comm = MPI.COMM_WORLD
    children = comm.Spawn(sys.executable, args=[__file__], maxprocs=2)
    root = MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL
    children.bcast(21, root=root)
    answers = children.gather(None, root=root)
    children.Disconnect()
    if comm.rank == 0:
        print("spawn", answers)
