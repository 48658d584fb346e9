"""What decodes onto devices here, as ``python -m fastdecode`` says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fastdecode.bench.tables import paragraph
from fastdecode.selection import disabled

if TYPE_CHECKING:
    from fastdecode.gpu._diagnostics import Inventory
    from fastdecode.types import BackendInfo

__all__ = ["inventory", "lines"]

_NAME = 12


def inventory() -> Inventory | None:
    """Look what is here; None without PyTorch."""
    try:
        from fastdecode.gpu._diagnostics import take_inventory
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    return take_inventory()


def lines(found: Inventory | None, infos: Sequence[BackendInfo]) -> Iterator[str]:
    """Say which devices there are, who decodes there, and what is missing for it."""
    declared = {info.name: info.devices for info in infos if info.devices}
    if found is None:
        yield paragraph(
            f"{', '.join(declared)} need PyTorch, which is not installed: "
            "pip install 'fastdecode[torch]'",
            indent="  ",
        )
        return
    left_out = disabled()
    for device, what in found.devices.items():
        yield _item(device, what)
    for name, places in found.usable.items():
        if places:
            off = ", but FASTDECODE_DISABLE leaves it out of the choice" if name in left_out else ""
            yield _item(name, f"decodes on {', '.join(places)}{off}")
        else:
            yield _item(name, f"({', '.join(declared.get(name, ()))}) {found.reasons[name]}")
    for device, what in found.measured.items():
        yield _item("measured", f"{device}: {what}")


def _item(name: str, text: str) -> str:
    first = f"  {name:<{_NAME}}"
    return paragraph(". ".join(text.splitlines()), indent=" " * len(first), first=first)
