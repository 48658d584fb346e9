#!/usr/bin/env bash
# The core's own decoder on 64-bit ARM, under emulation: the same pixels as libjpeg-turbo's for ARM.
#
#   tests/native/arm.sh
#
# On Debian for x86-64 it needs gcc-aarch64-linux-gnu, qemu-user-static and, after
# `dpkg --add-architecture arm64`, libjpeg62-turbo-dev:arm64.
set -euo pipefail
cd "$(dirname "$0")/../.."
system=/usr/aarch64-linux-gnu libraries=/usr/lib/aarch64-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# With optimisation, which is what turns plain C into NEON.
aarch64-linux-gnu-gcc -std=c11 -O3 -ffp-contract=off -Wall -Wextra -Werror -Ifastdecode/native \
    -I/usr/include fastdecode/native/[!_]*.c tests/native/own.c \
    -L"$libraries" -ljpeg -lpthread -lm -o "$work/own"
qemu-aarch64-static -L "$system" -E LD_LIBRARY_PATH="$libraries" \
    "$work/own" 20 tests/data/jpeg_kinds/gen_4*.jpg
