# SPDX-License-Identifier: Apache-2.0
"""Prints the way from a folder to a file or folder. Usage: relative.py TO FROM"""
import os
import sys

print(os.path.relpath(sys.argv[1], sys.argv[2]))
