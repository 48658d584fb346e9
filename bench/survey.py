"""How much of the world's pipelines does a `Loader` do in the core, and what is that worth?

``--pipelines`` names a Python file with a list ``PIPES`` of dicts: `key`; `build`, a function that
returns the pipeline; `sources`, where it was met, or how often; and `kind`, where
"tensor_in" and "array" say what the dataset gives it. "whole" pipelines run in the core; of
"partly" ones Python is called for some steps; "none" are called with the decoded image. Each counts
as often as it was met.

The gain is the CPU time of PyTorch's DataLoader with the pipeline as written, over that of
`Loader`, for the same photos, both in one process, in turns, after an epoch that does not count.
Batches are as users get them, images and labels; where images cannot be stacked, because their
sizes differ, they are lists of samples. A pipeline that cannot be built here is left out.
"""

from __future__ import annotations

import runpy
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import _common as bench
import numpy as np
import torch
from PIL import Image

from fastdecode.torch import Fused, ImageList, Loader, Views
from fastdecode.torch.transforms import EncodedTransform

_OUTPUTS = {"tensor_in": "tensor", "array": "array"}
_ROUNDS = 3


class Row(NamedTuple):
    """A pipeline: where it runs, how often it was met, what it gains, and why not more."""

    key: str
    where: str
    met: int
    gain: float | None
    why: str


class AsWritten(torch.utils.data.Dataset[Any]):
    """Photos as people load them."""

    def __init__(self, photos: Sequence[Path], transform: Any, output: str | None) -> None:
        self._photos, self._transform, self._output = photos, transform, output

    def __len__(self) -> int:
        return len(self._photos)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        with Image.open(self._photos[index]) as file:
            image: Any = file.convert("RGB")
        if self._output is not None:
            image = np.array(image)
        if self._output == "tensor":
            image = torch.from_numpy(image).permute(2, 0, 1)
        return self._transform(image), 0


def where_it_runs(made: Any) -> str:
    """Return "whole", "partly" or "none" for a resolved transform."""
    if isinstance(made, Views):
        parts = {where_it_runs(view) for view in made.views}
        return parts.pop() if len(parts) == 1 else "partly"
    if isinstance(made, Fused):
        in_loader = made.in_loader or made
        return "partly" if in_loader.rest else "whole"
    return "whole" if isinstance(made, EncodedTransform) else "none"


def _cpu_time(loader: Any) -> float:
    began = time.process_time()
    for _ in loader:
        pass
    return time.process_time() - began


def gain_of(theirs: Any, ours: Any, batch: int) -> float:
    """Return the ratio of the CPU times of an epoch of two datasets."""
    try:
        _cpu_time(stock := torch.utils.data.DataLoader(theirs, batch))
        collate_fn = None
    except (RuntimeError, TypeError):  # images that cannot be stacked
        _cpu_time(stock := torch.utils.data.DataLoader(theirs, batch, collate_fn=list))
        collate_fn = list
    with Loader(ours, batch, threads=1 if ours.isolated else 0, collate_fn=collate_fn) as loader:
        _cpu_time(loader)
        return statistics.median(_cpu_time(stock) / _cpu_time(loader) for _ in range(_ROUNDS))


def row_of(pipe: dict[str, Any], photos: Sequence[Path], batch: int) -> Row:
    """Return what becomes of a pipeline; with a `batch` of 0, not what it gains."""
    output, given = _OUTPUTS.get(pipe["kind"]), pipe["sources"]
    met = len(given) if isinstance(given, list) else int(given) if str(given).isdigit() else 1
    dataset = ImageList(photos, [0] * len(photos), transform=pipe["build"](), output=output)
    made = dataset._resolved_transform()
    stock = AsWritten(photos, pipe["build"](), output)
    gain = gain_of(stock, dataset, batch) if batch else None
    where = where_it_runs(made)
    why = "" if where == "whole" else getattr(made, "reason", "") or dataset._not_fused_reason()
    return Row(pipe["key"], where, met, gain, why)


def _summed_up(rows: Sequence[Row], where: str) -> dict[str, Any]:
    """Return how many pipelines run there, and the quantiles of what they gain."""
    met = [row for row in rows if row.where == where for _ in range(row.met)]
    gains = sorted(row.gain for row in met if row.gain)
    made: dict[str, Any] = {"pipelines": len(met)}
    if len(gains) > 1:
        tenths = [bench.short(one) for one in statistics.quantiles(gains, n=10)]
        made |= {"least": bench.short(gains[0]), "low": tenths[0], "high": tenths[-1]}
        made["median"] = bench.short(statistics.median(gains))
    return made


@bench.command(
    pipelines=("pipelines.py", "the file with the pipelines"),
    samples=(256, "photos"),
    batch=(64, "images; 0 measures no time"),
    only=("", "a part of the key"),
)
def main(options: Any) -> Any:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = bench.photos_in(options.photos)
    count = min(options.samples, len(found)) if options.batch else 1
    photos = [found[place * len(found) // count] for place in range(count)]
    rows: list[Row] = []
    for pipe in runpy.run_path(options.pipelines)["PIPES"]:
        if options.only not in pipe["key"]:
            continue
        try:
            rows.append(row_of(pipe, photos, options.batch))
        except Exception as error:  # of any kind: what the pipeline, or its library, raises
            print(f"left out: {pipe['key']}: {type(error).__name__}")
            continue
        key, where, met, gain, why = rows[-1]
        print(f"{where:7} {met:3} {'' if gain is None else f'{gain:5.2f}':5} {key}  {why}"[:150])
    print()
    options.pipelines = Path(options.pipelines).name
    result = {where: _summed_up(rows, where) for where in ("whole", "partly", "none")}
    result["all"] = _summed_up([row._replace(where="all") for row in rows], "all")
    bench.show("where", result)
    return result


if __name__ == "__main__":
    main()
