"""Every built-in batch backend keeps the contract, on each of its devices."""

from __future__ import annotations

import pkgutil

import pytest

from fastdecode._backends import registry
from fastdecode.errors import BackendUnavailable
from fastdecode.testing import BatchBackendContract

_DECLARED = [(name, d) for name, it in registry.BUILTIN.items() for d in it.devices.split()]

# One class for each backend and device, so that a newcomer is tested by being in the table.
for _name, _device in _DECLARED:
    _class = f"Test_{_name}_on_{_device}"
    _attributes = {"name": _name, "device": _device}
    globals()[_class] = type(_class, (BatchBackendContract,), _attributes)


@pytest.mark.parametrize("name", sorted({name for name, _ in _DECLARED}))
def test_devices_are_those_of_the_table(name: str) -> None:
    """The table of built-in backends names the devices that the batch backend declares."""
    pytest.importorskip("torch")
    target = registry.BUILTIN[name].batch
    assert isinstance(target, str)
    try:
        registry.load(name)
    except BackendUnavailable as error:
        pytest.skip(str(error))

    kind = pkgutil.resolve_name(target)

    assert sorted(kind.devices) == sorted(registry.BUILTIN[name].devices.split())


@pytest.mark.parametrize("name", [name for name, device in _DECLARED if device == "cuda"])
def test_a_missing_device_is_named(name: str) -> None:
    """Without a GPU the error says what is missing, in the package's own words."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    try:
        registry.load(name)
    except BackendUnavailable as error:
        pytest.skip(str(error))

    from fastdecode.gpu import load

    with pytest.raises(BackendUnavailable, match="CUDA"):
        load(name, torch.device("cuda", 0))
