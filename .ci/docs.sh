#!/usr/bin/env bash
# Build the site in build/docs. Broken links and malformed docstrings are errors.
. "$(dirname "$0")/common.sh"
step "the site"
.venv/bin/python -m sphinx -W --keep-going -q docs build/docs
