"""``python -m fastdecode index``: make the index beside tar shards, for random access."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fastdecode.errors import StoreError, visible
from fastdecode.stores.tar_index import index_tar
from fastdecode.terminal import INTERRUPTED, Parser

__all__ = ["main"]

_EXAMPLES = """\
examples:
  python -m fastdecode index train.tar
  python -m fastdecode index shards/*.tar

Each index is a file beside its shard, SHARD.tar.fdx. Shards that pack has made
have one already. With it, a store of any size opens at once; without it, all
headers of the shard are read first. Reading a shard from its beginning to its
end needs none.

exit status: 0; 1 if a shard cannot be read or is damaged; 2 for a wrong argument"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make indexes.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the command line's.

    Returns
    -------
    int
        The exit status.
    """
    parser = Parser(
        prog="python -m fastdecode index",
        description="Write an index beside each tar shard.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shards", nargs="+", metavar="SHARD", help="a .tar file")
    options = parser.parse_args(arguments)
    failed = False
    for shard in options.shards:
        try:
            count = len(index_tar(shard))
        except (OSError, StoreError) as error:
            failed = True
            words = str(error)
            print(visible(words if shard in words else f"{shard}: {words}"), file=sys.stderr)
            continue
        except KeyboardInterrupt:
            print("stopped; the shards before it have their index", file=sys.stderr)
            return INTERRUPTED
        print(visible(f"{shard}: {count} items"))
    return int(failed)
