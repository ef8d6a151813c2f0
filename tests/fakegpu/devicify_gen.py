#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the wrappers of devicify.cpp from the table of the MPI API.

    devicify_gen.py SHIM_API_DIR OUTPUT
"""
import os
import sys

# Collective -> how the data of its sending and its receiving buffer lies, and who has it. One piece; n pieces of the
# same count; v: counts and displacements; w: types too; sum of all counts; mine: one of the counts.
COLLECTIVES = {
    "bcast": [("one", "any")],
    "reduce": [("one", "leaf"), ("one", "root")],
    "allreduce": [("one", "any"), ("one", "any")], "scan": [("one", "any"), ("one", "any")],
    "exscan": [("one", "any"), ("one", "any")],
    "reduce_scatter": [("sum", "any"), ("mine", "any")], "reduce_scatter_block": [("n", "any"), ("one", "any")],
    "gather": [("one", "leaf"), ("n", "root")], "gatherv": [("one", "leaf"), ("v", "root")],
    "scatter": [("n", "root"), ("one", "leaf")], "scatterv": [("v", "root"), ("one", "leaf")],
    "allgather": [("one", "any"), ("n", "any")], "allgatherv": [("one", "any"), ("v", "any")],
    "alltoall": [("n", "any"), ("n", "any")], "alltoallv": [("v", "any"), ("v", "any")],
    "alltoallw": [("w", "any"), ("w", "any")]}

# Local calls: likewise; `bytes`: packed data, of which the size is said.
LOCAL = {
    "Pack": [("one", "any"), ("bytes", "any")], "Unpack": [("bytes", "any"), ("one", "any")],
    "Pack_external": [("one", "any"), ("bytes", "any")], "Unpack_external": [("bytes", "any"), ("one", "any")],
    "Reduce_local": [("one", "any"), ("one", "any")]}


def base(f):
    """Collective's own name: MPI_Ineighbor_alltoallv -> alltoallv."""
    name = f.base[:-5] if f.base.endswith("_init") else f.base
    name = name[1:] if f.has("starts") and name.startswith("I") else name
    return name.lower().replace("neighbor_", "")


def near(f, place, kind):
    """The first parameter of that kind behind the buffer; else the last one before it (sendbuf, recvbuf, count)."""
    after = [p for p in f.parameters[place + 1:] if p.kind in kind]
    return after[0].name if after else None


def pieces(f, place, how, side, peers):
    """C++ expression: the pieces of the buffer at this place in the list of parameters."""
    count, kind = near(f, place, ("COUNT",)), near(f, place, ("DATATYPE",))
    displacements = near(f, place, ("DISPLACEMENT", "AINT"))
    if how == "bytes":
        return f"one({'outsize' if 'Pack' in f.base else 'insize'}, MPI_BYTE)"
    if how == "one":
        return f"one({count}, {kind})"
    if how == "n":
        return f"one(group.{peers} * Large({count}), {kind})"
    if how == "sum":
        return f"one(group.sum({count}), {kind})"
    if how == "mine":
        return f"one(sendbuf == MPI_IN_PLACE ? group.sum({count}) : group.mine({count}), {kind})"
    return f"{how == 'v' and 'vector' or 'typed'}(group.{peers}, {count}, {displacements}, {kind})"


def body(f):
    buffers = [(i, p) for i, p in enumerate(f.parameters) if p.kind == "BUFFER"]
    lines, neighbor = [], "neighbor" in f.base.lower()
    comm = next((p.name for p in f.parameters if p.kind == "COMM"), None)
    if f.has("collective"):
        root = next((p.name for p in f.parameters if p.kind == "ROOT"), "kNoRoot")
        lines.append(f"const Group group({comm}, {root}, {str(neighbor).lower()});")
        rules = COLLECTIVES[base(f)]
    else:
        rules = LOCAL.get(f.base, [("one", "any")] * len(buffers))
    for number, ((place, p), (how, who)) in enumerate(zip(buffers, rules)):
        peers = "receives" if p.direction == "out" and len(buffers) > 1 else "sends"
        if base(f) == "reduce_scatter_block" and f.has("collective"):
            what = (f"one(group.members * Large(recvcount), datatype)" if number == 0 else
                    "one(sendbuf == MPI_IN_PLACE ? group.members * Large(recvcount) : Large(recvcount), datatype)")
        else:
            what = pieces(f, place, how, number, peers)
        use = {"in": "kSent", "out": "kReceived", "inout": "kBoth"}[p.direction]
        if how == "bytes" and p.direction == "out":
            use = "kBoth"  # what is there already stays
        if p.direction == "out" and any(q.name == "sendbuf" for q in f.parameters) and f.has("collective"):
            use = "sendbuf == MPI_IN_PLACE ? kBoth : kReceived"
        condition = f"group.{who} && " if f.has("collective") else ""
        lines.append(f"if ({condition}call.may({p.name}))\n    call.add({number}, {p.name}, {use}, {what});")
    if f.has("collective"):  # a communicator that is none is the library's to complain about
        lines[1:] = ["if (group.valid) {", *lines[1:], "}"]
    request = next((p.name for p in f.parameters if p.kind == "REQUEST"), None)
    end = "call.done();"
    if request:
        end = f"call.started(result, {request}, {str(f.has('persistent')).lower()});"
    arguments = ", ".join(f"call.at({[b[1] for b in buffers].index(p)}, {p.name})" if p.kind == "BUFFER" else p.name
                          for p in f.parameters)
    return lines, arguments, end


def wrapper(f):
    types = ", ".join(p.c_type(f.large) for p in f.parameters)
    declared = ", ".join(f"{p.c_type(f.large)} {p.name}" for p in f.parameters)
    names = ", ".join(p.name for p in f.parameters)
    lines, arguments, end = body(f)
    text = "\n  ".join(lines)
    return f"""static int wrap_{f.name}(int layer, {declared}) {{
  using Next = int({types});
  static Next* const next[2] = {{find<Next>("{f.name}"), find<Next>("P{f.name}")}};
  if (next[layer] == nullptr)
    return MPI_ERR_OTHER;
  const Inside inside;
  if (inside.nested || !wanted("{f.base}"))
    return next[layer]({names});
  Call call;
  {text}
  const int result = next[layer]({arguments});
  {end}
  return result;
}}
EXPORT int {f.name}({declared}) {{ return wrap_{f.name}(0, {names}); }}
EXPORT int P{f.name}({declared}) {{ return wrap_{f.name}(1, {names}); }}
"""


def main():
    sys.path.insert(0, sys.argv[1])
    sys.dont_write_bytecode = True
    import gen  # pylint: disable=import-outside-toplevel,import-error
    functions = [f for f in gen.parse(os.path.join(sys.argv[1], "mpi.txt"))
                 if any(p.kind == "BUFFER" for p in f.parameters) and (not f.has("local") or f.base in LOCAL)
                 and not f.has("partitioned") and not f.has("rma") and not f.has("io")]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("// Generated by tests/fakegpu/devicify_gen.py. Do not edit.\n" + "".join(map(wrapper, functions)))


main()
