#!/usr/bin/env bash
# Check style and types, and that the generated tables of the documents are up to date.
. "$(dirname "$0")/common.sh"
step "ruff, mypy, pyright, and the tables of the documents"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/clang-format --dry-run -Werror fastdecode/native/{,*/}*.[ch] tests/native/*.[ch] bench/*.c
.venv/bin/mypy
.venv/bin/pyright --pythonpath .venv/bin/python
.venv/bin/python bench/readme.py --check
