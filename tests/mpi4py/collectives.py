# SPDX-License-Identifier: Apache-2.0
"""mpi4py, collectives: objects, buffers, v-variants, in place, a user operator in Python, communicators."""
import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
me, size = comm.rank, comm.size

assert comm.bcast({"a": 1} if me == 0 else None) == {"a": 1}
assert comm.gather(me * me, root=1) == (None if me != 1 else [0, 1])
assert comm.scatter(["x", "y"] if me == 0 else None) == "xy"[me]
assert comm.allgather(me) == [0, 1]
assert comm.alltoall([10 * me, 10 * me + 1]) == [me, 10 + me]
assert comm.allreduce(me + 1, op=MPI.MAX) == size

values = array.array("d", [1.0 / (i + 1 + me) for i in range(1000)])
total = array.array("d", [0.0] * 1000)
comm.Allreduce(values, total)
comm.Allreduce(MPI.IN_PLACE, values)
assert values == total

parts = array.array("i", [0] * 3)
comm.Allgatherv(array.array("i", [me] * (me + 1)), [parts, ([1, 2], [0, 1]), MPI.INT])
assert parts.tolist() == [0, 1, 1]


def longest(left, right, datatype):
    """Called by MPI on raw memory, and calls MPI itself."""
    assert datatype.Get_size() == 4
    a, b = memoryview(left).cast("i"), memoryview(right).cast("i")
    for i, value in enumerate(a):
        b[i] = max(value, b[i])


operator = MPI.Op.Create(longest, commute=True)
most = array.array("i", [0, 0])
comm.Allreduce(array.array("i", [me, 5 - me]), most, op=operator)
operator.Free()
assert most.tolist() == [1, 5]

half = comm.Split(color=me)
assert half.allreduce(1) == 1
half.Free()
request = comm.Ibcast(total, root=1)
request.Wait()
comm.Barrier()
if me == 0:
    print("collectives", total[7].hex())
