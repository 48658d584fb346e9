"""The part of the contract that speaks of memory, damage, threads and processes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fastdecode import registry
from fastdecode.adapters.base import Backend
from fastdecode.api import decode, probe
from fastdecode.errors import DecodeError, FastDecodeError, UnsupportedFormat
from fastdecode.testing.base import DeclarationContract
from fastdecode.testing.pictures import LOSSLESS, encode, picture
from fastdecode.types import Image, Mode, Reduce

__all__ = ["SafetyContract"]


def _decode_in_process(data: bytes, name: str) -> Image:
    return decode(data, 2, backend=name)


class SafetyContract(DeclarationContract):
    """Results are the caller's own, damage is an error, and nothing is shared by accident."""

    def test_result_is_the_callers_own(self, backend: Backend) -> None:
        """The result is C-contiguous and writable, and writing to it changes nothing else."""
        self.support(backend, "jpeg")
        data = encode(picture(40, 24))
        first = decode(data, backend=self.name)
        before = first.copy()

        decode(data, backend=self.name)[:] = 0

        assert first.flags.c_contiguous
        assert first.flags.writeable
        np.testing.assert_array_equal(first, before)

    @pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
    @pytest.mark.parametrize("reduce", [1, 4])
    def test_out_receives_the_pixels(self, backend: Backend, mode: Mode, reduce: Reduce) -> None:
        """With out= the caller's array is filled and returned."""
        self.support(backend, "jpeg")
        data = encode(picture(40, 24))
        expected = decode(data, reduce, mode=mode, backend=self.name)
        out = np.full_like(expected, 77)

        image = decode(data, reduce, mode=mode, out=out, backend=self.name)

        assert image is out
        np.testing.assert_array_equal(out, expected)

    @pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda d: np.frombuffer(d, np.uint8)])
    def test_every_buffer_will_do(self, backend: Backend, wrap: Any) -> None:
        """All kinds of input give the same pixels, and are left as they were."""
        self.support(backend, "jpeg")
        data = encode(picture(40, 24))
        given = wrap(data)

        image = decode(given, backend=self.name)

        np.testing.assert_array_equal(image, decode(data, backend=self.name))
        assert bytes(given) == data

    # Damage

    def test_missing_pixels_are_an_error(self, backend: Backend) -> None:
        """A JPEG cut anywhere in its data is a DecodeError, never a grey or stale picture."""
        self.support(backend, "jpeg")
        data = encode(picture(101, 67))
        start = probe(data).scan_offset
        for end in np.linspace(start, len(data) - 8, 9).astype(int):
            with pytest.raises(DecodeError):
                decode(data[:end], backend=self.name)

    def test_missing_pixels_are_an_error_even_behind_an_end_marker(self, backend: Backend) -> None:
        """Nor does an end marker put behind the cut hide it.

        Only a codec that reports warnings notices when no more than the last block is affected.
        """
        support = self.support(backend, "jpeg")
        data = encode(picture(101, 67))
        start = probe(data).scan_offset
        spare = 8 if support.warnings else len(data) // 8
        for end in np.linspace(start, len(data) - spare, 9).astype(int):
            with pytest.raises(DecodeError):
                decode(data[:end] + b"\xff\xd9", backend=self.name)

    def test_missing_end_marker_alone_is_no_error(self, backend: Backend) -> None:
        """A JPEG that lacks nothing but its EOI decodes; with strict=True it does not."""
        support = self.support(backend, "jpeg")
        data = encode(picture(40, 24))

        image = decode(data[:-2], backend=self.name)

        np.testing.assert_array_equal(image, decode(data, backend=self.name))
        if support.warnings:
            with pytest.raises(DecodeError):
                decode(data[:-2], strict=True, backend=self.name)

    def test_trailing_garbage_is_ignored(self, backend: Backend) -> None:
        """Bytes after the end of a JPEG change nothing."""
        self.support(backend, "jpeg")
        data = encode(picture(40, 24))

        image = decode(data + b"garbage" * 9, backend=self.name)

        np.testing.assert_array_equal(image, decode(data, backend=self.name))

    def test_strict_is_promised_only_where_it_can_be_kept(self, backend: Backend) -> None:
        """strict=True decodes a sound JPEG, or says that this backend cannot report warnings."""
        support = self.support(backend, "jpeg")
        data = encode(picture(40, 24))
        if support.warnings:
            assert decode(data, strict=True, backend=self.name).shape == (24, 40, 3)
        else:
            with pytest.raises(UnsupportedFormat, match="cannot report warnings"):
                decode(data, strict=True, backend=self.name)

    def test_flipped_bits_never_escape(self, backend: Backend) -> None:
        """Damaged bytes give an array or a FastDecodeError, whatever the library raises."""
        format = next(f for f in ("jpeg", *backend.supports) if f in backend.supports)
        if format not in ("jpeg", *LOSSLESS, "webp"):
            pytest.skip(f"Pillow does not write {format}")
        data = encode(picture(40, 24), format)
        random = np.random.default_rng(5)
        for _ in range(60):
            damaged = bytearray(data)
            for position in random.integers(2, len(data), 3):
                damaged[position] ^= 1 << int(random.integers(8))
            try:
                image = decode(bytes(damaged), backend=self.name, max_pixels=10**7)
            except FastDecodeError:
                continue
            assert image.ndim == 3

    # Threads and processes

    def test_eight_threads_at_once(self, backend: Backend) -> None:
        """Threads that decode different pictures at once do not mix them up."""
        self.support(backend, "jpeg")
        items = [encode(picture(60 + i, 40 + i)) for i in range(24)]
        expected = [decode(item, backend=self.name) for item in items]

        with ThreadPoolExecutor(8) as pool:
            images = list(pool.map(lambda item: decode(item, backend=self.name), items * 4))

        for image, right in zip(images, expected * 4, strict=True):
            np.testing.assert_array_equal(image, right)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_in_another_process(self, backend: Backend, method: str) -> None:
        """It works in a child process that was forked after use, and in a spawned one."""
        self.support(backend, "jpeg")
        if method not in multiprocessing.get_all_start_methods():
            pytest.skip(f"this system cannot {method}")
        if method == "fork" and not backend.fork_safe:
            pytest.skip(f"{self.name} declares that it does not survive a fork")
        if self.name not in registry.BUILTIN and method == "spawn":
            pytest.skip("a backend registered in this process alone is unknown in a new one")
        data = encode(picture(40, 24))
        expected = decode(data, 2, backend=self.name)

        with multiprocessing.get_context(method).Pool(1) as pool:
            image = pool.apply_async(_decode_in_process, (data, self.name)).get(timeout=120)

        np.testing.assert_array_equal(image, expected)
