#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/resil html in headless Chromium at 4 and at 4,096 ranks: it draws every picture, is usable within a second, needs no network, answers
the keyboard, and can be looked at light, dark and printed. Skipped (77) where there is no Chromium. `--keep DIR` leaves the pictures there.

Suite "browser", not among the default ones: a start of the browser takes seconds."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))

import report_files  # noqa: E402
import support  # noqa: E402

LIMIT_MS = 1000
WALK = """<script>addEventListener("load", () => {
  const box = document.querySelector("#rank-times .plot");
  for (let i = 0; i < 3; ++i) box.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
  const matrix = document.querySelector("#traffic .plot");
  matrix.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown", bubbles: true}));
  const which = document.getElementById("which");
  which.value = "3";
  which.dispatchEvent(new Event("input"));
});</script></body>"""
# What a narrow window makes of it: the page's width beyond the window's, and lines of text in the tallest cell of a table's head.
NARROW = """<script>addEventListener("load", () => {
  const tallest = Math.max(...[...document.querySelectorAll("th")].map((one) => one.getBoundingClientRect().height));
  document.body.dataset.narrow = `${document.documentElement.scrollWidth - innerWidth} ${Math.round(tallest / 20)}`;
});</script></body>"""


def chromium():
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


def browse(place, *arguments):
    """Its standard output. One profile a call, so that nothing is left of the one before."""
    profile = tempfile.mkdtemp(dir=place)
    done = subprocess.run([chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                           "--proxy-server=127.0.0.1:9", "--user-data-dir=" + profile, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=600, check=False)
    shutil.rmtree(profile, ignore_errors=True)
    assert done.returncode == 0, "the browser ended with status %d" % done.returncode
    return done.stdout.decode("utf-8", "replace")


def look(place, page, name):
    for kind, options in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        picture = os.path.join(place, "%s-%s.png" % (name, kind))
        browse(place, "--window-size=1200,4600", "--screenshot=" + picture, *options, "file://" + page)
        assert os.path.getsize(picture) > 50000, "%s is empty" % picture
    paper = os.path.join(place, name + ".pdf")
    browse(place, "--print-to-pdf=" + paper, "--no-pdf-header-footer", "file://" + page)
    assert os.path.getsize(paper) > 20000, "%s is empty" % paper


def check(place, kind, size):
    reports, page = os.path.join(place, "reports-%d" % size), os.path.join(place, "%d.html" % size)
    report_files.make(reports, kind, size)
    subprocess.run([sys.executable, support.TOOL, "html", reports, "--output", page], check=True, stdout=subprocess.DEVNULL)
    with open(page, encoding="utf-8") as file:
        source = file.read()
    assert len(source.encode()) < 5 << 20, len(source)
    walked = os.path.join(place, "walk-%d.html" % size)
    with open(walked, "w", encoding="utf-8") as file:
        file.write(source.replace("</body>", WALK))
    times = []
    for _ in range(3):  # a machine that is busy with something else takes longer, not shorter
        dom = browse(place, "--dump-dom", "file://" + walked)
        ready = re.search(r'data-ready-ms="(\d+)" data-draw-ms="(\d+)"', dom)
        assert ready, "the script did not come to its end"
        times.append(tuple(map(int, ready.groups())))
        if times[-1][0] <= LIMIT_MS:
            break
    assert min(times)[0] <= LIMIT_MS, times
    drawn = len(re.findall(r"<canvas", dom))
    wanted = len(re.findall(r'<div class="plot"', source))
    assert drawn == wanted >= (5 if kind == "hang" else 2), (drawn, wanted)
    assert re.search(r"<output[^>]*>rank 3 on \S+: in MPI", dom), "the arrow keys do not move through the ranks"
    assert re.search(r"<output[^>]*>ranks? (1|32-63) to ranks? 0[^<]*: ", dom), "the arrow keys do not move through the matrix"
    assert re.search(r'id="told"[^>]*>rank 3 on ', dom), "a rank cannot be looked up"
    with open(walked, "w", encoding="utf-8") as file:
        file.write(source.replace("</body>", NARROW))
    beyond, lines = map(int, re.search(r'data-narrow="(-?\d+) (\d+)"', browse(place, "--window-size=500,900", "--dump-dom", "file://" + walked)).groups())
    assert beyond <= 0 and lines <= 4, "in a window of 500 pixels the page is %d too wide, and words of tables are broken over %d lines" % (beyond, lines)
    print("%d ranks: %d KiB, %d pictures, ready after %d ms, of which the pictures took %d ms" % (
        size, len(source.encode()) >> 10, drawn, *min(times)))
    look(place, page, "%d-ranks" % size)


def main():
    if not chromium():
        print("skipped: no Chromium here (Debian package chromium)")
        return 77
    with tempfile.TemporaryDirectory() as place:
        report_files.CULPRIT = 1
        check(place, "hang", 4)
        report_files.CULPRIT = 1234
        check(place, "hang", 4096)
        if "--keep" in sys.argv:
            keep = sys.argv[sys.argv.index("--keep") + 1]
            for path in glob.glob(os.path.join(place, "*.png")) + glob.glob(os.path.join(place, "*.pdf")):
                shutil.copy(path, keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
