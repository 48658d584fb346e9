"""A bucket of an object store: as much of S3's interface as reading needs, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fastdecode.stores import create_store

BUCKET = "bucket"
_PAGE = 1000  # keys of an answer, at most: as S3's
_ASKED = "/asked"


class _Server:
    """A bucket that is a folder; it counts what it is asked, by the kind of request."""

    def __init__(self, folder: Path, latency: float) -> None:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        self.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
        self.latency = latency
        self.asked: Counter[str] = Counter()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                await asyncio.sleep(self.latency)
                writer.write(self.answer(method, path, fields.get("range")))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side has hung up
        finally:
            writer.close()

    def answer(self, method: str, address: str, span: str | None) -> bytes:
        """Return a response with its headers."""
        path, query = urlsplit(address).path, parse_qs(urlsplit(address).query)
        status = "200 OK"
        if path == _ASKED:
            data: bytes | None = json.dumps(dict(sorted(self.asked.items()))).encode()
            self.asked.clear()
        elif "list-type" in query:
            self.asked["LIST"] += 1
            data = self.listing({name: values[0] for name, values in query.items()})
        else:
            self.asked[method] += 1
            data = self.files.get(path.removeprefix(f"/{BUCKET}/"))
        if data is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        if span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            data = data[int(first) : int(last) + 1 if last else None]
            status = "206 Partial Content"
        head = f'HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\nETag: "1"\r\n\r\n'
        return head.encode() + (b"" if method == "HEAD" else data)

    def listing(self, query: dict[str, str]) -> bytes:
        """Return a page of the keys, and of the folders among them, that begin with a prefix."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        found: dict[str, str] = {}
        for key, data in self.files.items():
            folder, cut, _ = key[len(prefix) :].partition(delimiter or "\0")
            if key.startswith(prefix) and cut:
                name = f"{prefix}{folder}{cut}"
                found[name] = f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
            elif key.startswith(prefix):
                found[key] = (
                    f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>1</ETag>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                )
        begin = int(query.get("continuation-token", 0))
        page = [*found.values()][begin : begin + int(query.get("max-keys", _PAGE))]
        end = begin + len(page)
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(found) else ""
        body = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}{''.join(page)}"
        counted = f"<KeyCount>{len(page)}</KeyCount>"
        return f"<ListBucketResult>{counted}{body}</ListBucketResult>".encode()


def _serve(folder: Path, latency: float, port: Any) -> None:
    async def run() -> None:
        server = await asyncio.start_server(_Server(folder, latency).talk, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def served(
    folder: Path, latency: float = 0.0
) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, int]]]]:
    """Serve a folder from a process; give storage options, and what tells the requests so far."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(folder, latency, theirs), daemon=True)
    server.start()
    try:
        address = f"http://127.0.0.1:{ours.recv()}"
        where = {"endpoint_url": address, "region_name": "us-east-1"}

        def asked() -> dict[str, int]:
            with urllib.request.urlopen(f"{address}{_ASKED}") as answer:
                found: dict[str, int] = json.load(answer)
            return found

        yield {"key": "none", "secret": "none", "client_kwargs": where}, asked
    finally:
        server.terminate()
        server.join()


def write_shards(photos: Sequence[Path], images: int, shards: int, folder: Path) -> int:
    """Write so many images into tar shards; return how many bytes the images have."""
    size = 0
    for shard in range(shards):
        with create_store(folder / f"train-{shard:05}.tar") as writer:
            for at in range(shard * images // shards, (shard + 1) * images // shards):
                data = photos[at % len(photos)].read_bytes()
                size += len(data)
                writer.add(f"{at:07}.jpg", data, at % 10)
    return size
