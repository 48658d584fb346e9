# Settings and functions that the scripts share. Use it with `source`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# Keep bytecode: the tests start hundreds of interpreters.
unset PYTHONDONTWRITEBYTECODE
unset FASTDECODE_BACKEND FASTDECODE_DISABLE FASTDECODE_CORPUS PYTHONPATH
: "${corpus=$(cd .. && pwd)/shared/data}"
[ -d "$corpus" ] || corpus=''
export corpus # the large collection of test images, if it lies next to the checkout

# The commit draws the random cases, so that a failure comes again.
export seed="${seed:-$((0x$(git rev-parse --short HEAD 2> /dev/null || echo 1) % 0x7fffffff))}"

# Print a heading for the next step.
step() { printf '\n=== %s (after %d s)\n' "$*" $(($(date +%s) - started)); }
export started="${started:-$(date +%s)}"

# Print the command that follows a marker in the README.
readme_command() {
    awk -v marker="<!-- command: $1 -->" '
        $0 == marker { found = 1 } found && /^```$/ { exit } found && inside { print }
        found && /^```sh$/ { inside = 1 }' README.md
}

# Print the path of an interpreter of a version such as 3.13; nothing if there is none.
interpreter() {
    local found
    for found in "$(command -v "python$1")" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
        if [ -n "$found" ] && "$found" -c 'import venv' 2> /dev/null; then
            echo "$found"
            return
        fi
    done
}
