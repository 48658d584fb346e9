#!/usr/bin/env bash
# The core on other processors, under emulation, and in vectors that no processor is asked for.
#
#   tests/native/arm.sh
#
# On 64-bit ARM its own decoders give the pixels of libjpeg-turbo and libpng for ARM. There, and on s390x,
# which is big-endian, augmentations and resizes are those of this processor. Every set of instructions takes part.
#
# On Debian for x86-64 it needs gcc-aarch64-linux-gnu, gcc-s390x-linux-gnu, libc6-dev-s390x-cross,
# qemu-user-static, a Python (PYTHON, else python3) with Pillow and, after `dpkg --add-architecture arm64`,
# libjpeg62-turbo-dev:arm64, libpng-dev:arm64 and zlib1g-dev:arm64.
set -euo pipefail
cd "$(dirname "$0")/../.."
system=/usr/aarch64-linux-gnu libraries=/usr/lib/aarch64-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build COMPILER OUT ARGUMENT...: with optimisation, which is what turns plain C into vectors. See _build.py
# for the options.
build() {
    "$1" -std=gnu11 -O3 -ffp-contract=off -fno-trapping-math -fno-math-errno -Wall -Wextra -Werror \
        -Ifastdecode/native fastdecode/native/[!_]*.c "${@:3}" -lpthread -lm -o "$work/$2"
}
build_for_arm() {
    build aarch64-linux-gnu-gcc "$@" -I/usr/include -L"$libraries" -ljpeg -lpng -lz
}
emulate() { qemu-aarch64-static -L "$system" -E LD_LIBRARY_PATH="$libraries" "$@"; }
die() { printf 'tests/native/arm.sh: %s\n' "$*" >&2 && exit 1; }

"${PYTHON:-python3}" tests/native/seeds.py "$work/seeds" tests/data
build_for_arm own tests/native/{own,judge}.c
build_for_arm png -DFILES tests/native/fuzz_png.c
emulate "$work/own" 20 tests/data/jpeg_kinds/gen_4*.jpg
emulate "$work/png" "$work"/seeds/png/*

build gcc any -DSIMD_ANY tests/native/{own,judge}.c -ljpeg
"$work/any" 20 tests/data/jpeg_kinds/gen_4*.jpg

program=(-DALONE tests/native/fuzz_program.c) count=800
build gcc program "${program[@]}"
build gcc program-any -DSIMD_ANY "${program[@]}"
build_for_arm program-arm "${program[@]}"
build s390x-linux-gnu-gcc program-big "${program[@]}" -static
expected=$("$work/program" $count)
echo "$expected"
[ "$("$work/program-any" $count)" = "$expected" ] || die "the vectors of any processor give something else"
[ "$(emulate "$work/program-arm" $count)" = "$expected" ] || die "ARM gives something else"
[ "$(qemu-s390x-static "$work/program-big" $count)" = "$expected" ] || die "s390x gives something else"

# The same for JPEGs that the core decodes. There is no libjpeg and no libpng for s390x: none is called.
files=(-Itests/native bench/instructions.c tests/native/judge.c)
big=(-static -Wl,--unresolved-symbols=ignore-all -idirafter /usr/include)
build gcc jpeg "${files[@]}" -ljpeg -lpng
build s390x-linux-gnu-gcc jpeg-big "${files[@]}" "${big[@]}" -idirafter /usr/include/x86_64-linux-gnu
for file in tests/data/jpeg_kinds/gen_4{20,22,44}_{base,prog,rst1,prog_rst1}.jpg; do
    for reduce in 1 2 4 8; do
        for set in vectors plain; do
            [ "$(qemu-s390x-static "$work/jpeg-big" $set 1 own $reduce "$file")" = \
                "$("$work/jpeg" "" 1 own $reduce "$file")" ] || die "s390x decodes $file to something else"
        done
    done
done
