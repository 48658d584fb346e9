"""Who decodes for a device: a batch backend there, or the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fastdecode import _preference, batch_backends, registry
from fastdecode._selection import disabled
from fastdecode.device.measured import measured
from fastdecode.errors import BackendUnavailable

if TYPE_CHECKING:
    import torch

__all__ = ["CPU", "DECODE", "Choice", "Decode", "choose"]

Decode: TypeAlias = Literal["auto", "cpu", "gpu"]
DECODE: tuple[Decode, ...] = ("auto", "cpu", "gpu")
CPU = "cpu"
"""What stands for the CPU path among the names of batch backends."""

# Where nothing was measured: first who reaches the GPU's JPEG hardware and refuses picture by
# picture, then who calls the same library without the hardware, last whose one bad picture costs
# the whole batch another try.
_DEFAULT = ("nvimgcodec", "torchcodec", "torchvision", "dali")


class Choice(NamedTuple):
    """Who decodes.

    Attributes
    ----------
    batch : str or None
        The batch backend; None for the CPU path alone.
    cpu : str or None
        The backend that the CPU path is to use; None for the fastest.
    why : str
        In words.
    """

    batch: str | None
    cpu: str | None
    why: str


def choose(device: torch.device, decode: Decode = "auto", backend: str | None = None) -> Choice:
    """Choose who decodes for a device.

    Parameters
    ----------
    device : torch.device
        From `device_of`.
    decode : {"auto", "cpu", "gpu"}
        ``"auto"``: what `calibrate` measured to be fastest there; where nothing was measured, the
        first batch backend that works, and the CPU if none does.
    backend : str, optional
        A name: of a batch backend, or of one that is to decode on the CPU. By default the one of
        `use` or ``FASTDECODE_BACKEND``, if there is one; ``"gpu"`` heeds only a batch backend.

    Returns
    -------
    Choice

    Raises
    ------
    UnknownBackend, BackendUnavailable
        If the named one cannot be used; with ``"gpu"`` if none can, with what to install.
    ValueError
        If what is asked for contradicts itself.
    """
    if decode not in DECODE:
        raise ValueError(f"decode must be one of {', '.join(DECODE)}, not {decode!r}")
    if decode == "gpu" and device.type == "cpu":
        raise ValueError("decode='gpu' needs a GPU as device, not 'cpu'")
    if backend is not None:
        return _named(device, decode, backend)
    preferred = _preference.preferred()
    if isinstance(preferred, str) and (
        decode != "gpu" or preferred in batch_backends.names(device.type)
    ):
        return _named(device, decode, preferred)
    if decode == "cpu" or device.type == "cpu":
        return Choice(None, None, "the CPU decodes, as asked")
    return _first(device, decode)


def _named(device: torch.device, decode: Decode, name: str) -> Choice:
    registry.entry(name)  # UnknownBackend
    able = batch_backends.names(device.type)
    if decode != "cpu" and name in able:
        batch_backends.load(name, device)
        return Choice(name, None, f"{name} decodes, as asked")
    if decode == "gpu":
        raise ValueError(
            f"the backend {name!r} does not decode on {str(device)!r}; these do: {', '.join(able)}"
        )
    _preference.load_named(name)
    return Choice(None, name, f"{name} decodes on the CPU, as asked")


def _first(device: torch.device, decode: Decode) -> Choice:
    """Take the first that works: of what was measured, then of the default order."""
    known = measured(device)
    missing: list[str] = []
    left_out = disabled()
    for name in _order(known, device):
        if name in left_out:
            missing.append(f"the backend {name!r} is left out by FASTDECODE_DISABLE")
            continue
        if name == CPU:
            if decode == "auto":
                return Choice(None, None, "the CPU decodes: it was measured to be fastest")
            continue
        try:
            batch_backends.load(name, device)
        except BackendUnavailable as error:
            missing.append(str(error))
            continue
        how = "was measured to be fastest" if name in known else "is the first that works"
        return Choice(name, None, f"{name} decodes: it {how} on {device}")
    if decode == "auto":
        return Choice(None, None, f"the CPU decodes: no backend decodes on {device}")
    raise BackendUnavailable(
        f"no backend decodes on {str(device)!r}, which decode='gpu' needs; decode='cpu' would do "
        "without:\n" + "\n".join(missing)
    )


def _order(known: Iterable[str], device: torch.device) -> Iterator[str]:
    able = batch_backends.names(device.type)
    for name in dict.fromkeys((*known, *_DEFAULT, *able)):
        if name == CPU or name in able:
            yield name
