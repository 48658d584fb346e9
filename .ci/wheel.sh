#!/usr/bin/env bash
# Build the sdist and, from it, a wheel with the compiler of this machine, and test the wheel in a
# bare environment. They stay in build/published for minimal.sh.
. "$(dirname "$0")/common.sh"
step "the source and a wheel"
made=$PWD/build/published
rm -rf build && mkdir build
python3 -m venv .venv-wheel
.venv-wheel/bin/pip install -q build twine
.venv-wheel/bin/pyproject-build --outdir "$made" . > "$made.log" 2>&1 || {
    cat "$made.log"
    exit 1
}
.venv-wheel/bin/twine check --strict "$made"/*.*
wheel=("$made"/fastdecode-*-py3-none-*.whl) # for every Python
[ -e "${wheel[0]}" ] || {
    echo "the wheel has another tag: $(ls "$made")"
    exit 1
}
python3 -m zipfile -e "${wheel[0]}" "$made.wheel"
! readelf -S "$made.wheel/fastdecode/native/libfastdecode.so" | grep -E '\.(symtab|debug_)' || {
    echo "the library is not stripped"
    exit 1
}

# The sdist must contain every document, test and benchmark of this tree, and no other files.
folders='bench|conda|docs|examples|tests'
diff <(find . -type f | sed 's#^\./##' | grep -E "^($folders)/" | grep -vE '\.py[cod]$|/\.' | sort) \
    <(tar -tzf "$made"/*.tar.gz | sed 's#^[^/]*/##' | grep -E "^($folders)/.*[^/]$" | sort)

python3 -m venv --clear .venv-wheel
.venv-wheel/bin/pip install -q "${wheel[0]}"
(cd / && "$OLDPWD/.venv-wheel/bin/fastdecode" bench --backend native,pillow --seconds 0.05)
rm -rf .venv-wheel
