"""``python -m fastdecode index``: make the index beside tar shards, for random access."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fastdecode.errors import visible
from fastdecode.stores._index import Index
from fastdecode.stores._mmap import is_uri
from fastdecode.stores.tar import index_tar
from fastdecode.stores.tar.store import SUFFIX
from fastdecode.terminal import INTERRUPTED, Parser

__all__ = ["main"]

_EXAMPLES = """\
examples:
  python -m fastdecode index train.tar
  python -m fastdecode index shards/*.tar
  python -m fastdecode index --to indexes s3://bucket/train.tar

Each index is a file beside its shard, SHARD.tar.fdx, or in the folder --to,
where index= of open_store finds it. Shards that pack has made
have one already. With it, a store of any size opens at once; without it, all
headers of the shard are read first. Reading a shard from its beginning to its
end needs none.

exit status: 0; 1 if a shard cannot be read or is damaged; 2 for a wrong argument"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the words given, or else the command line's; return the exit status."""
    parser = Parser(
        prog="python -m fastdecode index",
        description="Write an index beside each tar shard.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shards", nargs="+", metavar="SHARD", help="a .tar file, or a URI of one")
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where the indexes of shards behind URIs go"
    )
    options = parser.parse_args(arguments)
    failed = False
    for shard in options.shards:
        try:
            count = len(_indexed(shard, options.to))
        except (OSError, ValueError, ImportError) as error:
            failed = True
            words = str(error)
            print(visible(words if shard in words else f"{shard}: {words}"), file=sys.stderr)
            continue
        except KeyboardInterrupt:
            print("stopped; the shards before it have their index", file=sys.stderr)
            return INTERRUPTED
        print(visible(f"{shard}: {count} items"))
    return int(failed)


def _indexed(shard: str, folder: Path | None) -> Index:
    if folder is None:
        if is_uri(shard):
            raise ValueError(f"{shard} is not local: say by --to FOLDER where its index goes")
        return index_tar(shard)
    folder.mkdir(parents=True, exist_ok=True)
    return index_tar(shard, index=folder / f"{shard.rpartition('/')[2]}{SUFFIX}")
