"""torch.distributed with real processes that share nothing but their ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from loading import COUNT, NEEDS_GLOO, script
from shards import write_shards

pytestmark = NEEDS_GLOO
SIZES = [5, 11, 0, 9, 4]
TOTAL = sum(SIZES)
RANKS = 2

BEGIN = """
import json, torch, warnings
from itertools import islice
from torch.utils.data import DataLoader
from shards import numbers
from fastdecode.torch import ShardStream
from fastdecode.torch.transforms import ResizeCenterCrop
warnings.simplefilter("ignore")
pattern, rendezvous, rank, ranks = {settings!r}
early = Loader(loading.Images(), 4, True, threads=1)
resumed = Loader(loading.Images(), 4, True, threads=1)
torch.distributed.init_process_group(
    "gloo", init_method=rendezvous, rank=rank, world_size=ranks
)

def stream(**options):
    return ShardStream(pattern, ResizeCenterCrop(32, 24), shuffle=True, **options)

said = {{}}
"""
LOADER = """
with Loader(loading.Images(), 4, True, threads=2) as loader:
    said["epochs"] = [loading.indices(loader), loading.indices(loader)]
    alone = Loader(loading.Images(), 4, threads=1, rank=0, world_size=1)
    said["lengths"] = [len(loader), len(alone)]
if rank == 0:  # it does not wait for the others
    Loader(loading.Images(), 4, sampler=[1], threads=1)
    Loader(loading.Images(), 4, threads=1, rank=0, world_size=1)
drawn = Loader(loading.Images(), 4, True, generator=torch.Generator().manual_seed(rank))
said["early"] = [index for index in loading.indices(early)]
said["seeds"] = [loader.seed, drawn.seed, early.seed, stream().state_dict()["settings"]["seed"]]
try:
    said["other"] = Loader(loading.Images(), 4 + rank, True).seed is None
except ValueError as error:
    said["other"] = "rank 0" in str(error)
"""
STREAM = """
said["stream"] = []
for epoch, workers, context in ((0, 0, None), (1, 2, "fork"), (2, 1, "spawn")):
    each = stream()
    each.set_epoch(epoch)
    loader = DataLoader(each, 4, num_workers=workers, multiprocessing_context=context)
    said["stream"].append(numbers(loader))
"""
RESTART = """
said["restart"] = []
for given in (0, 8):
    first, again = stream(even="drop"), stream(even="drop")
    before = numbers(islice(iter(first), given))
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rest = []
    for batch in DataLoader(again, 4):
        torch.distributed.barrier()
        rest += batch[1].tolist()
    said["restart"].append(before + rest)
"""
SOME_RESUME = """
if rank == 1:  # rank 0 begins anew
    with Loader(loading.Images(), 4, True, threads=1, rank=1, world_size=2, seed=9) as saved:
        epoch = iter(saved)
        next(epoch)
        resumed.load_state_dict(saved.state_dict())
        said["rest"] = [loading.indices(epoch), loading.indices(resumed)]
else:
    loading.indices(resumed)
said["resumed"] = resumed.seed
"""
END = """
torch.distributed.barrier()
torch.distributed.destroy_process_group()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run a process per rank, and return their results."""
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, SIZES)
    places = str(folder / "part-{000..004}.tar"), (folder / "store").as_uri()
    processes = [
        script(
            BEGIN.format(settings=(*places, rank, RANKS))
            + LOADER
            + STREAM
            + RESTART
            + SOME_RESUME
            + END
        )
        for rank in range(RANKS)
    ]
    outputs = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, outputs
    return [json.loads(output) for output, _ in outputs]


@pytest.mark.thorough
def test_ranks_of_a_loader_need_not_be_named(said: list[dict[str, Any]]) -> None:
    """Each sample comes once per epoch; a rank that is passed explicitly has precedence."""
    first, second = (each["epochs"] for each in said)
    for mine, others in zip(first, second, strict=True):
        assert sorted(mine + others) == list(range(COUNT))
    assert first[0] != first[1]
    assert said[0]["lengths"] == [3, 6]


def test_ranks_agree_on_the_seed_of_rank_0(said: list[dict[str, Any]]) -> None:
    """Also for a loader that was made before the ranks; ranks that make other ones get an error."""
    first, second = said
    assert first["seeds"] == second["seeds"]
    assert len(set(first["seeds"])) == 4
    assert sorted(first["early"] + second["early"]) == list(range(COUNT))
    assert [first["other"], second["other"]] == [False, True]


def test_a_rank_that_resumes_keeps_the_seed_of_its_state(said: list[dict[str, Any]]) -> None:
    """Also if other ranks begin anew, and share their seed."""
    assert said[0]["resumed"] != said[1]["resumed"] == 9
    assert said[1]["rest"][0] == said[1]["rest"][1] != []


def test_ranks_of_a_stream_need_not_be_named(said: list[dict[str, Any]]) -> None:
    """Each sample comes once, with and without workers, forked and spawned."""
    for mine, others in zip(*(each["stream"] for each in said), strict=True):
        assert sorted(mine + others) == list(range(TOTAL))
    assert said[0]["stream"][0] != said[0]["stream"][1]


def test_ranks_go_on_after_a_restart(said: list[dict[str, Any]]) -> None:
    """Each rank saves after as many samples, and all go on: nothing is lost, nothing comes twice.

    With `even` all have as many samples, so that none waits for another for ever.
    """
    for shares in zip(*(each["restart"] for each in said), strict=True):
        given = [number for share in shares for number in share]
        assert len(given) == len(set(given)) == TOTAL // 2 * 2
        assert [len(share) for share in shares] == [TOTAL // 2] * 2
