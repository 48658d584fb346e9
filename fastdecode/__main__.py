"""``python -m fastdecode``: see `fastdecode.cli`."""

from __future__ import annotations

import sys

from fastdecode.cli import run

if __name__ == "__main__":
    sys.exit(run("python -m fastdecode"))
