"""The choice of what decodes for a device, and the errors if nothing can."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from device_doubles import NoSingle, batch_double, own_registry  # noqa: F401
from same import assert_raises

from fastdecode import BackendInfo, DeviceUnavailable, register, use
from fastdecode.cli import info
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import choose, load, names
from fastdecode.testing import drawing, encode
from fastdecode.torch import DevicePrefetcher, Loader

PHOTO = encode(drawing(40, 30))
CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)  # which is only a name here
OTHER = "xpu" if torch.backends.mps.is_available() else "mps"
OWN = pytest.mark.usefixtures("own_registry")


def _loader(decode: str, device: Any) -> Loader:
    return Loader([PHOTO], device=device, decode=decode, threads=1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda device: DevicePrefetcher([], device),
        *(partial(_loader, decode) for decode in ("cpu", "gpu", "nvimgcodec")),
    ],
    ids=["prefetcher", "loader", "loader, gpu", "loader, a name"],
)
@pytest.mark.parametrize(
    ("device", "error"),
    [
        *[(device, DeviceUnavailable) for device in ("cuda", 0, CUDA, "cuda:99", 99, OTHER)],
        *[(device, TypeError) for device in (True, 1.5)],
        *[(device, ValueError) for device in ("gpu", "")],
    ],
    ids=str,
)
def test_a_device_that_cannot_be_used(ask: Any, device: Any, error: type[Exception]) -> None:
    """The error names the device, and says that it cannot be used or is not a device."""
    if error is DeviceUnavailable and device != OTHER and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(error, match="device"):
        ask(device)


def name(decode: str) -> str | None:
    """Return the name of the batch backend that is chosen for a GPU."""
    loaded = choose(CUDA, decode)
    return None if loaded is None else loaded.name


@OWN
def test_the_first_that_works_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preferred batch backend decodes, else the first that works; a name chooses that one."""
    register("one", NoSingle, batch=batch_double())
    register("two", NoSingle, batch=batch_double())

    assert (name("cpu"), name("gpu"), name("two")) == (None, "one", "two")
    with use("two"):
        assert name("gpu") == "two"
    with use("pillow"):
        assert name("gpu") == "one"
    monkeypatch.setenv("FASTDECODE_DISABLE", "one,nvimgcodec,dali")
    assert name("gpu") == "two"


@OWN
def test_each_device_has_an_instance_of_its_own() -> None:
    """A decoder of one GPU cannot decode for another; for the same one it is made once."""
    register("one", NoSingle, batch=batch_double())

    first, second, again = (choose(torch.device("cuda", at), "one") for at in (0, 1, 0))

    assert first is again is not second
    assert [each and each.device.index for each in (first, second)] == [0, 1]
    assert load("one", CPU) is not first
    assert "one" in names("cpu")


class Broken(batch_double()):  # type: ignore[misc]
    """A test double that fails."""

    def __init__(self, device: Any, threads: int) -> None:
        raise BackendUnavailable("its library needs a newer driver")


@OWN
def test_what_cannot_decode_for_a_device() -> None:
    """It is unavailable: its library, the device, what is no batch backend, or it has no batches.

    Where it does not support the device there is no advice to install.
    """
    register("broken", NoSingle, distribution="broken-gpu", batch=Broken)
    for decode in ("gpu", "broken"):
        told = "newer driver"
        assert_raises(BackendUnavailable, told, partial(choose, CUDA, decode), decode)
    register("one", NoSingle, distribution="one", batch=batch_double())
    register("single", NoSingle, distribution="single")
    meta = partial(load, "one", torch.device("meta"))
    assert_raises(BackendUnavailable, r"'meta'.*cpu, cuda$", meta, "a device")
    assert_raises(BackendUnavailable, "single", partial(load, "single", CPU), "no batches")
    kinds: tuple[Any, ...] = (NoSingle, "json:loads", lambda device, threads: 3)
    for number, batch in enumerate(kinds):
        register(f"none{number}", NoSingle, batch=batch)
        call = partial(load, f"none{number}", CPU)
        assert_raises(BackendUnavailable, f"none{number}", call, batch)


@OWN
def test_what_may_pass_is_not_remembered() -> None:
    """A backend without enough memory is tried again later; a broken one is not."""
    tried = []

    class Short(batch_double()):  # type: ignore[misc]
        """A test double without enough memory."""

        def __init__(self, device: Any, threads: int) -> None:
            tried.append(device)
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    register("short", NoSingle, batch=Short)

    for _ in range(2):
        with pytest.raises(torch.cuda.OutOfMemoryError):
            load("short", CPU)
    assert len(tried) == 2


@OWN
def test_info_names_devices_and_what_decodes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """``fastdecode info`` names devices, the batch backends that work, and why others do not."""
    register("one", NoSingle, batch=batch_double())
    register("broken", NoSingle, batch=Broken)
    infos = [BackendInfo(name, True, "", "", devices=("cpu", "cuda")) for name in ("one", "broken")]
    monkeypatch.setenv("FASTDECODE_DISABLE", "one")

    (line,) = info.on_devices(None, infos)
    found = info.inventory()
    assert found is not None
    text = " ".join(" ".join(info.on_devices(found, infos)).split())

    assert "need PyTorch" in line
    assert {"cpu", "cuda" if not torch.cuda.is_available() else "cuda:0"} <= found.devices.keys()
    assert "cpu" in found.usable["one"]
    assert found.usable["broken"] == []
    assert "one decodes on cpu" in text
    assert "but FASTDECODE_DISABLE excludes it" in text
    assert "broken not on cpu or cuda: its library needs a newer driver" in text
