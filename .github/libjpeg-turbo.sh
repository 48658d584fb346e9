#!/usr/bin/env bash
# Build libjpeg-turbo where wheels are made, so that auditwheel or delocate puts it into them: what
# the images bring is years old. It needs git, a C compiler, cmake and, for x86, nasm.
set -euo pipefail
version=3.1.3
commit=af9c1c268520a29adf98cad5138dafe612b3d318
prefix=${1:-/usr/local}
source=$(mktemp -d)
git clone -q --depth 1 --branch "$version" "${LIBJPEG_TURBO:-https://github.com/libjpeg-turbo/libjpeg-turbo}" "$source"
[ "$(git -C "$source" rev-parse HEAD)" = "$commit" ] || { echo "tag $version has moved" >&2; exit 1; }
cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DENABLE_STATIC=0 -DWITH_TURBOJPEG=0 -DREQUIRE_SIMD=1
cmake --build "$source/build" --parallel
cmake --install "$source/build"
rm -rf "$source"
