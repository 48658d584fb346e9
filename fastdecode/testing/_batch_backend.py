"""The contract of batch backends: pixels, order and memory of decoded batches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pytest

from fastdecode._backends import registry
from fastdecode._backends.batch_base import BatchItem, declares
from fastdecode._decode.api import decode, probe
from fastdecode.errors import BackendUnavailable, DecodeError, FastDecodeError
from fastdecode.testing._backend import KINDS, SIZES, drawing, encode, photo, with_flipped_bits
from fastdecode.types import FORMATS, Image

if TYPE_CHECKING:
    import torch

    from fastdecode.gpu import Loaded

_WIDTH, _HEIGHT = 400, 300

_BEST = 99.0
"""The PSNR of bit-identical images, in dB."""


class BatchBackendContract:
    """Tests of what `Loader` needs of every batch backend; subclass it, set `name`.

    Attributes
    ----------
    name : str
        The backend's registered name.
    device : str
        Type of the device, ``"cpu"`` or ``"cuda"``. Without a GPU the tests for the latter skip.

    Examples
    --------
    >>> from fastdecode.testing import BatchBackendContract
    >>> class TestDaliOnCuda(BatchBackendContract):
    ...     name = "dali"
    ...     device = "cuda"
    """

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
        from fastdecode.gpu import load

        index = torch.cuda.current_device() if self.device == "cuda" else None
        try:
            return load(self.name, torch.device(self.device, index))
        except BackendUnavailable as error:
            if not isinstance(error.__cause__, ImportError):  # the library is there, but broken
                raise
            pytest.skip(str(error))

    def need(self, loaded: Loaded, data: bytes, layout: str = "RGB") -> None:
        """Skip if the backend does not declare a file."""
        if not declares(loaded.backend, probe(data), layout):
            pytest.skip(f"{self.name} does not declare that on {self.device}")

    def ask(
        self,
        loaded: Loaded,
        encoded: Sequence[bytes],
        layout: Literal["RGB", "L"] = "RGB",
    ) -> list[torch.Tensor]:
        """Decode images with the backend, and check shapes and dtypes."""
        import torch

        items = [BatchItem(data, probe(data)) for data in encoded]
        with loaded.lock:
            images = list(loaded.backend.decode(items, layout))

        assert len(images) == len(items)
        made = [image for image in images if image is not None]
        assert len(made) == len(items), "it refused what it declares"
        for item, image in zip(items, made, strict=True):
            assert tuple(image.shape) == item.shape(layout)
            assert image.dtype == torch.uint8
            assert image.device.type == self.device
        return made

    def near(self, loaded: Loaded, image: Any, expected: Image) -> None:
        """Check that a tensor (C, H, W) has the pixels of `decode`, or a PSNR that is declared."""
        pixels = image.permute(1, 2, 0).cpu().numpy().reshape(expected.shape)
        if loaded.backend.exact:
            np.testing.assert_array_equal(pixels, expected)
        error = float(np.mean((pixels.astype(float) - expected) ** 2))
        psnr = 10 * np.log10(255**2 / error) if error else _BEST
        least = loaded.backend.least_psnr
        assert psnr >= least, f"PSNR {psnr:.1f} dB; {self.name} declares {least:.1f}"

    def test_declarations_use_the_known_words(self, loaded: Loaded) -> None:
        """Declared devices are those of the entry, formats and layouts those of `types`."""
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
        """`version` and `codec` return text, and do not raise."""
        assert isinstance(loaded.backend.version(), str)
        assert isinstance(loaded.backend.codec(), str)

    def reference(self, data: bytes, layout: Literal["RGB", "L"] = "RGB") -> Image:
        """Decode with Pillow, which is always installed."""
        return decode(data, mode=layout, backend="pillow")

    # Pixels

    @pytest.mark.parametrize("kind", [*KINDS, "grey"])
    @pytest.mark.parametrize("layout", ["RGB", "L"])
    def test_pixels_are_near(self, loaded: Loaded, kind: str, layout: Literal["RGB", "L"]) -> None:
        """Every declared kind of JPEG is as close to `decode` as the backend declares.

        RGB repeats the channel of a grey JPEG.
        """
        grey = kind == "grey"
        source = photo(_WIDTH, _HEIGHT, "L" if grey else "RGB")
        data = encode(source, **({} if grey else KINDS[kind]))
        self.need(loaded, data, layout)

        (image,) = self.ask(loaded, [data], layout)

        self.near(loaded, image, self.reference(data, layout))
        assert not grey or all(bool((channel == image[0]).all()) for channel in image)

    @pytest.mark.parametrize("orientation", range(2, 9))
    def test_orientation_is_not_applied(self, loaded: Loaded, orientation: int) -> None:
        """Pixels are as stored, whatever the EXIF orientation says."""
        from PIL import Image as PillowImage

        exif = PillowImage.Exif()
        exif[0x0112] = orientation
        data = encode(photo(_WIDTH, _HEIGHT), exif=exif)
        self.need(loaded, data)

        (image,) = self.ask(loaded, [data])

        self.near(loaded, image, self.reference(data))

    # A library may refuse tiny images, so this test lets the CPU decode those.

    def test_every_size_decodes(self, loaded: Loaded) -> None:
        """Images with odd sizes, or smaller than a block, decode at their own size."""
        sizes = [size for size in SIZES for _ in range(3)]
        encoded = [encode(drawing(*size), subsampling=at % 3) for at, size in enumerate(sizes)]
        self.need(loaded, encoded[0])

        images = decode_together(loaded, encoded)

        for (width, height), data, image in zip(sizes, encoded, images, strict=True):
            assert image.shape == (3, height, width)
            if loaded.backend.exact:
                self.near(loaded, image, self.reference(data))

    @pytest.mark.parametrize("count", [1, 2, 50])
    def test_order_is_kept(self, loaded: Loaded, count: int) -> None:
        """The results are in the order of the items, for any number of items."""
        encoded = [encode(photo(60 + index, 90 - index)) for index in range(count)]
        self.need(loaded, encoded[0])

        images = self.ask(loaded, encoded)

        for data, image in zip(encoded, images, strict=True):
            expected = self.reference(data).astype(float)
            others = image.permute(1, 2, 0).cpu().numpy()
            assert np.abs(others - expected).mean() < 16

    # Memory and threads

    def test_images_outlive_the_next_batches(self, loaded: Loaded) -> None:
        """Decoded images do not change when later batches are decoded."""
        first = [encode(photo(200 + index, 150)) for index in range(8)]
        others = [encode(drawing(200 + index, 150)) for index in range(8)]
        self.need(loaded, first[0])
        images = self.ask(loaded, first)
        copies = [image.clone() for image in images]

        for _ in range(3):
            self.ask(loaded, others)

        assert all(bool((a == b).all()) for a, b in zip(images, copies, strict=True))

    def test_threads_take_turns(self, loaded: Loaded) -> None:
        """Threads that decode different batches at once do not mix them up."""
        batches = [
            [encode(photo(60 + 4 * index + at, 40 + index)) for at in range(4)]
            for index in range(8)
        ]
        self.need(loaded, batches[0][0])
        expected = [decode_together(loaded, batch) for batch in batches]

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(partial(decode_together, loaded), batches * 3))

        for batch, right in zip(made, expected * 3, strict=True):
            assert all(bool((a == b).all()) for a, b in zip(batch, right, strict=True))

    # Files that the library cannot decode

    def test_what_it_does_not_read_joins_in_order(self, loaded: Loaded) -> None:
        """The CPU decodes progressive, CMYK and PNG files, and the order is kept."""
        plain = encode(photo(_WIDTH, _HEIGHT))
        self.need(loaded, plain)
        encoded = [
            plain,
            encode(photo(90, 70), progressive=True),
            encode(photo(80, 60, "CMYK")),
            plain,
            encode(photo(70, 50), "png"),
            plain,
        ]

        images = decode_together(loaded, encoded)

        for data, image in zip(encoded, images, strict=True):
            if data is plain:
                self.near(loaded, image, self.reference(data))
            else:
                pixels = image.permute(1, 2, 0).cpu().numpy()
                np.testing.assert_array_equal(pixels, decode(data))

    @pytest.mark.parametrize("ending", [b"", b"\xff\xd9"], ids=["open", "with an end marker"])
    def test_missing_pixels_are_an_error(self, loaded: Loaded, ending: bytes) -> None:
        """A JPEG that is truncated anywhere returns an error, and other images are not affected."""
        whole = encode(photo(101, 67))
        self.need(loaded, whole)
        cuts = np.linspace(probe(whole).scan_offset, len(whole) - 4, 9).astype(int)
        encoded = [data for cut in cuts for data in (whole, whole[:cut] + ending)]

        images = decode_together(loaded, encoded)

        for data, image in zip(encoded, images, strict=True):
            if data is whole:
                assert image.shape == (3, 67, 101)
            else:
                assert isinstance(image, DecodeError)

    def test_flipped_bits_never_escape(self, loaded: Loaded) -> None:
        """Damaged bytes return a tensor or a FastDecodeError, never another exception."""
        data = encode(drawing(40, 24))
        self.need(loaded, data)
        encoded = list(with_flipped_bits(data))

        images = decode_together(loaded, encoded, max_pixels=10**7)

        for image in images:
            assert isinstance(image, FastDecodeError) or image.ndim == 3


def decode_together(
    loaded: Loaded, encoded: Sequence[bytes], layout: Literal["RGB", "L"] = "RGB", **options: Any
) -> list[Any]:
    """Decode as a `Loader` does: the CPU takes what the backend does not declare, or refuses.

    Returns tensors (C, H, W), and the errors of damaged files; `options` are those of `decode`.
    """
    from fastdecode.gpu import decode_requests, make_request

    requests = {}
    for at, data in enumerate(encoded):
        with suppress(FastDecodeError):
            how = {"mode": layout, **options}
            requests[at] = make_request(data, probe(data), loaded.backend, how)
    asked = {at: request for at, request in requests.items() if request is not None}
    with decode_requests(loaded, list(asked.values()), layout, loaded.device) as made:
        found = {
            at: None if one is None else one.clone() for at, one in zip(asked, made, strict=True)
        }
    return [
        _decode_here(data, layout, options) if found.get(at) is None else found[at]
        for at, data in enumerate(encoded)
    ]


def _decode_here(data: bytes, layout: Literal["RGB", "L"], options: dict[str, Any]) -> Any:
    import torch

    try:
        array = decode(data, **{"mode": layout, **options})
    except FastDecodeError as error:
        return error
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1)
