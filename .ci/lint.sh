#!/usr/bin/env bash
# What can be told without running anything: style, types, and documents that are out of date.
. "$(dirname "$0")/common.sh"
step "ruff, mypy, pyright, and the tables of the documents"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/clang-format --dry-run -Werror fastdecode/native/*.[ch] tests/native/*.[ch] bench/*.c
.venv/bin/python tests/typing/test_typos.py # a program of which each line is an error
.venv/bin/mypy
.venv/bin/pyright --pythonpath .venv/bin/python
.venv/bin/python bench/readme.py --check
