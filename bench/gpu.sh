#!/usr/bin/env bash
# The tests that need a GPU, and the figures of docs/gpu.md, on a machine that has one.
#
#     bench/gpu.sh test                            install, and run the tests that mention a GPU
#     bench/gpu.sh bench PHOTOS [LARGE] [OPTION...]  install, and run bench/gpu.py
#
# PyTorch with CUDA is there already, in the Python that $PYTHON names (python3). No network is
# needed: everything else comes from the wheels in the folder that $WHEELS names (.whl). They are
# installed into .venv-gpu, which stays. fastdecode itself is built here where there are a compiler,
# libjpeg's headers and cffi; elsewhere its wheel has to be among the others, with libjpeg-turbo
# inside as .ci/run makes it. Each command ends within ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INDEX=1
unset FASTDECODE_BACKEND FASTDECODE_DISABLE FASTDECODE_CORPUS PYTHONPATH
python=$PWD/.venv-gpu/bin/python
wheels=${WHEELS:-.whl}

usage() {
    sed -n '4,5s/^# *//p' "$0" >&2
    exit 2
}

# Whether the native core can be built here.
can_build() {
    command -v cc > /dev/null && "$python" - << 'END'
import importlib.util, subprocess, sys, sysconfig
from pathlib import Path

code = "#include <stdio.h>\n#include <jpeglib.h>\nint main(void) { return 0; }\n"
headers = Path(sysconfig.get_path("include"), "Python.h").exists()
tools = all(importlib.util.find_spec(name) for name in ("cffi", "setuptools"))
command = ["cc", "-x", "c", "-", "-ljpeg", "-o", "/dev/null"]
linked = subprocess.run(command, input=code, text=True, capture_output=True).returncode == 0
sys.exit(not (headers and tools and linked))
END
}

build() {
    FASTDECODE_NATIVE=require "$python" -m pip install -q --no-deps --no-build-isolation \
        --force-reinstall .
}

install() {
    [ -x "$python" ] || "${PYTHON:-python3}" -m venv --system-site-packages .venv-gpu
    local wheel own=''
    for wheel in "$wheels"/*.whl; do
        case ${wheel##*/} in
            fastdecode-*) own=$wheel ;;
            '*.whl') ;;
            *) "$python" -m pip install -q --no-deps "$wheel" ;;
        esac
    done
    if ! { can_build && build; }; then
        if [ -z "$own" ]; then
            echo "the native core cannot be built here, and $wheels has no wheel of fastdecode" >&2
            exit 1
        fi
        echo "the native core cannot be built here: installing ${own##*/}"
        "$python" -m pip install -q --no-deps --force-reinstall "$own"
    fi
    "$python" -m pip check || true # told, not judged: PyTorch's own packages may be incomplete
    # Outside the checkout, so that it is the installed package that answers.
    (cd / && "$python" -m fastdecode)
    "$python" -c 'import torch; print(torch.cuda.get_device_name())'
}

[ $# -ge 1 ] || usage
what=$1
shift
case $what in
    test)
        install
        # From there it is the installed package that is tested. Files are chosen by what they
        # mention: the others need libraries that may not be here.
        cd tests
        mapfile -t files < <(grep -liE 'cuda|gpu' test_*.py)
        timeout 480 "$python" -m pytest -c ../pyproject.toml --rootdir .. -p no:cacheprovider -q \
            -rs "${files[@]}" "$@"
        ;;
    bench)
        [ $# -ge 1 ] || usage
        photos=$1
        shift
        large=()
        if [ $# -ge 1 ] && [ -d "$1" ]; then
            large=(--large "$1")
            shift
        fi
        install
        timeout 500 "$python" bench/gpu.py "$photos" "${large[@]}" --minutes 7 "$@"
        ;;
    *) usage ;;
esac
