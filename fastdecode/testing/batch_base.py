"""What both parts of the batch contract stand on: the backend, its device, and how near is near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pytest

from fastdecode import registry
from fastdecode.adapters.base import Support
from fastdecode.adapters.batch_base import BatchItem
from fastdecode.api import decode, probe
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._backends import Loaded
from fastdecode.types import FORMATS, Box, Image

if TYPE_CHECKING:
    import torch

__all__ = ["BatchDeclarationContract"]

_BEST = 99.0
"""What stands for the PSNR of equal pictures, in dB."""


class BatchDeclarationContract:
    """A batch backend declares in the known words what it does, and does it on its device."""

    name: ClassVar[str]
    device: ClassVar[str] = "cpu"

    @pytest.fixture
    def loaded(self) -> Loaded:
        """Load the batch backend, or skip with the reason why it cannot be used here."""
        torch = pytest.importorskip("torch")
        if self.device == "cuda" and not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and a PyTorch that is built with CUDA")
        if not registry.entry(self.name).batch:
            pytest.fail(f"{self.name} is registered without a batch backend")
        index = torch.cuda.current_device() if self.device == "cuda" else None
        try:
            return _backends.load(self.name, torch.device(self.device, index))
        except BackendUnavailable as error:
            if not isinstance(error.__cause__, ImportError):  # of which it is one, if it says so
                raise
            pytest.skip(str(error))

    def support(self, loaded: Loaded, data: bytes, layout: str = "RGB") -> Support:
        """Return the declaration by which it decodes a file, or skip."""
        header = probe(data)
        for support in loaded.backend.supports.get(header.format, ()):
            if layout in support.layouts and not support.refusal(header):
                return support
        pytest.skip(f"{self.name} does not declare that on {self.device}")

    def ask(
        self,
        loaded: Loaded,
        encoded: Sequence[bytes],
        layout: Literal["RGB", "L"] = "RGB",
        windows: Sequence[Box | None] | None = None,
    ) -> list[torch.Tensor]:
        """Have it decode, whole pictures or windows, and make sure of the form."""
        import torch

        items = [
            BatchItem(data, probe(data), window)
            for data, window in zip(encoded, windows or [None] * len(encoded), strict=True)
        ]
        with loaded.lock:
            images = list(loaded.backend.decode(items, layout))

        assert len(images) == len(items)
        made = [image for image in images if image is not None]
        assert len(made) == len(items), "it refused what it declares"
        for item, image in zip(items, made, strict=True):
            box = item.window or (0, 0, item.header.width, item.header.height)
            channels = 1 if layout == "L" else 3
            assert image.shape == (channels, box[3] - box[1], box[2] - box[0])
            assert image.dtype == torch.uint8
            assert image.device.type == self.device
        return made

    def near(self, loaded: Loaded, image: Any, expected: Image) -> None:
        """Compare a tensor (C, H, W) with the pixels of `decode`: to the bit, or by their PSNR."""
        pixels = image.permute(1, 2, 0).cpu().numpy().reshape(expected.shape)
        if loaded.backend.exact:
            np.testing.assert_array_equal(pixels, expected)
        error = float(np.mean((pixels.astype(float) - expected) ** 2))
        psnr = 10 * np.log10(255**2 / error) if error else _BEST
        least = loaded.backend.least_psnr
        assert psnr >= least, f"PSNR {psnr:.1f} dB; {self.name} declares {least:.1f}"

    def test_declarations_use_the_known_words(self, loaded: Loaded) -> None:
        """Devices are those of the table, formats and layouts those of `fastdecode.types`."""
        backend = loaded.backend
        assert self.device in backend.devices
        known = registry.entry(self.name).devices
        assert not known or backend.devices == set(known.split())
        assert backend.supports
        assert set(backend.supports) <= set(FORMATS)
        for support in (one for several in backend.supports.values() for one in several):
            assert support.layouts
            assert support.layouts <= {"RGB", "L"}
        assert backend.exact or backend.least_psnr > 0

    def test_it_names_its_version(self, loaded: Loaded) -> None:
        """`version` and `codec` give text, and do not raise."""
        assert isinstance(loaded.backend.version(), str)
        assert isinstance(loaded.backend.codec(), str)

    def reference(self, data: bytes, layout: Literal["RGB", "L"] = "RGB") -> Image:
        """Decode by Pillow, the one backend that is always there."""
        return decode(data, mode=layout, backend="pillow")
