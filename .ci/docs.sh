#!/usr/bin/env bash
# The site, in build/docs: a link that leads nowhere is an error, as is a docstring of another form.
. "$(dirname "$0")/common.sh"
step "the site"
.venv/bin/python -m sphinx -W --keep-going -q docs build/docs
