#!/usr/bin/env bash
# Create an environment with all optional libraries and the CPU build of PyTorch.
. "$(dirname "$0")/common.sh"
step "a fresh environment, with the CPU build of PyTorch"
rm -rf .venv
python3 -m venv .venv
.venv/bin/pip install -q --upgrade pip # older versions take a minute longer to resolve these
# Compiling 200 MB of Python would take a minute; modules are compiled when they are imported.
.venv/bin/pip install -q --no-compile torch==2.13.0
.venv/bin/pip install -q --no-compile -e '.[all,test,dev,docs,ray,interop,nvimgcodec,dali]' setuptools
.ci/vision.sh
touch .venv/complete
