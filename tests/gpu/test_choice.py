"""The choice of what decodes for a device, and the errors if nothing can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from device_doubles import (  # noqa: F401
    NoSingle,
    batch_double,
    own_registry,
    registry_with_cpu_backends,
)

from fastdecode import DeviceUnavailable, decode_batch, register, use
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import check_device
from fastdecode.gpu._policy import DeviceChoice, choose
from fastdecode.testing import drawing, encode
from fastdecode.torch import DevicePrefetcher, Loader

PHOTO = encode(drawing(40, 30))
CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)  # which is only a name here
NOT_HERE = r"'cuda.*cannot be used: .*(without CUDA|no driver)"
OTHER = "xpu" if torch.backends.mps.is_available() else "mps"


def _loader(decode: str, device: Any) -> Loader:
    return Loader([PHOTO], device=device, decode=decode, threads=1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda device: decode_batch([PHOTO], device=device),
        lambda device: DevicePrefetcher([], device),
        *(partial(_loader, decode) for decode in ("cpu", "gpu", "auto", "nvimgcodec")),
    ],
    ids=["decode_batch", "prefetcher", "loader", "loader, gpu", "loader, auto", "loader, a name"],
)
@pytest.mark.parametrize(
    ("device", "error", "words"),
    [
        *[(device, DeviceUnavailable, NOT_HERE) for device in ("cuda", "cuda:0", 0, CUDA)],
        *[(device, DeviceUnavailable, NOT_HERE) for device in ("cuda:99", 99)],
        (OTHER, DeviceUnavailable, f"'{OTHER}' cannot be used"),
        *[(device, TypeError, "device must be a name") for device in (True, 1.5)],
        *[(device, ValueError, f"there is no device '{device}'") for device in ("gpu", "")],
    ],
    ids=str,
)
def test_a_device_that_cannot_be_used(
    ask: Any, device: Any, error: type[Exception], words: str
) -> None:
    """The error says what PyTorch or the driver lacks, or that it is not a device."""
    if words == NOT_HERE and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(error, match=words) as caught:
        ask(device)
    assert isinstance(caught.value, (RuntimeError, TypeError, ValueError))


def unread() -> Iterator[bytes]:
    raise AssertionError("it was asked for an item")
    yield b""


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"decode": "gpu"}, ValueError, "needs a GPU"),
        ({"decode": "both"}, ValueError, "must be one of auto, cpu, gpu"),
        ({"decode": "GPU"}, ValueError, "must be one of auto, cpu, gpu"),
        ({"decode": "gpu", "backend": "pillow"}, ValueError, "needs a GPU"),
        ({"size": 0}, ValueError, "size must be"),
        ({"size": (3, 4, 5)}, ValueError, "size must be"),
        ({"size": 8, "mode": "stored"}, ValueError, "cannot be resized"),
        ({"out": []}, ValueError, "out is for arrays"),
        ({"backend": "nobody"}, UnknownBackend, "nobody"),
        ({"device": "meta"}, ValueError, "no memory for images"),
        ({"device": None, "decode": "cpu"}, ValueError, "decode needs a device"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(
    wrong: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Wrong arguments are refused before a generator of items is consumed."""
    with pytest.raises(error, match=words):
        decode_batch(unread(), **{"device": "cpu", **wrong})


@pytest.mark.usefixtures("own_registry")
def test_the_order_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured order decides, else the first batch backend that works, else the CPU."""
    known: list[tuple[str, ...]] = [()]
    monkeypatch.setattr("fastdecode.gpu._policy.measured_order", lambda device: known[0])
    assert choose(CUDA).batch is None
    register("one", NoSingle, batch=batch_double())
    register("two", NoSingle, batch=batch_double())
    register("three", NoSingle)

    assert choose(CUDA).batch == "one"
    known[0] = ("two", "cpu", "one")
    assert choose(CUDA).batch == "two"
    known[0] = ("cpu", "two")
    assert choose(CUDA).batch is None
    assert choose(CUDA, "gpu").batch == "two"
    assert choose(CUDA, "cpu") == DeviceChoice(None, None, "the CPU decodes, as asked")
    assert choose(CUDA, "auto", "three") == DeviceChoice(
        None, "three", "three decodes on the CPU, as asked"
    )


@pytest.mark.usefixtures("own_registry")
def test_gpu_without_a_backend_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """decode="gpu" without a usable backend names those that could be installed."""
    monkeypatch.setattr("fastdecode.gpu._policy.measured_order", lambda device: ())

    class Broken(batch_double()):  # type: ignore[misc]
        """A test double that fails."""

        def __init__(self, device: Any, threads: int) -> None:
            raise BackendUnavailable("its library needs a newer driver")

    register("broken", NoSingle, distribution="broken-gpu", batch=Broken)

    with pytest.raises(BackendUnavailable, match=r"(?s)decode='cpu' does not:.*newer driver"):
        choose(CUDA, "gpu")
    assert "no backend decodes" in choose(CUDA).why
    with pytest.raises(BackendUnavailable, match="newer driver"):
        choose(CUDA, "auto", "broken")


@pytest.mark.usefixtures("own_registry")
def test_one_instance_a_device() -> None:
    """A batch backend is created once per device, and again after another `register`."""
    register("one", NoSingle, batch=batch_double())

    assert _backends.load("one", CPU) is _backends.load("one", CPU)
    assert _backends.load("one", CPU) is not _backends.load("one", CUDA)
    assert "one" in _backends.names("cpu")


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("batch", [NoSingle, "json:loads", lambda device, threads: 3])
def test_what_is_no_batch_backend(batch: Any) -> None:
    """An object that is not a batch backend is an error that says so."""
    register("none", NoSingle, batch=batch)

    with pytest.raises(BackendUnavailable, match="is not a fastdecode BatchBackend"):
        _backends.load("none", CPU)


@pytest.mark.usefixtures("own_registry")
def test_a_device_that_it_does_not_know() -> None:
    """A backend that does not support a device is an error without install advice."""
    register("one", NoSingle, distribution="one", batch=batch_double())
    register("single", NoSingle, distribution="single")

    with pytest.raises(BackendUnavailable, match=r"'meta': it decodes on cpu, cuda$"):
        _backends.load("one", torch.device("meta"))
    with pytest.raises(BackendUnavailable, match=r"one image at a time, on the CPU$"):
        _backends.load("single", CPU)


def test_the_cpu_has_no_number() -> None:
    """The name "cpu:0" also means the CPU, as for tensors."""
    assert check_device("cpu:0") == CPU


@pytest.mark.usefixtures("own_registry")
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
            _backends.load("short", CPU)
    assert len(tried) == 2


def test_without_pytorch() -> None:
    """device= without PyTorch raises an error that says how to install it."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import fastdecode\n"
        "try: fastdecode.decode_batch([], device='cuda')\n"
        "except fastdecode.BackendUnavailable as error: print(error)"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "pip install 'fastdecode[torch]'" in said.stdout


@pytest.mark.usefixtures("registry_with_cpu_backends")
def test_the_preferred_backend_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`use` decides also with decode="gpu", unless its backend cannot decode on the device."""
    monkeypatch.setattr("fastdecode.gpu._policy.measured_order", lambda device: ())
    monkeypatch.setenv("FASTDECODE_DISABLE", "nvimgcodec,dali,torchvision,torchcodec")
    register("one", NoSingle, batch=batch_double())
    register("two", NoSingle, batch=batch_double())
    cuda = torch.device("cuda", 0)

    with use("two"):
        assert choose(cuda, "gpu").batch == "two"
        assert choose(cuda).batch == "two"
    with use("pillow"):
        assert choose(cuda, "gpu").batch == "one"
        assert choose(cuda).cpu == "pillow"


@pytest.mark.usefixtures("registry_with_cpu_backends")
def test_what_is_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all backends are disabled, the error names the variable."""
    monkeypatch.setattr("fastdecode.gpu._policy.measured_order", lambda device: ())
    monkeypatch.setenv("FASTDECODE_DISABLE", "nvimgcodec,dali,torchvision,torchcodec")

    with pytest.raises(ImportError, match="'nvimgcodec' is left out by FASTDECODE_DISABLE"):
        choose(torch.device("cuda", 0), "gpu")
