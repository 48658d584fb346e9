"""``python -m fastdecode.bench``: see `fastdecode.bench.command` and `fastdecode.bench.compare`."""

from __future__ import annotations

import sys

from fastdecode.terminal import run


def main() -> int:
    """Run the benchmark, or compare two results of it."""
    words = sys.argv[1:]
    if words[:1] == ["compare"]:
        return run("fastdecode.bench.compare", words[1:])
    return run("fastdecode.bench.command", words)


if __name__ == "__main__":
    sys.exit(main())
