#!/usr/bin/env bash
# The native core under sanitizers, and against inputs that nobody thought of.
#
#   tests/native/check.sh [--fuzz-seconds N] [--corpus FOLDER]
#
# Builds everything in a folder of its own, and removes that. Any finding is a failure, and what led
# to it is kept where the last line says. Needs gcc, clang with its runtime (Debian:
# libclang-rt-14-dev), the headers of libjpeg-turbo, libpng and zlib, and a Python (PYTHON, else
# python3) with pytest, cffi and setuptools.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=60 corpus='' python=${PYTHON:-python3}
while [ $# -gt 0 ]; do
    case $1 in
        --fuzz-seconds) seconds=$2 ;;
        --corpus) corpus=$(cd "$2" && pwd) ;;
        *) printf 'usage: %s [--fuzz-seconds N] [--corpus FOLDER]\n' "$0" >&2 && exit 2 ;;
    esac
    shift 2
done

step() { printf '\n--- %s\n' "$*"; }
die() { printf 'tests/native/check.sh: %s\n' "$*" >&2 && exit 1; }

python=$(command -v "$python") || die "there is no $python"
python=$(realpath -s "$python")
cd "$root"
clang=''
for name in clang clang-{22..14}; do
    command -v "$name" > /dev/null && clang=$name && break
done
[ -n "$clang" ] || die "fuzzing needs clang: apt-get install clang-14 libclang-rt-14-dev"
command -v gcc > /dev/null || die "the sanitizers need gcc: apt-get install gcc"
"$python" -c 'import cffi, hypothesis, numpy, PIL, pytest, setuptools' ||
    die "$python lacks something: pip install -e '.[test]'"

work=$(mktemp -d)
fuzzers=()
finish() {
    local status=$?
    for fuzzer in "${fuzzers[@]}"; do
        pkill -P "$fuzzer" 2> /dev/null || true
        wait "$fuzzer" 2> /dev/null || true
    done
    if [ $status -ne 0 ] && [ -n "$(ls -A "$work/findings")" ]; then
        printf '\ninputs that fail are in %s\n' "$work/findings" >&2
    else
        rm -rf "$work"
    fi
    exit $status
}
trap finish EXIT
mkdir "$work/findings"

memory=(-fsanitize=address,undefined -fno-sanitize-recover=all)
wrapped='-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc'
folders=(tests/data fastdecode/samples ${corpus:+"$corpus"})

common=(-std=c11 -g -O1 -fno-omit-frame-pointer -ffp-contract=off -Wall -Wextra -Werror)
for folder in "$root"/fastdecode/native/{,*/}; do common+=("-I$folder"); done

# core COMPILER NAME FLAG...: the core's objects, which several programs share.
core() {
    mkdir "$work/core-$2"
    (cd "$work/core-$2" && "$1" "${common[@]}" "${@:3}" -c "$root"/fastdecode/native/{,*/}*.c) ||
        die "the core does not compile with $1"
}

# build COMPILER OUT NAME ARGUMENT...
build() {
    "$1" "${common[@]}" "$work/core-$3"/*.o "${@:4}" -ljpeg -lpng -lz -lpthread -lm -o "$work/$2" ||
        die "$2 does not compile with $1"
}

step "building"
fuzzing=("${memory[@]}" -fsanitize=fuzzer)
# With a small buffer of compressed data, so that short files reach its end.
core "$clang" fuzzing "${fuzzing[@]}" -DFD_INPUT=1024
core gcc memory "${memory[@]}"
core gcc threads -fsanitize=thread
build "$clang" fuzz fuzzing "${fuzzing[@]}" tests/native/{fuzz,fuzz_crop,judge}.c
build "$clang" fuzz-own fuzzing "${fuzzing[@]}" tests/native/{fuzz_own,judge}.c
build "$clang" fuzz-png fuzzing "${fuzzing[@]}" tests/native/fuzz_png.c
build "$clang" fuzz-program fuzzing "${fuzzing[@]}" tests/native/fuzz_program.c
build gcc own memory "${memory[@]}" tests/native/{own,judge}.c
build gcc png memory "${memory[@]}" -DFILES tests/native/fuzz_png.c
build gcc corpus memory "${memory[@]}" "$wrapped" tests/native/{fuzz,fuzz_crop,corpus,judge}.c
build gcc pool memory "${memory[@]}" tests/native/pool.c
build gcc pool-threads threads -fsanitize=thread tests/native/pool.c
# Short fuzzing would do no more than read all seeds of the large collection.
[ "$seconds" -ge 300 ] && from=("${folders[@]}") || from=(tests/data fastdecode/samples)
"$python" tests/native/seeds.py "$work/seeds" "${from[@]}"

# They share one core, and the others of the machine do the rest meanwhile.
fuzz() { # PROGRAM SEEDS LONGEST
    mkdir "$work/found-$1"
    "$work/$1" -max_total_time="$seconds" -max_len="$3" -timeout=20 -rss_limit_mb=2500 -len_control=0 \
        -dict="tests/native/$2.dict" -artifact_prefix="$work/findings/$1-" -print_final_stats=1 \
        "$work/found-$1" "$work/seeds/$2" 2> "$work/log-$1"
}
mkdir "$work/seeds/program" # it begins with nothing
names=(fuzz fuzz-own fuzz-png fuzz-program)
fuzz fuzz jpeg 20000 & fuzzers=($!)
fuzz fuzz-own jpeg 3000 & fuzzers+=($!)
fuzz fuzz-png png 6000 & fuzzers+=($!)
fuzz fuzz-program program 600 & fuzzers+=($!)

step "every file, every operation, and no memory: AddressSanitizer and UndefinedBehaviorSanitizer"
export ASAN_OPTIONS=abort_on_error=1 UBSAN_OPTIONS=abort_on_error=1:print_stacktrace=1
mapfile -d '' files < <(find "${folders[@]}" -type f -print0 | sort -z)
"$work/corpus" "${files[@]}" || die "a file breaks a promise, or what the sanitizers look after"

step "the core's own decoder beside libjpeg-turbo: AddressSanitizer and UndefinedBehaviorSanitizer"
"$work/own" 60 tests/data/jpeg_kinds/*.jpg || die "the core decodes something else than libjpeg-turbo"

step "PNG beside libpng: AddressSanitizer and UndefinedBehaviorSanitizer"
mapfile -d '' pngs < <(find "${folders[@]}" -name '*.png' -print0 | sort -z)
"$work/png" "$work"/seeds/png/* "${pngs[@]}" || die "the core decodes something else than libpng"

step "many callers of one pool: AddressSanitizer and UndefinedBehaviorSanitizer"
"$work/pool" tests/data/jpeg_kinds/gen_4*.jpg || die "the pool breaks a promise"

step "many callers of one pool: ThreadSanitizer"
"$work/pool-threads" tests/data/jpeg_kinds/gen_4*.jpg || die "there is a race in the pool"

step "the Python extension: AddressSanitizer and UndefinedBehaviorSanitizer"
mkdir "$work/tree"
cp -r fastdecode tests setup.py setup.cfg pyproject.toml README.md "$work/tree"
cd "$work/tree"
FASTDECODE_SANITIZE=address,undefined "$python" setup.py -q build_core --inplace
# libstdc++ has to be there early, too, for libraries that throw.
preload="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)"
export ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=$work/tree
env LD_PRELOAD="$preload" "$python" -c "
import fastdecode.native._library as core
assert core.__file__.startswith('$work'), core.__file__"
tests() { env LD_PRELOAD="$preload" "$python" -m pytest -q -p no:cacheprovider "$@"; }
# What is left out is about compilers, and about which copy is found. The large corpus has had its
# turn above, where no Python is in between.
tests tests/native --ignore tests/native/test_build.py --ignore tests/native/test_library.py && tests tests/backends/test_contract.py -k native ||
    die "the extension fails its tests under AddressSanitizer"

step "libFuzzer, for $seconds seconds"
for i in "${!names[@]}"; do
    name=${names[$i]}
    wait "${fuzzers[$i]}" || {
        tail -n 60 "$work/log-$name" >&2
        die "libFuzzer has found something ($name)"
    }
    printf '%s: ' "$name"
    grep -E 'number_of_executed_units' "$work/log-$name"
done
fuzzers=()

printf '\nnothing found\n'
