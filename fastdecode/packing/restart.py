"""Beginning again: what an earlier pack has left is removed, and nothing else."""

from __future__ import annotations

from contextlib import closing, suppress

from fastdecode.packing import finish
from fastdecode.packing.journal import Journal
from fastdecode.packing.place import Place
from fastdecode.packing.results import Packed, Refused
from fastdecode.packing.state import State

__all__ = ["clear"]


def clear(place: Place) -> None:
    """Remove an earlier pack that was not finished, also what it has put at its place already.

    Raises
    ------
    FileExistsError
        If something else is there, or that pack is whole; then nothing is removed that counts.
    """
    if not finish.has_begun(place):
        place.check_free()
        finish.journal_path(place).unlink(missing_ok=True)
        finish.remove_work(place)
        return
    state = State(Packed(str(place.path), place.kind))
    with closing(Journal(finish.journal_path(place))) as journal, suppress(Refused):
        state.read(journal)  # what is not understood has put nothing at its place
    moves = state.moves or []
    placed = finish.placed(place, moves)
    if moves and len(placed) == len(moves):
        finish.remove(place)
        placed = []
    place.check_free(new=False, ours=placed)
    for path in reversed(placed):
        path.unlink()
    if state.packed.bad:
        place.bad.unlink(missing_ok=True)
    # The journal first: the rest is nothing without it.
    finish.journal_path(place).unlink(missing_ok=True)
    finish.remove_work(place)
