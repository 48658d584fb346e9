#!/usr/bin/env bash
# A fresh environment with all optional libraries, and the CPU build of PyTorch.
. "$(dirname "$0")/common.sh"
step "a fresh environment, with the CPU build of PyTorch"
rm -rf .venv
python3 -m venv .venv
.venv/bin/pip install -q --upgrade pip # whose older versions take a minute longer to resolve these
# Compiling all 200 MB of Python takes a minute; what is imported is compiled then.
.venv/bin/pip install -q --no-compile torch==2.13.0
FASTDECODE_NATIVE=require .venv/bin/pip install -q --no-compile -e '.[all,test,dev,docs,ray,interop,nvimgcodec,dali]' cffi setuptools
touch .venv/complete
