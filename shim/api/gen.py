#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates everything that follows from the API table mpi.txt. Nothing it writes is committed.

    gen.py TABLE OUTDIR

call_ids.h        enum of call ids                      wrappers.inc     a wrapper, a fallback and a call of the next layer each
calls.inc         what each means (shim/model/calls.h)  redeclare.h      prototypes, to be held against a real mpi.h
trampolines.inc   list of exported entry points         libresil.map     version script: the allow-listed exports
parts.inc         which arguments of each are communicators (shim/call/parts.S)
"""
import copy
import os
import sys

HANDLES = {"COMM": "Comm", "GROUP": "Group", "DATATYPE": "Datatype", "OP": "Op", "REQUEST": "Request", "INFO": "Info",
           "ERRHANDLER": "Errhandler", "WIN": "Win", "FILE": "File", "MESSAGE": "Message", "SESSION": "Session"}
# KIND -> (C type, C type in the large-count twin)
SCALARS = {"COUNT": ("int", "MPI_Count"), "DISPLACEMENT": ("int", "MPI_Aint"), "XAINT": ("MPI_Aint", "MPI_Count"),
           "AINT": ("MPI_Aint",) * 2, "LCOUNT": ("MPI_Count",) * 2, "OFFSET": ("MPI_Offset",) * 2,
           **{k: ("int", "int") for k in ("INT", "RANK", "DEST", "SOURCE", "ROOT", "TARGET", "TAG", "SENDTAG", "RECVTAG",
                                          "COMM_KEYVAL", "TYPE_KEYVAL", "WIN_KEYVAL")}}
# KIND of a handle -> what it is of (shim/model/mpi_objects.h).
OBJECTS = {"COMM": "Communicator", "GROUP": "Group", "DATATYPE": "Datatype", "OP": "Operator", "WIN": "Window", "FILE": "File",
           "INFO": "Info", "ERRHANDLER": "ErrorHandler", "SESSION": "Session", "COMM_KEYVAL": "CommKeyval",
           "TYPE_KEYVAL": "TypeKeyval", "WIN_KEYVAL": "WindowKeyval"}
# C types without meaning to resil whose large-count twin is another type.
LARGE_FUNCTIONS = {"MPI_User_function*": "MPI_User_function_c*",
                   "MPI_Datarep_conversion_function*": "MPI_Datarep_conversion_function_c*"}
ATTRIBUTES = ("blocking", "local", "poll", "starts", "activates", "completes", "collective", "creates_comm", "persistent",
              "partitioned", "p2p", "rma", "io", "tool", "lifecycle", "mpi4", "large", "receives", "large_count", "has_data", "has_blocks", "both_ways")
# Class of a row, its first word -> the attributes that follow from it, and the enumerations of its details.
CLASSES = {"Lifecycle": ["lifecycle"], "Send": ["p2p"], "Receive": ["p2p"], "SendReceive": ["p2p"],
           "SendReceiveReplace": ["p2p"], "Probe": ["p2p"], "MatchedProbe": ["p2p"], "MatchedReceive": ["p2p"],
           "PartitionedSend": ["p2p", "partitioned"], "PartitionedReceive": ["p2p", "partitioned"],
           "PartitionReady": ["activates"], "PartitionArrived": [], "Buffer": [], "Completion": ["completes"], "GetStatus": [],
           "RequestFree": ["completes"], "Cancel": [], "Start": ["activates"], "GeneralizedRequest": [],
           "Collective": ["collective"], "Comm": [], "Window": ["rma"], "Rma": ["rma"], "File": ["io"]}
DETAILS = {"Lifecycle": ("LifecycleCall",), "Send": ("SendMode",), "Collective": ("Collective", "Counts"),
           "Completion": ("Completion",), "GetStatus": ("Completion",), "Comm": ("CommCall",), "Window": ("WindowCall",),
           "Rma": ("RmaOperation",), "File": ("FileCall", "FilePointer")}
# Calls that keep MPI_COMM_WORLD though it is a part of the job that runs as the program's world (shim/call/parts.h): the end of the job
# is that of all of it; attributes are asked of both.
WHOLE_WORLD = ("MPI_Abort", "MPI_Comm_get_attr", "MPI_Attr_get")
# Calls that parts.cpp looks at first.
PREPARED = ("MPI_Comm_set_errhandler", "MPI_Errhandler_set", "MPI_File_open", "MPI_File_delete", "MPI_Comm_spawn",
            "MPI_Comm_spawn_multiple", "MPI_Comm_accept", "MPI_Comm_connect", "MPI_Comm_join", "MPI_Open_port", "MPI_Publish_name",
            "MPI_Unpublish_name", "MPI_Lookup_name", "MPI_Session_init")
# Exported besides the table: resil.h's entry points, and what the command asks.
OWN_SYMBOLS = ("resil_step", "resil_norm", "resil_checksum", "resil_count", "resil_drain", "resil_version", "resil_fingerprint",
               "resil_fingerprint_crc32", "resil_protect", "resil_unprotect", "resil_run_twice", "resil_mismatches",
               "resil_spr_create", "resil_spr_destroy", "resil_spr_field", "resil_spr_select", "resil_spr_begin", "resil_spr_end",
               "resil_spr_computed", "resil_spr_rollback", "resil_spr_keep",
               "resil_spr_kept", "resil_spr_copy", "resil_configuration")  # the last one for the command (shim/config/config_list.cpp)

# Names of accelerator runtimes (detectors/gpu_runtime): waits, queries, and what makes or ends streams and events.
PMIX_SYMBOLS = ("PMIx_Commit",)  # shim/presence/pmix.cpp
LOADER_SYMBOLS = ("dlclose",)  # shim/call/unload.cpp
FATAL_SYMBOLS = ("MPIR_Err_return_comm", "ompi_mpi_abort")  # shim/call/fatal_error.cpp
RUNTIME_SYMBOLS = (
    "InitializeInjection", "cuCtxSynchronize", "cuEventDestroy", "cuEventDestroy_v2", "cuEventQuery",
    "cuEventRecord", "cuEventRecordWithFlags", "cuEventRecordWithFlags_ptsz", "cuEventRecord_ptsz",
    "cuEventSynchronize", "cuIpcGetEventHandle", "cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy",
    "cuStreamDestroy_v2", "cuStreamQuery", "cuStreamQuery_ptsz", "cuStreamSynchronize", "cuStreamSynchronize_ptsz",
    "cudaDeviceSynchronize", "cudaEventDestroy", "cudaEventQuery", "cudaEventRecord", "cudaEventRecordWithFlags",
    "cudaEventRecordWithFlags_ptsz", "cudaEventRecord_ptsz", "cudaEventSynchronize", "cudaIpcGetEventHandle",
    "cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "cudaStreamDestroy",
    "cudaStreamQuery", "cudaStreamQuery_ptsz", "cudaStreamSynchronize", "cudaStreamSynchronize_ptsz",
    "hipCtxSynchronize", "hipDeviceSynchronize", "hipEventDestroy", "hipEventQuery", "hipEventRecord",
    "hipEventRecordWithFlags", "hipEventRecord_spt", "hipEventSynchronize", "hipExtStreamCreateWithCUMask",
    "hipIpcGetEventHandle", "hipStreamCreate", "hipStreamCreateWithFlags", "hipStreamCreateWithPriority",
    "hipStreamDestroy", "hipStreamQuery", "hipStreamQuery_spt", "hipStreamSynchronize", "hipStreamSynchronize_spt",)

class Parameter:
    def __init__(self, name, kind, direction):
        self.name, self.direction = name, direction
        self.array = kind.endswith("[]")
        self.kind = kind[:-2] if self.array else kind

    def c_type(self, large):
        """The parameter's type in mpi.h, with handle names as MPI spells them."""
        kind, out = self.kind, self.direction != "in"
        if kind.startswith("C:"):
            text = kind[2:].replace("_*", "*")
            return LARGE_FUNCTIONS.get(text, text) if large else text
        if kind in ("BUFFER", "ADDRESS"):
            return "void *" if out else "const void *"
        if kind == "STRING":
            return "char *" if out else "const char *"
        if kind == "STATUS":
            return "MPI_Status *" if out else "const MPI_Status *"
        if kind == "RANGE":
            return "int (*)[3]"
        base = "MPI_" + HANDLES[kind] if kind in HANDLES else SCALARS[kind][large]
        if self.array:
            return ("const " if self.direction == "in" else "") + base + " *"
        return base + " *" if out else base

    def abi_type(self, large):
        """The same in a backend's namespace, where handles are its own types and callbacks opaque."""
        if self.kind.startswith("C:"):
            text = self.c_type(large)
            return "int" if text in ("MPI_T_cb_safety",) else "void *"
        if self.kind == "RANGE":
            return "void *"
        return self.c_type(large).replace("MPI_Aint", "intptr_t").replace("MPI_Count", "int64_t").replace(
            "MPI_Offset", "int64_t").replace("MPI_", "")


class Function:
    def __init__(self, name, attributes):
        self.name, self.base, self.parameters, self.large = name, name[4:], [], False
        self.returns = next((a[8:] for a in attributes if a.startswith("returns_")), "int")
        self.attributes = [a for a in attributes if not a.startswith("returns_")]
        self.call_class, self.details = "Local", []
        if not self.has("local"):
            self.classify(self.attributes.pop(0) if attributes else "")

    def classify(self, word):
        """From the row's first word: "File:Write:Shared:all:begin"."""
        self.call_class, *self.details = word.split(":")
        if self.call_class not in CLASSES:
            sys.exit(f"{self.name}: a row says `local`, or first its class: {', '.join(CLASSES)}")
        marks = [d for d in self.details if d in ("all", "begin", "end")]
        self.details = self.details[:len(self.details) - len(marks)]
        if self.call_class in DETAILS and not self.details:
            sys.exit(f"{self.name}: {self.call_class} of which {DETAILS[self.call_class][0]}?")
        if len(self.details) > len(DETAILS.get(self.call_class, ())) or (marks and self.call_class != "File"):
            sys.exit(f"{self.name}: {word} has more details than class {self.call_class}")
        self.attributes += [a for a in CLASSES[self.call_class] + marks if not self.has(a)]
        if self.has("persistent"):
            self.attributes.append("starts")

    def initiation(self):
        return ("SplitBegin" if self.has("begin") else "SplitEnd" if self.has("end") else "Persistent" if self.has("persistent")
                else "Nonblocking" if self.has("starts") else "Blocking")

    def meaning(self):
        """The members of CallInfo (shim/model/calls.h) that the row's first word says, by their names."""
        detail = dict(zip(DETAILS.get(self.call_class, ()), self.details))
        members = [f".call_class = CallClass::k{self.call_class}", f".initiation = Initiation::k{self.initiation()}"]
        members += [f".{member} = {kind}::k{detail[kind]}" for member, kind in
                    (("lifecycle", "LifecycleCall"), ("collective", "Collective"), ("counts", "Counts"),
                     ("completion", "Completion"), ("mode", "SendMode"), ("comm", "CommCall"), ("window", "WindowCall"), ("rma", "RmaOperation"), ("file", "FileCall"), ("pointer", "FilePointer"))
                    if kind in detail]
        members += [".all = true"] if self.has("all") else []
        return ", ".join(members + [f".{verb} = MpiObject::k{what[0]}" for verb in ("makes", "frees") if (what := self.object(verb))])

    def object(self, verb):
        """What the call makes or frees: (MpiObject, C expression of where its handle is); None."""
        if self.has("lends") or self.has("tool") or self.has("frees") != (verb == "frees") and not self.has("attaches"):
            return None
        if self.has("attaches") if verb == "makes" else self.call_class == "Buffer":
            owner = next((p.name for p in self.parameters if p.kind in ("COMM", "SESSION")), None)
            return "Buffer", f"bits({owner})" if owner else "uint64_t{0}"
        return next(((OBJECTS[p.kind], p.name) for p in self.parameters
                     if p.kind in OBJECTS and p.direction != "in" and (not p.array or self.base.startswith("Type_get_contents"))
                     and (verb == "frees" or p.direction == "out")), None)

    def has(self, attribute):
        return attribute in self.attributes


def parse(path):
    functions = []
    for line in open(path, encoding="utf-8"):
        words = line.split("#")[0].split()
        if not words:
            continue
        if not line.startswith(" "):
            functions.append(Function(words[0], words[1:]))
        else:
            functions[-1].parameters.append(Parameter(words[0], words[1], words[2] if len(words) > 2 else "in"))
    for f in functions:
        if f.call_class == "Comm" and any(p.kind == "COMM" and p.direction == "out" for p in f.parameters):
            f.attributes.append("creates_comm")
        if any(map(f.has, ("p2p", "rma", "io"))) and any(p.kind == "BUFFER" and p.direction == "out" for p in f.parameters) and \
                not any(p.kind == "DEST" for p in f.parameters):
            f.attributes.append("receives")
    for f in functions:
        if {"DEST", "SOURCE"} <= {p.kind for p in f.parameters}:
            f.attributes.append("both_ways")
        if has_data(f):
            f.attributes.append("has_data")
        if has_blocks(f):
            f.attributes.append("has_blocks")
    return functions + [twin(f) for f in functions if f.has("large")]


def twin(f):
    """The large-count twin of a function."""
    made = copy.copy(f)
    made.name, made.large = f.name + "_c", True
    made.attributes = f.attributes + ["mpi4", "large_count"]
    return made


def has_data(f):
    """One argument with a count and a type says how many bytes the call moves on this rank; see compute_bytes()."""
    if f.call_class == "Collective":
        return f.details[0] in ("Bcast", "Reduce", "Allreduce", "Scan", "Exscan", "NeighborAllgather")
    # The _end half of a split collective has a buffer, but no type.
    return any(map(f.has, ("rma", "p2p", "io"))) and not f.has("partitioned") and {"BUFFER", "DATATYPE"} <= {p.kind for p in f.parameters}


def has_blocks(f):
    """A collective with one (count, type) on each side, the same for all ranks: with root and communicator they say all."""
    return f.call_class == "Collective" and f.details[0] in ("Gather", "Scatter", "Allgather", "Alltoall") and len(f.details) == 1 and \
        not f.has("persistent")


def fill(f):
    """Statements that put the call's arguments into the event, from KINDs alone."""
    out, sides, no_count, no_type = [], [], [], []
    target_count = target_type = False
    for p in f.parameters:
        n, k = p.name, p.kind
        if f.has("rma") and "TARGET" in {q.kind for q in f.parameters}:
            if k == "AINT":
                out.append(f"e.target_displacement = {n};")
            elif n == "target_count":
                out.append(f"e.target_count = {n};")
                target_count = True
                continue
            elif n == "target_datatype":
                out.append(f"e.target_type = bits({n});")
                target_type = True
                continue
        if k == "BUFFER":
            side = "receive" if p.direction == "out" else "send"
            if side in sides:
                continue  # compare_and_swap's second origin buffer
            sides.append(side), no_count.append(side), no_type.append(side)
            out.append(f"e.{side}.buffer = e.given_{side} = {n};")
        elif k == "COUNT" and no_count and not f.has("local"):
            out += [f"e.{s}.{'counts' if p.array else 'count'} = {n};" for s in no_count]
            if gives_count(f) and not p.array:
                out.append(f"e.given_count = {n};")
            no_count.clear()
        elif k in ("DISPLACEMENT", "AINT") and p.array and f.has("collective"):
            out.append(f"e.{sides[-1]}.displacements = {n};")
        elif k == "LCOUNT" and f.has("partitioned"):
            out += [f"e.{s}.count = {n};" for s in no_count]
            no_count.clear()
        elif k == "INT" and (f.has("partitioned") and n == "partitions" or f.has("poll") and n == "partition"):
            out.append(f"e.{n} = {n};")
        elif n == "array_of_errcodes":
            out.append(f"e.indices = {n};")
        elif k == "DATATYPE" and not f.has("local"):
            field = "types" if p.array else "type"
            out += [f"e.{s}.{field} = {n if p.array else f'bits({n})'};" for s in no_type]
            no_type.clear()
        elif k in ("DEST", "TARGET"):
            out.append(f"e.peer = peer({n});")
        elif k == "SOURCE":
            both = any(q.kind == "DEST" for q in f.parameters)
            out.append(f"e.{'receive_peer' if both else 'peer'} = peer({n});")
        elif k == "ROOT":
            out.append(f"e.peer = peer({n});")
        elif k in ("TAG", "SENDTAG"):
            out.append(f"e.tag = tag_of({n});")
        elif k == "RECVTAG":
            out.append(f"e.receive_tag = tag_of({n});")
        elif k == "COMM" and p.direction == "in" and not any("e.comm_handle" in s for s in out):
            out.append(f"e.comm_handle = bits({n});")
        elif k == "COMM" and p.direction == "in" and n == "peer_comm":
            out.append(f"e.peer_comm = bits({n});")
        elif k == "COMM" and p.direction == "out":
            out.append(f"e.new_comm = {n};")
        elif k == "COMM" and p.direction == "inout":
            out.append(f"e.comm_handle = bits(*{n});")
        elif k == "GROUP" and p.direction == "in" and (f.has("creates_comm") or f.has("rma")):
            out.append(f"e.group = bits({n});")
        elif k == "WIN" and p.direction == "in":
            out.append(f"e.object = bits({n});")
        elif k == "FILE" and p.direction == "in":
            out.append(f"e.object = bits({n});")
        elif k == "OP" and p.direction == "in":
            out.append(f"e.op = bits({n});")
        elif k == "REQUEST":
            out.append(f"e.requests = const_cast<Request*>({n});" if p.direction == "in" and p.array else
                       f"e.requests = {'&' if p.direction == 'in' else ''}{n};")
            if not any(q.kind == "REQUEST" and q.array for q in f.parameters):
                out.append("e.request_count = 1;")
        elif k == "INT" and n in ("count", "incount") and any(q.kind == "REQUEST" and q.array for q in f.parameters):
            out.append(f"e.request_count = {n};")
        elif k == "INT" and p.direction == "out" and n in ("flag", "indx", "outcount", "array_of_indices"):
            out.append(f"e.{ {'flag': 'flag', 'indx': 'index', 'outcount': 'outcount', 'array_of_indices': 'indices'}[n]} = {n};")
        elif k == "INT" and n in ("local_leader", "remote_leader") and f.has("creates_comm"):
            out.append(f"e.{n} = {n};")
        elif k == "INT" and f.has("rma") and n in ("assert", "lock_type"):
            out.append(f"e.{'assertion' if n == 'assert' else n} = {n};")
        elif k == "INT" and f.has("rma") and n == "rank":
            out.append(f"e.peer = peer({n});")
        elif k in ("WIN", "FILE") and p.direction == "out":
            out.append(f"e.{'new_window' if k == 'WIN' else 'new_file'} = {n};")
        elif k == "ADDRESS" and f.has("rma"):
            out.append(f"e.receive.buffer = {n};")  # window memory, or where its address will be stored
        elif k in ("WIN", "FILE") and p.direction == "inout":
            out.append(f"e.object = bits(*{n});")
        elif k == "MESSAGE":
            out.append(f"e.message = {n};")
        elif k == "STATUS" and p.direction == "out":
            out.append(f"e.statuses = e.given_statuses = {n};")
        elif k == "STRING" and f.has("creates_comm") and n == "stringtag":
            out.append(f"e.string = {n};")
    out += [f"e.{s}.count = 1;" for s in no_count]  # one element: MPI_Fetch_and_op, MPI_Compare_and_swap
    if "TARGET" in {p.kind for p in f.parameters} and not target_count:
        out.append("e.target_count = 1;")
    if "TARGET" in {p.kind for p in f.parameters} and not target_type:
        out += [f"e.target_type = bits({p.name});" for p in f.parameters if p.kind == "DATATYPE"]
    return out


def gives_count(f):
    """May a module give the library another count than the application's? One message in one direction only."""
    return f.has("p2p") and not f.has("both_ways") and not f.has("partitioned")


def given(f):
    """What the library is given: the event's values for buffers, statuses and the count of a message."""
    out, sides, counted = [], [], False
    for p in f.parameters:
        side = "receive" if p.direction == "out" else "send"
        if p.kind == "BUFFER" and side not in sides:
            sides.append(side)
            out.append(f"e.given_{side}" if p.direction == "in" else f"const_cast<void*>(e.given_{side})")
        elif p.kind == "STATUS" and p.direction == "out":
            out.append("static_cast<Status*>(e.given_statuses)")
        elif p.kind == "COUNT" and not p.array and gives_count(f) and sides and not counted:
            counted = True
            out.append(f"static_cast<{p.abi_type(f.large)}>(e.given_count)")
        else:
            out.append(p.name)
    return ", ".join(out)


FAST_COLLECTIVES = ("Barrier", "Bcast", "Reduce", "Allreduce", "Scan", "Exscan")  # and those that have blocks


def fast(f, signature, names):
    """The fast path, before an Event is made (shim/call/fast_calls.h); "" if it has none."""
    name = {p.kind: p.name for p in f.parameters}
    start = f"CallId::k{f.name}, {signature}, ({names})"
    if f.has("persistent"):
        return ""
    if f.call_class in ("Send", "Receive"):
        kind, more = ("START", ", " + name["REQUEST"]) if f.has("starts") else ("MESSAGE", "")
        peer = name.get("DEST") or name["SOURCE"]
        if f.call_class == "Receive" and kind == "MESSAGE":
            kind, more = "RECEIVE", ", " + name["STATUS"]
        return f"RESIL_FAST_{kind}({start}, {name['BUFFER']}, {name['COUNT']}, {name['DATATYPE']}, {peer}, {name['TAG']}, {name['COMM']}{more})"
    if f.call_class in ("SendReceive", "SendReceiveReplace") and f.has("blocking"):
        buffers, counts, types = ([p.name for p in f.parameters if p.kind == kind] for kind in ("BUFFER", "COUNT", "DATATYPE"))
        return (f"RESIL_FAST_EXCHANGE({start}, {buffers[0]}, {counts[0]}, {types[0]}, {name['DEST']}, {name['SENDTAG']}, "
                f"{buffers[-1]}, {counts[-1]}, {types[-1]}, {name['SOURCE']}, {name['RECVTAG']}, {name['COMM']}, {name['STATUS']}, "
                f"given, ({', '.join('given' if p.kind == 'STATUS' else p.name for p in f.parameters)}))")
    if f.call_class == "Completion" and f.has("blocking") and f.details[0] in ("One", "All"):
        count, room = ("1", "1") if f.details[0] == "One" else (f.parameters[0].name, "ring::kWaitedKeys")
        return f"RESIL_FAST_WAIT({start}, {name['REQUEST']}, {count}, {name['STATUS']}, {room})"
    if f.has("poll") and f.call_class == "Completion" and f.details[0] == "One":
        return f"RESIL_FAST_TEST({start}, {name['REQUEST']}, flag, {name['STATUS']})"
    if f.has("poll") and f.call_class == "Probe":
        return f"RESIL_FAST_PROBE({start}, {name['SOURCE']}, {name['TAG']}, {name['COMM']}, flag)"
    macro, request = ("RESIL_FAST_COLLECTIVE_START", ", " + name["REQUEST"]) if f.has("starts") else ("RESIL_FAST_COLLECTIVE", "")
    if f.has("has_blocks"):
        sent, received, types, counts = ([p.name for p in f.parameters if p.kind == kind and (direction is None or p.direction == direction)]
                                         for kind, direction in (("BUFFER", "in"), ("BUFFER", "out"), ("DATATYPE", None), ("COUNT", None)))
        fast = (f"{macro}({start}, {sent[0]}, {received[0]}, both_counts({', '.join(counts)}), bits({types[0]}), "
                f"{name.get('ROOT', '0')}, bits({types[1]}), {name['COMM']}{request})")
        return f"if ({' && '.join(f'fits<int>({count})' for count in counts)}) {{\n  {fast}\n  }}" if f.large else fast
    if f.call_class == "Collective" and f.details[0] in FAST_COLLECTIVES:
        sent = next((p.name for p in f.parameters if p.kind == "BUFFER"), "nullptr")
        received = next((p.name for p in reversed(f.parameters) if p.kind == "BUFFER"), "nullptr")
        datatype, op = (f"bits({name[kind]})" if kind in name else "0" for kind in ("DATATYPE", "OP"))
        return f"{macro}({start}, {sent}, {received}, {name.get('COUNT', '0')}, {datatype}, {name.get('ROOT', '0')}, {op}, {name['COMM']}{request})"
    return ""


def own_reduction(f, signature, names):
    """What a module may do in place of the library when the call goes the fast path (shim/call/fast_calls.h: is_own_reduction); "" if none may."""
    if f.call_class != "Collective" or f.has("persistent") or f.details[0] not in ("Reduce", "Allreduce", "Scan", "Exscan"):
        return ""
    name = {p.kind: p.name for p in f.parameters}
    return (f"RESIL_REDUCTION(CallId::k{f.name}, {signature}, ({given(f)}), sendbuf, recvbuf, {name['COUNT']}, {name['DATATYPE']}, "
            f"{name.get('ROOT', 'ring::kNoPeer')}, {name['OP']}, {name['COMM']}, {name.get('REQUEST', 'nullptr')});")


def without_handles(f, signature, names):
    """A null pointer where the application's handles should be: the MPI's error to return, and nothing for resil to look at."""
    conditions = []
    for p in f.parameters:
        if p.kind == "REQUEST" and p.array:  # with no requests at all it is no error
            count = next(q.name for q in f.parameters if q.kind == "INT" and q.name in ("count", "incount"))
            conditions.append(f"{p.name} == nullptr && {count} != 0")
        elif p.kind in HANDLES and p.direction == "inout" and not p.array:
            conditions.append(f"{p.name} == nullptr")
    return "".join(f"if ({condition}) [[unlikely]] return real<{signature}>(layer, CallId::k{f.name})({names});\n  " for condition in conditions)


def fallback(f):
    """Body for a library that lacks the name (design: Interposition, exported names)."""
    if not f.large:
        return ["return unsupported();"]
    arrays = [p for p in f.parameters if p.array and p.c_type(0) != p.c_type(1)]
    outs = [p for p in f.parameters if not p.array and p.direction != "in" and p.c_type(0) != p.c_type(1)]
    if any(p.direction != "in" for p in arrays) or any(p.kind.startswith("C:") and p.c_type(0) != p.c_type(1)
                                                        for p in f.parameters):
        return ["return unsupported();"]
    scalars = [p for p in f.parameters if not p.array and p.direction == "in" and not p.kind.startswith("C:")
               and p.c_type(0) != p.c_type(1)]
    body = []
    inouts = [p for p in outs if p.direction == "inout"]
    comm = next((p.name for p in f.parameters if p.kind == "COMM" and p.direction == "in"), None)
    large_error = f"return count_error({f'bits({comm})' if comm else '0'});"
    for p in scalars:
        body.append(f"if (!fits<{Parameter(p.name, p.kind, 'in').abi_type(0)}>({p.name})) {large_error}")
    body += [f"if (!fits<int>(*{p.name})) {large_error}" for p in inouts]
    if arrays:
        length = next((p.name for p in f.parameters if p.kind in ("COUNT", "INT") and not p.array and p.direction == "in"
                       and p.name in ("count", "ndims", "n")), None)
        root = any(p.kind == "ROOT" for p in f.parameters)
        length = length or (f"root_counts_length(bits({comm}), root)" if root else
                            f"counts_length(bits({comm}), {str('neighbor' in f.name.lower()).lower()})")
        body.append(f"LargeCountFallback fallback({length});")
        body += [f"auto* {p.name}_int = fallback.array<{p.abi_type(0).replace('const ', '').rstrip(' *')}>({p.name});"
                 for p in arrays]
        body.append(f"if (!fallback.ok()) {large_error}")
    body += [f"{p.abi_type(0).rstrip(' *')} {p.name}_int = {{}};" if p.direction == "out" else
             f"{p.abi_type(0).rstrip(' *')} {p.name}_int = static_cast<{p.abi_type(0).rstrip(' *')}>(*{p.name});" for p in outs]
    if f.has("starts") and arrays:  # MPI may read the arrays until the operation ends
        body.append("fallback.keep();")
    arguments = ", ".join(f"{p.name}_int" if p in arrays else f"&{p.name}_int" if p in outs else
                          f"static_cast<{p.abi_type(0)}>({p.name})" if p in scalars else p.name for p in f.parameters)
    types = ", ".join(p.abi_type(0) for p in f.parameters)
    body.append(f"int result = real<int({types})>(1, CallId::k{f.name[:-2]})({arguments});")
    body += [f"*{p.name} = {p.name}_int;" for p in outs]
    body.append("return result;")
    return body


def part(f):
    """How many communicators go into the call and as which arguments, and whether parts.cpp looks at it first."""
    places = [i for i, p in enumerate(f.parameters) if p.kind == "COMM" and p.direction == "in" and f.name not in WHOLE_WORLD]
    if len(places) > 2:
        sys.exit(f"{f.name}: parts.S knows two communicators")
    return f"{len(places)}, {', '.join(map(str, (places + [0, 0])[:2]))}, {int(f.name in PREPARED)}"


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write("// Generated by shim/api/gen.py from shim/api/mpi.txt. Do not edit.\n" if not path.endswith(".map") else "")
        file.write(text)


def main():
    table, out = sys.argv[1], sys.argv[2]
    functions = parse(table)
    exports = [layer + f.name for f in functions for layer in ("", "P")]
    write(os.path.join(out, "call_ids.h"),
          "#pragma once\n#include <cstdint>\nnamespace resil {\nenum class CallId : uint16_t {\n"
          + "".join(f"  k{f.name},\n" for f in functions) + "};\n"
          + f"constexpr unsigned kCallCount = {len(functions)};\n}}  // namespace resil\n")
    write(os.path.join(out, "calls.inc"), "".join(
        '{{.name = "{}", .attributes = {}, .plain = CallId::k{}, {}}},\n'.format(
            f.name, " | ".join("kCall" + ("P2P" if a == "p2p" else a.title().replace("_", "")) for a in f.attributes if a in ATTRIBUTES) or "0",
            f.name[:-2] if f.large else f.name, f.meaning())
        for f in functions))
    write(os.path.join(out, "trampolines.inc"), "".join(
        f"ENTRY({layer}{f.name}, {i + (len(functions) if layer else 0)})\n" for layer in ("", "P") for i, f in enumerate(functions)))
    write(os.path.join(out, "parts.inc"), "".join(
        f"PART({i + (len(functions) if layer else 0)}, {part(f)})\n" for layer in ("", "P") for i, f in enumerate(functions)))
    wrappers, own_reductions, threaded = [], [], []
    for f in functions:
        declared = ", ".join(f"{p.abi_type(f.large)} {p.name}" for p in f.parameters)
        types = ", ".join(p.abi_type(f.large) for p in f.parameters)
        names = ", ".join(p.name for p in f.parameters)
        signature = f"{f.returns}({types})"
        if f.has("lifecycle"):
            continue  # hand-written in lifecycle.inc
        made, freed = f.object("makes") if not f.has("starts") else None, f.object("frees")
        if f.has("local") and (made or freed):
            inner = f"[&] {{ return LocalCall<layer, CallId::k{f.name}, {signature}>::call(return_address, frame, {names}); }}"
            verb, place = ("freeing", freed[1]) if freed else ("making", made[1])
            if f.base.startswith("Type_get_contents"):
                verb, place = "making_contents", f"datatype, {made[1]}"
            body = f"RESIL_HERE_IS;\n  return {verb}<CallId::k{f.name}>({place}, return_address, frame, {inner});"
        elif f.has("local"):
            after = ", " + names if names else ""
            body = f"RESIL_LOCAL(CallId::k{f.name}, {signature}, {after});"
            if f.has("often"):
                wrappers.append(f"template <int layer> RESIL_APART {f.returns} general_{f.name}({declared}) {{\n  {body}\n}}\n")
                body = f"RESIL_OFTEN(CallId::k{f.name}, {signature}, ({names}));\n  return general_{f.name}<layer>({names});"
        else:
            filled = fill(f)
            sends, receives = (str(any(s.startswith(f"e.{side}.buffer") for s in filled)).lower() for side in ("send", "receive"))
            apart = f"RESIL_ONE_BY_ONE({f.name[4:].lower()}, {names});\n  " if f.has("one_by_one") else ""
            call = f"RESIL_CALL(({given(f)}), {sends}, {receives});"
            if made or freed:
                verb, place = ("freeing", freed[1]) if freed else ("making", made[1])
                call = f"return {verb}<id>({place}, return_address, frame, [&]() -> int {{ {call} }});"
            body = f"{apart}RESIL_BEGIN(CallId::k{f.name}, {signature});\n  {' '.join(filled)}\n  {call}"
            if first := fast(f, signature, names):
                if f.call_class in ("Send", "Receive", "SendReceive", "SendReceiveReplace", "Collective") and f.has("blocking"):
                    rest = body if f.has("both_ways") else f"return general_{f.name}<layer>({names});"
                    threaded.append((f.name, f"template <int layer> {f.returns} threaded_{f.name}({declared}) {{\n  {{\n  [[maybe_unused]] constexpr bool kThreads = true;\n  {first}\n  }}\n  {rest}\n}}\n"))
                first = f"[[maybe_unused]] constexpr bool kThreads = false;\n  {first}"
            if f.has("both_ways") and first:
                # One function for both ways: a jump to another one would copy the arguments that lie on the stack.
                body = f"if (fast::enabled & fast::kind_of(CallId::k{f.name})) {{\n  {first}\n  }}\n  {body}"
            elif first:
                wrappers += [f"template <int layer> RESIL_APART {f.returns} general_{f.name}({declared}) {{\n  {body}\n}}\n",
                             f"template <int layer> RESIL_APART {f.returns} fast_{f.name}({declared}) {{\n  {first}\n  return general_{f.name}<layer>({names});\n}}\n"]
                body = f"if (fast::enabled & fast::kind_of(CallId::k{f.name})) return fast_{f.name}<layer>({names});\n  return general_{f.name}<layer>({names});"
            if instead := own_reduction(f, signature, names):
                own_reductions.append(f.name)
                wrappers.append(f"template <int layer> {f.returns} reduction_{f.name}({declared}) {{\n  {instead}\n}}\n")
        guard = without_handles(f, signature, names)
        wrappers.append(f"template <int layer> {f.returns} wrap_{f.name}({declared}) {{\n  {guard}{body}\n}}\n")
        rest = "\n  ".join(fallback(f)) if f.returns == "int" else "return 0;"
        unused = "" if f.large and "unsupported" not in rest else "".join(f"  (void){p.name};\n" for p in f.parameters)
        wrappers.append(f"inline {f.returns} fallback_{f.name}({declared}) {{\n{unused}  {rest}\n}}\n")
    wrappers += [text for _, text in threaded]
    for layer in (0, 1):
        wrappers.append(f"const ThreadedWrapper kThreadedBy{layer}[] = {{{', '.join(f'{{CallId::k{name}, reinterpret_cast<void*>(&threaded_{name}<{layer}>)}}' for name, _ in threaded)}}};\n")
        wrappers.append(f"void* const kReductionsBy{layer}[] = {{{', '.join(f'reinterpret_cast<void*>(&reduction_{name}<{layer}>)' for name in own_reductions)}}};\n")
    wrappers.append("namespace pmpi {  // the next PMPI_ layer, with the table's types\n")
    for f in functions:
        declared = ", ".join(f"{p.abi_type(f.large)} {p.name}" for p in f.parameters)
        types = ", ".join(p.abi_type(f.large) for p in f.parameters)
        wrappers.append(f"[[gnu::always_inline]] inline {f.returns} {f.name.removeprefix('MPI_')}({declared}) {{\n"
                        f"  return real<{f.returns}({types})>(1, CallId::k{f.name})({', '.join(p.name for p in f.parameters)});\n}}\n")
    wrappers.append("}  // namespace pmpi\n")
    write(os.path.join(out, "wrappers.inc"), "".join(wrappers))
    rows = "".join(f"  ROW({f.name})\n" for f in functions)
    write(os.path.join(out, "rows.inc"), rows)
    write(os.path.join(out, "redeclare.h"), "".join(
        f"#ifdef RESIL_HAS_{f.name}\n#undef {f.name}\n{f.returns} {f.name}({', '.join(p.c_type(f.large) for p in f.parameters) or 'void'});\n#endif\n"
        for f in functions))
    write(os.path.join(out, "libresil.map"), "{\nglobal:\n" + "".join(f"  {e};\n" for e in exports + list(OWN_SYMBOLS + PMIX_SYMBOLS + FATAL_SYMBOLS + LOADER_SYMBOLS + RUNTIME_SYMBOLS))
          + "local:\n  *;\n};\n")


if __name__ == "__main__":
    main()
