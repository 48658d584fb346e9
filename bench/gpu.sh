#!/usr/bin/env bash
# The tests that need a GPU, and the figures of docs/gpu.md, on a machine that has one.
#
#     bench/gpu.sh test                            install, and run the tests that mention a GPU
#     bench/gpu.sh bench PHOTOS [LARGE] [OPTION...]  install, and run bench/gpu.py
#
# PyTorch with CUDA is there already, in the Python that $PYTHON names (python3); that may be a
# virtual environment, and needs pip. No network is needed: all else comes from the wheels in the
# folder that $WHEELS names (.whl), for the Python and the CUDA that are there:
#
# - nvidia-nvimgcodec-cu13, or -cu12 for PyTorch with CUDA 12, and nvidia-nvjpeg: some 30 MB. Where
#   nvJPEG is missing or does not fit, both commands end at once and say so.
# - platformdirs, and NumPy and Pillow where they are not there yet
# - cffi, pycparser and setuptools, to build the core; or a wheel of fastdecode, below
# - pytest with iniconfig, packaging and pluggy; for more of the tests also hypothesis and rich
# - DALI is some 200 MB. Without it its CUDA path is not run, and the bench leaves it out.
#
# PHOTOS are whatever the machine can read: where only the checkout gets there, a folder inside it
# that git ignores. A hundred of 500 x 375 are some 10 MB, and enough.
#
# The wheels are installed into .venv-gpu, which stays. fastdecode itself is built where there are a
# compiler, libjpeg's headers and cffi; elsewhere its wheel has to be among the others, with
# libjpeg-turbo inside as .ci/run makes it. Each command ends within ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INDEX=1
unset FASTDECODE_BACKEND FASTDECODE_DISABLE FASTDECODE_CORPUS PYTHONPATH
python=$PWD/.venv-gpu/bin/python
wheels=${WHEELS:-.whl}
deadline=570

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

# A virtual environment that also has all that $PYTHON has. --system-site-packages would be those of
# the Python that $PYTHON itself was made from; and ensurepip is often left out.
environment() {
    "${PYTHON:-python3}" -m venv --without-pip .venv-gpu
    "${PYTHON:-python3}" - > "$(echo .venv-gpu/lib/python3*/site-packages)/_parent.pth" << 'END'
import sys, sysconfig

own = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
for path in sys.path:
    if path in own or path.endswith("-packages"):
        # A line that begins with "import" is run: so the .pth files that lie there count as well.
        print(f"import site; site.addsitedir({path!r})")
END
}

install() {
    [ -x "$python" ] || environment
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
    timeout 120 "$python" bench/gpu_probe.py
}

# Tests in a process of their own, for so many seconds at most. Whatever becomes of them, the next
# ones run.
check() {
    local most=$1 left=$((deadline - SECONDS))
    shift
    if [ "$left" -le 0 ]; then
        echo "no time was left for: $*" >&2
        failed=1
        return
    fi
    timeout -k 10 "$((left < most ? left : most))" "$python" -m pytest -c ../pyproject.toml \
        --rootdir .. -p no:cacheprovider -o faulthandler_timeout=120 -q -rfEs "$@" || failed=1
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
        failed=0 contract=test_batch_contract.py
        mapfile -t files < <({
            ls test_device*.py
            grep -liE 'cuda|gpu' test_*.py
        } | sort -u | grep -vx "$contract")
        # Three processes: after an illegal access nothing of CUDA works in a process, and damaged
        # files are the likeliest to lead to one.
        check 300 "${files[@]}" "$@"
        check 120 "$contract" "$@" -k 'not flipped and not missing'
        check 120 "$contract" "$@" -k 'flipped or missing'
        exit "$failed"
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
        left=$((deadline - SECONDS))
        timeout "$left" "$python" bench/gpu.py "$photos" "${large[@]}" \
            --minutes "$(((left - 90) / 60))" "$@"
        ;;
    *) usage ;;
esac
