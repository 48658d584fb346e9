"""Which pictures a batch backend is asked for; all others are the CPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastdecode import _headers
from fastdecode._arguments import reduce_for, window_of
from fastdecode._buffers import as_buffer
from fastdecode._headers import jpeg_stream
from fastdecode.adapters.batch_base import BatchBackend, BatchItem
from fastdecode.api import DEFAULT_MAX_PIXELS
from fastdecode.errors import FastDecodeError

if TYPE_CHECKING:
    from fastdecode.adapters.base import Support
    from fastdecode.api import Data
    from fastdecode.types import Box, Buffer, Header

__all__ = ["Request", "request_of"]


class Request:
    """What a batch backend is asked for one picture, and what is left to do.

    Attributes
    ----------
    item : BatchItem
    cut : (left, top, right, bottom) or None
        What is to be cut out of what it gives.
    """

    __slots__ = ("cut", "item")

    def __init__(self, item: BatchItem, cut: Box | None) -> None:
        self.item = item
        self.cut = cut


def request_of(
    data: Data,
    backend: BatchBackend,
    options: dict[str, Any],
    *,
    header: Header | None = None,
    windows: bool = True,
) -> Request | None:
    """Ask a batch backend for a picture, if it is one that the backend may be asked for.

    Parameters
    ----------
    data : bytes-like
        The whole file.
    backend : BatchBackend
    options : dict
        Arguments of `decode`, checked.
    header : Header, optional
        Of `data`, if it is known.
    windows : bool
        Ask only for the region, where the backend can decode that; else it is cut out of the whole.

    Returns
    -------
    Request or None
        None where the CPU has to decode: for what the backend does not declare, for damaged or odd
        files, of which only the CPU path can say what is missing, and for all that is wrong, which
        is an error there.

    Notes
    -----
    A GPU's decoder does not say that data was missing. A JPEG goes there only if its end marker
    stands where its one scan ends; that is what `decode`, too, takes for whole at once.
    """
    mode = options.get("mode", "RGB")
    if mode not in ("RGB", "L") or options.get("strict"):
        return None
    try:
        whole = as_buffer(data)
        if header is None:
            header = _headers.probe(whole)
        support = _support_for(backend, whole, header, mode)
        if support is None or not _plain(header, options):
            return None
        region = options.get("region")
        window = None if region is None else window_of(region, header, 1, 1)
    except (FastDecodeError, TypeError, ValueError):
        return None
    if windows and support.region:
        return Request(BatchItem(whole, header, window), None)
    return Request(BatchItem(whole, header, None), window)


def _support_for(
    backend: BatchBackend, data: Buffer, header: Header, layout: str
) -> Support | None:
    """Return the declaration by which a whole file may be decoded; None if there is none."""
    if header.format == "jpeg" and not _is_whole(data, header):
        return None
    for support in backend.supports.get(header.format, ()):
        if layout in support.layouts and not support.refusal(header):
            return support
    return None


def _plain(header: Header, options: dict[str, Any]) -> bool:
    """Whether nothing is asked for but pixels as they are stored, of a size that is allowed."""
    most = options.get("max_pixels", DEFAULT_MAX_PIXELS)
    if most is not None and header.width * header.height > most:
        return False
    if options.get("orient") and header.orientation != 1:
        return False
    reduce = options.get("reduce", 1)
    if options.get("min_size") is not None:
        reduce = reduce_for(header, options["min_size"], region=options.get("region"))
    return bool(reduce == 1)


def _is_whole(data: Buffer, header: Header) -> bool:
    return (
        not header.progressive
        and data[-2:] == jpeg_stream.EOI
        and jpeg_stream.in_one_scan(data, header)
        and (not header.restart_interval or jpeg_stream.restarts_in_order(data, header))
    )
