#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/MESSAGES.md from the rows of the message catalogue (shim/report/message.h), and checks the sources against
it: what a user reads comes from a row, every row has a meaning and is used, no name is given twice.

Usage: messages.py ROOT            prints the page
       messages.py ROOT --check    compares it with ROOT/docs/MESSAGES.md and checks the sources; prints what is wrong
       messages.py ROOT --update   writes ROOT/docs/MESSAGES.md
"""
import difflib
import pathlib
import re
import sys

FOLDERS = ("shim", "checksum", "detectors", "pipeline")
ROW = re.compile(r"^RESIL_(MESSAGE|FINDING|PHRASE|REASON)\(", re.MULTILINE)
NAMESPACE = re.compile(r"^namespace resil::messages::([\w:]+) \{", re.MULTILINE)
# Calls whose text a user reads, and which of their arguments it is.
SPEAKERS = re.compile(r"\b(log_line|log_format|add_note|add_note_format|finding\.say|finding\.to_do)\(\s*([^\s,;()]+)")
TITLES = {"core": "The core", "checksum": "Checksums", "fault": "Injected faults", "record": "Record and verify",
          "double_run": "Steps run twice", "spr": "Particle replication", "replicas": "Replicas", "dump": "State dumps", "gpu_runtime": "Waits of CUDA and HIP",
          "hang": "Hang detection", "staging": "Device buffers", "gpu": "Devices", "reduction": "Reductions"}
WHERE = {"log": "standard error", "note": "report, `notes`", "log_note": "standard error and report, `notes`"}


def arguments(text, at):
    """The arguments of the macro call that begins at `at`, split at its commas: names, or strings put together."""
    parts, depth, part = [], 0, []
    for token in re.finditer(r'"(?:\\.|[^"\\])*"|[(),;]|[A-Za-z_]\w*|\s+|.', text[at:]):
        word = token.group()
        if word == "(":
            depth += 1
            if depth == 1:
                continue
        if word == ")":
            depth -= 1
            if depth == 0:
                parts.append(part)
                break
        if word == "," and depth == 1:
            parts.append(part)
            part = []
        elif not word.isspace():
            part.append(word)
    return [value_of(part) for part in parts]


def value_of(tokens):
    if not any(token.startswith('"') for token in tokens):
        return "".join(tokens)
    text = ""
    for token in tokens:
        if token.startswith('"'):
            text += bytes(token[1:-1], "utf-8").decode("unicode_escape").encode("latin-1").decode("utf-8")
        else:
            text += {"PRIu64": "lu", "PRId64": "ld", "PRIx64": "lx"}[token]
    return text


def rows_of(text, path):
    """(part, kind, line, arguments) of every row of a source file."""
    parts = [(match.start(), match.group(1).replace("::", ".")) for match in NAMESPACE.finditer(text)]
    for match in ROW.finditer(text):
        part = next((name for start, name in reversed(parts) if start < match.start()), "?")
        yield part, match.group(1), f"{path}:{text.count(chr(10), 0, match.start()) + 1}", arguments(text, match.end() - 1)


STATEMENT = re.compile(r'^MESSAGE\(\s*(\w+), (\w+),\s+((?:"(?:\\\\.|[^"\\\\])*"\s*)+)\)', re.MULTILINE)


def statements(root):
    """Rows of the statements that verdicts are made of (detectors/hang/verdict/messages.inc): id, where, text."""
    text = (root / "detectors/hang/verdict/messages.inc").read_text(encoding="utf-8")
    for name, where, parts in STATEMENT.findall(text):
        words = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', parts))
        words = re.sub(r"\{[^{}?]+\?([^|{}]*)\|([^{}]*)\}", r"\1/\2", words)
        yield re.sub(r"(?<!^)([A-Z])", r"_\1", name[1:]).lower(), where[1:], re.sub(r"\{[^{}]+\}", "…", words).replace("|", "\\|")


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".inc") and path.name != "message.h":
                yield path.relative_to(root), path.read_text(encoding="utf-8")


def shown(text):
    """A format as a reader sees it: N for numbers, … for texts."""
    text = re.sub(r"(?<=[a-z])%s(?=[ ,.;:]|%s)", "s", text)
    text = re.sub(r"%(?:\.\*|[-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|z)?([diuxXfeEgGaAspc])",
                  lambda match: "…" if match.group(1) in "sc" else "N", text).replace("%%", "%")
    text = re.sub(r"…(?: ?…)+", "…", text)
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def page(rows, statements_of=()):
    lines = ["# Messages", "",
             "Every message of the library: on standard error, in the report's `notes`, and in findings. `…` stands for a text, `N`",
             "for a number. The id is what documents and tests call a message; it is not printed. Names of reasons are members of the",
             "counters in [REPORT.md](REPORT.md). This page is made from the catalogue in the sources (`shim/report/message.h`):",
             "`meson compile -C build update-messages`.", ""]
    for part in sorted({row[0].split(".")[0] for row in rows}, key=lambda name: list(TITLES).index(name) if name in TITLES else 99):
        lines += [f"## {TITLES.get(part, part.capitalize())}", ""]
        mine = [row for row in rows if row[0].split(".")[0] == part]
        for kind in ("MESSAGE", "FINDING"):
            for name, row_kind, _, row in mine:
                if row_kind != kind:
                    continue
                if kind == "MESSAGE":
                    where, text, means, action = WHERE[row[1]], *row[2:]
                else:
                    where, text, means, action = "finding", *row[1:]
                lines += [f"**{name}.{row[0]}** ({where})", "", f"> {shown(text)}", "", shown(means) + " *To do:* " + shown(action), ""]
        reasons = [row for row in mine if row[1] == "REASON"]
        if reasons:
            lines += ["| reason | means | what to do |", "|---|---|---|"]
            lines += [f"| `{name}.{row[0]}` | {shown(row[1])} | {shown(row[2])} |" for name, _, _, row in reasons] + [""]
    if statements_of:
        lines += ["## Findings of hang detection", "",
                  "A finding is put together from these: sentences, then what to do (action); below it places and lines of evidence.",
                  "Lines are those of `hang.log`, notes those of the report.", "", "| id | where | text |", "|---|---|---|"]
        lines += [f"| `hang.{name}` | {where.lower()} | {text} |" for name, where, text in statements_of] + [""]
    return "\n".join(lines)


def complaints(root, rows):
    seen = set()
    for part, kind, where, row in rows:
        name = f"{part}.{row[0]}"
        if name in seen:
            yield f"{where}: {name} is there twice"
        seen.add(name)
        if len(row) != {"MESSAGE": 5, "FINDING": 4, "PHRASE": 2, "REASON": 3}[kind]:
            yield f"{where}: {name} has {len(row)} members"
        elif kind == "MESSAGE" and row[1] not in WHERE:
            yield f"{where}: {name}: {row[1]} is no place; there are {', '.join(WHERE)}"
        elif any(not text.strip() for text in row[1:]) and kind != "PHRASE":
            yield f"{where}: {name} has an empty member"
    used = []
    for path, text in sources(root):
        used.append(re.sub(r"^RESIL_\w+\(\s*\w+", "", text, flags=re.MULTILINE))
        if path.parts[:2] == ("shim", "report") and path.name in ("log.h", "log.cpp", "finding.h", "finding.cpp"):
            continue
        for call in SPEAKERS.finditer(text):
            line = text.count("\n", 0, call.start()) + 1
            if call.group(2).startswith('"'):
                yield f"{path}:{line}: the text of {call.group(1)} is not in the catalogue"
        if "finding_publish(" in text and ".to_do(" not in text and path.parts[:2] != ("shim", "report"):
            yield f"{path}: a finding without a \"To do:\" line"
    used = set(re.findall(r"\w+", "\n".join(used)))
    for part, kind, where, row in rows:
        if row[0] not in used:
            yield f"{where}: {part}.{row[0]} is used nowhere"


def main():
    root = pathlib.Path(sys.argv[1])
    rows = [row for path, text in sources(root) for row in rows_of(text, path)]
    text, target = page(rows, list(statements(root))), root / "docs" / "MESSAGES.md"
    if "--update" in sys.argv:
        target.write_text(text, encoding="utf-8")
    elif "--check" in sys.argv:
        wrong = list(complaints(root, rows))
        found = target.read_text(encoding="utf-8") if target.exists() else ""
        if found != text:
            wrong += [line.rstrip() for line in difflib.unified_diff(found.splitlines(), text.splitlines(), str(target), "the catalogue", n=0, lineterm="")]
            wrong += [f"{target} is not what the catalogue says: {sys.argv[0]} {root} --update"]
        print("\n".join(wrong) or f"{len(rows)} rows")
        return 1 if wrong else 0
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
