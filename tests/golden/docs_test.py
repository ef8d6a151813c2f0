#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README and docs/: links and anchors lead somewhere, every page is in the site's list, messages that pages for users quote are in
the catalogue (or in the command), figures of their tables are in docs/RESULTS.md, pictures are those that scripts/pictures makes. Where mkdocs is installed the site is built, and
must neither warn nor fetch anything.

Usage: docs_test.py ROOT"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(sys.argv[1])
DOCS = os.path.join(ROOT, "docs")
LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
SITE = os.path.join(ROOT, "scripts", "packaging", "mkdocs.yml")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def pages():
    """Paths below ROOT."""
    found = ["README.md"]
    for folder, _, names in os.walk(DOCS):
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    return sorted(found)


def without_code(text):
    """Fenced and indented blocks, comments and code spans left out; lines stay lines."""
    text = re.sub(r"^```.*?^```$", lambda match: "\n" * match.group().count("\n"), text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match.group().count("\n"), text, flags=re.S)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)


def headings(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line).strip() for line in re.findall(r"^#{1,6} (.+)$", text, re.M)]


def anchor_in_repository(heading):
    """As repository browsers make it: each blank is a hyphen."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def anchor_in_site(heading):
    """As the site's generator makes it: blanks and hyphens in a row are one hyphen."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower())


def links():
    count = 0
    for page in pages():
        for number, line in enumerate(without_code(read(page)).split("\n"), 1):
            for target in LINK.findall(line):
                count += 1
                if re.match(r"(https?|mailto):", target):
                    continue
                path, _, anchor = target.partition("#")
                to = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                if not os.path.exists(os.path.join(ROOT, to)):
                    yield f"{page}:{number}: {target}: no such file"
                elif page != "README.md" and not (to + "/").startswith("docs/"):
                    yield f"{page}:{number}: {target}: leaves docs/, which the site cannot"
                elif anchor:
                    known = headings(read(to))
                    for make in (anchor_in_repository, anchor_in_site):
                        if anchor not in map(make, known):
                            yield f"{page}:{number}: {target}: no such heading ({make.__name__})"
    if count < 100:
        yield f"only {count} links were seen"


def layout():
    """What the generator would read otherwise than repository browsers do."""
    for page in pages():
        before = ""
        for number, line in enumerate(without_code(read(page)).split("\n"), 1):
            item = re.match(r"(?:[-*]|\d+\.) ", line)
            if item and before.strip() and not re.match(r"(?:[-*]|\d+\.) |\s", before):
                yield f"{page}:{number}: a list needs an empty line in front"
            if line.startswith("|") and before.strip() and not before.startswith("|"):
                yield f"{page}:{number}: a table needs an empty line in front"
            before = line
    listed = set(re.findall(r": ([\w/.-]+\.md)$", read(os.path.relpath(SITE, ROOT)), re.M))
    there = {os.path.relpath(page, "docs") for page in pages() if page != "README.md"}
    for page in sorted(listed ^ there):
        yield f"{page}: {'not in the list of scripts/packaging/mkdocs.yml' if page in there else 'in the list, and no such page'}"


def catalogue():
    """Regular expressions of all messages: … is any text, N a number."""
    rows = re.findall(r"^> (.+)$", read("docs", "MESSAGES.md"), re.M)
    made = []
    for row in rows:
        row = row.replace("&lt;", "<").replace("\\|", "|")
        text = re.sub(r"(?<=[a-z])s(?=\\?[ ,.;:])", "s?", re.escape(re.sub("…s+", "…", re.sub("^resil: ", "", row)))).replace("…", ".*?")
        made.append(re.compile(r"(?:resil: )?" + re.sub(r"(?<!\w)N(?!\w)", r"[-\\d.]+", text) + r"$"))
    return made


def quotes():
    rows, count = catalogue(), 0
    tool = "\n".join(read("scripts", "resil_tool", name) for name in os.listdir(os.path.join(ROOT, "scripts", "resil_tool"))
                     if name.endswith(".py"))
    tool = re.sub(r"%\(\w+\)s|%[sd]", "…", tool)
    for page in pages():
        if not page.startswith("docs/using/"):
            continue
        for number, quoted in ((number, line[2:]) for number, line in enumerate(read(page).split("\n"), 1) if line.startswith("> ")):
            count += 1
            begun = quoted.rstrip(".:") + "."
            if not any(row.match(quoted) or row.pattern and _begins(row, quoted) for row in rows) and not _of_tool(tool, quoted):
                yield f"{page}:{number}: no such message: {begun}"
    if count < 10:
        yield f"only {count} quotes were seen"


def _begins(row, quoted):
    """A message may be quoted up to the end of one of its sentences, or of a clause that ends with ; or ,"""
    parts = re.split(r"(?<=\\\.)\\ |(?<=[;,])\\ ", row.pattern[:-1])
    for n in range(1, len(parts)):
        head = "\\ ".join(parts[:n])
        literal = re.sub(r"s\?|\(\?:.*?\)\?|\.\*\?|\[-.*?\]\+|\\", "", head)
        if len(literal.strip()) > 20 and re.fullmatch(re.sub(r"[;,]$", "", head), quoted):
            return True
    return False


def _of_tool(tool, quoted):
    """Words of the command; what it fills in stands for a name of no more than one word."""
    if quoted in tool:
        return True
    words = quoted.split(" ")
    return any(" ".join(words[:at] + [re.sub(r"\w+", "…", words[at], count=1)] + words[at + 1:]) in tool for at in range(len(words)))


def figures():
    """Every figure of the table of costs, and of README's, stands in docs/RESULTS.md."""
    results = read("docs", "RESULTS.md")
    for page, begin in (("README.md", "**What it costs**"), ("docs/using/modes.md", "## What each costs")):
        table = read(page).split(begin, 1)[1].split("\n## ", 1)[0]
        found = re.findall(r"(?<![\w.])[+-]?\d[\d,]*\.\d+(?: %| MiB)?|[+-]\d+ %", table)
        if len(found) < 5:
            yield f"{page}: only {len(found)} figures were seen"
        for one in found:
            if one not in results and not re.fullmatch(r"[45]\.\d(?:\.\d)?", one):  # versions
                yield f"{page}: {one} is not in docs/RESULTS.md"


def pictures():
    """Each has words for who does not see it, is small, and is one that scripts/pictures makes; none is there for nothing."""
    made = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "pictures"), "--list"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout.split()
    used = set()
    for page in pages():
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", read(page)):
            path = os.path.join(ROOT, os.path.dirname(page), target)
            used.add(os.path.basename(target))
            if len(words.split()) < 6:
                yield f"{page}: {target}: no words that stand for the picture"
            if os.path.normpath(path) != os.path.join(DOCS, "pictures", os.path.basename(path)) or os.path.basename(path) not in made:
                yield f"{page}: {target}: not made by scripts/pictures"
            elif not os.path.exists(path):
                yield f"{page}: {target}: no such file"
            elif os.path.getsize(path) > 100 << 10:
                yield f"{page}: {target}: more than 100 KiB"
            else:
                with open(path, "rb") as file:
                    if b"scripts/pictures" not in file.read():
                        yield f"{page}: {target}: not as scripts/pictures left it"
    there = set(os.listdir(os.path.join(DOCS, "pictures")))
    yield from (f"docs/pictures/{name}: on no page, or no file, or not made by scripts/pictures"
                for name in sorted((there | set(made)) - (used & there & set(made))))


def site():
    if not shutil.which("mkdocs"):
        print("mkdocs is not installed: the site was not built")
        return
    with tempfile.TemporaryDirectory(prefix="resil-test-") as folder:
        done = subprocess.run(["mkdocs", "build", "--strict", "-f", SITE, "-d", folder], capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
        if done.returncode or said:
            yield "mkdocs: " + "\n".join(said or [done.stderr])
            return
        for at, _, names in os.walk(folder):
            for name in names:
                if name.endswith((".html", ".css")):
                    with open(os.path.join(at, name), encoding="utf-8") as file:
                        for one in re.findall(r"""(?:src=|<link[^>]*href=|url\()["']?((?:https?:)?//[^"')\s]+)""", file.read()):
                            yield f"site: {name} fetches {one}"


wrong = [line for check in (links, layout, quotes, figures, pictures, site) for line in check()]
print("\n".join(wrong) or f"{len(pages())} pages")
sys.exit(1 if wrong else 0)
