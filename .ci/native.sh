#!/usr/bin/env bash
# Test the native core under sanitizers, and run the fuzzers for a minute each.
. "$(dirname "$0")/common.sh"
step "the native core under sanitizers, and fuzzing"
PYTHON=${PYTHON:-.venv/bin/python} tests/native/check.sh --fuzz-seconds 60 \
    ${corpus:+--corpus "$corpus"}
