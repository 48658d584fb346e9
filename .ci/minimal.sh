#!/usr/bin/env bash
# The package with its hard dependencies only, as a user installs it, on the oldest CPython that is
# here: its commands, and the tests, of which most need no more. On the newest one a few of them.
# One wheel serves both: that of wheel.sh. What neither changes is left out: how the source is written,
# the sweep, terminals, most of the benchmark; the core is tested on the newest, and is the same file.
. "$(dirname "$0")/common.sh"
wheels=(build/published/*.whl)
[ -e "${wheels[0]}" ] || .ci/wheel.sh
# From an empty folder, so that the tests' own processes import the installed package, too, and take
# no folder of tests for a library that is missing.
check() {
    local python=$1 tree=$PWD
    shift
    step "hard dependencies only, $("$python" --version)"
    rm -rf .venv-minimal
    "$python" -m venv .venv-minimal
    .venv-minimal/bin/pip install -q build/published/*.whl pytest pytest-xdist hypothesis
    (
        bin=$tree/.venv-minimal/bin
        cd "$(mktemp -d)"
        "$bin/python" -m fastdecode
        "$bin/fastdecode" --version
        "$bin/python" -m fastdecode.bench --seconds 0.05
        FASTDECODE_REQUIRED_BACKENDS=pillow,native "$bin/pytest" -q -n 2 \
            -c "$tree/pyproject.toml" --rootdir "$tree" "$@"
    )
}
oldest=$(interpreter 3.10) newest=$(interpreter 3.13) tests=$PWD/tests
check "${oldest:-$(command -v python3)}" "$tests" \
    --ignore="$tests"/{native,test_{house,fuzz,terminal}.py} \
    --ignore="$tests"/measure/test_{bench_{pixels,command,stores},calibration_command}.py
[ -z "$newest" ] || check "$newest" "$tests"/native \
    "$tests"/test_{contract,engine,batch,cli,saved_ranking}.py
