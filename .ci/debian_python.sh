#!/usr/bin/env bash
# Unpack a Python of Debian's testing into a folder, with the C library that it wants, and print the
# path of the interpreter: debian_python.sh 3.14 FOLDER. Nothing of the system is changed. It fails
# where apt knows no Debian, and where that has no such Python any more.
set -euo pipefail
version=$1
mkdir -p "$2"
root=$(cd "$2" && pwd)
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' | grep -m 1 '/debian/$')
mkdir -p "$root"/etc/apt/preferences.d "$root"/var/{lib/apt/lists/partial,cache/apt/archives/partial,lib/dpkg}
touch "$root/var/lib/dpkg/status" # nothing is installed, so apt takes all that is needed
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $mirror testing main" > "$root/etc/apt/sources.list"
there=(apt-get -qq -o "Dir=$root" -o Acquire::Languages=none -o APT::Sandbox::User=root)
"${there[@]}" update >&2
"${there[@]}" install --download-only --no-install-recommends "python$version-venv" libstdc++6 >&2
for package in "$root"/var/cache/apt/archives/*.deb; do
    dpkg-deb --extract "$package" "$root"
done
python=$root/usr/bin/python$version
libraries=$(dirname "$(find "$root/usr/lib" -name libc.so.6)")
loader=("$libraries"/ld-linux*.so.*)
patchelf --set-interpreter "${loader[0]}" --force-rpath --set-rpath "$libraries" "$python"
echo "$python"
