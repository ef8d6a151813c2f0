# SPDX-License-Identifier: Apache-2.0
"""Programs as data: a list of statements that is written out as C or as Fortran, with the numbers of the lines that count.

A program is the body of one routine. Every routine has the same variables (DECLARATIONS), so a statement names them as
they are; what the languages write in different ways is an object of this module: addresses, indices, names of types.
"""
import dataclasses

BINDINGS = ("c", "mpif", "use_mpi", "f08")
# Elements of the buffers: more than any library sends without waiting for the receiver.
LARGE = 1 << 18
ROOM = 8  # requests, counts, blocks of a v call: one a rank and more

TYPES = {  # name here: (C, Fortran)
    "INT": ("MPI_INT", "MPI_INTEGER"), "FLOAT": ("MPI_FLOAT", "MPI_REAL"), "DOUBLE": ("MPI_DOUBLE", "MPI_DOUBLE_PRECISION"),
    "BYTE": ("MPI_BYTE", "MPI_BYTE"), "LONG": ("MPI_INT64_T", "MPI_INTEGER8"), "CHAR": ("MPI_CHAR", "MPI_CHARACTER"),
}


@dataclasses.dataclass(frozen=True)
class Word:
    """An argument: as it is in C, as it is in Fortran."""
    c: str
    fortran: str


def type_of(name):
    return Word(*TYPES[name])


def out(name):
    """A handle or number that the call sets."""
    return Word(f"&{name}", name)


def request(index):
    return Word(f"&r[{index}]", f"r({index + 1})")


def element(array, index):
    """The address of an element of a buffer."""
    return Word(f"{array} + {index}", f"{array}({index + 1})")


def value(array, index):
    """An element of an array of numbers or handles."""
    return Word(f"{array}[{index}]", f"{array}({index + 1})")


IGNORED = Word("MPI_STATUS_IGNORE", "MPI_STATUS_IGNORE")
ALL_IGNORED = Word("MPI_STATUSES_IGNORE", "MPI_STATUSES_IGNORE")
WORLD, SELF = "MPI_COMM_WORLD", "MPI_COMM_SELF"
RANK, SIZE = "rank", "size"
NO_INFO = "MPI_INFO_NULL"
TRUE = Word("1", ".true.")
MESSAGE = out("message")
FLAG = out("flag")


class Statement:
    """One line; `counts` when the program's fault is there, or there where the fault shows."""

    def __init__(self, c, fortran, counts=False):
        self.c, self.fortran, self.counts = c, fortran, counts

    def lines(self, language, indent):
        yield " " * indent + (f"{self.c};" if language == "c" else self.fortran), self.counts

    def marked(self):
        return Statement(self.c, self.fortran, True)


class Block:
    """Statements under a condition on the rank, or repeated."""

    def __init__(self, c, fortran, statements, end):
        self.c, self.fortran, self.statements, self.end = c, fortran, statements, end

    def lines(self, language, indent):
        yield " " * indent + (f"{self.c} {{" if language == "c" else self.fortran), False
        for statement in self.statements:
            yield from statement.lines(language, indent + 2)
        yield " " * indent + ("}" if language == "c" else self.end), False


def call(function, *arguments):
    """MPI_function(arguments): numbers, names of variables and Words."""
    def written(argument, language):
        if isinstance(argument, Word):
            return argument.c if language == "c" else argument.fortran
        return str(argument)
    c = ", ".join(written(argument, "c") for argument in arguments)
    fortran = ", ".join([written(argument, "fortran") for argument in arguments] + ["ierror"])
    return Statement(f"MPI_{function}({c})", f"call MPI_{function}({fortran})")


def wrong(function, *arguments):
    """A call that a finding has to name: the one that is wrong, or the one that cannot return for it."""
    return call(function, *arguments).marked()


def assign(array, index, number):
    return Statement(f"{array}[{index}] = {number}", f"{array}({index + 1}) = {number}")


def at(ranks, *statements):
    """Only on these ranks: a number or a list of numbers."""
    ranks = [ranks] if isinstance(ranks, int) else ranks
    return Block("if (" + " || ".join(f"rank == {rank}" for rank in ranks) + ")",
                 "if (" + " .or. ".join(f"rank == {rank}" for rank in ranks) + ") then", statements, "end if")


def but(rank, *statements):
    """On all ranks but this one."""
    return Block(f"if (rank != {rank})", f"if (rank /= {rank}) then", statements, "end if")


def times(number, *statements):
    return Block(f"for (i = 0; i < {number}; ++i)", f"do i = 1, {number}", statements, "end do")


def compute():
    """Code of the program's own that never ends and that no compiler removes."""
    return Block("for (volatile int on = 1; on;)", "do while (endless /= 0)", [], "end do")


C_HEAD = f"""#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int a[{LARGE}], b[{LARGE}];
"""
C_DECLARATIONS = f"""  int rank, size, i, flag, result, counts[{ROOM}], blocks[{ROOM}], displacements[{ROOM}], bytes[{ROOM}], neighbours[2], colour, key, dims[1], periods[1];
  float f[{ROOM * 4}], g[{ROOM * 4}];
  MPI_Request r[{ROOM}];
  MPI_Comm comm, other, third;
  MPI_Group group, part;
  MPI_Win win;
  MPI_File file;
  MPI_Op op;
  MPI_Datatype type, types[{ROOM}];
  MPI_Message message;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  memset(f, 0, sizeof(f)), memset(g, 0, sizeof(g));
  for (i = 0; i < {ROOM}; ++i) counts[i] = 4, blocks[i] = 4, displacements[i] = 4 * i, bytes[i] = 16 * i, types[i] = MPI_INT, r[i] = MPI_REQUEST_NULL;
  neighbours[0] = (rank + size - 1) % size, neighbours[1] = (rank + 1) % size, colour = rank % 2, key = rank, dims[0] = size, periods[0] = 1;
  comm = other = third = MPI_COMM_NULL, flag = 0, result = 0, type = MPI_INT, op = MPI_SUM, message = MPI_MESSAGE_NULL, win = MPI_WIN_NULL, file = MPI_FILE_NULL, group = part = MPI_GROUP_NULL;
  (void)i, (void)flag, (void)result, (void)colour, (void)key, (void)comm, (void)other, (void)third, (void)group, (void)part, (void)win, (void)file, (void)op, (void)type, (void)message, (void)neighbours, (void)counts, (void)blocks, (void)displacements, (void)bytes, (void)types, (void)r, (void)f, (void)g, (void)dims, (void)periods;
"""
HANDLES = {"Request": f"r({ROOM})", "Comm": "comm, other, third", "Group": "group, part", "Win": "win", "File": "file",
           "Op": "op", "Datatype": f"type, types({ROOM})", "Message": "message"}


def fortran_declarations(binding):
    lines = ["  implicit none"] if binding != "mpif" else ["  implicit none", "  include 'mpif.h'"]
    for kind, names in HANDLES.items():
        lines.append(f"  {'type(MPI_' + kind + ')' if binding == 'f08' else 'integer'} :: {names}")
    lines += [f"  integer :: rank, size, i, ierror, result, counts({ROOM}), blocks({ROOM}), displacements({ROOM}), bytes({ROOM})",
              "  integer :: neighbours(2), colour, key, dims(1)", "  logical :: flag, periods(1)",
              f"  real :: f({ROOM * 4}), g({ROOM * 4})", "  integer, volatile :: endless",
              f"  integer, save :: a({LARGE}), b({LARGE})",
              "  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)", "  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)",
              "  endless = 1; result = 0; flag = .false.; colour = mod(rank, 2); key = rank; dims(1) = size; periods(1) = .true.",
              "  f = 0; g = 0; counts = 4; blocks = 4; type = MPI_INTEGER; types = MPI_INTEGER; op = MPI_SUM",
              "  r = MPI_REQUEST_NULL; comm = MPI_COMM_NULL; other = MPI_COMM_NULL; third = MPI_COMM_NULL",
              "  group = MPI_GROUP_NULL; part = MPI_GROUP_NULL; win = MPI_WIN_NULL; file = MPI_FILE_NULL; message = MPI_MESSAGE_NULL",
              f"  do i = 1, {ROOM}", "    displacements(i) = 4 * (i - 1); bytes(i) = 16 * (i - 1)", "  end do",
              "  neighbours(1) = mod(rank + size - 1, size); neighbours(2) = mod(rank + 1, size)"]
    return lines


def source(binding, programs):
    """A source file with a routine for each of `programs` [(name, statements)], chosen by the first argument; and
    {name: lines that count}, each as a list of numbers: its own, in Fortran that of the block's head, too: gfortran gives it
    to calls in the block."""
    lines, marks = [], {}

    def add(text):
        lines.extend(text.rstrip("\n").split("\n"))

    if binding == "c":
        add(C_HEAD)
        for name, statements in programs:
            marks[name] = []
            add(f"\n__attribute__((noinline)) static void {name}(void) {{\n{C_DECLARATIONS}")
            for statement in statements:
                for text, counts in statement.lines("c", 2):
                    add(text)
                    if counts:
                        marks[name].append([len(lines)])
            add("}")
        add("\nint main(int argc, char** argv) {\n  if (argc < 2) return 2;\n  MPI_Init(&argc, &argv);")
        for name, _ in programs:
            add(f'  if (strcmp(argv[1], "{name}") == 0) {name}();')
        add('  MPI_Finalize();\n  printf("done\\n");\n  return 0;\n}')
        return "\n".join(lines) + "\n", marks

    use = {"use_mpi": "  use mpi", "f08": "  use mpi_f08"}.get(binding)
    for name, statements in programs:
        marks[name], heads = [], []
        add(f"subroutine {name}()")
        first = len(lines)
        if use:
            add(use)
        add("\n".join(fortran_declarations(binding)))
        for statement in statements:
            for text, counts in statement.lines("fortran", 2):
                add(text)
                if text.endswith(" then") or text.lstrip().startswith("do "):
                    heads.append(len(lines))
                elif text.lstrip().startswith("end "):
                    heads.pop()
                if counts:
                    # gfortran gives the last call, a jump, to the subroutine's first line.
                    marks[name].append([len(lines), *heads[-1:], *([first] if statement is statements[-1] else [])])
        add(f"end subroutine {name}\n")
    add("program correctness")
    if use:
        add(use)
    add("  implicit none" if use else "  implicit none\n  include 'mpif.h'")
    add("  integer :: ierror\n  character(len=80) :: wanted\n  call get_command_argument(1, wanted)\n  call MPI_Init(ierror)")
    for name, _ in programs:
        add(f"  if (wanted == '{name}') call {name}()")
    add("  call MPI_Finalize(ierror)\n  print '(a)', 'done'\nend program correctness")
    return "\n".join(lines) + "\n", marks
