"""An epoch under way: batches from the crew, and what is handed to the consumer."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fastdecode.torch._device_batches import EncodedBatch
from fastdecode.torch.assembly import Assembly, Recipe, closed_error, stopped_early
from fastdecode.torch.collating import Ready, handed_out
from fastdecode.torch.crew import Crew
from fastdecode.torch.order import Item, Order
from fastdecode.torch.position import Position
from fastdecode.torch.read_ahead import ReadAhead

__all__ = ["Epoch", "Relay", "ThreadEpoch"]

_LARGEST_PART = 4
_PARTS_A_THREAD = 2


class ThreadEpoch:
    """Batches in order, of which some are made ahead.

    Parameters
    ----------
    recipe : Recipe
    order : Order
    start : int
        Batch to begin with.
    crew : Crew or None
        None makes each batch in the calling thread.
    prefetch : int
        How many batches are in the making beside the one that is waited for.
    timeout : float or None
        Seconds to wait for one.
    ahead : ReadAhead, optional
        What reads them.
    """

    def __init__(
        self,
        recipe: Recipe,
        order: Order,
        start: int,
        crew: Crew | None,
        prefetch: int,
        timeout: float | None,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._recipe = recipe
        self._ahead = ahead
        self._order = order
        self._next = start
        self._crew = crew
        self._prefetch = prefetch if crew is not None else 0
        self._timeout = timeout
        self._process = os.getpid()
        self._closed = False
        self._awaited: Assembly | None = None
        self._pending: deque[Assembly] = deque()
        # Small parts keep all threads busy to the end of a batch, large ones hand over less often.
        shares = 1 if crew is None else crew.count * _PARTS_A_THREAD
        self._part = max(1, min(_LARGEST_PART, order.batch_size // shares))
        self._lane = None
        if crew is not None and recipe.at_once is None:
            self._lane = recipe.source.lane(crew.pool)
        self._latest: weakref.ref[Assembly] | None = None
        self._fill()

    def _fill(self) -> None:
        """Begin batches, up to the number that are made ahead."""
        while self._next < self._order.count and len(self._pending) < max(1, self._prefetch):
            items = self._order.batch(self._next)
            self._next += 1
            assembly = self._assembly(items)
            self._pending.append(assembly)
            if self._crew is not None:
                for part in assembly.parts:
                    self._crew.submit(partial(assembly.make, part))

    def _assembly(self, items: list[Item]) -> Assembly:
        recipe, how = self._recipe, self._recipe.at_once
        reads = None if self._ahead is None else self._ahead.batch()
        if how is not None:
            return EncodedBatch(recipe, how, items, self._next, self._part, self._crew, reads)
        lane = self._lane if self._lane is not None and self._lane.pays else None
        size = self._part if lane is None else lane.part
        return Assembly(recipe, items, self._next, size, lane, reads)

    def __iter__(self) -> Iterator[Ready | Assembly]:
        return self

    def __next__(self) -> Ready | Assembly:
        if self._process != os.getpid():  # the threads stayed behind
            raise RuntimeError("this iterator belongs to the process that this one was forked from")
        if self._closed:
            raise closed_error()
        if not self._pending:
            raise StopIteration
        assembly = self._awaited = self._pending.popleft()
        self._latest = weakref.ref(assembly)
        if self._crew is None:
            for part in assembly.parts:
                assembly.make(part)
        self._fill()
        try:
            return assembly.result(self._timeout)
        except StopIteration as error:
            raise stopped_early(error) from error
        finally:
            self._awaited = None

    def close(self) -> None:
        """Give up what is in the making, if anything is; whoever asks for more gets an error."""
        if self._ahead is not None:
            self._ahead.close()
        # In another thread: one that is waited for, or one that waits for what was refused.
        latest = None if self._latest is None else self._latest()
        for assembly in (self._awaited, latest):
            if assembly is not None:
                assembly.cancel()
        if self._pending:
            self._closed = True
        self._next = self._order.count
        for assembly in self._pending:
            assembly.cancel()
        self._pending.clear()

    def __del__(self) -> None:
        # A consumer that left the loop early wants no more of it.
        if hasattr(self, "_pending"):
            self.close()


class Epoch:
    """What a consumer iterates over.

    Parameters
    ----------
    begin : callable
        Is given the position that it returned before; at first that is None. It returns the batches
        and their position, or None where those from before still hold.
    handed : callable
        Is told of each batch, and of the end by None, with the position.
    """

    def __init__(
        self,
        begin: Callable[[Position | None], tuple[Iterator[Ready], Position] | None],
        handed: Callable[[Position, Ready | None], None],
    ) -> None:
        self._begin = begin
        self._handed = handed
        self._ended = False
        self._source: Iterator[Ready]
        self._position: Position
        self._take(None)

    def _take(self, position: Position | None) -> None:
        begun = self._begin(position)
        if begun is not None:
            self._source, self._position = begun

    def __iter__(self) -> Iterator[Any]:
        return self

    def __del__(self) -> None:
        if hasattr(self, "_position"):
            self._position.unasked()

    def __next__(self) -> Any:
        if not self._position.asked:
            # Lightning makes its iterator first, and then says which epoch that is to be.
            self._take(self._position)
            self._position.asked = True
        while True:
            try:
                ready = next(self._source)
            except StopIteration:
                if not self._ended:  # it may be asked again
                    self._ended = True
                    self._handed(self._position, None)
                raise
            batch = handed_out(ready)
            self._handed(self._position, ready)
            if batch is not None:  # else every item of it was left out
                return batch


class Relay:
    """The one iterable that the prefetcher wraps: it gives whichever epoch is current."""

    batches: Iterator[Ready | Assembly]

    def __iter__(self) -> Iterator[Ready | Assembly]:
        return self.batches
