#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes rows of shim/api/mpi.txt wrong, one word at a time, and counts what the generator refuses and what the unit test `calls` finds.

wrong_rows.py [--single N] [--markdown FILE]

A wrong word: the class is another one (each of the others, with each detail that rows have), a detail of the same class is another one,
an attribute that says how a call returns or what it frees is too many or missing. Rows are judged by themselves, so one build of the
test has the same mistake in all rows where it is one, and the rows that it names are those that it finds. --single N: N of all
mistakes, chosen by chance, again alone, which must give the same answer.

Exit status 1 when a wrong row was not found. Works in a temporary folder; --markdown writes FILE."""
import argparse
import collections
import contextlib
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "shim", "api"))
import gen  # noqa: E402

TABLE = os.path.join(ROOT, "shim", "api", "mpi.txt")
UNITS = os.path.join(ROOT, "tests", "unit")
RETURNS = ("blocking", "poll", "starts", "persistent", "frees")
COMPILER = os.environ.get("CXX", "g++").split() + ["-std=c++20", "-O0", "-w"]


def rows():
    """[(line's number, words)] of all functions but those of the tool information interface."""
    with open(TABLE, encoding="utf-8") as file:
        lines = file.read().split("\n")
    found = [(number, line.split()) for number, line in enumerate(lines) if re.match(r"MPI", line)]
    return lines, [(number, words) for number, words in found if "tool" not in words]


def class_of(words):
    return "local" if "local" in words else words[1]


def kind(token):
    return token.split(":")[0]


def with_class(words, token):
    """The row with another class; None where it is that already."""
    old = class_of(words)
    if old == token:
        return None
    rest = [word for word in words[1:] if word != old]
    return [words[0], token, *rest]


def toggled(words, attribute):
    return [word for word in words if word != attribute] if attribute in words else [*words, attribute]


def mistakes(all_rows):
    """{name of the mistake: {line's number: words}}"""
    tokens = sorted({class_of(words) for _, words in all_rows})
    found = {}
    for token in tokens:
        changed = {number: row for number, words in all_rows if (row := with_class(words, token))}
        for what, same in (("class", False), ("detail", True)):
            part = {number: row for number, row in changed.items()
                    if (kind(token) == kind(class_of(dict(all_rows)[number]))) == same}
            if part:
                found[f"{what} {token}"] = part
    for attribute in RETURNS:
        found[f"attribute {attribute}"] = {number: toggled(words, attribute) for number, words in all_rows}
    return found


def refused(words, parameters, folder):
    """By the generator, given this row alone."""
    table = os.path.join(folder, "row.txt")
    with open(table, "w", encoding="utf-8") as file:
        file.write("\n".join([" ".join(words), *parameters]) + "\n")
    before, sys.argv = sys.argv, ["gen.py", table, folder]
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            gen.main()
        except (SystemExit, IndexError, KeyError, TypeError):  # with a sentence, or since the parameters are not those of such a call
            return True
        finally:
            sys.argv = before
    return False


def parameters_of(lines, number):
    end = next((n for n in range(number + 1, len(lines)) if not lines[n].startswith(" ")), len(lines))
    return lines[number + 1:end]


class Test:
    """The unit test calls, compiled with another table."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copy(os.path.join(UNITS, "check.h"), os.path.join(folder, "check.h"))
        self.build("-x", "c++-header", os.path.join(folder, "check.h"), "-o", os.path.join(folder, "check.h.gch"))
        self.build("-c", os.path.join(UNITS, "catch_main.cpp"), "-o", os.path.join(folder, "main.o"))
        with open(os.path.join(UNITS, "calls_test.cpp"), encoding="utf-8") as file:
            self.test = file.read()
        with open(os.path.join(folder, "calls_test.cpp"), "w", encoding="utf-8") as file:
            file.write('#include "check.h"\n' + self.test)

    def build(self, *arguments):
        subprocess.run([*COMPILER, "-I" + self.folder, "-I" + ROOT, *arguments], check=True)

    def finds(self, lines, changed):
        """Its exit status, and names of functions that it complains of."""
        table = os.path.join(self.folder, "mpi.txt")
        with open(table, "w", encoding="utf-8") as file:
            file.write("\n".join(" ".join(changed[number]) if number in changed else line for number, line in enumerate(lines)))
        subprocess.run([sys.executable, os.path.join(ROOT, "shim", "api", "gen.py"), table, self.folder], check=True)
        program = os.path.join(self.folder, "calls_test")
        done = subprocess.run([*COMPILER, "-I" + self.folder, "-I" + ROOT, os.path.join(self.folder, "calls_test.cpp"),
                               os.path.join(self.folder, "main.o"), "-o", program], check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the test does not compile:\n{done.stderr[:2000]}")
        said = subprocess.run([program], check=False, capture_output=True, text=True, errors="replace")
        return said.returncode, set(re.findall(r"^  (MPIX?_\w+)$", said.stdout, re.M))


def is_named(row, found):
    return row[0] in found or row[0] + "_c" in found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--single", type=int, default=0)
    parser.add_argument("--markdown")
    options = parser.parse_args()
    lines, all_rows = rows()
    count = collections.defaultdict(lambda: [0, 0, 0])  # {sort of mistake: [made, refused, found]}
    missed, every = [], []
    with tempfile.TemporaryDirectory() as folder:
        test = Test(folder)
        status, named = test.finds(lines, {})
        assert status == 0 and not named, f"the table as it is: {named}"
        for name, changed in mistakes(all_rows).items():
            tally = count[name.split()[0] + (" " + name.split()[1] if name.startswith("attribute") else "")]
            tally[0] += len(changed)
            kept = {number: row for number, row in changed.items() if not refused(row, parameters_of(lines, number), folder)}
            tally[1] += len(changed) - len(kept)
            found = test.finds(lines, kept)[1] if kept else set()
            for number, row in kept.items():
                every.append((name, number, row, is_named(row, found)))
                tally[2] += is_named(row, found)
                if not is_named(row, found):
                    missed.append(f"{row[0]}: {name}")
            print(f"{name}: {len(changed)} rows, {len(changed) - len(kept)} refused, {sum(is_named(row, found) for row in kept.values())} found", flush=True)
        for name, number, row, found in random.Random(1).sample(every, min(options.single, len(every))):
            status, named = test.finds(lines, {number: row})
            if is_named(row, named) != found or (status != 0) != found:
                missed.append(f"{row[0]}: {name}: alone it is {'found' if is_named(row, named) else 'not found'}")
    table = ["| word of the row | wrong rows | refused by gen.py | found by `calls` | not found |", "|---|---:|---:|---:|---:|"]
    table += [f"| {name} | {made:,} | {by_gen:,} | {by_test:,} | {made - by_gen - by_test:,} |" for name, (made, by_gen, by_test) in count.items()]
    print(*table, *missed, sep="\n")
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(table) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
