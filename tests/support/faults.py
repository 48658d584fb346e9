"""A proxy in front of an S3 server that answers as a failing server does."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from s3_server import BUCKET, s3_server

from fastdecode.stores import create_store

Answer = int | str | None
"""An HTTP status, an S3 error code, "drop" to break the connection, or None to forward the
request."""

_STATUS = {"ExpiredToken": 400, "AccessDenied": 403, "NoSuchBucket": 404, "SlowDown": 503}


class Fault:
    """The answers of the proxy.

    Attributes
    ----------
    options : dict
        Storage options that make s3fs use the proxy.
    answer : callable
        Maps the method and the path of a request to its answer.
    refused : int
        Number of requests that were not forwarded.
    """

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.answer: Callable[[str, str], Answer] = lambda _method, _path: None
        self.refused = 0

    def always(self, answer: Answer, *, suffix: str = "", after: int = 0) -> None:
        """Give this answer to every read of a path with the suffix, after the first `after`."""
        self._set(answer, suffix, lambda count: count > after)

    def times(self, answer: Answer, count: int) -> None:
        """Give this answer to the first `count` reads, and forward all others."""
        self._set(answer, "", lambda number: number <= count)

    def _set(self, answer: Answer, suffix: str, chosen: Callable[[int], bool]) -> None:
        lock, seen = threading.Lock(), 0

        def one(method: str, path: str) -> Answer:
            nonlocal seen
            if method not in ("GET", "HEAD") or not path.partition("?")[0].endswith(suffix):
                return None
            with lock:
                seen += 1
                return answer if chosen(seen) else None

        self.answer = one


@contextmanager
def faulty_s3() -> Iterator[Fault]:
    """Run an S3 server behind a proxy that can fail."""
    with s3_server() as server:
        fault = Fault()
        behind = urlsplit(server.options["client_kwargs"]["endpoint_url"]).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Print nothing."""

            def _respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = fault.answer(self.command, self.path)
                if answer is None:
                    self._forward(body)
                    return
                fault.refused += 1
                if answer == "drop":
                    self.close_connection = True
                    self.connection.close()
                    return
                code = answer if isinstance(answer, str) else "InternalError"
                status = _STATUS[answer] if isinstance(answer, str) else answer
                self._answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _respond  # noqa: N815 - of http.server

            def _forward(self, body: bytes) -> None:
                connection = http.client.HTTPConnection(behind, timeout=30)
                connection.request(self.command, self.path, body, dict(self.headers))
                got = connection.getresponse()
                kept = {
                    name: value
                    for name, value in got.getheaders()
                    if name.lower() not in ("transfer-encoding", "connection", "server", "date")
                }
                self._answer(got.status, kept, got.read())
                connection.close()

            def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if not any(name.lower() == "content-length" for name in headers):
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Say nothing about connections that were dropped on purpose."""

        front = Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        where = {
            "endpoint_url": f"http://127.0.0.1:{front.server_port}",
            "region_name": "us-east-1",
        }
        # botocore's own retries are slow, and the tests are about the package's retries.
        quick = {"retries": {"max_attempts": 0}, "connect_timeout": 5}
        fault.options = {**server.options, "client_kwargs": where, "config_kwargs": quick}
        try:
            yield fault
        finally:
            front.shutdown()
            front.server_close()
            thread.join()


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make two attempts, with a hundredth of a second between them."""
    monkeypatch.setattr("fastdecode._error_policy._WAIT_S", 0.01)
    monkeypatch.setattr(pytest.importorskip("s3fs").S3FileSystem, "retries", 1)


def put_shard(fault: Fault, folder: Path, images: Sequence[bytes]) -> tuple[Any, str]:
    """Upload ``t.tar`` and its index to the server; return the file system and the folder's URI."""
    import fsspec

    where = f"s3://{BUCKET}/{folder.name}"
    system, _ = fsspec.core.url_to_fs(where, **fault.options)
    with create_store(folder / "t.tar") as writer:
        for number, data in enumerate(images):
            writer.add(f"{number:02}.jpg", data, number)
    for name in ("t.tar", "t.tar.fdx"):
        system.pipe_file(f"{where}/{name}", (folder / name).read_bytes())
    return system, where


__all__ = ["BUCKET", "Fault", "faulty_s3", "put_shard", "quick_retries"]
