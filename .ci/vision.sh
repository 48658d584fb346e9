#!/usr/bin/env bash
# Install what the tests of fastdecode.torch compare with, beside the CPU build of PyTorch.
. "$(dirname "$0")/common.sh"
step "torchvision, timm, albumentations and transformers"
# Their dependencies would bring PyTorch for CUDA. torchvision is of the same month as PyTorch.
.venv/bin/pip install -q --no-compile --no-deps torchvision==0.28.0 timm
.venv/bin/pip install -q --no-compile albumentations==2.0.8 transformers pyyaml huggingface_hub safetensors
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp .ci/torchvision_operators.py "$packages"
echo 'import torchvision_operators' > "$packages/torchvision_operators.pth"
.venv/bin/python -W error::UserWarning -c 'import torchvision, timm, albumentations, transformers'
