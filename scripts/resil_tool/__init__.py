# SPDX-License-Identifier: Apache-2.0
"""resil, the command: reads what libresil.so leaves behind. Standard library only, Python 3.9 or newer."""

REPORT_SCHEMA = 1  # schema_version of rank-*.json, node-*.jsonl and hang-*.json that this tool understands
