#!/usr/bin/env bash
# The core's own decoders on 64-bit ARM, under emulation: the same pixels as libjpeg-turbo's and libpng's
# for ARM.
#
#   tests/native/arm.sh
#
# On Debian for x86-64 it needs gcc-aarch64-linux-gnu, qemu-user-static, a Python (PYTHON, else python3)
# with Pillow and, after `dpkg --add-architecture arm64`, libjpeg62-turbo-dev:arm64, libpng-dev:arm64 and
# zlib1g-dev:arm64.
set -euo pipefail
cd "$(dirname "$0")/../.."
system=/usr/aarch64-linux-gnu libraries=/usr/lib/aarch64-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build OUT ARGUMENT...: with optimisation, which is what turns plain C into NEON.
build() {
    aarch64-linux-gnu-gcc -std=c11 -O3 -ffp-contract=off -Wall -Wextra -Werror -Ifastdecode/native \
        -I/usr/include fastdecode/native/[!_]*.c "${@:2}" \
        -L"$libraries" -ljpeg -lpng -lz -lpthread -lm -o "$work/$1"
}
emulate() { qemu-aarch64-static -L "$system" -E LD_LIBRARY_PATH="$libraries" "$@"; }

build own tests/native/own.c
build png -DFILES tests/native/fuzz_png.c
"${PYTHON:-python3}" tests/native/seeds.py "$work/seeds" tests/data
emulate "$work/own" 20 tests/data/jpeg_kinds/gen_4*.jpg
emulate "$work/png" "$work"/seeds/png/*
