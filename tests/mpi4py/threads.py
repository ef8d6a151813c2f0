# SPDX-License-Identifier: Apache-2.0
"""mpi4py starts with MPI_THREAD_MULTIPLE: four Python threads talk at once, each with a tag of its own."""
import threading

from mpi4py import MPI

comm = MPI.COMM_WORLD
assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
totals = [0] * 4


def talk(number):
    for step in range(50):
        totals[number] += comm.sendrecv((number, step, comm.rank), dest=1 - comm.rank, sendtag=number,
                                        source=1 - comm.rank, recvtag=number)[1]


threads = [threading.Thread(target=talk, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
comm.Barrier()
if comm.rank == 0:
    print("threads", totals)
