#!/usr/bin/env bash
# The tests that need a GPU, and the figures of docs/benchmarks.md, on a machine that has one.
#
#     bench/gpu.sh test                     install, and run the tests that mention a GPU
#     bench/gpu.sh bench PHOTOS [OPTION...]   install, and run bench/gpu.py
#
# $PYTHON (default: python3) must be a Python with pip and PyTorch with CUDA. No network is needed:
# all other packages are installed from the wheels in the folder $WHEELS (default: .whl), which must
# match that Python and its CUDA:
#
# - nvidia-nvimgcodec-cu13, or -cu12 for PyTorch with CUDA 12, and nvidia-nvjpeg: about 30 MB
# - NumPy and Pillow if they are not installed
# - fastdecode itself, as .ci/run builds it, with cffi and pycparser; or also setuptools, if there is
#   a compiler
# - pytest with iniconfig, packaging and pluggy; to run more of the tests, also hypothesis and rich
# - DALI, about 200 MB. Without it, the tests skip its CUDA path and the bench leaves it out.
#
# Each command ends within ten minutes. It first shows what decodes on the device, or why nothing
# does.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INDEX=1
unset FASTDECODE_BACKEND FASTDECODE_DISABLE FASTDECODE_CORPUS PYTHONPATH
python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')
wheels=${WHEELS:-.whl}
deadline=${DEADLINE:-570} # seconds; less where the machine is lent for less

# Install into a separate folder, on top of the packages of $PYTHON: nothing on the machine changes.
install() {
    "$python" -m pip install -q --no-deps --upgrade --target .venv-gpu "$wheels"/*.whl
    if ! compgen -G "$wheels/fastdecode-*.whl" > /dev/null; then
        PYTHONPATH=$PWD/.venv-gpu "$python" -m pip install -q --no-deps \
            --upgrade --target .venv-gpu --no-build-isolation .
    fi
    export PYTHONPATH=$PWD/.venv-gpu
    # Outside the checkout, so that Python imports the installed package.
    (cd / && "$python" -m fastdecode)
    "$python" -c 'import torch; print(torch.cuda.get_device_name())'
}

# Run tests in a new process, for at most so many seconds. If they fail, the next ones still run.
check() {
    local most=$1 left=$((deadline - SECONDS))
    shift
    timeout -k 10 "$((left < 1 ? 1 : left < most ? left : most))" "$python" -m pytest \
        -c "$tree/pyproject.toml" --rootdir "$tree" -p no:cacheprovider -q -rfEs "$@" || failed=1
}

what=${1:-}
shift || true
case $what in
    test)
        install
        # Run from an empty folder, to test the installed package. Only files that mention CUDA or a
        # GPU are run: the others need libraries that may be missing.
        tree=$PWD failed=0 contract=$PWD/tests/backends/test_batch_contract.py
        mapfile -t files < <(grep -rliE --include='test_*.py' 'cuda|gpu' "$tree/tests" \
            | grep -vx "$contract")
        cd "$(mktemp -d)"
        # Three processes: after an illegal access CUDA no longer works in a process, and damaged
        # files are the most likely cause of one.
        check 300 "${files[@]}" "$@"
        check 120 "$contract" "$@" -k 'not flipped and not missing'
        check 120 "$contract" "$@" -k 'flipped or missing'
        exit "$failed"
        ;;
    bench)
        install
        timeout "$((deadline - SECONDS))" "$python" bench/gpu.py "$@"
        ;;
    *)
        sed -n '4,5s/^# *//p' "$0" >&2
        exit 2
        ;;
esac
