"""Errors of access are raised, whatever `on_error` says; only damaged items are skipped."""

from __future__ import annotations

import csv
import errno
import socket
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packed import make_source

from fastdecode import decode_batch, imread
from fastdecode._error_policy import is_item_error, is_temporary, mark_if_folder_vanished
from fastdecode.cli import main
from fastdecode.packing import pack
from fastdecode.stores import open_store
from fastdecode.testing import drawing, encode

pytest.importorskip("fsspec")

from faults import BUCKET, Fault, faulty_s3, put_shard, quick_retries  # noqa: F401 - a fixture

UNREADABLE = Path("/proc/self/mem")
"""A regular file whose first byte is an input/output error, on Linux."""

COUNT = 12

pytestmark = pytest.mark.usefixtures("quick_retries")
needs_unreadable = pytest.mark.skipif(
    not UNREADABLE.exists(), reason="needs a file that gives a disk error"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Fault]:
    """Run an S3 server that can return errors."""
    with faulty_s3() as fault:
        yield fault


@pytest.fixture
def fault(server: Fault) -> Fault:
    """Reset the faults of the server."""
    server.answer = lambda _method, _path: None
    server.refused = 0
    return server


@pytest.fixture
def uri(fault: Fault, tmp_path: Path) -> str:
    """Put a folder of images and a shard of the same on the server; return the location."""
    images = [encode(drawing(40, 30 + number)) for number in range(COUNT)]
    system, where = put_shard(fault, tmp_path, images)
    for number, data in enumerate(images):
        system.pipe_file(f"{where}/folder/{number:02}.jpg", data)
    return where


@needs_unreadable
@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_of_the_disk_is_raised(threads: int) -> None:
    """By batches and `imread`, whose options are for damaged and missing files."""
    photo = encode(drawing(40, 30))
    with pytest.raises(OSError, match="/proc/self/mem") as caught:
        decode_batch([photo, UNREADABLE, photo], threads=threads, on_error="return")
    with pytest.raises(OSError, match="/proc/self/mem"):
        imread(UNREADABLE, on_error="none")

    assert caught.value.errno == errno.EIO
    found = decode_batch([photo, "/no/such/file.jpg"], threads=threads, on_error="return")
    assert isinstance(found[1], FileNotFoundError)
    assert imread("/no/such/file.jpg", on_error="none") is None


@needs_unreadable
def test_an_error_of_the_disk_ends_check_and_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk error ends both commands; `check` has written its findings so far."""
    source = make_source(tmp_path / "source")
    (source / "dogs" / "9.jpg").symlink_to(UNREADABLE)

    with pytest.raises(OSError, match=r"item 7 \(dogs/9\.jpg\)"):
        pack(source, tmp_path / "out.tar", skip_bad=True)
    status = main(["check", str(source), "--threads", "1", "--csv", str(tmp_path / "seen.csv")])

    told = " ".join(capsys.readouterr().err.split())
    assert status == 2
    assert "Input/output error" in told
    assert "after 7 of 9 images" in told
    with (tmp_path / "seen.csv").open(newline="") as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["good"] * 7
    (source / "dogs" / "9.jpg").unlink()
    assert pack(source, tmp_path / "out.tar", skip_bad=True).bad == []


def test_a_folder_that_is_gone_ends_check_and_pack(tmp_path: Path) -> None:
    """A missing file is one item; a missing folder is an unmounted drive."""
    source = make_source(tmp_path / "source")
    store = open_store(source)
    (source / "cats" / "0.jpg").unlink()
    with pytest.raises(FileNotFoundError) as one:
        store.read(0)
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="its folder is not there any more") as whole:
        store.read(1)

    assert is_item_error(one.value)
    assert not is_item_error(whole.value)
    with pytest.raises(FileNotFoundError, match="unmounted"):
        store.reach()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ("ExpiredToken", "folder"),
        ("ExpiredToken", "t.tar"),
        ("AccessDenied", "folder"),
        ("SlowDown", "t.tar"),
        (500, "folder"),
        ("drop", "t.tar"),
    ],
)
def test_a_server_in_trouble_ends_check_and_pack(
    uri: str, fault: Fault, tmp_path: Path, answer: Any, what: str
) -> None:
    """Expired credentials and failing servers raise an OSError that names the URI."""
    place, out = f"{uri}/{what}", tmp_path / "out.tar"
    with open_store(place, storage_options=fault.options) as store:
        good = bytes(store.read(0))
        fault.always(answer)
        with pytest.raises(OSError, match=f"{BUCKET}/{tmp_path.name}/{what}") as caught:
            store.read(1)
        assert not isinstance(caught.value, FileNotFoundError)
        fault.always(None)
        assert bytes(store.read(0)) == good

    from fastdecode.packing import _pack

    def opened(location: str) -> Any:
        store = open_store(location, storage_options=fault.options)
        store.read(0)
        fault.always(answer, after=4)
        return store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pack, "open_store", opened)  # which has no argument for the address
        with pytest.raises(OSError, match=r"item \d+"):
            pack(place, out, skip_bad=True, threads=1, shard_size=1)
        patch.setattr(_pack, "open_store", lambda at: open_store(at, storage_options=fault.options))
        fault.always(None)
        packed = pack(place, out, skip_bad=True, shard_size=1)
    assert (packed.items, packed.bad) == (COUNT, [])
    assert packed.resumed > 0


@pytest.mark.parametrize("answer", ["SlowDown", 500, "drop", "AccessDenied", "NoSuchBucket"])
def test_what_passes_is_tried_again(uri: str, fault: Fault, answer: Any) -> None:
    """If a server fails once, the second attempt succeeds; what it refuses is reported at once.

    Without its bucket, all images of a folder would seem to be missing.
    """
    passes = answer not in ("AccessDenied", "NoSuchBucket")
    where = f"{uri}/t.tar" if answer != "NoSuchBucket" else f"{uri}/folder"
    with open_store(where, storage_options=fault.options) as store:
        for index in range(3):
            if passes:
                fault.times(answer, 1)
                assert len(store.read(index)) > 0
                continue
            fault.always(answer)
            with pytest.raises(OSError) as caught:
                store.read(index)
            assert not isinstance(caught.value, FileNotFoundError)
            assert isinstance(caught.value, PermissionError) == (answer == "AccessDenied")
    assert fault.refused == 3 or answer == "NoSuchBucket"


@pytest.mark.parametrize("what", ["folder", "t.tar", "{t,u}.tar"])
def test_a_server_that_is_dead_is_an_oserror(uri: str, fault: Fault, what: str) -> None:
    """Opening and reading raise errors that name the URI, not a library's name for it."""
    with open_store(f"{uri}/t.tar", storage_options=fault.options) as store:
        store.read(0)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        dead = {"endpoint_url": f"http://127.0.0.1:{unused.getsockname()[1]}"}
    options = {**fault.options, "client_kwargs": dead}

    with pytest.raises(OSError, match=f"{BUCKET}.*/") as caught:
        open_store(f"{uri}/{what}", storage_options=options)

    assert not isinstance(caught.value, FileNotFoundError)
    assert "?" not in str(caught.value)


def test_errors_of_other_libraries_are_told_apart() -> None:
    """Errors of a user's own `read` are classified: HTTP statuses, unknown names, Pillow's."""

    def http(status: int) -> OSError:
        return urllib.error.HTTPError("http://host/1.jpg", status, "", None, None)  # type: ignore[arg-type]

    assert [is_item_error(http(status)) for status in (404, 410, 403, 503)] == [True, True] + [
        False
    ] * 2
    assert [is_temporary(http(status)) for status in (404, 403, 429, 503)] == [
        False,
        False,
        True,
        True,
    ]
    assert not is_item_error(urllib.error.URLError("unreachable"))
    assert not is_item_error(socket.gaierror(-2, "Name or service not known"))
    assert not is_item_error(TimeoutError("timed out"))
    assert is_item_error(OSError("image file is truncated"))


def test_http_is_told_as_s3_is() -> None:
    """Over HTTP, a 404 is a missing file; other errors are raised; messages have no secrets."""
    pytest.importorskip("aiohttp")
    photo, answer = encode(drawing(40, 30)), [200]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = photo if answer == [200] else b""
            self.send_response(*answer)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as front:
        front.daemon_threads = True
        threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True).start()
        where = f"http://127.0.0.1:{front.server_port}/a.jpg"
        store = open_store([f"{where}?signature=secret"])
        assert bytes(store.read(0)) == photo
        told = []
        for answer[0] in (404, 403, 503):
            with pytest.raises(OSError, match=where) as caught:
                store.read(0)
            told.append((type(caught.value), is_item_error(caught.value)))
            assert "secret" not in str(caught.value)
        front.shutdown()
    with pytest.raises(ConnectionError, match=where):
        store.read(0)

    assert told == [
        (FileNotFoundError, True),
        (PermissionError, False),
        (ConnectionError, False),
    ]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("left", ["nothing", "an empty folder", "another file", "no folder"])
def test_a_missing_file_is_an_outage_if_its_folder_is_gone_or_empty(
    left: str, listed: bool, tmp_path: Path
) -> None:
    """An unmounted drive leaves an empty folder; only beside other files is one missing."""
    folder = tmp_path / "drive"
    own = folder / "class"
    if left != "no folder":
        folder.mkdir()
    if left in ("an empty folder", "another file"):
        own.mkdir()
    if left == "another file":
        (own / "b.jpg").touch()
    error = FileNotFoundError(2, "No such file or directory", str(own / "a.jpg"))

    mark_if_folder_vanished(error, str(folder), listed=listed)

    # An empty class folder shows that the drive is there.
    assert is_item_error(error) == (left in ("another file", "an empty folder"))
