#!/usr/bin/env bash
# The tests that need a GPU, and the figures of docs/gpu.md, on a machine that has one.
#
#     bench/gpu.sh test                     install, and run the tests that mention a GPU
#     bench/gpu.sh bench PHOTOS [OPTION...]   install, and run bench/gpu.py and fastdecode bench
#
# PyTorch with CUDA is there already, in the Python that $PYTHON names (python3), which needs pip. No
# network is needed: all else comes from the wheels in the folder that $WHEELS names (.whl), for the
# Python and the CUDA that are there:
#
# - nvidia-nvimgcodec-cu13, or -cu12 for PyTorch with CUDA 12, and nvidia-nvjpeg: some 30 MB
# - platformdirs, and NumPy and Pillow where they are not there yet
# - fastdecode itself, with libjpeg-turbo inside as .ci/run makes it; or cffi, pycparser and
#   setuptools, where there are a compiler and libjpeg's headers
# - pytest with iniconfig, packaging and pluggy; for more of the tests also hypothesis and rich
# - DALI is some 200 MB. Without it its CUDA path is not run, and the bench leaves it out.
#
# Each command ends within ten minutes. What decodes on the device, or why nothing does, is shown
# first.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INDEX=1
unset FASTDECODE_BACKEND FASTDECODE_DISABLE FASTDECODE_CORPUS PYTHONPATH
python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')
wheels=${WHEELS:-.whl}
deadline=570

# Beside what $PYTHON has, in a folder of its own: nothing of the machine's is changed.
install() {
    "$python" -m pip install -q --no-deps --upgrade --target .venv-gpu "$wheels"/*.whl
    if ! compgen -G "$wheels/fastdecode-*.whl" > /dev/null; then
        PYTHONPATH=$PWD/.venv-gpu FASTDECODE_NATIVE=require "$python" -m pip install -q --no-deps \
            --upgrade --target .venv-gpu --no-build-isolation .
    fi
    export PYTHONPATH=$PWD/.venv-gpu
    # Outside the checkout, so that it is the installed package that answers.
    (cd / && "$python" -m fastdecode)
    "$python" -c 'import torch; print(torch.cuda.get_device_name())'
}

# Tests in a process of their own, for so many seconds at most. Whatever becomes of them, the next
# ones run.
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
        # From an empty folder it is the installed package that is tested. Files are chosen by what
        # they mention: the others need libraries that may not be here.
        tree=$PWD failed=0 contract=$PWD/tests/test_batch_contract.py
        mapfile -t files < <(grep -rliE --include='test_*.py' 'cuda|gpu' "$tree/tests" \
            | grep -vx "$contract")
        cd "$(mktemp -d)"
        # Three processes: after an illegal access nothing of CUDA works in a process, and damaged
        # files are the likeliest to lead to one.
        check 300 "${files[@]}" "$@"
        check 120 "$contract" "$@" -k 'not flipped and not missing'
        check 120 "$contract" "$@" -k 'flipped or missing'
        exit "$failed"
        ;;
    bench)
        install
        timeout 300 "$python" bench/gpu.py "$@"
        (cd / && timeout "$((deadline - SECONDS))" "$python" -m fastdecode bench "$OLDPWD/$1" \
            --device cuda)
        ;;
    *)
        sed -n '4,5s/^# *//p' "$0" >&2
        exit 2
        ;;
esac
