"""Tests of Ray Data on a local cluster: a head without cores and two nodes with one core each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray.data
from faults import faulty_s3
from ray_cluster import CUT, PHOTO, Gated, Mixed, two_nodes
from s3_server import BUCKET, s3_server
from same import assert_same

from fastdecode import decode
from fastdecode.ray import decode_images, read_images
from fastdecode.stores import create_store, open_store
from fastdecode.stores.tar import index_tar
from fastdecode.testing import drawing, encode

pytestmark = [
    pytest.mark.usefixtures("cluster"),
    # Ray sets these deprecated settings itself.
    pytest.mark.filterwarnings("ignore:`use_.*is deprecated:DeprecationWarning"),
    # Ray tries to silence this, but `catch_warnings` does not work across threads.
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
]

CLASSES = {"ant": 3, "bee": 2, "cat": 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Return the cluster that all tests share; the last test kills its nodes."""
    with two_nodes() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of classes."""
    root = tmp_path_factory.mktemp("tree")
    for name, count in CLASSES.items():
        (root / name).mkdir()
        for at in range(count):
            data = encode(drawing(40 + 10 * at, 30 + len(name)))
            (root / name / f"{at}.jpg").write_bytes(data)
    return root


def by_path(dataset: Any) -> dict[str, Any]:
    """Return the rows by path, and check that no path comes twice."""
    rows = dataset.take_all()
    named = {row["path"]: row for row in rows}
    assert len(named) == len(rows)
    return dict(sorted(named.items()))


def test_a_folder_of_classes_gives_images_labels_and_paths(tree: Path) -> None:
    """A folder of classes gives the pixels of `decode` and the labels of ImageFolder."""
    rows = by_path(read_images(tree, override_num_blocks=3))

    expected = {str(path): path for path in sorted(tree.rglob("*.jpg"))}
    assert rows.keys() == expected.keys()
    for name, path in expected.items():
        assert_same(rows[name]["image"], decode(path.read_bytes()), name)
        assert rows[name]["label"] == sorted(CLASSES).index(path.parent.name)


def test_with_a_size_the_column_is_one_tensor(tree: Path) -> None:
    """With ``size``, batches are arrays (N, H, W, 3), and uint8 tensors for PyTorch."""
    dataset = read_images(tree, size=(32, 48), include_paths=False)

    batches = list(dataset.iter_batches(batch_size=4))

    assert [batch["image"].shape for batch in batches] == [(4, 32, 48, 3)] * 2 + [(1, 32, 48, 3)]
    assert all(batch["image"].dtype == np.uint8 for batch in batches)
    torch = pytest.importorskip("torch")
    (tensors,) = dataset.iter_torch_batches(batch_size=9)
    assert tensors["image"].shape == (9, 32, 48, 3)
    assert tensors["image"].dtype == torch.uint8
    assert tensors["label"].dtype == torch.int64
    assert sorted(tensors["label"].tolist()) == [0, 0, 0, 1, 1, 2, 2, 2, 2]


def test_options_are_those_of_decode(tree: Path) -> None:
    """Options of `decode`, such as reduce, region and mode, reach every task."""
    path = str(tree / "cat" / "3.jpg")
    for options in (
        {"reduce": 2, "mode": "L"},
        {"region": (3, 2, 33, 22), "mode": "RGBA"},
        {"min_size": 8, "backend": "pillow", "orient": True},
    ):
        (row,) = read_images([path], **options).take_all()

        assert_same(row["image"], decode(Path(path).read_bytes(), **options), options)


def test_lists_patterns_tables_and_stores_are_read(tree: Path, tmp_path: Path) -> None:
    """Lists, patterns, tables, stores and shards give the same images."""
    paths = [str(path) for path in sorted((tree / "cat").iterdir())]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(f"{path},{at}.5" for at, path in enumerate(paths)))
    for name in ("folder", "shard.tar"):
        with create_store(tmp_path / name, classes=["cat"]) as writer:
            for path in paths:
                writer.add(f"cat/{Path(path).name}", Path(path).read_bytes(), 0)

    listed = by_path(read_images(paths))
    found = by_path(read_images(str(tree / "c*" / "*.jpg")))
    tabled = by_path(read_images(table))
    with open_store(tmp_path / "folder") as store:
        stored = by_path(read_images(store, include_labels=False))
    packed = by_path(read_images(tmp_path / "shard.tar"))
    with create_store(tmp_path / "shard-2.tar", classes=["cat"]) as writer:
        writer.add("lion.jpg", PHOTO, 0)
    shards = [str(tmp_path / name) for name in ("shard-2.tar", "shard.tar")]
    for source in (shards, str(tmp_path / "shard*.tar")):
        both = by_path(read_images(source))
        assert list(both) == ["shard-2/lion.jpg", *(f"shard/{name}" for name in packed)]
        assert both["shard-2/lion.jpg"]["label"] == 0

    assert list(listed) == list(found) == list(tabled) == paths
    assert all("label" not in row for row in (*listed.values(), *stored.values()))
    assert [row["label"] for row in tabled.values()] == [0.5, 1.5, 2.5, 3.5]
    assert [row["label"] for row in packed.values()] == [0] * 4
    first, *others = ([row["image"] for row in rows.values()] for rows in (listed, stored, packed))
    assert_same(others, [first, first])


def test_uris_are_read_through_fsspec(tree: Path) -> None:
    """A folder or a list of URIs is read through fsspec."""
    pytest.importorskip("fsspec")
    paths = [path.as_uri() for path in sorted((tree / "cat").iterdir())]

    folder = read_images(tree.as_uri(), override_num_blocks=1).take_all()
    listed = read_images(paths, override_num_blocks=1).take_all()

    assert [row["label"] for row in folder] == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert_same([row["image"] for row in folder[-4:]], [row["image"] for row in listed])


def test_a_process_opens_a_remote_shard_once(tmp_path: Path) -> None:
    """A process gets the indexes with the store, and reads adjacent items in one request."""
    shards, each = 3, 8
    fsspec = pytest.importorskip("fsspec")
    with s3_server() as server:
        system, _ = fsspec.core.url_to_fs(f"s3://{BUCKET}", **server.options)
        for number in range(shards):
            path = tmp_path / f"t-{number}.tar"
            with create_store(path) as writer:
                for at in range(each):
                    writer.add(f"{at}.jpg", PHOTO, at)
            index_tar(path)
            for file in (path, path.with_name(f"{path.name}.fdx")):
                system.pipe_file(f"{BUCKET}/{file.name}", file.read_bytes())
        for source, count in ((f"s3://{BUCKET}/t-*.tar", shards), (f"s3://{BUCKET}/t-0.tar", 1)):
            dataset = read_images(
                source, store_options={"storage_options": server.options}, override_num_blocks=1
            )
            server.requests.clear()

            rows = dataset.take_all()

            assert len(rows) == count * each
            assert server.requests["GET", ".tar"] == count
            assert server.requests["HEAD", ".tar"] <= count
            assert server.requests["GET", ".fdx"] == server.requests["HEAD", ".fdx"] == 0
            assert server.requests["GET", ""] == 0


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("size", [None, 16])
def test_bad_rows_have_their_reason_in_a_column(size: int | None, remote: bool) -> None:
    """With ``on_error="return"``, bad rows have their reason in a column; other rows are intact."""
    store = Mixed("memory://mixed" if remote else "mixed")

    rows = by_path(read_images(store, size=size, on_error="return", override_num_blocks=2))

    bad = {path for path, row in rows.items() if row["error"] is not None}
    assert len(rows) == 7
    assert bad == {"item 1", "item 3", "item 5"}
    assert "it is gone" in rows["item 3"]["error"]
    assert all(row["image"].any() == (path not in bad) for path, row in rows.items())
    assert rows["item 6"]["label"] == "6"


def test_bad_rows_may_be_left_out() -> None:
    """With ``on_error="skip"`` the other rows come, in each epoch."""
    dataset = read_images(Mixed("mixed"), size=16, on_error="skip", override_num_blocks=7)

    for _ in range(2):
        assert list(by_path(dataset)) == ["item 0", "item 2", "item 4", "item 6"]


@pytest.mark.parametrize("on_error", ["skip", "return"])
def test_outage_ends_the_job(tmp_path: Path, on_error: Any) -> None:
    """Expired credentials or a missing folder end the job instead of dropping rows."""
    pytest.importorskip("fsspec")
    import fsspec

    with faulty_s3() as fault:
        where = f"s3://{BUCKET}/{tmp_path.name}-{on_error}"
        system, _ = fsspec.core.url_to_fs(where, **fault.options)
        for at in range(12):
            system.pipe_file(f"{where}/{at:02}.jpg", PHOTO)
        dataset = read_images(
            where,
            size=16,
            on_error=on_error,
            store_options={"storage_options": fault.options},
            override_num_blocks=3,
        )
        fault.always("ExpiredToken", after=5)
        with pytest.raises(Exception, match="ExpiredToken"):
            dataset.take_all()
        fault.always(None)
        assert len(dataset.take_all()) == 12

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(PHOTO)
    dataset = read_images(tmp_path / "photos", size=16, on_error=on_error)
    (tmp_path / "photos").rename(tmp_path / "away")
    with pytest.raises(Exception, match="missing or empty"):
        dataset.take_all()


def test_a_column_of_bytes_is_decoded() -> None:
    """A column of bytes is decoded; other columns stay, and a null is a bad row."""
    items = [{"bytes": data, "name": f"row {at}"} for at, data in enumerate([PHOTO, CUT, None])]
    dataset = ray.data.from_items(items, override_num_blocks=1)

    rows = decode_images(dataset, on_error="return", keep_bytes=True).take_all()
    kept = decode_images(dataset, output="pixels", size=8, on_error="skip").take_all()

    assert [row["name"] for row in rows] == ["row 0", "row 1", "row 2"]
    assert [row["error"] is None for row in rows] == [True, False, False]
    assert_same(rows[0]["image"], decode(PHOTO))
    assert rows[1]["bytes"] == CUT
    assert [(row.keys(), row["pixels"].shape) for row in kept] == [({"name", "pixels"}, (8, 8, 3))]
    for name, words in (("name", "row 1: "), (None, r"image [0-9a-f]{16}: ")):
        with pytest.raises(Exception, match=words):
            decode_images(dataset, name=name).take_all()


def test_all_rows_may_be_bad() -> None:
    """If every row is bad, skipping leaves an empty dataset."""
    dataset = ray.data.from_items([{"bytes": CUT, "name": "cut"}])

    for size in (None, 8):
        assert decode_images(dataset, size=size, on_error="skip").take_all() == []


@pytest.mark.parametrize(("column", "words"), [("jpeg", "no column 'jpeg'"), ("name", "bytes")])
def test_wrong_column_is_an_error(column: str, words: str) -> None:
    """A missing column, or one without bytes, is an error that says so."""
    dataset = ray.data.from_items([{"bytes": PHOTO, "name": 3}])

    with pytest.raises(Exception, match=words):
        decode_images(dataset, column).take_all()


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    """An empty or missing folder is an error, not an empty dataset."""
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        read_images(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_images(tmp_path / "nowhere")


@pytest.mark.thorough
def test_losing_a_node_loses_no_rows(cluster: Any, tmp_path: Path) -> None:
    """After a node is lost every row comes once."""
    gate = tmp_path / "gate"
    store = Gated(str(gate))
    dataset = read_images(store, size=64, on_error="skip", override_num_blocks=6)
    batches = iter(dataset.iter_batches(batch_size=None, prefetch_batches=0))

    seen = [*next(batches)["path"]]
    while len(waiting := list(tmp_path.iterdir())) < 2:
        time.sleep(0.01)
    _, lost, process = waiting[0].name.split()
    (node,) = (each for each in cluster.worker_nodes if each.node_id == lost)
    cluster.remove_node(node, allow_graceful=False)
    with suppress(ProcessLookupError):  # a lost machine takes all its processes with it
        os.kill(int(process), signal.SIGKILL)
    gate.touch()
    for batch in batches:
        seen += [*batch["path"]]
        assert batch["image"].any(axis=(1, 2, 3)).all()

    damaged = {f"item {index}" for index in range(5, 120, 20)}
    assert len(seen) == 114
    assert sorted([*seen, *damaged]) == sorted(f"item {index}" for index in range(120))
