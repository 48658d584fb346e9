"""Going on with a pack: what was done must still be so, and what was bad may have been mended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from fastdecode.packing.ordered import in_order
from fastdecode.packing.results import Refused
from fastdecode.packing.source import stamp

if TYPE_CHECKING:
    from fastdecode.packing.results import Bad, Item
    from fastdecode.packing.work import Outcome
    from fastdecode.stores import Store

__all__ = ["check_unchanged", "try_again"]


def check_unchanged(store: Store, items: Iterable[Item]) -> None:
    """Make sure that the files of what is in the spool are those that were read.

    Parameters
    ----------
    store : Store
    items : iterable of Item

    Raises
    ------
    Refused
        If one of them has another size or time.
    """
    for item in items:
        if item.number >= len(store) or (
            item.stamp is not None and stamp(store, item.number) != item.stamp
        ):
            raise Refused(
                f"{store.location}, item {item.number} ({store.key(item.number)}) has changed "
                "since an earlier run packed it: begin again with --restart"
            )


def try_again(
    work: Callable[[int], Outcome], bad: Sequence[Bad], threads: int
) -> tuple[int | None, list[tuple[int, str]]]:
    """Look at items that were bad once more.

    Parameters
    ----------
    work : callable
    bad : sequence of Bad
        In the order of the source.
    threads : int

    Returns
    -------
    first : int or None
        The first of the source's items that is good now.
    reasons : list of (int, str)
        Of those before it that are bad for another reason now: the place in `bad`, and the reason.
    """
    again = [(place, one) for place, one in enumerate(bad) if not one.fixed]
    reasons: list[tuple[int, str]] = []
    indices = [one.number for _, one in again]
    with closing(in_order(work, indices, threads)) as outcomes:
        for (place, one), outcome in zip(again, outcomes, strict=True):
            if not outcome.bad:
                return one.number, reasons
            if outcome.bad != one.reason:
                reasons.append((place, outcome.bad))
    return None, reasons
