#!/usr/bin/env bash
# Measure everything that README.md and docs/ show, at one commit, and write the documents anew:
#
#     PYTHON=python bench/all.sh PHOTOS     # an hour on two cores
#
# PHOTOS is made by bench/photos.py: px500, png500, hd1080 and mp12plus. PYTHON needs the packages of
# '.[all,test]', torchvision, timm, albumentations, DALI, SPDL with FFmpeg's libraries, FFCV, Ray,
# moto and h5py. The core must be built. Once whole, it replaces the results of this kind of
# processor, except those of accuracy.py, instructions.py and a GPU. Until then they lie in
# build/results, and the same command at the same commit goes on where it was stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
photos=$(realpath "$1") PYTHON=${PYTHON:-python}
export PYTHONPATH=$PWD
results=$(cd bench && "$PYTHON" -c 'import _common; print(_common.RESULTS)')
[ -z "$(git status --porcelain --untracked-files=no)" ] || { echo "commit your changes first"; exit 1; }
parts=build/results/$(git rev-parse --short HEAD)
mkdir -p "$parts" "$results"
begun=$(date +%s)
keep() { # the name of a result, and what Python runs to make it
    local name=$1 path=$parts/$1.json
    shift
    [ ! -e "$path" ] || { echo "=== $name is there"; return; }
    echo "=== $name ($((($(date +%s) - begun) / 60)) min)"
    "$PYTHON" "$@" --json "$parts/unfinished" # fastdecode.bench saves what it has after Ctrl-C
    mv "$parts/unfinished" "$path"
}
measure() { # a script, and the name of its result if that differs, then what else it takes
    local script=$1 name=$2
    shift 2
    keep "$name" "bench/$script.py" "$@"
}
declare -A epochs=([px500]=5 [hd1080]=3 [mp12plus]=3) rounds=([px500]=7 [hd1080]=3 [mp12plus]=2)
declare -A few=([px500]=40 [hd1080]=12 [mp12plus]=4)
measure recipes recipes "$photos/px500" --rounds 5 --limit 640
measure processors processors "$photos/hd1080" --many
measure own_dataset own_dataset "$photos/px500" --only all
for size in px500 hd1080 mp12plus; do
    measure pipeline "pipeline_$size" "$photos/$size" --epochs "${epochs[$size]}"
    measure decoder "decoder_$size" "$photos/$size" --rounds "${rounds[$size]}" --limit "${few[$size]}"
done
measure limit limit_px500 "$photos/px500" --rounds 5
measure pipeline pipeline_png "$photos/png500" --kind train --only pillow,loader --epochs 5
measure quality quality "$photos"
every=$("$PYTHON" -c 'import fastdecode; print(*(one.name for one in fastdecode.backends() if one.usable), sep=",")')
keep photos -m fastdecode.bench "$photos"/{px500,hd1080,mp12plus} --backend "$every" --reduce 1,2,4,8 \
    --limit 200 --seconds 0.5 --no-train
measure default_order default_order "$photos/px500" --seconds 0.5
measure regions regions "$photos/mp12plus" --limit 8
measure stores stores "$photos/px500" --images 2500
measure remote remote "$photos/px500" --images 256
measure s3_requests s3_requests "$photos/px500"
measure ray_scaling ray_scaling "$photos/px500" --images 800 --rounds 3
measure ray_scaling ray_scaling_hd1080 "$photos/hd1080" --images 200 --rounds 3 --workers 1
measure ray_scaling ray_scaling_mp12plus "$photos/mp12plus" --images 60 --rounds 3 --workers 1
echo "=== $((($(date +%s) - begun) / 60)) minutes"
find "$results" -name '*.json' ! -name 'gpu_*' ! -name 'threads_*' ! -name accuracy.json \
    ! -name instructions.json -delete
mv "$parts"/*.json "$results"
"$PYTHON" bench/readme.py --seal "$results"
