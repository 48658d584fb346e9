#!/usr/bin/env bash
# Make all that is handed out: the source, the wheels of all platforms, NOTES.md, which says what was
# run on each (the table of docs/installing.md), and SHA256SUMS. They lie in build/release, or in the
# folder that is named. Only what is committed counts, and the same commit gives the same bytes.
destination=$(realpath -m "${1:-$(dirname "$0")/../build/release}")
. "$(dirname "$0")/common.sh"
step "a compiler for all platforms"
umask 022 # archives keep the permissions of files
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH # the time of every file in them
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install -q build cffi "setuptools>=70.1" twine "$(grep -o 'ziglang==.*' setup.cfg)"
mkdir "$work/tree" "$work/source" "$work/made"
git archive HEAD | tar -x --no-same-permissions -C "$work/tree"

step "the source and the wheels"
"$python" -m build --no-isolation --sdist --outdir "$work/source" "$work/tree" > "$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
# setuptools does not heed SOURCE_DATE_EPOCH here: pack the archive again.
archive=$(basename "$work"/source/*.tar.gz)
tar -xzf "$work/source/$archive" --no-same-permissions -C "$work/source"
tar -c --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar \
    -C "$work/source" "${archive%.tar.gz}" | gzip -9n > "$work/made/$archive"
"$python" "$work/tree/.ci/wheels.py" --out "$work/made"
"$work/venv/bin/twine" check --strict "$work"/made/*

step "what was run, and checksums"
{
    echo "# ${archive%.tar.gz}: what was run on each platform"
    awk '/^## / { inside = 0 } inside; /^## Platforms$/ { inside = 1 }' docs/installing.md |
        sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g'
    tools=$("$python" -m pip list --format freeze | grep -E '^(cffi|setuptools|ziglang)==' | paste -sd ' ')
    printf '\n`.ci/release.sh` makes these files of commit %s with %s.\n' "$(git rev-parse HEAD)" "$tools"
} > "$work/made/NOTES.md"
(cd "$work/made" && sha256sum -- * > SHA256SUMS)
mkdir -p "$destination"
rm -f "$destination"/{fastdecode-*,NOTES.md,SHA256SUMS}
mv "$work"/made/* "$destination"
cat "$destination/SHA256SUMS"
