#!/usr/bin/env bash
# The contract suite for the two backends that come only with several gigabytes of CUDA libraries.
# Run in an environment of their own: pip install torchvision torchcodec '.[test,simplejpeg]'.
set -euo pipefail
cd "$(dirname "$0")/.."
export FASTDECODE_REQUIRED_BACKENDS=torchvision,torchcodec
python -m pytest -q tests/test_contract.py tests/test_corpus.py tests/test_limits.py \
    -k "torchvision or torchcodec or None or agree or same or bomb" "$@"
