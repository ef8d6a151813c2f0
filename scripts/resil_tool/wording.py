# SPDX-License-Identifier: Apache-2.0
"""One call of one rank in words, as reports and dumps print it. Touches no file but through the ring it is given."""

from __future__ import annotations

import re

from . import layout
from .text import integer

_COLLECTIVE = re.compile(
    r"MPI_I?(neighbor_)?(barrier|bcast|gatherv?|scatterv?|allgatherv?|alltoall[vw]?|reduce|allreduce|"
    r"reduce_scatter(_block)?|scan|exscan)(_init)?(_c)?$", re.IGNORECASE)
_ROOTED = re.compile(r"MPI_I?(bcast|gatherv?|scatterv?|reduce)(_init)?(_c)?$", re.IGNORECASE)
_TO = re.compile(r"MPI_(P?[iI]?[bsr]?send|Psend)(_init)?(_c)?$", re.IGNORECASE)
_FROM = re.compile(r"MPI_(P?[iI]?m?recv|I?m?probe|Precv)(_init)?(_c)?$", re.IGNORECASE)
_RMA = re.compile(r"MPI_(R?put|R?get|R?accumulate|R?get_accumulate|fetch_and_op|compare_and_swap|win_lock|"
                  r"win_unlock|win_flush(_local)?)(_c)?$", re.IGNORECASE)


def describe(call) -> str:
    """"MPI_Allreduce #17 on MPI_COMM_WORLD", "MPI_Recv from rank 3, tag 7, on …"; ring.Call in."""
    words = call.name
    if _COLLECTIVE.match(call.name):
        if call.sequence:
            words += " #%s" % integer(call.sequence)
        if _ROOTED.match(call.name) and call.peer >= 0:
            words += ", root %d," % call.peer
    else:
        direction = ("to" if _TO.match(call.name) else "from" if _FROM.match(call.name)
                     else "at" if _RMA.match(call.name) else "with")
        peer = peer_words(call.peer)
        if peer:
            words += " %s %s" % (direction, peer)
        tag = tag_words(call.tag)
        if tag:
            words += ", %s" % tag if peer else " %s" % tag
        if (peer or tag) and call.comm:
            words += ","
    if call.comm:
        words += " on %s" % call.comm
    if call.flags & layout.FLAG_FOLDED and call.repeat > 1:
        words += " (%s times in a row)" % integer(call.repeat)
    if call.flags & layout.FLAG_FAILED:
        words += " (failed)"
    return words


def polls(name: str) -> bool:
    """Calls that programs repeat in vain: they are no progress."""
    return name in ("MPI_Wtime", "MPI_Wtick") or name.startswith(("MPI_Test", "MPI_Iprobe", "MPI_Improbe", "MPI_Request_get_status", "MPI_Parrived"))


def peer_words(peer: int) -> str:
    if peer == layout.K_NO_PEER:
        return ""
    return {layout.K_ANY_SOURCE: "any rank", layout.K_PROC_NULL: "MPI_PROC_NULL",
            layout.K_ROOT_SELF: "MPI_ROOT"}.get(peer, "rank %d" % peer)


def tag_words(tag: int) -> str:
    if tag == layout.K_NO_TAG:
        return ""
    return "any tag" if tag == layout.K_ANY_TAG else "tag %d" % tag
