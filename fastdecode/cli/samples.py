"""``fastdecode samples``: copy the sample photos into a folder, as the documents use them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fastdecode.cli.terminal import Parser
from fastdecode.errors import visible
from fastdecode.samples import photo, photos

_BIRDS = ("canyon-wren", "perched-osprey")
PLACES = {
    "cat.jpg": photo,
    **{f"photos/{one.name}": one for one in photos},
    **{f"train/{'bird' if one.stem in _BIRDS else 'place'}/{one.name}": one for one in photos},
}
"""What is copied, by its path in the folder."""

_EXAMPLES = """\
examples:
  %(prog)s .

The examples of the documents run in that folder. It gets:

  cat.jpg   a photo of 640 x 480 pixels
  photos/   six photos
  train/    the same photos in a folder for each class, bird and place

Nothing is overwritten. The photos are in the public domain (CC0).

exit status: 0; 2 for a wrong argument, or if another file is in the way"""


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to its parser."""
    parser.description = "Copy the sample photos, to try things on."
    parser.epilog = _EXAMPLES
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the photos go")


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Copy what is not there yet."""
    folder = options.folder
    missing = {}
    try:
        for place, source in PLACES.items():
            path = folder / place
            if not os.path.lexists(path):
                missing[path] = source
            elif not (path.is_file() and path.read_bytes() == source.read_bytes()):
                parser.fail(f"{path} is there already, and is another file: choose another folder")
        for path, source in missing.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:  # never through a link
                file.write(source.read_bytes())
    except OSError as error:
        parser.fail(error)
    for what in ("cat.jpg", "photos", "train"):
        print(visible(str(folder / what)))
    return 0
