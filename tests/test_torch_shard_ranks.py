"""`ShardStream` under torch.distributed: real processes, which agree on nothing but their ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from loading import script  # noqa: E402
from shards import write_shards  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this PyTorch has no gloo",
)
SIZES = [9, 14, 0, 6]
TOTAL = sum(SIZES)
BEGIN = """
import json, torch, warnings
from itertools import islice
from torch.utils.data import DataLoader
from shards import numbers
from fastdecode.torch import ShardStream
from fastdecode.torch.transforms import ResizeCenterCrop
warnings.simplefilter("ignore")
pattern, rendezvous, rank, ranks = {settings!r}
torch.distributed.init_process_group(
    "gloo", init_method=rendezvous, rank=rank, world_size=ranks
)

def stream(**options):
    return ShardStream(pattern, ResizeCenterCrop(32, 24), shuffle=True, **options)

said = []
"""
END = """
torch.distributed.barrier()
torch.distributed.destroy_process_group()
print(json.dumps(said))
"""


def answers(folder: Path, ranks: int, code: str) -> list[Any]:
    """Run code in as many processes, each a rank, and return what they put into `said`."""
    write_shards(folder, SIZES)
    places = str(folder / "part-{000..003}.tar"), (folder / "store").as_uri()
    processes = [
        script(BEGIN.format(settings=(*places, rank, ranks)) + code + END) for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, outputs
    return [json.loads(output) for output, _ in outputs]


def test_ranks_need_not_be_named(tmp_path: Path) -> None:
    """Three ranks with and without workers, forked and spawned: each sample once."""
    code = """
for epoch, workers, context in ((0, 0, None), (1, 2, "fork"), (2, 1, "spawn")):
    each = stream()
    each.set_epoch(epoch)
    loader = DataLoader(each, 4, num_workers=workers, multiprocessing_context=context)
    said.append(numbers(loader))
"""
    said = answers(tmp_path, 3, code)

    assert len(said[0]) == 3
    for shares in zip(*said, strict=True):
        assert sorted(number for share in shares for number in share) == list(range(TOTAL))
    assert said[0][0] != said[0][1]


def test_ranks_go_on_after_a_restart(tmp_path: Path) -> None:
    """Each rank saves after as many batches, and all go on: nothing is lost, nothing comes twice.

    With `even` all have as many batches, so that none waits for another for ever.
    """
    code = """
for workers in (0, 2):
    first, again = stream(even="drop"), stream(even="drop")
    before = numbers(islice(iter(DataLoader(first, 4, num_workers=workers)), 2))
    again.load_state_dict(json.loads(json.dumps(first.state_after(2, 4, workers))))
    rest = []
    for batch in DataLoader(again, 4, num_workers=workers):
        torch.distributed.barrier()
        rest += batch[1].tolist()
    said.append(before + rest)
"""
    said = answers(tmp_path, 2, code)

    for shares in zip(*said, strict=True):
        given = [number for share in shares for number in share]
        assert len(given) == len(set(given)) == TOTAL // 2 * 2
        assert [len(share) for share in shares] == [TOTAL // 2] * 2
