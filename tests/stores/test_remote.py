"""Tests of stores at URIs: in fsspec's memory file system and on a local S3 server."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from processes import python
from s3_server import BUCKET, s3_server
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import Store, open_store
from fastdecode.stores.tar.store import index_tar, open_tar, stream_tar

fsspec = pytest.importorskip("fsspec")
memory = pytest.importorskip("fsspec.implementations.memory")

_COUNT = 6


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, Any]]:
    """Run an S3 server on this machine and return the storage options for it."""
    with s3_server() as running:
        yield running.options


@pytest.fixture(params=["memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any], Any]:
    """Return the URI of a folder, the storage options for it, and its file system."""
    if request.param == "memory":
        uri, options = f"memory://{tmp_path.name}", {}
    else:
        uri, options = f"s3://{BUCKET}/{tmp_path.name}", request.getfixturevalue("server")
    system, _ = fsspec.core.url_to_fs(uri, **options)
    return uri, options, system


def _upload(place: tuple[str, dict[str, Any], Any], *files: Path) -> None:
    uri, _, system = place
    for file in files:
        system.pipe_file(f"{uri}/{file.name}", file.read_bytes())


def _shard(folder: Path, name: str = "t.tar", begin: int = 0) -> tuple[Path, Path]:
    path = write_tar(folder / name, numbered(_COUNT, begin))
    index_tar(path, classes=["cat"])
    return path, path.with_name(f"{name}.fdx")


def _check(store: Store, count: int = _COUNT) -> None:
    assert len(store) == count
    assert [store.target(i) for i in range(count)] == list(range(count))
    assert [bytes(store.read(i)) for i in range(count)] == [image(i) for i in range(count)]
    assert store.key(0).endswith("0000.jpg")


def test_a_remote_shard_is_read_by_its_index(place, tmp_path: Path) -> None:
    """A remote shard is read by ranges, with a remote or a local index, and by many threads."""
    uri, options, system = place
    shard, index = _shard(tmp_path)
    _upload(place, shard, index)

    with open_store(f"{uri}/t.tar", storage_options=options) as store:
        _check(store)
        assert list(store.classes) == ["cat"]
        _check(pickle.loads(pickle.dumps(store)))
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda i: bytes(store.read(i % _COUNT)), range(40)))
        assert found == [image(i % _COUNT) for i in range(40)]
    system.rm(f"{uri}/t.tar.fdx")
    with open_store(f"{uri}/t.tar", storage_options=options, index=index) as store:
        _check(store)


def test_a_remote_shard_without_an_index_says_what_to_do(place, tmp_path: Path) -> None:
    """A remote shard without an index is an error whose advice works; nothing is downloaded."""
    uri, options, _ = place
    shard, _ = _shard(tmp_path)
    _upload(place, shard)

    with pytest.raises(StoreError, match=r"has no index.*index_tar\(.*index=FILE"):
        open_store(f"{uri}/t.tar", storage_options=options)
    with pytest.raises(ValueError, match="say with index= where"):
        index_tar(f"{uri}/t.tar", storage_options=options)
    index_tar(f"{uri}/t.tar", index=tmp_path / "made", storage_options=options)
    with open_store(f"{uri}/t.tar", index=tmp_path / "made", storage_options=options) as store:
        _check(store)


def test_a_remote_shard_is_streamed(place, tmp_path: Path) -> None:
    """A remote shard can be streamed without an index; truncation is an error."""
    uri, options, system = place
    shard, _ = _shard(tmp_path)
    _upload(place, shard)

    found = list(stream_tar(f"{uri}/t.tar", storage_options=options))
    assert [bytes(sample.data) for sample in found] == [image(i) for i in range(_COUNT)]

    system.pipe_file(f"{uri}/t.tar", shard.read_bytes()[:3000])
    with pytest.raises(StoreError, match=r"://.*after member '0000\.cls'.*truncated"):
        list(stream_tar(f"{uri}/t.tar", storage_options=options))


@pytest.mark.parametrize("pattern", ["t-{00000..00002}.tar", "t-*.tar", "t.tar", "t.tar.json"])
def test_remote_shards_are_one_store(place, tmp_path: Path, pattern: str) -> None:
    """Braces, wildcards and a manifest work for shards at URIs."""
    uri, options, system = place
    names = [f"t-{number:05d}.tar" for number in range(3)]
    for number, name in enumerate(names):
        _upload(place, *_shard(tmp_path, name, number * _COUNT))
    if pattern.startswith("t.tar"):
        system.pipe_file(f"{uri}/t.tar.json", b'{"shards": ["%s"]}' % '", "'.join(names).encode())

    with open_store(f"{uri}/{pattern}", storage_options=options) as store:
        _check(store, 3 * _COUNT)
        _check(pickle.loads(pickle.dumps(store)), 3 * _COUNT)


def test_missing_shard_is_an_error(place, tmp_path: Path) -> None:
    """A missing remote shard is a FileNotFoundError that names it."""
    uri, options, system = place
    _upload(place, *_shard(tmp_path))

    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        open_store(f"{uri}/none.tar", storage_options=options)
    with pytest.raises(FileNotFoundError, match=r"t-\*\.tar"):
        open_store(f"{uri}/t-*.tar", storage_options=options)
    system.rm(f"{uri}/t.tar")
    with pytest.raises(FileNotFoundError):
        open_tar([f"{uri}/t.tar"], storage_options=options).read(0)


def _read_all(store: Store, results: Any) -> None:
    results.put([bytes(store.read(i)) for i in range(len(store))])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_open_their_own_connection(server, tmp_path: Path, method: str) -> None:
    """A child process opens its own connection to the server, and so can read."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method} here")
    uri = f"s3://{BUCKET}/{tmp_path.name}"
    system, _ = fsspec.core.url_to_fs(uri, **server)
    _upload((uri, server, system), *_shard(tmp_path))
    store = open_store(f"{uri}/t.tar", storage_options=server)
    store.read(0)
    context = multiprocessing.get_context(method)
    results = context.Queue()
    process = context.Process(target=_read_all, args=(store, results))

    process.start()
    found = results.get(timeout=60)
    process.join()

    assert found == [image(i) for i in range(_COUNT)]
    assert bytes(store.read(1)) == image(1)


@pytest.mark.parametrize("protocol", ["s3", "s3a"])
def test_options_of_the_user_win(protocol: str) -> None:
    """The connections to S3 are those that the user allows, besides other options."""
    pytest.importorskip("s3fs")
    from fastdecode.stores._remote import CONNECTIONS, Remote

    for given in ({}, {"max_pool_connections": 3}, {"connect_timeout": 5}):
        system: Any = Remote(f"{protocol}://{BUCKET}/a", {"config_kwargs": given})._filesystem

        assert system.config_kwargs == {"max_pool_connections": CONNECTIONS} | given


def test_interrupted_import_can_be_repeated() -> None:
    """An interrupt (Ctrl-C, a task cancelled in Ray) during the import of s3fs does no harm."""
    pytest.importorskip("s3fs")
    program = """if True:
        import signal, sys
        from fastdecode.stores._remote import Remote

        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == "aiohttp.cookiejar":  # in the middle of aiohttp
                    sys.meta_path.remove(self)
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Interrupt())
        try:
            Remote("s3://bucket/photos")
        except KeyboardInterrupt:
            print("interrupted")
        print(Remote("s3://bucket/photos").path)
    """
    done = python("-c", program)

    assert done.stdout.split() == ["interrupted", "bucket/photos"], done.stderr


def test_secrets_in_a_uri_are_not_shown() -> None:
    """`without_query` removes the query of a signed URI, so messages show no secrets."""
    from fastdecode.stores._remote import without_query

    assert without_query("https://host/t.tar?signature=secret") == "https://host/t.tar"
    assert without_query("s3://bucket/a") == "s3://bucket/a"


@pytest.mark.parametrize(("name", "shards"), [("t-*.tar", 3), ("t-0.tar", 1)])
def test_threads_open_a_shard_once(tmp_path: Path, name: str, shards: int) -> None:
    """Threads that need one shard open it once, in an unpickled copy of a store as well."""
    with s3_server() as server:
        uri = f"s3://{BUCKET}"
        system, _ = fsspec.core.url_to_fs(uri, **server.options)
        for number in range(3):
            _upload((uri, {}, system), *_shard(tmp_path, f"t-{number}.tar", number * _COUNT))
        with open_store(f"{uri}/{name}", storage_options=server.options) as store:
            copy = pickle.loads(pickle.dumps(store))
        server.requests.clear()
        numbers = range(shards * _COUNT)

        with copy, ThreadPoolExecutor(16) as threads:
            keys = list(threads.map(copy.key, numbers))
            found = list(threads.map(lambda index: bytes(copy.read(index)), numbers))

    assert [key[-8:] for key in keys] == [f"{number:04d}.jpg" for number in numbers]
    assert found == [image(number) for number in numbers]
    assert server.requests["HEAD", ".tar"] == shards
    assert not server.requests["GET", ".fdx"]  # the copy has the index
    assert server.requests["HEAD", ".fdx"] + server.requests["HEAD", ".tar"] <= 2 * shards
    assert server.requests["GET", ".tar"] == len(numbers)


def test_the_end_of_a_file_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that lacks the last byte of a file is tried again."""
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    memory().pipe_file("/end/ten", b"0123456789")
    read, replies = memory.cat_file, iter((-1, None))
    monkeypatch.setattr(memory, "cat_file", lambda *a, **k: read(*a, **k)[: next(replies)])
    monkeypatch.setattr("fastdecode._error_policy._WAIT_S", 0)
    from fastdecode.stores._remote import Remote

    assert Remote("memory://end/ten").read_range("/end/ten", 4, 10) == b"456789"


@pytest.mark.parametrize("times", [1, 99])
def test_short_replies_are_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A reply that lacks bytes of a file that is whole is tried again, then says what came."""
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    shard, index = _shard(tmp_path)
    memory().pipe_file("/short/t.tar", shard.read_bytes())
    read, left = memory.cat_file, times

    def short(self: Any, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        nonlocal left
        left -= 1
        data = read(self, path, start=start, end=end, **more)
        return data[:-1] if left >= 0 else data

    with open_store("memory://short/t.tar", index=index) as store:
        monkeypatch.setattr(memory, "cat_file", short)
        monkeypatch.setattr("fastdecode._error_policy._WAIT_S", 0)
        if times == 1:
            assert bytes(store.read(0)) == image(0)
        else:
            with pytest.raises(ConnectionError, match=r"server sent \d+ bytes where \d+"):
                store.read(0)
