# What the scripts share: where they are, how they speak, and the README's commands. For `source`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# The tests start hundreds of interpreters, which should not compile the package each time.
unset PYTHONDONTWRITEBYTECODE
unset FASTDECODE_BACKEND FASTDECODE_DISABLE FASTDECODE_CORPUS PYTHONPATH
: "${corpus=$(cd .. && pwd)/shared/data}"
[ -d "$corpus" ] || corpus=''
export corpus # the large collection, where it lies beside the checkout

# Say what comes next.
step() { printf '\n=== %s (after %d s)\n' "$*" $(($(date +%s) - started)); }
export started="${started:-$(date +%s)}"

# The command that the README shows below a marker, word for word.
readme_command() {
    awk -v marker="<!-- command: $1 -->" '
        $0 == marker { found = 1 } found && /^```$/ { exit } found && inside { print }
        found && /^```sh$/ { inside = 1 }' README.md
}

# The interpreters of a version, such as 3.13, that are on this machine: the first, or none.
interpreter() {
    local found
    for found in "$(command -v "python$1")" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
        if [ -n "$found" ] && "$found" -c 'import venv' 2> /dev/null; then
            echo "$found"
            return
        fi
    done
}
