#!/usr/bin/env bash
# Run every case by the README's test command. These backends and libraries must be there: no test
# may skip them.
. "$(dirname "$0")/common.sh"
step "the README's test command"
[ -z "$corpus" ] || export FASTDECODE_CORPUS="$corpus"
export FASTDECODE_REQUIRED_BACKENDS=pillow,native,simplejpeg,opencv,turbojpeg,jpeg4py,imagecodecs,tifffile,kornia_rs,pillow_heif,nvimgcodec,dali
export FASTDECODE_REQUIRED_LIBRARIES=torch,torchvision,timm,albumentations,transformers,jinja2,lmdb,h5py,fsspec,s3fs,moto,webdataset,lightning,accelerate,ray.data
eval "$(readme_command test) --all --seed $seed"
