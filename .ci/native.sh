#!/usr/bin/env bash
# The native core under sanitizers, and twenty seconds for each of two fuzzers.
. "$(dirname "$0")/common.sh"
step "the native core under sanitizers, and fuzzing"
PYTHON=${PYTHON:-.venv/bin/python} tests/native/check.sh --fuzz-seconds 20 \
    ${corpus:+--corpus "$corpus"}
