#!/usr/bin/env bash
# The native core under sanitizers, and a minute of fuzzing.
. "$(dirname "$0")/common.sh"
step "the native core under sanitizers, and a minute of fuzzing"
.venv/bin/pip install -q cffi setuptools
PYTHON=.venv/bin/python tests/native/check.sh --fuzz-seconds 60 \
    ${corpus:+--corpus "$corpus"}
