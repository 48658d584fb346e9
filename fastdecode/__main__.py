"""``python -m fastdecode``: what is here (`doctor_command`), and the commands that it names.

Little is imported here: from `run` on, Ctrl-C and a closed terminal end a command in good order.
"""

from __future__ import annotations

import sys

from fastdecode.terminal import run

_COMMANDS = {
    "calibrate": "fastdecode.calibrate_command",
    "check": "fastdecode.packing._check_command",
    "index": "fastdecode.packing._index_command",
    "pack": "fastdecode.packing._pack_command",
}


def main() -> int:
    """Run the command that the first word names; without one, say what is here."""
    words = sys.argv[1:]
    module = _COMMANDS.get(words[0]) if words else None
    return run(module, words[1:]) if module else run("fastdecode.doctor_command", words)


if __name__ == "__main__":
    sys.exit(main())
