#!/usr/bin/env bash
# Install the system packages that the checks of the native core and two backends need.
. "$(dirname "$0")/common.sh"
step "system packages"
missing=()
ldconfig -p | grep -q 'libturbojpeg\.so\.0' || missing+=(libturbojpeg0)
command -v gcc > /dev/null || missing+=(gcc)
# libjpeg-turbo and libpng judge the core in its tests.
[ -e /usr/include/jpeglib.h ] || missing+=(libjpeg62-turbo-dev)
[ -e /usr/include/png.h ] && [ -e /usr/include/zlib.h ] || missing+=(libpng-dev zlib1g-dev)
compgen -c clang | grep -qxE 'clang(-[0-9]+)?' || missing+=(clang-14 libclang-rt-14-dev)
# These run the core on ARM and s390x under emulation.
if [ "$(uname -m)" = x86_64 ]; then
    command -v qemu-aarch64-static > /dev/null || missing+=(qemu-user-static)
    [ -e /lib/ld-linux-aarch64.so.1 ] || missing+=(libc6:arm64)
fi
[ ${#missing[@]} -gt 0 ] || exit 0
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
[[ "${missing[*]}" != *:arm64* ]] || $sudo dpkg --add-architecture arm64
$sudo apt-get update -q
$sudo apt-get install -q -y "${missing[@]}"
