"""``fastdecode index``: write an index next to each tar shard, for random access."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fastdecode.cli.terminal import INTERRUPTED, Parser, count
from fastdecode.errors import visible, without_advice
from fastdecode.stores._index import Index
from fastdecode.stores._ranges import is_uri
from fastdecode.stores.tar import index_tar
from fastdecode.stores.tar.store import SUFFIX

_EXAMPLES = """\
examples:
  %(prog)s train.tar
  %(prog)s shards/*.tar
  %(prog)s --to indexes s3://bucket/train.tar

The index of a shard is the file SHARD.tar.fdx next to it. With --to it goes to
that folder, and programs open it with open_store(SHARD, index=FILE). Shards
that pack has made have an index already. With an index, a store of any size
opens at once; without one, all headers of the shard are read first. Reading a
shard from beginning to end needs no index.

exit status: 0; 1 if a shard cannot be read or is damaged; 2 for a wrong
argument, or nothing at SHARD"""


def add_arguments(parser: Parser) -> None:
    parser.description = "Write an index next to each tar shard."
    parser.epilog = _EXAMPLES
    parser.add_argument("shards", nargs="+", metavar="SHARD", help="a .tar file, or a URI of one")
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="write the indexes here; needed for URIs"
    )


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Make the indexes; go on after an error with one shard; return the exit status."""
    status = 0
    for shard in options.shards:
        try:
            items = len(_index_shard(shard, options.to))
        except (OSError, ValueError, ImportError) as error:
            wrong = isinstance(error, (FileNotFoundError, IsADirectoryError))
            status = max(status, 2 if wrong else 1)
            words = without_advice(error)
            parser.print_error(words if shard in words else f"{shard}: {words}")
            continue
        except KeyboardInterrupt:
            print("stopped; the shards before this one have their index", file=sys.stderr)
            return INTERRUPTED
        print(visible(f"{shard}: {count(items, 'item')}"))
    return status


def _index_shard(shard: str, folder: Path | None) -> Index:
    if Path(shard).is_dir():
        raise IsADirectoryError(
            f"{shard} is a folder: name the shards in it, {shard.rstrip('/')}/*.tar"
        )
    if folder is None:
        if is_uri(shard):
            raise ValueError(f"{shard} is not local: say with --to FOLDER where its index goes")
        return index_tar(shard)
    folder.mkdir(parents=True, exist_ok=True)
    return index_tar(shard, index=folder / f"{shard.rpartition('/')[2]}{SUFFIX}")
