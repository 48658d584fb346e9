#!/usr/bin/env bash
# The package with its hard dependencies only, as a user installs it, on the oldest and the newest
# CPython that is here: its commands, and the tests, of which most need no more.
. "$(dirname "$0")/common.sh"
pythons=("$(interpreter 3.10)" "$(interpreter 3.13)")
[ -n "${pythons[*]// /}" ] || pythons=("$(command -v python3)")
for python in "${pythons[@]}"; do
    [ -n "$python" ] || continue
    step "hard dependencies only, $("$python" --version)"
    rm -rf .venv-minimal build
    "$python" -m venv .venv-minimal
    FASTDECODE_NATIVE=require .venv-minimal/bin/pip install -q . pytest hypothesis
    (
        bin=$PWD/.venv-minimal/bin
        cd "$(mktemp -d)"
        "$bin/python" -m fastdecode
        "$bin/fastdecode" --version
        "$bin/python" -m fastdecode.bench --seconds 0.05
    )
    # From an empty folder, so that the tests' own processes import the installed package, too, and
    # take no folder of tests for a library that is missing.
    (
        tree=$PWD
        cd "$(mktemp -d)"
        FASTDECODE_REQUIRED_BACKENDS=pillow,native "$tree/.venv-minimal/bin/pytest" -q \
            -c "$tree/pyproject.toml" --rootdir "$tree" "$tree/tests"
    )
done
