"""``python -m fastdecode.bench``, which is ``fastdecode bench``: see `fastdecode.cli`."""

from __future__ import annotations

import sys

from fastdecode.cli import BENCH, run

if __name__ == "__main__":
    sys.exit(run(BENCH, ["bench"]))
