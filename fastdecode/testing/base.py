"""What every part of the contract stands on: the backend, or the reason why it is not there."""

from __future__ import annotations

from typing import ClassVar

import pytest

from fastdecode import registry
from fastdecode.adapters.base import Backend, Support
from fastdecode.api import decode
from fastdecode.errors import BackendUnavailable
from fastdecode.types import FORMATS, REDUCES, Format, Image, Mode, Reduce

__all__ = ["DeclarationContract"]

_LAYOUTS = {"RGB", "L", "RGBA", "CMYK", "native"}


class DeclarationContract:
    """A backend declares in the known words what it does."""

    name: ClassVar[str]

    @pytest.fixture
    def backend(self) -> Backend:
        """Load the backend, or skip with the reason why it cannot be used here."""
        try:
            return registry.load(self.name)
        except BackendUnavailable as error:
            pytest.skip(str(error))

    def support(self, backend: Backend, format: Format) -> Support:
        """Return what the backend declares first for a format, or skip."""
        if format not in backend.supports:
            pytest.skip(f"{self.name} does not declare {format}")
        return backend.supports[format][0]

    def reference(self, data: bytes, reduce: Reduce = 1, mode: Mode = "RGB") -> Image:
        """Decode by Pillow, the one backend that is always there."""
        return decode(data, reduce, mode=mode, backend="pillow")

    def test_declarations_use_the_known_words(self, backend: Backend) -> None:
        """Formats, layouts and reductions are those of `fastdecode.types`."""
        assert backend.supports
        assert set(backend.supports) <= set(FORMATS)
        for supports in backend.supports.values():
            assert supports
            for support in supports:
                assert support.layouts
                assert support.layouts <= _LAYOUTS
                assert 1 in support.reduces
                assert support.reduces <= set(REDUCES)

    def test_it_names_its_version(self, backend: Backend) -> None:
        """`version` and `codec` give text, and do not raise."""
        assert isinstance(backend.version(), str)
        assert isinstance(backend.codec(), str)
