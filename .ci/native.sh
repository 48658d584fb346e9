#!/usr/bin/env bash
# The native core under sanitizers, and a minute of fuzzing: half for each of two fuzzers.
. "$(dirname "$0")/common.sh"
step "the native core under sanitizers, and a minute of fuzzing"
PYTHON=${PYTHON:-.venv/bin/python} tests/native/check.sh --fuzz-seconds 30 \
    ${corpus:+--corpus "$corpus"}
