# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong in one place, each with its corrected twin: every call of MPI by every mistake that it allows.

programs() gives all of them. What a checker has to say of one:
  HANGS     it cannot end, on any MPI library: found, with one of `classes`, naming a line that counts
  DIFFERS   ranks call different things; whether it hangs, is ended by MPI or goes on is the library's choice. Found in
            each of the cases
  nothing   the corrected twin: no word, in any mode
"""
import dataclasses
import itertools

from .language import (ALL_IGNORED, BINDINGS, FLAG, IGNORED, LARGE, MESSAGE, NO_INFO, RANK, SELF, SIZE, TRUE, WORLD, Word,
                       assign, at, but, call, element, out, request, times, type_of, value, wrong)

HANGS, DIFFERS = "hangs", "differs"
INT, FLOAT = type_of("INT"), type_of("FLOAT")
MISMATCH = {"collective_mismatch"}
COLLECTIVE = {"collective_mismatch", "missing_rank", "deadlock"}
MESSAGES = {"unmatched_message", "missing_rank", "deadlock"}
TAG = 5


@dataclasses.dataclass
class Program:
    name: str
    family: str    # calls that it is about
    mistake: str
    binding: str
    ranks: int
    expect: str
    classes: set
    bad: list      # statements
    good: list
    newest: bool = False  # needs MPI 4


# Point to point. A way of sending or receiving is (statements before, statements that count), by its arguments.

def _send(function):
    return lambda *arguments, mark=call: [mark(function, *arguments)]


def _isend(function):
    return lambda *arguments, mark=call: [mark(function, *arguments, request(0)), mark("Wait", request(0), IGNORED)]


def _send_init(function):
    return lambda *arguments, mark=call: [mark(function, *arguments, request(0)), mark("Start", request(0)),
                                          mark("Wait", request(0), IGNORED), call("Request_free", request(0))]


SENDS = {"Send": _send("Send"), "Ssend": _send("Ssend"), "Isend": _isend("Isend"), "Issend": _isend("Issend"),
         "Send_init": _send_init("Send_init"), "Ssend_init": _send_init("Ssend_init")}
SYNCHRONOUS = ("Ssend", "Issend", "Ssend_init")


def _recv(buffer, count, kind, source, tag, comm, mark=call):
    return [mark("Recv", buffer, count, kind, source, tag, comm, IGNORED)]


def _recv_any(buffer, count, kind, source, tag, comm, mark=call):
    return [mark("Recv", buffer, count, kind, "MPI_ANY_SOURCE", tag, comm, IGNORED)]


def _irecv(*arguments, mark=call):
    return [mark("Irecv", *arguments, request(1)), mark("Wait", request(1), IGNORED)]


def _irecv_all(*arguments, mark=call):
    return [mark("Irecv", *arguments, request(1)), mark("Waitall", 2, Word("r", "r"), ALL_IGNORED)]


def _recv_init(*arguments, mark=call):
    return [mark("Recv_init", *arguments, request(1)), mark("Start", request(1)), mark("Wait", request(1), IGNORED),
            call("Request_free", request(1))]


def _probe(buffer, count, kind, source, tag, comm, mark=call):
    return [mark("Probe", source, tag, comm, IGNORED), call("Recv", buffer, count, kind, source, tag, comm, IGNORED)]


def _mprobe(buffer, count, kind, source, tag, comm, mark=call):
    return [mark("Mprobe", source, tag, comm, MESSAGE, IGNORED), call("Mrecv", buffer, count, kind, MESSAGE, IGNORED)]


def _sendrecv(buffer, count, kind, source, tag, comm, mark=call):
    return [mark("Sendrecv", "a", 1, kind, "MPI_PROC_NULL", 1, buffer, count, kind, source, tag, comm, IGNORED)]


RECEIVES = {"Recv": _recv, "Irecv": _irecv, "Waitall": _irecv_all, "Recv_init": _recv_init, "Probe": _probe,
            "Mprobe": _mprobe, "Sendrecv": _sendrecv}
DUP = [call("Comm_dup", WORLD, out("comm"))]
FREE = [call("Comm_free", out("comm"))]
SPLIT = [call("Comm_split", WORLD, 0, Word("-rank", "-rank"), out("comm"))]  # the ranks in reverse order


def messages():
    """(mistake, sends, receives, ranks, classes, bad, good)"""
    for (send_name, send), (receive_name, receive) in itertools.product(SENDS.items(), RECEIVES.items()):
        names = f"{send_name} and {receive_name}"

        def one(mistake, ranks, bad, good, classes=MESSAGES, names=names):
            return Program("", names, mistake, "", ranks, HANGS, classes, bad, good)

        def pair(before, after, wanted, given, ranks=2, receive=receive, send=send):
            """Rank 1 receives `wanted`, rank 0 sends `given`: (source, tag, communicator), (destination, tag, communicator)."""
            def body(given, wanted, mark):
                return [*before, at(0, *send("a", 4, INT, *given, mark=mark)), at(1, *receive("b", 4, INT, *wanted, mark=mark)), *after]
            right = (0, given[1], given[2])
            return body(given, wanted, wrong), body((1, *given[1:]), right, call)

        yield one("tag", 2, *pair([], [], (0, TAG + 1, WORLD), (1, TAG, WORLD)))
        yield one("communicator", 2, *pair(DUP, FREE, (0, TAG, "comm"), (1, TAG, WORLD)))
        yield one("source", 3, *pair([], [], (2, TAG, WORLD), (1, TAG, WORLD)))
        yield one("no send", 3, [at(1, *receive("b", 4, INT, 2, TAG, WORLD, mark=wrong))],
                  [at(2, *send("a", 4, INT, 1, TAG, WORLD)), at(1, *receive("b", 4, INT, 2, TAG, WORLD))])
        yield one("one receive too many", 2,
                  [at(0, *send("a", 4, INT, 1, TAG, WORLD)), at(1, *receive("b", 4, INT, 0, TAG, WORLD), *receive("b", 4, INT, 0, TAG, WORLD, mark=wrong))],
                  [at(0, *send("a", 4, INT, 1, TAG, WORLD)), at(1, *receive("b", 4, INT, 0, TAG, WORLD))])
        yield one("communicator freed by the sender", 2,
                  [*DUP, at(1, *receive("b", 4, INT, 0, TAG, "comm", mark=wrong)), *FREE],
                  [*DUP, at(0, *send("a", 4, INT, 1, TAG, "comm")), at(1, *receive("b", 4, INT, 0, TAG, "comm")), *FREE])
        if send_name in SYNCHRONOUS:
            yield one("no receive", 2, [at(0, *send("a", 4, INT, 1, TAG, WORLD, mark=wrong))],
                      [at(0, *send("a", 4, INT, 1, TAG, WORLD)), at(1, *receive("b", 4, INT, 0, TAG, WORLD))])
            ring = [Word("neighbours[1]", "neighbours(2)"), Word("neighbours[0]", "neighbours(1)")]
            yield one("ring of sends", 3 if receive_name != "Waitall" else 4,
                      [*send("a", 4, INT, ring[0], TAG, WORLD, mark=wrong), *receive("b", 4, INT, ring[1], TAG, WORLD)],
                      [at(0, *send("a", 4, INT, ring[0], TAG, WORLD)), *receive("b", 4, INT, ring[1], TAG, WORLD),
                       but(0, *send("a", 4, INT, ring[0], TAG, WORLD))], {"deadlock"})
        elif send_name == "Send":
            yield one("long send that nobody receives", 2, [at(0, *send("a", LARGE, INT, 1, TAG, WORLD, mark=wrong))],
                      [at(0, *send("a", LARGE, INT, 1, TAG, WORLD)), at(1, *receive("b", LARGE, INT, 0, TAG, WORLD))])
            ring = [Word("neighbours[1]", "neighbours(2)"), Word("neighbours[0]", "neighbours(1)")]
            yield one("ring of receives", 4, [*receive("b", 4, INT, ring[1], TAG, WORLD, mark=wrong), *send("a", 4, INT, ring[0], TAG, WORLD)],
                      [at(0, *send("a", 4, INT, ring[0], TAG, WORLD)), *receive("b", 4, INT, ring[1], TAG, WORLD),
                       but(0, *send("a", 4, INT, ring[0], TAG, WORLD))], {"deadlock"})
            yield one("ranks of another numbering", 3,
                      [*SPLIT, at(0, *send("a", 4, INT, 1, TAG, WORLD, mark=wrong)), at(1, *receive("b", 4, INT, 0, TAG, "comm", mark=wrong)), *FREE],
                      [*SPLIT, at(0, *send("a", 4, INT, 1, TAG, WORLD)), at(1, *receive("b", 4, INT, 0, TAG, WORLD)), *FREE])
        if send_name.endswith("_init"):
            started = send("a", 4, INT, 1, TAG, WORLD)
            yield one("never started", 2,
                      [at(0, wrong(send_name, "a", 4, INT, 1, TAG, WORLD, request(0)), wrong("Wait", request(0), IGNORED), call("Request_free", request(0))),
                       at(1, *receive("b", 4, INT, 0, TAG, WORLD, mark=wrong))],
                      [at(0, *started), at(1, *receive("b", 4, INT, 0, TAG, WORLD))])


def typed_messages():
    """Sent as one type and received as another of the same size."""
    for (send_name, send), (receive_name, receive) in itertools.product(SENDS.items(), {**RECEIVES, "Recv of any": _recv_any}.items()):
        def body(kind, mark, send=send, receive=receive):
            return [at(0, *send("a", 4, INT, 1, TAG, WORLD, mark=mark)), at(1, *receive(_buffers(kind)[1], 4, kind, 0, TAG, WORLD, mark=mark))]
        yield Program("", f"{send_name} and {receive_name}", "another type", "", 2, DIFFERS, {"message_mismatch", "call_mismatch"},
                      body(FLOAT, wrong), body(INT, call))


def completions():
    """Sets of requests, wildcards, partitioned and buffered messages."""
    def one(calls, mistake, ranks, bad, good, classes=MESSAGES, newest=False):
        return Program("", calls, mistake, "", ranks, HANGS, classes, bad, good, newest)

    def set_of(mark, *wait, wildcard_first=True, sends):
        first = call("Irecv", "a", 1, INT, "MPI_ANY_SOURCE", TAG, WORLD, request(0))
        second = mark("Irecv", "b", 1, INT, 2, TAG + 1, WORLD, request(1))
        return [at(0, *((first, second) if wildcard_first else (second, first)), *wait),
                at(1, call("Send", "a", 1, INT, 0, TAG, WORLD)), at(2, *sends)]

    def wait_all(mark):
        return mark("Waitall", 2, Word("r", "r"), ALL_IGNORED)

    right = [call("Send", "a", 1, INT, 0, TAG + 1, WORLD)]
    for wildcard_first in (True, False):
        yield one("Waitall", f"wildcard and named receive, {'named last' if wildcard_first else 'named first'}", 3,
                  set_of(wrong, wait_all(wrong), wildcard_first=wildcard_first, sends=[wrong("Send", "a", 1, INT, 0, TAG + 2, WORLD)]),
                  set_of(call, wait_all(call), wildcard_first=wildcard_first, sends=right))
        yield one("Wait", f"wildcard and named receive, {'named last' if wildcard_first else 'named first'}", 3,
                  set_of(wrong, wrong("Wait", request(1), IGNORED), call("Wait", request(0), IGNORED), wildcard_first=wildcard_first, sends=[]),
                  set_of(call, call("Wait", request(1), IGNORED), call("Wait", request(0), IGNORED), wildcard_first=wildcard_first, sends=right))
    for ranks in (2, 3, 4, 5):
        others = range(1, ranks)
        send = [but(0, call("Send", "a", 1, INT, 0, TAG, WORLD))]
        many = Word(str(ranks - 1), str(ranks - 1))
        yield one("Recv", f"wildcards: one receive too many, {ranks} ranks", ranks,
                  [*send, at(0, times(ranks - 1, call("Recv", "b", 1, INT, "MPI_ANY_SOURCE", TAG, WORLD, IGNORED)),
                             wrong("Recv", "b", 1, INT, "MPI_ANY_SOURCE", TAG, WORLD, IGNORED))],
                  [*send, at(0, times(many.c, call("Recv", "b", 1, INT, "MPI_ANY_SOURCE", TAG, WORLD, IGNORED)))])
        for wait in ("Waitall", "Waitany", "Waitsome", "Testall"):
            gather = [call("Irecv", element("b", rank), 1, INT, rank, TAG, WORLD, request(rank)) for rank in others]
            gather_bad = [*gather[:-1], wrong("Irecv", element("b", ranks - 1), 1, INT, ranks - 1, TAG + 1, WORLD, request(ranks - 1))]
            complete = {"Waitall": lambda mark: [mark("Waitall", ranks, Word("r", "r"), ALL_IGNORED)],
                        "Waitany": lambda mark: [times(ranks - 1, mark("Waitany", ranks, Word("r", "r"), out("key"), IGNORED))],
                        "Waitsome": lambda mark: [times(ranks - 1, mark("Waitsome", ranks, Word("r", "r"), out("key"), Word("counts", "counts"), ALL_IGNORED))],
                        "Testall": lambda mark: [_until(mark("Testall", ranks, Word("r", "r"), FLAG, ALL_IGNORED))]}[wait]
            yield one(f"Irecv and {wait}", f"tag of one of {ranks - 1}", ranks,
                      [at(0, *gather_bad, *complete(wrong)), *send], [at(0, *gather, *complete(call)), *send])
    yield one("Psend_init and Precv_init", "partition not ready", 2,
              [at(0, call("Psend_init", "a", 2, Word("4", "4_MPI_COUNT_KIND"), INT, 1, TAG, WORLD, NO_INFO, request(0)), call("Start", request(0)), wrong("Pready", 0, value("r", 0)),
                  wrong("Wait", request(0), IGNORED), call("Request_free", request(0))),
               at(1, call("Precv_init", "b", 2, Word("4", "4_MPI_COUNT_KIND"), INT, 0, TAG, WORLD, NO_INFO, request(0)), call("Start", request(0)), wrong("Wait", request(0), IGNORED),
                  call("Request_free", request(0)))],
              [at(0, call("Psend_init", "a", 2, Word("4", "4_MPI_COUNT_KIND"), INT, 1, TAG, WORLD, NO_INFO, request(0)), call("Start", request(0)), call("Pready", 0, value("r", 0)),
                  call("Pready", 1, value("r", 0)), call("Wait", request(0), IGNORED), call("Request_free", request(0))),
               at(1, call("Precv_init", "b", 2, Word("4", "4_MPI_COUNT_KIND"), INT, 0, TAG, WORLD, NO_INFO, request(0)), call("Start", request(0)), call("Wait", request(0), IGNORED),
                  call("Request_free", request(0)))], newest=True)


def _until(statement):
    """Repeats a test until its flag is set."""
    class Loop:
        def lines(self, language, indent):
            yield " " * indent + ("while (!flag) {" if language == "c" else "do while (.not. flag)"), False
            yield from statement.lines(language, indent + 2)
            yield " " * indent + ("}" if language == "c" else "end do"), False
    return Loop()


# Collectives: the arguments of each by what can be wrong in it.

def _buffers(kind):
    return ("f", "g") if kind is FLOAT else ("a", "b")


COUNTS, DISPLACEMENTS, BYTES, KINDS = (Word(name, name) for name in ("counts", "displacements", "bytes", "types"))
ARGUMENTS = {
    "Barrier": lambda s, r, n, t, o, root: (),
    "Bcast": lambda s, r, n, t, o, root: (s, n, t, root),
    "Reduce": lambda s, r, n, t, o, root: (s, r, n, t, o, root),
    "Allreduce": lambda s, r, n, t, o, root: (s, r, n, t, o),
    "Scan": lambda s, r, n, t, o, root: (s, r, n, t, o),
    "Exscan": lambda s, r, n, t, o, root: (s, r, n, t, o),
    "Reduce_scatter_block": lambda s, r, n, t, o, root: (s, r, n, t, o),
    "Reduce_scatter": lambda s, r, n, t, o, root: (s, r, COUNTS, t, o),
    "Gather": lambda s, r, n, t, o, root: (s, n, t, r, n, t, root),
    "Scatter": lambda s, r, n, t, o, root: (s, n, t, r, n, t, root),
    "Allgather": lambda s, r, n, t, o, root: (s, n, t, r, n, t),
    "Alltoall": lambda s, r, n, t, o, root: (s, n, t, r, n, t),
    "Gatherv": lambda s, r, n, t, o, root: (s, n, t, r, COUNTS, DISPLACEMENTS, t, root),
    "Scatterv": lambda s, r, n, t, o, root: (s, COUNTS, DISPLACEMENTS, t, r, n, t, root),
    "Allgatherv": lambda s, r, n, t, o, root: (s, n, t, r, COUNTS, DISPLACEMENTS, t),
    "Alltoallv": lambda s, r, n, t, o, root: (s, COUNTS, DISPLACEMENTS, t, r, COUNTS, DISPLACEMENTS, t),
    "Alltoallw": lambda s, r, n, t, o, root: (s, COUNTS, BYTES, KINDS, r, COUNTS, BYTES, KINDS),
}
ROOTED = ("Bcast", "Reduce", "Gather", "Scatter", "Gatherv", "Scatterv")
TO_ROOT = ("Reduce", "Gather", "Gatherv")
PREFIX = ("Scan", "Exscan")
REDUCING = ("Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter_block", "Reduce_scatter")
WITH_COUNT = ("Bcast", "Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter_block", "Gather", "Scatter", "Allgather",
              "Alltoall", "Gatherv", "Scatterv", "Allgatherv")
FORMS = ("blocking", "nonblocking", "persistent")


def collective(name, form="blocking", mark=call, comm=WORLD, count=4, kind=INT, op="MPI_SUM", root=0, slot=0):
    send, receive = _buffers(kind)
    arguments = (*ARGUMENTS[name](send, receive, count, kind, op, root), comm)
    if form == "blocking":
        return [mark(name, *arguments)]
    wait = mark("Wait", request(slot), IGNORED)
    if form == "nonblocking":
        return [mark("I" + name[0].lower() + name[1:], *arguments, request(slot)), wait]
    return [mark(name + "_init", *arguments, NO_INFO, request(slot)), mark("Start", request(slot)), wait,
            call("Request_free", request(slot))]


def waits_for(name):
    """(who must not be missing, who waits for it): ranks of two or more."""
    if name in PREFIX or (name in ROOTED and name not in TO_ROOT):
        return 0, 1
    return 1, 0


def collectives():
    names = list(ARGUMENTS)
    for form, (position, name) in itertools.product(FORMS, enumerate(names)):
        def one(mistake, ranks, bad, good, expect=DIFFERS, classes=MISMATCH, form=form, name=name):
            return Program("", f"{name}, {form}", mistake, "", ranks, expect, classes, bad, good, form == "persistent")

        ranks = 2 + position % 4
        odd, waiting = waits_for(name)
        first = collective(name, form)  # one that is right comes first

        def differ(right, other, ranks=ranks, first=first, odd=odd):
            """Rank `odd` makes the other call."""
            return [*first, at(odd, *other), but(odd, *right)]

        right, marked = collective(name, form), collective(name, form, wrong)
        good = [*first, *right]
        another = names[(position + 3) % len(names)]
        yield one(f"another function ({another})", ranks, differ(marked, collective(another, form, wrong)), good, classes=COLLECTIVE)
        if form == "blocking":
            yield one("nonblocking on one rank", ranks, differ(marked, collective(name, "nonblocking", wrong)), good, classes=COLLECTIVE)
        if name in ROOTED:
            yield one("another root", ranks, differ(marked, collective(name, form, wrong, root=1)), good, classes=COLLECTIVE)
        if name in REDUCING:
            yield one("another operator", ranks, differ(marked, collective(name, form, wrong, op="MPI_MAX")), good)
        if name in WITH_COUNT:
            yield one("another amount", ranks, differ(marked, collective(name, form, wrong, count=3)), good, classes=COLLECTIVE)
        if name not in ("Barrier", "Alltoallw"):
            yield one("another type", ranks, differ(marked, collective(name, form, wrong, kind=FLOAT)), good)
        yield one("skipped", ranks, [*first, but(odd, *marked)], good, HANGS, COLLECTIVE)
        yield one("one too many", ranks, [*good, at(waiting, *marked)], good, HANGS, COLLECTIVE)
        yield one("another communicator", ranks, [*DUP, at(odd, *collective(name, form, wrong, comm="comm")), but(odd, *marked), *FREE],
                  [*DUP, *right, *FREE], HANGS, COLLECTIVE)
        yield one("communicator freed by one rank", ranks, [*DUP, but(odd, *collective(name, form, wrong, comm="comm")), *FREE],
                  [*DUP, *collective(name, form, comm="comm"), *FREE], HANGS, COLLECTIVE)
        yield one("after a receive", ranks,
                  [at(odd, wrong("Recv", "b", 1, INT, waiting, TAG, WORLD, IGNORED)), *marked, at(waiting, call("Send", "a", 1, INT, odd, TAG, WORLD))],
                  [at(waiting, call("Send", "a", 1, INT, odd, TAG, WORLD)), at(odd, call("Recv", "b", 1, INT, waiting, TAG, WORLD, IGNORED)), *right],
                  HANGS, {"deadlock", "collective_mismatch", "unmatched_message"})
        if name not in ROOTED and name not in PREFIX:
            swapped = [*collective(name, form, wrong, comm="comm", slot=1), *marked]
            yield one("order of two communicators", ranks, [*DUP, at(1, *swapped), but(1, *reversed_pair(swapped, len(marked))), *FREE],
                      [*DUP, *collective(name, form, comm="comm", slot=1), *right, *FREE], HANGS, {"deadlock", "collective_mismatch"})


def reversed_pair(statements, length):
    """The last `length` statements first."""
    return [*statements[-length:], *statements[:-length]]


NEIGHBOUR = {
    "Neighbor_allgather": lambda n: ("a", n, INT, "b", n, INT),
    "Neighbor_alltoall": lambda n: ("a", n, INT, "b", n, INT),
    "Neighbor_allgatherv": lambda n: ("a", n, INT, "b", COUNTS, DISPLACEMENTS, INT),
    "Neighbor_alltoallv": lambda n: ("a", COUNTS, DISPLACEMENTS, INT, "b", COUNTS, DISPLACEMENTS, INT),
}


def neighbourhoods():
    cart = [call("Cart_create", WORLD, 1, Word("dims", "dims"), Word("periods", "periods"), Word("0", ".false."), out("comm"))]
    names = list(NEIGHBOUR)
    for position, name in enumerate(names):
        def calls(mark, name=name, form=""):
            arguments = (*NEIGHBOUR[name](4), "comm")
            if not form:
                return [mark(name, *arguments)]
            return [mark("I" + name[0].lower() + name[1:], *arguments, request(0)), mark("Wait", request(0), IGNORED)]
        for form in ("", "I"):
            ranks = 2 + position
            good = [*cart, *calls(call, form=form), *FREE]
            family = f"{form}{name}"
            yield Program("", family, "skipped", "", ranks, HANGS, COLLECTIVE, [*cart, but(1, *calls(wrong, form=form)), *FREE], good)
            yield Program("", family, "another function", "", ranks, DIFFERS, COLLECTIVE,
                          [*cart, at(1, *calls(wrong, names[(position + 1) % 4], form)), but(1, *calls(wrong, form=form)), *FREE], good)
            yield Program("", family, "after a receive", "", ranks, HANGS, {"deadlock", "collective_mismatch", "unmatched_message"},
                          [*cart, at(1, wrong("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED)), *calls(wrong, form=form), at(0, call("Send", "a", 1, INT, 1, TAG, WORLD)), *FREE],
                          [*cart, at(0, call("Send", "a", 1, INT, 1, TAG, WORLD)), at(1, call("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED)), *calls(call, form=form), *FREE])


def makers():
    """Calls that make communicators, and intercommunicators."""
    def one(calls, mistake, ranks, bad, good, expect=HANGS, classes=COLLECTIVE):
        return Program("", calls, mistake, "", ranks, expect, classes, bad, good)

    ways = {
        "Comm_dup": lambda mark: [mark("Comm_dup", WORLD, out("comm"))],
        "Comm_split": lambda mark: [mark("Comm_split", WORLD, "colour", "key", out("comm"))],
        "Comm_idup": lambda mark: [mark("Comm_idup", WORLD, out("comm"), request(0)), mark("Wait", request(0), IGNORED)],
        "Comm_create": lambda mark: [call("Comm_group", WORLD, out("group")), mark("Comm_create", WORLD, "group", out("comm")), call("Group_free", out("group"))],
        "Comm_split_type": lambda mark: [mark("Comm_split_type", WORLD, "MPI_COMM_TYPE_SHARED", "key", NO_INFO, out("comm"))],
        "Cart_create": lambda mark: [mark("Cart_create", WORLD, 1, Word("dims", "dims"), Word("periods", "periods"), Word("0", ".false."), out("comm"))],
    }
    names = list(ways)
    for position, (name, way) in enumerate(ways.items()):
        ranks = 2 + position % 4
        good = [*way(call), *FREE]
        yield one(name, "skipped", ranks, [but(1, *way(wrong), *FREE)], good)
        yield one(name, "another function", ranks, [at(1, *ways[names[(position + 1) % len(names)]](wrong)), but(1, *way(wrong)), *FREE], good, DIFFERS)
        yield one(name, "after a receive", ranks, [at(1, wrong("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED)), *way(wrong), at(0, call("Send", "a", 1, INT, 1, TAG, WORLD)), *FREE],
                  [at(0, call("Send", "a", 1, INT, 1, TAG, WORLD)), at(1, call("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED)), *good], classes={"deadlock", "collective_mismatch", "unmatched_message"})
        yield one(name, "against a barrier", ranks, [at(1, wrong("Barrier", WORLD)), but(1, *way(wrong), *FREE)], good, classes=COLLECTIVE)
    members = [call("Comm_group", WORLD, out("group")), call("Group_incl", "group", 2, Word("(int[]){0, 1}", "[0, 1]"), out("part"))]
    groups = [call("Group_free", out("group")), call("Group_free", out("part"))]
    for ranks in (2, 3, 4):
        create = lambda mark, tag=TAG: mark("Comm_create_group", WORLD, "part", tag, out("comm"))
        yield one("Comm_create_group", f"a member is missing, {ranks} ranks", ranks, [*members, at(0, create(wrong), *FREE), *groups],
                  [*members, at([0, 1], create(call), *FREE), *groups], classes=COLLECTIVE | MESSAGES)
        yield one("Comm_create_group", f"another tag, {ranks} ranks", ranks,
                  [*members, at(0, create(wrong), *FREE), at(1, create(wrong, TAG + 1), *FREE), *groups],
                  [*members, at([0, 1], create(call), *FREE), *groups], classes=COLLECTIVE | MESSAGES)
    halves = [call("Comm_split", WORLD, "colour", "key", out("other"))]
    leader = Word("1 - colour", "1 - colour")
    inter = lambda mark, tag=TAG: mark("Intercomm_create", "other", 0, WORLD, leader, tag, out("comm"))
    end = [call("Comm_free", out("other"))]
    for ranks in (2, 3, 4, 5):
        good = [*halves, inter(call), *FREE, *end]
        yield one("Intercomm_create", f"another tag, {ranks} ranks", ranks,
                  [*halves, at(range(0, ranks, 2), inter(wrong)), at(range(1, ranks, 2), inter(wrong, TAG + 1)), *FREE, *end], good, classes=COLLECTIVE | MESSAGES)
        yield one("Intercomm_create", f"one side only, {ranks} ranks", ranks, [*halves, at(range(0, ranks, 2), inter(wrong), *FREE), *end], good, classes=COLLECTIVE | MESSAGES)
        yield one("Intercomm, Barrier", f"skipped by a rank, {ranks} ranks", ranks, [*halves, inter(call), but(1, wrong("Barrier", "comm")), *FREE, *end],
                  [*halves, inter(call), call("Barrier", "comm"), *FREE, *end])
        yield one("Intercomm, Recv", f"tag, {ranks} ranks", ranks,
                  [*halves, inter(call), at(0, wrong("Send", "a", 1, INT, 0, TAG, "comm")), at(1, wrong("Recv", "b", 1, INT, 0, TAG + 1, "comm", IGNORED)), *FREE, *end],
                  [*halves, inter(call), at(0, call("Send", "a", 1, INT, 0, TAG, "comm")), at(1, call("Recv", "b", 1, INT, 0, TAG, "comm", IGNORED)), *FREE, *end], classes=MESSAGES)
        merge = lambda mark: mark("Intercomm_merge", "comm", Word("colour", "colour == 1"), out("third"))
        yield one("Intercomm_merge", f"skipped by a rank, {ranks} ranks", ranks, [*halves, inter(call), but(1, merge(wrong), call("Comm_free", out("third"))), *FREE, *end],
                  [*halves, inter(call), merge(call), call("Comm_free", out("third")), *FREE, *end])


def windows():
    def one(calls, mistake, ranks, bad, good, expect=HANGS, classes=frozenset({"deadlock", "missing_rank", "collective_mismatch", "unmatched_message"})):
        return Program("", calls, mistake, "", ranks, expect, set(classes), bad, good)

    bytes_ = Word("(MPI_Aint)4096", "4096_MPI_ADDRESS_KIND")
    zero = Word("0", "0_MPI_ADDRESS_KIND")
    create = [call("Win_create", "a", bytes_, 4, NO_INFO, WORLD, out("win"))]
    free = [call("Win_free", out("win"))]
    put = call("Put", "b", 4, INT, 0, zero, 4, INT, "win")
    get = call("Get", "b", 4, INT, 0, zero, 4, INT, "win")
    add = call("Accumulate", "b", 4, INT, 0, zero, 4, INT, "MPI_SUM", "win")
    group_of = lambda ranks: [call("Comm_group", WORLD, out("group")), call("Group_incl", "group", 1, Word(f"(int[]){{{ranks}}}", f"[{ranks}]"), out("part"))]
    groups = [call("Group_free", out("group")), call("Group_free", out("part"))]
    for ranks, (name, operation) in itertools.product((2, 3, 4, 5), {"Put": put, "Get": get, "Accumulate": add}.items()):
        fence = lambda mark: mark("Win_fence", 0, "win")
        good = [*create, fence(call), at(1, operation), fence(call), *free]
        # Whether the others' fence returns is the library's choice: it may take the last one's MPI_Win_free for it.
        yield one(f"Win_fence, {name}", f"skipped by a rank, {ranks} ranks", ranks,
                  [*create, fence(call), at(1, operation), but(1, fence(wrong)), wrong("Win_free", out("win"))], good, DIFFERS)
        yield one(f"Win_fence, {name}", f"against a barrier, {ranks} ranks", ranks,
                  [*create, fence(call), at(1, operation, wrong("Barrier", WORLD)), but(1, fence(wrong)), *free], good)
        yield one(f"Win_fence, {name}", f"after a receive, {ranks} ranks", ranks,
                  [*create, fence(call), at(1, operation, wrong("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED)), fence(wrong), at(0, call("Send", "a", 1, INT, 1, TAG, WORLD)), *free],
                  [*create, fence(call), at(1, operation), fence(call), at(0, call("Send", "a", 1, INT, 1, TAG, WORLD)), at(1, call("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED)), *free])
        expose = [*group_of(1), call("Win_post", "part", 0, "win"), *groups]
        access = [*group_of(0), call("Win_start", "part", 0, "win"), *groups]
        pscw = [*create, at(0, *expose, call("Win_wait", "win")), at(1, *access, operation, call("Win_complete", "win")), *free]
        yield one(f"Win_post, {name}", f"no complete, {ranks} ranks", ranks, [*create, at(0, *expose, wrong("Win_wait", "win")), *free], pscw)
        yield one(f"Win_post, {name}", f"no start, receive instead, {ranks} ranks", ranks,
                  [*create, at(0, *expose, wrong("Win_wait", "win"), call("Send", "a", 1, INT, 1, TAG, WORLD)),
                   at(1, wrong("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED), *access, operation, call("Win_complete", "win")), *free], pscw)
        yield one(f"Win_free, {name}", f"skipped by a rank, {ranks} ranks", ranks, [*create, fence(call), at(1, operation), fence(call), but(1, wrong("Win_free", out("win")))], good)
    lock = lambda mark, kind="MPI_LOCK_EXCLUSIVE": mark("Win_lock", kind, 0, 0, "win")
    for ranks in (2, 3, 4, 5):
        unlock = call("Win_unlock", 0, "win")
        yield one("Win_lock, Put", f"held while waiting, {ranks} ranks", ranks,
                  [*create, at(0, lock(call), put, call("Win_flush", 0, "win"), wrong("Recv", "b", 1, INT, 1, TAG, WORLD, IGNORED), unlock),
                   at(1, wrong("Recv", "b", 1, INT, 0, TAG, WORLD, IGNORED), lock(call), put, unlock), *free],
                  [*create, at([0, 1], lock(call), put, unlock), *free])
        yield one("Win_allocate", f"skipped by a rank, {ranks} ranks", ranks, [but(1, wrong("Win_create", "a", bytes_, 4, NO_INFO, WORLD, out("win")), *free)], [*create, *free])


def programs(newest=True):
    """All of them, each in C and in one of the Fortran bindings, with names that stay the same as long as nothing is
    put in before."""
    made, seen = [], set()
    everything = itertools.chain(messages(), completions(), collectives(), neighbourhoods(), makers(), windows(), typed_messages())
    for number, program in enumerate(everything):
        for binding in ("c", BINDINGS[1 + number % 3]):
            name = f"p{number:04d}_{binding}"
            assert name not in seen
            seen.add(name)
            if program.newest and not newest:
                continue
            made.append(dataclasses.replace(program, name=name, binding=binding))
    return made
