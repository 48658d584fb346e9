"""The contract of backends, which `decode` relies on, as a test class to subclass; its images."""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image as PillowImage
from PIL import ImageOps

from fastdecode import samples
from fastdecode._backends import registry
from fastdecode._backends.base import Backend, Support
from fastdecode._decode.api import decode, probe
from fastdecode.errors import BackendUnavailable, DecodeError, FastDecodeError, UnsupportedFormat
from fastdecode.types import FORMATS, MODES, REDUCES, Format, Image, Mode, Reduce

_LAYOUTS = {"RGB", "L", "RGBA", "CMYK", "stored"}

SIZES = ((1, 1), (3, 5), (7, 13), (16, 16), (101, 67))
"""(width, height) in pixels: smaller than a block, odd, and larger than a few blocks."""

KINDS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restart markers": {"restart_marker_blocks": 2},
    "optimised": {"optimize": True, "quality": 97},
}
"""Kinds of JPEG that Pillow can write, with its options for them."""

LOSSLESS: tuple[Format, ...] = ("png", "bmp", "tiff", "gif")
"""Lossless formats that Pillow can write."""


def drawing(width: int, height: int, mode: str = "RGB") -> PillowImage.Image:
    """Draw a deterministic image with edges, gradients and noise.

    Parameters
    ----------
    width, height : int
        The size in pixels.
    mode : str
        A mode of Pillow: ``"RGB"``, ``"L"``, ``"RGBA"``, ``"CMYK"``, ``"P"`` …

    Examples
    --------
    >>> from fastdecode.testing import drawing
    >>> drawing(64, 48)
    <PIL.Image.Image image mode=RGB size=64x48 ...>
    """
    noise = np.random.default_rng(width * 10_007 + height).integers(0, 64, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    waves = np.stack([x * 5 + y, x + y * 7, (x // 4 + y // 3) % 2 * 160], axis=2)
    return PillowImage.fromarray(((waves + noise) % 256).astype(np.uint8)).convert(mode)


def photo(width: int, height: int, mode: str = "RGB") -> PillowImage.Image:
    """Return one of the package's photos, resized, to compare decoders that are not exact.

    In `drawing` the chroma is noise, whose values depend strongly on its interpolation.

    Parameters
    ----------
    width, height : int
        The size in pixels.
    mode : str
        A mode of Pillow.

    Examples
    --------
    >>> from fastdecode.testing import photo
    >>> photo(64, 48, "L").size
    (64, 48)
    """
    with PillowImage.open(samples.photo) as image:
        resized: PillowImage.Image = image.convert(mode).resize((width, height))
    return resized


def encode(image: PillowImage.Image, format: str = "jpeg", **options: Any) -> bytes:
    """Encode an image with Pillow; by default as a JPEG of quality 90.

    Examples
    --------
    >>> from fastdecode import decode
    >>> from fastdecode.testing import drawing, encode
    >>> decode(encode(drawing(64, 48), "png")).shape
    (48, 64, 3)
    """
    stream = io.BytesIO()
    if format == "jpeg":
        options = {"quality": 90, **options}
    image.save(stream, format, **options)
    return stream.getvalue()


def with_flipped_bits(data: bytes) -> Iterator[bytes]:
    """Yield 60 damaged copies of a file, each with three bits flipped after the first two bytes."""
    random = np.random.default_rng(5)
    for _ in range(60):
        damaged = bytearray(data)
        for position in random.integers(2, len(data), 3):
            damaged[position] ^= 1 << int(random.integers(8))
        yield bytes(damaged)


def _decode_in_process(data: bytes, name: str) -> Image:
    return decode(data, 2, backend=name)


class BackendContract:
    """Tests of what `decode` promises for every backend; subclass it and set `name`.

    Attributes
    ----------
    name : str
        The backend's registered name.

    Examples
    --------
    >>> from fastdecode.testing import BackendContract
    >>> class TestPillow(BackendContract):
    ...     name = "pillow"
    """

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
        """Decode with Pillow, which is always installed."""
        return decode(data, reduce, mode=mode, backend="pillow")

    def answer(
        self, backend: Backend, format: Format, data: bytes, reduce: Reduce = 1, mode: Mode = "RGB"
    ) -> Image:
        """Decode, or skip if the backend refuses a layout or kind that it does not declare."""
        try:
            return decode(data, reduce, mode=mode, backend=self.name)
        except UnsupportedFormat:
            header = probe(data)
            kinds = (one for one in backend.supports[format] if not one.refusal(header))
            if any(mode in support.layouts for support in kinds):
                raise
            pytest.skip(f"{self.name} does not declare {mode} of {format}")

    def any_file(self, backend: Backend, width: int, height: int) -> bytes:
        """Encode an image in a format that the backend declares, or skip."""
        format = next(f for f in ("jpeg", *backend.supports) if f in backend.supports)
        if format not in ("jpeg", *LOSSLESS, "webp"):
            pytest.skip(f"Pillow does not write {format}")
        return encode(drawing(width, height), format)

    def test_declarations_use_the_known_words(self, backend: Backend) -> None:
        """Declared formats, layouts and reductions are those of `fastdecode.types`."""
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
        """`version` and `codec` return text, and do not raise."""
        assert isinstance(backend.version(), str)
        assert isinstance(backend.codec(), str)

    # Pixels

    @pytest.mark.parametrize("size", SIZES, ids=str)
    @pytest.mark.parametrize("reduce", REDUCES)
    def test_size_is_the_ceiling(
        self, backend: Backend, size: tuple[int, int], reduce: Reduce
    ) -> None:
        """The sides of a reduced image are ceil(side / reduce), also for 1x1."""
        data = self.any_file(backend, *size)

        image = decode(data, reduce, backend=self.name)

        assert image.shape == (-(-size[1] // reduce), -(-size[0] // reduce), 3)

    @pytest.mark.parametrize("kind", [*KINDS, "grey"])
    @pytest.mark.parametrize("reduce", REDUCES)
    @pytest.mark.parametrize("mode", MODES)
    def test_jpeg_pixels_are_the_same(
        self, backend: Backend, kind: str, reduce: Reduce, mode: Mode
    ) -> None:
        """An exact backend returns Pillow's pixels at every reduction that it makes itself.

        RGB repeats the channel of a grey JPEG; "L" and "stored" are (H, W).
        """
        support = self.support(backend, "jpeg")
        if not backend.exact or reduce not in support.reduces:
            pytest.skip(f"{self.name} does not declare exact JPEG at reduce {reduce}")
        grey = kind == "grey"
        data = encode(drawing(50, 30, "L")) if grey else encode(drawing(101, 67), **KINDS[kind])

        image = self.answer(backend, "jpeg", data, reduce, mode)

        np.testing.assert_array_equal(image, self.reference(data, reduce, mode))

    def test_cmyk_jpeg(self, backend: Backend) -> None:
        """A CMYK JPEG becomes RGB within 1 level of Pillow, or is refused with a clear error."""
        self.support(backend, "jpeg")
        data = encode(drawing(50, 30, "CMYK"))
        if not any("CMYK" in support.layouts for support in backend.supports["jpeg"]):
            with pytest.raises(UnsupportedFormat, match=self.name):
                decode(data, backend=self.name)
            return

        image = decode(data, backend=self.name)

        difference = np.abs(image.astype(int) - self.reference(data).astype(int))

        assert difference.max() <= 1

    @pytest.mark.parametrize("format", LOSSLESS)
    @pytest.mark.parametrize("source", ["RGB", "RGBA", "L", "P"])
    @pytest.mark.parametrize("mode", MODES)
    def test_lossless_formats_are_exact(
        self, backend: Backend, format: Format, source: str, mode: Mode
    ) -> None:
        """Lossless formats decode to the pixels that were encoded, in each of Pillow's modes."""
        self.support(backend, format)
        if format == "gif" and source in ("RGB", "RGBA"):
            source = "P"
        original = drawing(37, 23, source)
        data = encode(original, format)

        image = self.answer(backend, format, data, mode=mode)

        np.testing.assert_array_equal(image, self.reference(data, mode=mode))
        if mode == "RGB":
            np.testing.assert_array_equal(image, np.asarray(original.convert("RGB")))

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_orientation_is_applied_only_when_asked(
        self, backend: Backend, orientation: int
    ) -> None:
        """Pixels are as stored by default; with orient=True they are upright, as in Pillow."""
        self.support(backend, "jpeg")
        exif = PillowImage.Exif()
        exif[0x0112] = orientation
        plain = encode(drawing(40, 24))
        data = encode(drawing(40, 24), exif=exif)
        stored = decode(plain, backend=self.name)

        seen = decode(data, backend=self.name, orient=True)

        np.testing.assert_array_equal(decode(data, backend=self.name), stored)
        np.testing.assert_array_equal(seen, _upright(stored, orientation))

    @pytest.mark.parametrize("reduce", REDUCES)
    @pytest.mark.parametrize("orient", [False, True])
    def test_region_equals_a_slice(self, backend: Backend, reduce: Reduce, orient: bool) -> None:
        """A region equals the slice of the whole result, also with orient=True."""
        self.support(backend, "jpeg")
        exif = PillowImage.Exif()
        exif[0x0112] = 6
        data = encode(drawing(101, 67), exif=exif)
        whole = decode(data, reduce, orient=orient, backend=self.name)
        for region in _regions(67, 101) if orient else _regions(101, 67):
            left, top, right, bottom = region

            part = decode(data, reduce, orient=orient, region=region, backend=self.name)

            rows = slice(top // reduce, -(-bottom // reduce))
            columns = slice(left // reduce, -(-right // reduce))
            np.testing.assert_array_equal(part, whole[rows, columns])

    # Results

    def test_result_is_the_callers_own(self, backend: Backend) -> None:
        """The result is C-contiguous and writable, and writing to it changes nothing else."""
        self.support(backend, "jpeg")
        data = encode(drawing(40, 24))
        first = decode(data, backend=self.name)
        before = first.copy()

        decode(data, backend=self.name)[:] = 0

        assert first.flags.c_contiguous
        assert first.flags.writeable
        np.testing.assert_array_equal(first, before)

    @pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
    @pytest.mark.parametrize("reduce", [1, 4])
    def test_out_receives_the_pixels(self, backend: Backend, mode: Mode, reduce: Reduce) -> None:
        """`out` is filled and returned."""
        self.support(backend, "jpeg")
        data = encode(drawing(40, 24))
        expected = self.answer(backend, "jpeg", data, reduce, mode)
        out = np.full_like(expected, 77)

        image = decode(data, reduce, mode=mode, out=out, backend=self.name)

        assert image is out
        np.testing.assert_array_equal(out, expected)

    @pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda d: np.frombuffer(d, np.uint8)])
    def test_every_buffer_will_do(self, backend: Backend, wrap: Any) -> None:
        """All kinds of input give the same pixels, and stay unchanged."""
        self.support(backend, "jpeg")
        data = encode(drawing(40, 24))
        given = wrap(data)

        image = decode(given, backend=self.name)

        np.testing.assert_array_equal(image, decode(data, backend=self.name))
        assert bytes(given) == data

    # Damage

    @pytest.mark.parametrize("ending", [b"", b"\xff\xd9"], ids=["open", "with an end marker"])
    def test_missing_pixels_are_an_error(self, backend: Backend, ending: bytes) -> None:
        """A JPEG that is truncated anywhere raises DecodeError, and never returns wrong pixels.

        An end marker after the cut does not hide it. If only the last block is affected, though,
        only a codec that reports warnings notices.
        """
        support = self.support(backend, "jpeg")
        data = encode(drawing(101, 67))
        spare = 8 if support.warnings or not ending else len(data) // 8
        for end in np.linspace(probe(data).scan_offset, len(data) - spare, 9).astype(int):
            with pytest.raises(DecodeError):
                decode(data[:end] + ending, backend=self.name)

    def test_missing_end_marker_alone_is_no_error(self, backend: Backend) -> None:
        """A JPEG that lacks only its end marker decodes, except with strict=True."""
        support = self.support(backend, "jpeg")
        data = encode(drawing(40, 24))

        image = decode(data[:-2], backend=self.name)

        np.testing.assert_array_equal(image, decode(data, backend=self.name))
        if support.warnings:
            with pytest.raises(DecodeError):
                decode(data[:-2], strict=True, backend=self.name)

    @pytest.mark.parametrize("marker", [0xDB, 0xC4, 0xDD], ids=["DQT", "DHT", "DRI"])
    def test_nothing_is_left_of_the_image_before(self, backend: Backend, marker: int) -> None:
        """A JPEG without tables of its own never gets those of the image before it."""
        self.support(backend, "jpeg")
        picture = drawing(40, 24)
        lacking = _without_segments(encode(picture, restart_marker_blocks=2), marker)
        answers = []
        for quality, optimize in ((10, False), (97, True)):
            before = encode(picture, quality=quality, optimize=optimize, restart_marker_blocks=9)
            decode(before, backend=self.name)
            try:
                answers.append(decode(lacking, backend=self.name).tolist())
            except DecodeError:
                answers.append(None)

        assert answers[0] == answers[1]
        assert marker != 0xDB or answers == [None, None]  # the standard has tables of codes alone

    def test_trailing_garbage_is_ignored(self, backend: Backend) -> None:
        """Bytes after the end of a JPEG are ignored."""
        self.support(backend, "jpeg")
        data = encode(drawing(40, 24))

        image = decode(data + b"garbage" * 9, backend=self.name)

        np.testing.assert_array_equal(image, decode(data, backend=self.name))

    def test_strict_is_promised_only_where_it_can_be_kept(self, backend: Backend) -> None:
        """strict=True decodes an intact JPEG, or the error says that warnings are not reported."""
        support = self.support(backend, "jpeg")
        data = encode(drawing(40, 24))
        if support.warnings:
            assert decode(data, strict=True, backend=self.name).shape == (24, 40, 3)
        else:
            with pytest.raises(UnsupportedFormat, match="cannot report warnings"):
                decode(data, strict=True, backend=self.name)

    def test_flipped_bits_never_escape(self, backend: Backend) -> None:
        """Damaged bytes return an array or raise a FastDecodeError, never another exception."""
        for damaged in with_flipped_bits(self.any_file(backend, 40, 24)):
            try:
                image = decode(damaged, backend=self.name, max_pixels=10**7)
            except FastDecodeError:
                continue
            assert image.ndim == 3

    # Threads and processes

    def test_eight_threads_at_once(self, backend: Backend) -> None:
        """Threads that decode different images at once do not mix them up."""
        self.support(backend, "jpeg")
        items = [encode(drawing(60 + i, 40 + i)) for i in range(24)]
        expected = [decode(item, backend=self.name) for item in items]

        with ThreadPoolExecutor(8) as pool:
            images = list(pool.map(lambda item: decode(item, backend=self.name), items * 4))

        for image, right in zip(images, expected * 4, strict=True):
            np.testing.assert_array_equal(image, right)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_in_another_process(self, backend: Backend, method: str) -> None:
        """The backend works in a spawned process, and in one that is forked after use."""
        self.support(backend, "jpeg")
        if method not in multiprocessing.get_all_start_methods():
            pytest.skip(f"this system cannot {method}")
        if method == "fork" and not backend.fork_safe:
            pytest.skip(f"{self.name} declares that it does not survive a fork")
        if self.name not in registry.BUILTIN and method == "spawn":
            pytest.skip("a backend registered in this process alone is unknown in a new one")
        data = encode(drawing(40, 24))
        expected = decode(data, 2, backend=self.name)

        with multiprocessing.get_context(method).Pool(1) as pool:
            image = pool.apply_async(_decode_in_process, (data, self.name)).get(timeout=120)

        np.testing.assert_array_equal(image, expected)


def _without_segments(data: bytes, marker: int) -> bytes:
    """Leave out the segments of a kind in front of a JPEG's scan."""
    kept, at = [data[:2]], 2
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != marker:
            kept.append(data[at:end])
        at = end
    return b"".join((*kept, data[at:]))


def _upright(stored: Image, orientation: int) -> Image:
    """Apply the EXIF orientation."""
    image = PillowImage.fromarray(stored)
    image.getexif()[0x0112] = orientation
    return np.asarray(ImageOps.exif_transpose(image))


def _regions(width: int, height: int) -> Sequence[tuple[int, int, int, int]]:
    """Return the whole image, a corner, a pixel, and parts off the block boundaries."""
    return (
        (0, 0, width, height),
        (width - 1, height - 1, width, height),
        (0, 0, 1, 1),
        (13, 9, 54, 41),
        (width // 2, 3, width, 8),
    )
