# SPDX-License-Identifier: Apache-2.0
"""resil_tool/layout.py and shim/ring/ring_format.h describe the same bytes."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

import support
from resil_tool import layout

HEADER = os.path.join(support.ROOT, "shim", "ring", "ring_format.h")
COMPILER = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")


def program():
    lines = ["#include <cstdio>", '#include "shim/ring/ring_format.h"', "using namespace resil::ring;", "int main() {"]
    for shape in layout.LAYOUTS:
        lines.append('std::printf("%s %%zu\\n", sizeof(%s));' % (shape.name, shape.name))
        for field in shape.offsets:
            lines.append('std::printf("%s.%s %%zu %%zu\\n", offsetof(%s, %s), sizeof(%s::%s));'
                         % ((shape.name, field) * 3))
    for name in layout.CONSTANTS:
        lines.append('std::printf("%s %%lld\\n", static_cast<long long>(%s));' % (name, name))
    return "\n".join(lines + ["}"])


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class RingLayout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not COMPILER:
            raise unittest.SkipTest("no C++ compiler")
        with tempfile.TemporaryDirectory() as place:
            source, binary = os.path.join(place, "layout.cpp"), os.path.join(place, "layout")
            with open(source, "w", encoding="ascii") as file:
                file.write(program())
            subprocess.run([COMPILER, "-std=c++20", "-Wno-invalid-offsetof", "-I", support.ROOT, source, "-o", binary],
                           check=True, timeout=600)
            done = subprocess.run([binary], check=True, stdout=subprocess.PIPE, timeout=600)
        cls.truth = {line.split()[0]: tuple(map(int, line.split()[1:]))
                     for line in done.stdout.decode().splitlines()}

    def test_every_struct_has_the_same_size(self):
        for shape in layout.LAYOUTS:
            self.assertEqual(self.truth[shape.name], (shape.size,), shape.name)

    def test_every_field_lies_at_the_same_offset(self):
        for shape in layout.LAYOUTS:
            for field, offset in shape.offsets.items():
                self.assertEqual(self.truth["%s.%s" % (shape.name, field)][0], offset, (shape.name, field))

    def test_no_field_is_missing(self):
        """Fields and natural padding fill each struct: a field added to the header leaves a hole here."""
        for shape in layout.LAYOUTS:
            at = 0
            for field, offset in sorted(shape.offsets.items(), key=lambda item: item[1]):
                gap = offset - at
                self.assertTrue(0 <= gap < 8 or (shape.name, field) == ("TraceBuffer", "records") and gap < 64,
                                (shape.name, field, gap))
                at = offset + self.truth["%s.%s" % (shape.name, field)][1]

    def test_every_constant_is_the_same(self):
        for name, value in layout.CONSTANTS.items():
            self.assertEqual(self.truth[name], (value if value < 2**63 else value - 2**64,), name)

    def test_every_struct_and_constant_of_the_header_is_known(self):
        with open(HEADER, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(set(re.findall(r"^struct (\w+) \{", text, re.M)), {shape.name for shape in layout.LAYOUTS})
        named = set(re.findall(r"\b(k[A-Z]\w*)\s*=", text))
        self.assertEqual(named, {name.split("::")[-1] for name in layout.CONSTANTS})


if __name__ == "__main__":
    unittest.main()
