"""An S3 server on this machine that counts its requests."""

from __future__ import annotations

import logging
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BUCKET = "test-bucket"
_LINE = re.compile(r"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP")
_LOG = "werkzeug"


class Server(NamedTuple):
    """Storage options for s3fs, and the requests that the server has received."""

    options: dict[str, Any]
    requests: Counter[tuple[str, str]]
    """Number of requests by method and suffix of the path ("" for a listing)."""


class _Counting(logging.Handler):
    """A log handler that counts requests: the server logs a line for each."""

    def __init__(self, requests: Counter[tuple[str, str]]) -> None:
        super().__init__(logging.INFO)
        self._requests = requests

    def emit(self, record: logging.LogRecord) -> None:
        found = _LINE.search(record.getMessage())
        if found:
            self._requests[found[1], Path(found[2].partition("?")[0]).suffix] += 1


@contextmanager
def s3_server() -> Iterator[Server]:
    """Run a server with one bucket; skip the test if its libraries are missing."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    log, requests = logging.getLogger(_LOG), Counter[tuple[str, str]]()
    counting, level = _Counting(requests), log.level
    log.addHandler(counting)
    log.setLevel(logging.INFO)
    try:
        host, port = running.get_host_and_port()
        address = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT")).close()
        where = {"endpoint_url": address, "region_name": "us-east-1"}
        yield Server({"key": "testing", "secret": "testing", "client_kwargs": where}, requests)
    finally:
        log.removeHandler(counting)
        log.setLevel(level)
        running.stop()
