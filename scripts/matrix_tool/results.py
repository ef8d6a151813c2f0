# SPDX-License-Identifier: Apache-2.0
"""Kept results: FOLDER/results/CELL.json says of each test how it ended, with which library, when, and how long it took.

Touches that folder only."""
import copy
import fcntl
import json
import os
import re
import time

LISTS = ("tests", "facts")


def build_id(library):
    """The library's, as its linker wrote it; without one, a digest of the file."""
    with open(library, "rb") as file:
        data = file.read()
    at = data.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
    if at >= 0:
        return data[at + 16:at + 36].hex()
    import hashlib  # pylint: disable=import-outside-toplevel
    return hashlib.sha1(data).hexdigest()


def today():
    return time.strftime("%Y-%m-%d")


class Kept:
    """What is known of one cell. tests: {test: {result, seconds, library, date, why}}; facts: {name: value}."""

    def __init__(self, folder, cell):
        self.path = os.path.join(folder, "results", f"{cell}.json")
        self.tests, self.facts = self._told()
        self._read = copy.deepcopy((self.tests, self.facts))

    def _told(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                told = json.load(file)
            return [dict(told.get(name, {})) for name in LISTS]
        except (OSError, ValueError, AttributeError, TypeError):
            return [{}, {}]  # nothing was kept, or it cannot be read: it is run again

    def save(self):
        """What is new here; what another command has kept since then stays."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            told = self._told()
            for mine, read, kept in zip((self.tests, self.facts), self._read, told):
                kept.update({name: value for name, value in mine.items() if read.get(name) != value})
            with open(self.path + ".new", "w", encoding="utf-8") as file:
                json.dump(dict(zip(LISTS, told)), file, indent=1, sort_keys=True)
            os.replace(self.path + ".new", self.path)
        self._read = copy.deepcopy((self.tests, self.facts))

    def note(self, test, result, seconds, library, why=""):
        self.tests[test] = {"result": result, "seconds": round(seconds, 1), "library": library, "date": today(), "why": why}

    def open(self, tests, library, again=()):
        """Those that have no result with this library, or one that `again` names ("OK", "FAIL", …)."""
        return [test for test in tests if test not in self.tests or self.tests[test]["library"] != library
                or self.tests[test]["result"] in again]

    def expected_seconds(self, tests, at_once):
        """(how long the tests took the last time, how many of them have never run)."""
        known = [self.tests[test]["seconds"] for test in tests if test in self.tests]
        if not known:
            return 0, len(tests)
        return max(sum(known) / at_once, max(known)), len(tests) - len(known)


def words(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Log:
    """Meson's testlog.json, which grows while the tests run."""

    def __init__(self, path):
        self.path, self.at = path, 0
        if os.path.exists(path):
            os.unlink(path)  # of an earlier run

    def news(self):
        """[(name, result, seconds, output)] of the tests that ended since the last call."""
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                file.seek(self.at)
                text = file.read()
        except OSError:
            return []
        whole = text.rfind("\n") + 1
        self.at += len(text[:whole].encode("utf-8", errors="replace"))
        found = []
        for line in filter(str.strip, text[:whole].splitlines()):
            test = json.loads(line)
            found.append((re.split("[:/] ?", test["name"])[-1], test["result"], test["duration"],
                          (test.get("stdout") or "") + (test.get("stderr") or "")))
        return found


def reasons(output, result):
    """Why a test was skipped, left something out or failed, in one line each."""
    if result in ("OK", "SKIP"):
        return "; ".join(re.findall(r"^(?:skipped:|left out) (.*)", output, re.M))[:300]
    return "; ".join(re.findall(r"^FAILED +(.*)|^not ok +(.*)", output, re.M) and
                     [a or b for a, b in re.findall(r"^FAILED +(.*)|^not ok +(.*)", output, re.M)])[:300]
