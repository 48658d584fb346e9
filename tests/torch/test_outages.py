"""An outage during an epoch ends it, and no sample is skipped for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastdecode.errors import StoreError
from fastdecode.stores import create_store

pytest.importorskip("fsspec")

from damaged import CUT, PHOTO, SMALL, Listed
from faults import Fault, faulty_s3, put_shard, quick_retries  # noqa: F401 - a fixture
from loading import COUNT, PROCESS_WARNINGS, encoded
from torch.utils.data import DataLoader

from fastdecode.torch import ImageFolder, Loader, ShardStream, StoreDataset

pytestmark = pytest.mark.usefixtures("quick_retries")

UNREADABLE = Path("/proc/self/mem")
BATCH = 8


@pytest.fixture(scope="module")
def server() -> Iterator[Fault]:
    """Run an S3 server that can return errors."""
    with faulty_s3() as fault:
        yield fault


@pytest.fixture
def uri(server: Fault, tmp_path: Path) -> str:
    """Put a shard on the server, and return its URI."""
    server.always(None)
    _, where = put_shard(server, tmp_path, encoded())
    return f"{where}/t.tar"


def stored(uri: str, server: Fault, on_error: Any = "skip") -> StoreDataset:
    options = {"storage_options": server.options}
    return StoreDataset(uri, SMALL, store_options=options, on_error=on_error)


def tar(path: Path, prefix: str = "", count: int = COUNT) -> Path:
    with create_store(path) as writer:
        for number, data in enumerate(encoded()[:count]):
            writer.add(f"{prefix}{number:02}.jpg", data, number)
    return path


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_credentials_that_expire_end_the_epoch(uri: str, server: Fault, on_error: Any) -> None:
    """Expired credentials end the epoch; no sample is skipped, listed or replaced."""
    dataset = stored(uri, server, on_error)
    server.always("ExpiredToken", after=1)  # a batch is one request
    with Loader(dataset, BATCH, threads=2) as loader:
        with pytest.raises(OSError, match=r"t\.tar"):
            list(loader)
        assert loader.skipped == 0
    assert dataset.errors == []

    server.always(None)
    with Loader(dataset, BATCH, threads=2) as loader:
        assert sum(len(images) for images, _ in loader) == len(encoded())


def test_a_lost_connection_is_not_the_end_of_a_shard(uri: str, server: Fault) -> None:
    """A connection that is lost inside a shard does not count as the end of the shard."""
    stream = ShardStream(
        uri, SMALL, storage_options=server.options, on_error="skip", has_targets=True
    )
    server.always("drop", suffix=".tar", after=1)

    with pytest.raises(OSError, match=r"t\.tar"):
        list(stream)
    assert stream.errors == []


@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_does_not_end_with_an_outage(uri: str, server: Fault, workers: int) -> None:
    """After an outage an iterator raises again; another one gives the rest of the epoch."""
    stream = ShardStream([uri, uri], SMALL, storage_options=server.options)
    expected = [target for _, target in stream]
    spawned: Any = {"multiprocessing_context": "spawn", "timeout": 60} if workers else {}
    server.always("drop", suffix=".tar", after=1)
    batches = iter(DataLoader(stream, BATCH, num_workers=workers, **spawned))
    given = []
    with pytest.raises(OSError, match=r"t\.tar"):
        given.extend(target for _, some in batches for target in some.tolist())
    server.always(None)
    for _ in range(3):
        with pytest.raises(OSError, match=r"t\.tar"):
            next(batches)

    assert given == expected[: len(given)]
    if not workers:
        stream.load_state_dict(stream.state_dict())
        rest = [target for _, target in stream]
        assert rest == expected[len(expected) - len(rest) :]
        assert len(given) <= len(expected) - len(rest) < len(expected)


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs a file that gives a disk error")
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_an_error_of_the_disk_is_raised(on_error: Any) -> None:
    """A disk error is raised by the dataset and by `Loader`, also for a replacement."""
    dataset = Listed(PHOTO, CUT, PHOTO, UNREADABLE, on_error=on_error)

    with pytest.raises(OSError, match="/proc/self/mem"):
        dataset[3]
    with Loader(dataset, 3, threads=2) as loader, pytest.raises(OSError, match="/proc/self/mem"):
        list(loader)
    assert [failure.index for failure in dataset.errors] == [1]
    broken = Listed(CUT, UNREADABLE, on_error="replace")
    with pytest.raises(OSError, match="/proc/self/mem"):
        broken[0]


@pytest.mark.parametrize("kind", [ImageFolder, StoreDataset])
def test_a_folder_that_vanishes_ends_the_epoch(tmp_path: Path, kind: Any) -> None:
    """A missing file is skipped; a missing class folder or drive is not."""
    for number, data in enumerate(encoded()):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    dataset = kind(tmp_path / "photos", SMALL, on_error="skip")
    (tmp_path / "photos" / "cat" / "0.jpg").unlink()
    with Loader(dataset, BATCH, threads=2) as loader:
        assert sum(len(images) for images, _ in loader) == len(encoded()) - 1

    (tmp_path / "photos" / "dog").rename(tmp_path / "elsewhere")
    gone = pytest.raises(FileNotFoundError, match="folder")
    with Loader(dataset, BATCH, threads=2) as loader, gone:
        list(loader)
    assert len(dataset.errors) == 1
    (tmp_path / "photos").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match="folder"):
        dataset[1]


def test_a_shard_that_is_lost_as_a_whole_ends_the_epoch(tmp_path: Path) -> None:
    """A shard that was cut ends the epoch; it is not skipped image by image."""
    for shard in range(2):
        tar(tmp_path / f"t-{shard:05}.tar", f"{shard}-")
    dataset = StoreDataset(str(tmp_path / "t-{00000..00001}.tar"), SMALL, on_error="skip")
    second = tmp_path / "t-00001.tar"
    second.write_bytes(second.read_bytes()[:900])
    given = []
    lost = pytest.raises((StoreError, FileNotFoundError), match=r"t-00001\.tar")

    with Loader(dataset, BATCH, threads=2) as loader, lost:
        given.extend(len(images) for images, _ in loader)
    assert given == [BATCH] * 2
    assert dataset.errors == []
