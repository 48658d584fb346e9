"""A batch whose pictures are read, and drawn for, by many threads, and then decoded all at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from fastdecode import formats
from fastdecode.buffers import as_buffer
from fastdecode.device.ask import ask, finish_with
from fastdecode.device.resize import resized
from fastdecode.device.routing import Request, request_of
from fastdecode.torch._batch_builder import AtOnce, BatchBuilder, EpochConfig, stopped_early
from fastdecode.torch._collate import Ready, collate
from fastdecode.torch._errors import SKIPPED
from fastdecode.torch._order import Item
from fastdecode.torch._samples import SampleMaker
from fastdecode.torch._threads import ThreadPool
from fastdecode.torch.dataset import EncodedSample, finished
from fastdecode.torch.transforms.base import Plan, geometry_of
from fastdecode.types import Box, Buffer, Header

if TYPE_CHECKING:
    from fastdecode.torch._read_ahead import Read

__all__ = ["EncodedBatch"]

_DECODED = object()


class _Asked(NamedTuple):
    """One picture that the batch backend is to decode.

    Attributes
    ----------
    request : Request
    box : (left, top, right, bottom)
        What is resized of the part that was asked for, in pixels of that.
    flip : bool
    """

    request: Request
    box: tuple[float, float, float, float]
    flip: bool


class EncodedBatch(BatchBuilder):
    """A batch of encoded pictures; `decoded` makes the batch proper of it.

    What the backend does not decode is made as without it: by the dataset, with the same seed.

    Parameters
    ----------
    config : EpochConfig
    how : AtOnce
    maker, items, position, part
        As of `BatchBuilder`.
    threads : ThreadPool or None
        For what the backend refuses.
    """

    def __init__(
        self,
        config: EpochConfig,
        how: AtOnce,
        maker: SampleMaker,
        items: list[Item],
        position: int,
        part: int,
        threads: ThreadPool | None,
        reads: list[Read] | None = None,
    ) -> None:
        super().__init__(config, maker, items, position, part, reads=reads)
        self._how = how
        self._threads = threads
        self._asked: dict[int, _Asked] = {}
        self._found: dict[int, EncodedSample] = {}
        self._slots: dict[int, torch.Tensor] = {}
        self._timeout: float | None = None
        self._looked = False

    def _room(self) -> None:
        """Take no memory of the host for what will be made on the device."""

    def _begun(self, part: range) -> Iterator[int]:
        """Read and draw; leave to the dataset what the backend may not be asked for."""
        for at in part:
            asked = None if self._looked else self._look(at)
            if asked is None:
                yield at
            else:
                self._asked[at], self._samples[at] = asked, _DECODED

    def _look(self, at: int) -> _Asked | None:
        index, seed = self._items[at]
        source = self._config.source
        dataset = source.ours
        try:
            before = None if self._reads is None else self._reads[at].result()
            place, target = dataset.read(source.place(index)) if before is None else before
            found = self._found[at] = EncodedSample(place, dataset._encoded(place), target)
            data = as_buffer(found.data)
            header = formats.probe(data)
            plan = self._how.way.crop.seeded_plan(header.width, header.height, seed)
            asked = self._asked_for(data, header, plan) if plan.size == self._size else None
            if asked is not None:
                geometry = geometry_of(plan) if self._how.way.maps else None
                target = finished(dataset, target, geometry)
                self._found[at] = found._replace(target=target, finished=True)
        except BaseException:  # it comes again when the dataset makes the item by itself
            return None
        return asked

    def _asked_for(self, data: Buffer, header: Header, plan: Plan) -> _Asked | None:
        """Ask for what a plan shows of a picture, if the backend may be asked for that."""
        loaded, orient = self._how.loaded, self._config.source.ours.orient
        part = _part_of(plan)
        everything = part == (0, 0, header.width, header.height)
        options = {"orient": orient, "region": None if everything else part}
        # The JPEG engine of a GPU decodes whole pictures; windows may leave it, for decoders
        # that load the CPU, on which the others are made.
        windows = loaded.device.type != "cuda"
        request = request_of(data, loaded.backend, options, windows=windows, header=header)
        return None if request is None else _Asked(request, _shown(plan, part), plan.flip)

    def _read_before(self, at: int) -> EncodedSample | None:
        return self._found.pop(at, None) or super()._read_before(at)

    def _slot(self, at: int) -> torch.Tensor:
        shape = self._how.way.crop.shape or ()
        slot = self._slots[at] = torch.empty(shape, dtype=torch.uint8, device="cpu")
        return slot

    def result(self, timeout: float | None) -> EncodedBatch:
        """Wait until everything is read, and return this. Errors come out at `decoded`."""
        self._timeout = timeout
        self._wait(timeout)
        return self

    def decoded(self, device: torch.device) -> Ready:
        """Decode, crop, resize and mirror, and put all together.

        Parameters
        ----------
        device : torch.device
            That of the backend.

        Returns
        -------
        Ready
            With uint8 pictures on the device, in the order of the current stream, but for one that
            is empty.

        Raises
        ------
        Exception
            As from `BatchBuilder.result`.
        """
        self._looked = True
        places = sorted(self._asked)
        items = [self._asked[at].request.item for at in places]
        images = ask(self._how.loaded, items, "RGB", device)
        made = {at: image for at, image in zip(places, images, strict=True) if image is not None}
        try:
            pictures = self._resized(made) if made else None
        finally:
            finish_with(self._how.loaded, list(made.values()))
        self._make_others([at for at in places if at not in made])
        try:
            self._raise_first()
        except StopIteration as error:
            raise stopped_early(error) from error
        for at in made:
            sample = (_DECODED, self._found[at].target)
            self._samples[at] = self._config.source.handed_out(sample)
        return self._joined(list(made), pictures, device)

    def _resized(self, made: dict[int, torch.Tensor]) -> torch.Tensor:
        asked = [self._asked[at] for at in made]
        parts = []
        for one, image in zip(asked, made.values(), strict=True):
            left, top, right, bottom = one.request.cut or (0, 0, image.shape[2], image.shape[1])
            # Nothing outside of the part has a share in the pixels at its edges.
            parts.append(image[:, top:bottom, left:right])
        return resized(
            parts,
            self._size,
            boxes=[one.box for one in asked],
            flips=[one.flip for one in asked],
            channels_last=self._config.channels_last,
        )

    @property
    def _size(self) -> tuple[int, int]:
        _, height, width = self._how.way.crop.shape or (0, 0, 0)
        return height, width

    def _make_others(self, places: list[int]) -> None:
        """Let the dataset make what the backend has refused, in all threads."""
        if not places:
            return
        self._left = len(places)
        self._done.clear()
        for at in places:
            self._samples[at] = None
            one = partial(self.make, range(at, at + 1))
            if self._threads is None:
                one()
            else:
                self._threads.submit(one)
        self._wait(self._timeout)

    def _joined(
        self, places: list[int], pictures: torch.Tensor | None, device: torch.device
    ) -> Ready:
        """Put pictures from the device and from the host in order."""
        kept = [at for at, sample in enumerate(self._samples) if sample is not SKIPPED]
        skipped = len(self._samples) - len(kept)
        if not kept:
            return Ready(None, self._position, skipped)
        if pictures is None or len(places) < len(kept):
            layout = torch.channels_last if self._config.channels_last else torch.contiguous_format
            batch = torch.empty(
                (len(kept), 3, *self._size),
                dtype=torch.uint8,
                device=device,
                memory_format=layout,
            )
            row_of = {at: row for row, at in enumerate(kept)}
            if pictures is not None:
                _put(batch, [row_of[at] for at in places], pictures)
            others = [at for at in kept if at in self._slots]
            host = torch.stack([self._slots[at] for at in others])
            _put(batch, [row_of[at] for at in others], _on_device(host, device))
            pictures = batch
        last = self._config.channels_last
        samples = [self._samples[at] for at in kept]
        ready = collate(samples, pictures, self._position, None, channels_last=last)
        return ready._replace(skipped=skipped, normalize=self._config.normalize)


def _part_of(plan: Plan) -> Box:
    """Return the whole pixels that are resized."""
    left, top, right, bottom = plan.box
    return int(left), int(top), math.ceil(right), math.ceil(bottom)


def _shown(plan: Plan, part: Box) -> tuple[float, float, float, float]:
    """Return where the result lies in these pixels; it may stick out, and is black there."""
    left, top, right, bottom = geometry_of(plan).box
    return left - part[0], top - part[1], right - part[0], bottom - part[1]


def _on_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda":
        return host.to(device)
    # PyTorch's allocator of pinned memory hands this out again only after the copy.
    return host.pin_memory().to(device, non_blocking=True)


def _put(batch: torch.Tensor, rows: list[int], pictures: torch.Tensor) -> None:
    """Write some rows of a batch, in the order of the current stream."""
    index = _on_device(torch.tensor(rows, dtype=torch.int64, device="cpu"), batch.device)
    batch.index_copy_(0, index, pictures)
