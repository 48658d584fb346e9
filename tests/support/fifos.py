"""FIFOs with a writer: code that opens one by mistake reads a whole file and does not hang."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def fed(pipe: Path, data: bytes) -> Iterator[Path]:
    """Create a FIFO, replacing a file if there is one, that sends `data` to each reader."""
    beside = pipe.with_name(f"{pipe.name}.fifo")
    os.mkfifo(beside)
    beside.replace(pipe)
    ended = threading.Event()

    def feed() -> None:
        while not ended.is_set():
            with suppress(BrokenPipeError):
                pipe.write_bytes(data)  # waits for a reader

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    try:
        yield pipe
    finally:
        ended.set()
        while writer.is_alive():
            os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
            writer.join(0.01)
