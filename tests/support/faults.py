"""A proxy in front of an S3 server that returns errors, as an overloaded server does."""

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
"""A status of HTTP; the code of an error of S3; "drop" for a connection that breaks; None lets the
request through."""

_STATUS = {"ExpiredToken": 400, "AccessDenied": 403, "NoSuchBucket": 404, "SlowDown": 503}


class Fault:
    """The answers of the proxy.

    Attributes
    ----------
    options : dict
        Options of s3fs that make it use the proxy.
    answer : callable
        Returns the answer to a request, given its method and path.
    refused : int
        The number of requests that got an error.
    """

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.answer: Callable[[str, str], Answer] = lambda _method, _path: None
        self.refused = 0

    def always(self, answer: Answer, *, suffix: str = "", after: int = 0) -> None:
        """Answer all reads of paths with this ending in this way, except for the first ones."""
        self._set(answer, suffix, lambda count: count > after)

    def times(self, answer: Answer, count: int) -> None:
        """Answer this number of reads in this way, and forward all others."""
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
    """Run an S3 server behind a proxy that can return errors."""
    with s3_server() as server:
        fault = Fault()
        behind = urlsplit(server.options["client_kwargs"]["endpoint_url"]).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Print nothing."""

            def _one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = fault.answer(self.command, self.path)
                if answer is None:
                    self._passed_on(body)
                    return
                fault.refused += 1
                if answer == "drop":
                    self.close_connection = True
                    self.connection.close()
                    return
                code = answer if isinstance(answer, str) else "InternalError"
                status = _STATUS[answer] if isinstance(answer, str) else answer
                self._answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _one  # noqa: N815 - of http.server

            def _passed_on(self, body: bytes) -> None:
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
                """Print nothing about connections that were dropped on purpose."""

        front = Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        where = {
            "endpoint_url": f"http://127.0.0.1:{front.server_port}",
            "region_name": "us-east-1",
        }
        # Switch off the libraries' own retries, which are slow and not under test.
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
    """Retry after hundredths of a second, with three attempts in all."""
    monkeypatch.setattr("fastdecode._error_policy._WAITS_S", (0.01, 0.01))
    monkeypatch.setattr(pytest.importorskip("s3fs").S3FileSystem, "retries", 1)


def put_shard(fault: Fault, folder: Path, images: Sequence[bytes]) -> tuple[Any, str]:
    """Upload ``t.tar`` and its index to the server; return its file system and the location."""
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
