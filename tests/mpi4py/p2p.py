# SPDX-License-Identifier: Apache-2.0
"""mpi4py, point-to-point: pickled objects and buffers, probes, persistent requests, nonblocking completion."""
import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
me, peer = comm.rank, 1 - comm.rank

data = {"rank": me, "text": "x" * 5000, "list": list(range(100))}
request = comm.isend(data, dest=peer, tag=1)
got = comm.recv(source=MPI.ANY_SOURCE, tag=1)
request.wait()
assert got["rank"] == peer and len(got["text"]) == 5000

out, into = array.array("d", [me + i / 8 for i in range(20000)]), array.array("d", [0.0] * 20000)
comm.Sendrecv(out, dest=peer, recvbuf=into, source=peer)
assert into[8] == peer + 1

status = MPI.Status()
if me == 0:
    comm.send("probe me", dest=1, tag=7)
else:
    message = comm.mprobe(source=0, tag=7, status=status)
    assert message.recv() == "probe me" and status.tag == 7

send = comm.Send_init([out, MPI.DOUBLE], dest=peer, tag=9)
recv = comm.Recv_init([into, MPI.DOUBLE], source=peer, tag=9)
for step in range(3):
    out[0] = 100 * me + step
    MPI.Prequest.Startall([send, recv])
    MPI.Request.Waitall([send, recv])
    assert into[0] == 100 * peer + step
send.Free()
recv.Free()
if me == 0:
    print("p2p", sum(into))
