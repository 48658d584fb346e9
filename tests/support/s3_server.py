"""An S3 server on this machine that counts requests."""

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
    """The options of s3fs for a server, and the requests that the server got."""

    options: dict[str, Any]
    asked: Counter[tuple[str, str]]
    """How often, by the method and the suffix of the path ("" for a listing)."""


class _Counting(logging.Handler):
    """Reads the log of a server, which has a line for each request."""

    def __init__(self, asked: Counter[tuple[str, str]]) -> None:
        super().__init__(logging.INFO)
        self._asked = asked

    def emit(self, record: logging.LogRecord) -> None:
        found = _LINE.search(record.getMessage())
        if found:
            self._asked[found[1], Path(found[2].partition("?")[0]).suffix] += 1


@contextmanager
def s3_server() -> Iterator[Server]:
    """Run a server with one bucket, or skip the test if it is not installed."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    log, asked = logging.getLogger(_LOG), Counter[tuple[str, str]]()
    counting, level = _Counting(asked), log.level
    log.addHandler(counting)
    log.setLevel(logging.INFO)
    try:
        host, port = running.get_host_and_port()
        address = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT")).close()
        where = {"endpoint_url": address, "region_name": "us-east-1"}
        yield Server({"key": "testing", "secret": "testing", "client_kwargs": where}, asked)
    finally:
        log.removeHandler(counting)
        log.setLevel(level)
        running.stop()
