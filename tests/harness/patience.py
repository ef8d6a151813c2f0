# SPDX-License-Identifier: Apache-2.0
"""Time limits that slowness alone cannot reach. A limit is in seconds of a machine that does nothing else: a second in
which four tasks want two cores, or in which the hypervisor took half of them away, counts as half a second. A job that
stands still without computing reaches its limit at the usual time.

Touches /proc only."""
import os
import subprocess
import time

SLICE = 0.25  # seconds between two looks: short enough that one look stands for the time around it


def _share():
    """What part of the cores that it could use one more task gets now, 0 < share <= 1."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            runnable = int(file.read().split()[3].split("/")[0]) - 1  # without this process, which runs just now
    except (OSError, ValueError, IndexError):
        return 1.0
    return min(1.0, len(os.sched_getaffinity(0)) / max(runnable, 1))


def _processor_time():
    """(all, stolen) clock ticks of all cores since the start of the machine; guests' time is in user's already."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        return sum(ticks), ticks[7]
    except (OSError, ValueError, IndexError):
        return 0, 0


class Patience:
    """Counts `seconds` down. To be asked often (SLICE): the time between two questions is judged by the second."""

    def __init__(self, seconds):
        self._left, self._asked, self._ticks = seconds, time.monotonic(), _processor_time()

    def left(self):
        """Seconds that are left, at least 0."""
        now, ticks = time.monotonic(), _processor_time()
        whole, stolen = ticks[0] - self._ticks[0], ticks[1] - self._ticks[1]
        kept = max(0.1, 1 - stolen / whole) if whole > 0 else 1.0
        self._left -= (now - self._asked) * _share() * kept
        self._asked, self._ticks = now, ticks
        return max(0.0, self._left)

    def over(self):
        return self.left() <= 0


def wait_for(happened, what, seconds, pause=0.02):
    """The first true value of happened(). AssertionError, naming `what`, when the patience is over before."""
    patience = Patience(seconds)
    while True:
        value = happened()
        if value:
            return value
        assert not patience.over(), f"{what} did not happen within {seconds} s of a free machine"
        time.sleep(pause)


# Seconds, likewise of a free machine, between two questions whether a process can still end, and answers in a row: an emulated
# mpirun had not started its ranks in 16 s of the wall at a load of 45.
STUCK_AFTER, STUCK_TURNS = 5, 3


def communicate(process, stdin, seconds, stuck=None):
    """Popen.communicate() with a limit of this kind; subprocess.TimeoutExpired when it is over, the process unharmed. Also
    when stuck(), asked every few seconds, has said three times in a row that it will not end."""
    patience, pause, turns = Patience(seconds), Patience(STUCK_AFTER), 0
    while True:
        try:
            return process.communicate(stdin, timeout=SLICE)
        except subprocess.TimeoutExpired:
            stdin = None  # has been handed over; a second time it would not be taken
            if stuck and pause.over():
                pause, turns = Patience(STUCK_AFTER), turns + 1 if stuck() else 0
            if patience.over() or turns == STUCK_TURNS:
                raise


def run(line, timeout, **more):
    """subprocess.run() with a limit of this kind."""
    check, stdin = more.pop("check", False), more.pop("input", None)
    if more.pop("capture_output", False):
        more.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if stdin is not None:
        more["stdin"] = subprocess.PIPE
    with subprocess.Popen(line, **more) as process:
        try:
            out, err = communicate(process, stdin, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
