# SPDX-License-Identifier: Apache-2.0
"""The commands that show what a job left: one place where the command line takes them from. Touches no file."""

from __future__ import annotations

from . import export, hosts, html_report, show, waits, why


def add_commands(commands, job_help: str) -> None:
    """Each with its options and `run`, which gives the exit status."""
    for module in (why, waits, show, hosts, export, html_report):
        module.add_command(commands, job_help)
