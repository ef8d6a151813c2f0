# SPDX-License-Identifier: Apache-2.0
"""What the hang detector has said so far in a report directory: hang-N.json and hang.log. Only reads."""
import glob
import json
import os
import shutil


class HangLog:
    """Findings (objects, oldest first) and log lines, as far as they have come when look() was called."""

    def __init__(self, directory):
        self.directory, self.findings, self.lines, self.notes = directory, [], [], []
        self._seen, self._at = set(), 0

    def look(self):
        for path in sorted(glob.glob(os.path.join(self.directory, "hang-*.json"))):
            if path not in self._seen:
                try:
                    with open(path, encoding="utf-8") as file:
                        self.findings.append(json.load(file))
                    self._seen.add(path)
                except (OSError, ValueError) as error:  # it should be whole when it appears
                    self.notes.append(f"{path}: {error}")
        self.findings.sort(key=lambda finding: finding["time_ns"])
        try:
            with open(os.path.join(self.directory, "hang.log"), "rb") as file:
                file.seek(self._at)
                text = file.read()
        except OSError:
            return
        whole = text[:text.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            words = line.split(" ", 2)
            if len(words) == 3 and words[0].isdigit():
                self.lines.append((int(words[0]), words[1], words[2]))
            else:
                self.notes.append(f"hang.log: {line}")

    def keep(self, folder, name):
        """Copies the report directory for somebody to look at; nothing without a folder."""
        if folder and os.path.isdir(self.directory):
            shutil.copytree(self.directory, os.path.join(folder, name), dirs_exist_ok=True)

    def times(self, *kinds):
        """Instants (CLOCK_REALTIME, ns) of the log's lines of these kinds."""
        return sorted(when for when, kind, _ in self.lines if kind in kinds)

    def count(self, kind):
        return sum(each == kind for _, each, _ in self.lines)
