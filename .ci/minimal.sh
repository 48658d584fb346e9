#!/usr/bin/env bash
# Test the wheel of wheel.sh with its hard dependencies only: the commands and most tests on the
# oldest CPython of this machine, and some tests on the newest. Tests that depend on neither are left
# out: style, terminals, and most of the benchmark. Both install the same file; the core
# is tested on the newest.
. "$(dirname "$0")/common.sh"
wheels=(build/published/*.whl)
[ -e "${wheels[0]}" ] || .ci/wheel.sh
# Run in an empty folder, so that processes started by tests also import the installed package, and
# do not mistake a folder of tests for a library.
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
        FASTDECODE_REQUIRED_BACKENDS=pillow,native "$bin/pytest" -n 2 \
            -c "$tree/pyproject.toml" --rootdir "$tree" --seed "$seed" "$@"
    )
}
oldest=$(interpreter 3.10) newest=$(interpreter 3.13) tests=$PWD/tests
check "${oldest:-$(command -v python3)}" "$tests" \
    --ignore="$tests"/{native,test_house.py,cli/test_terminal.py} \
    --ignore="$tests"/measure/test_{faults,command}.py
[ -z "$newest" ] || check "$newest" "$tests"/native \
    "$tests"/{backends/test_contract,cli/test_cli,decode/test_{batch,engine}}.py
