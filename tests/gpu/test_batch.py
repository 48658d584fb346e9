"""`decode_batch(device=…)`: the parts of a batch backend and of the CPU, and how they join."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import CORPUS
from device_doubles import (  # noqa: F401
    CPU_INDICES,
    CUT,
    MIXED,
    NO_END,
    PHOTOS,
    PNG,
    array_of,
    decode_all,
    decode_and_mark,
    is_marked,
    own_registry,
    raising,
    refusing,
    register_double,
    registry_with_cpu_backends,
    tensor_of,
)
from PIL import Image as PillowImage

from fastdecode import DecodeError, UnsupportedFormat, decode, decode_batch, stats
from fastdecode._arrays import decode_arrays
from fastdecode.errors import ImageTooLarge
from fastdecode.testing import drawing, encode

pytestmark = pytest.mark.usefixtures("registry_with_cpu_backends")
WAYS = pytest.mark.parametrize("way", ["double", "cpu"])
DOUBLE = {"device": "cpu", "decode": "double"}


def expected(item: bytes, **options: Any) -> Any:
    """Return what `decode` returns, with an axis of channels."""
    array = decode(item, **options)
    return array if array.ndim == 3 else array[:, :, None]


def test_the_kinds_that_it_declares_go_to_it() -> None:
    """Baseline JPEGs go to the batch backend in one call, others to the CPU, and order is kept."""
    double = register_double()

    images = decode_batch(MIXED, **DOUBLE)

    assert double.asked == [len(MIXED) - len(CPU_INDICES)]
    assert [at for at, image in enumerate(images) if not is_marked(image)] == CPU_INDICES
    assert stats().fallbacks == {("double", "cpu"): len(CPU_INDICES)}
    for image, item in zip(images, MIXED, strict=True):
        assert (image if is_marked(image) else image.permute(1, 2, 0)).is_contiguous()
        np.testing.assert_array_equal(array_of(image)[1:], decode(item)[1:])


def test_tensors_on_the_cpu_share_the_memory_of_the_arrays(monkeypatch: Any) -> None:
    """Without a size, ``device="cpu"`` copies no pixel."""
    arrays: list[Any] = []

    def record(*arguments: Any, **options: Any) -> list[Any]:
        arrays.extend(decode_arrays(*arguments, **options))
        return arrays

    monkeypatch.setattr("fastdecode.gpu._decode_batch.decode_arrays", record)
    images = decode_batch(MIXED, device="cpu")

    assert len(images) == len(arrays) == len(MIXED)
    for image, array in zip(images, arrays, strict=True):
        assert np.shares_memory(array_of(image), array)


@WAYS
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "L"},
        {"region": (3, 5, 17, 19)},
        {"reduce": 2},
        {"min_size": 8},
        {"strict": True},
        {"mode": "RGBA"},
        {"mode": "stored"},
        {"backend": "pillow"},
    ],
    ids=str,
)
def test_pixels_are_those_of_decode(way: str, options: dict[str, Any]) -> None:
    """Every option gives the pixels of `decode`, also where a batch backend decodes some images."""
    double = register_double(decode_all)
    items = [item for item in MIXED if not ("strict" in options and item is NO_END)]

    images = decode_batch(items, device="cpu", decode=way, **options)

    does = way == "double" and options.get("mode") in (None, "L")
    does = does and not {"reduce", "min_size", "strict"} & options.keys()
    assert bool(double.asked) == does
    for image, item in zip(images, items, strict=True):
        np.testing.assert_array_equal(array_of(image), expected(item, **options))


@WAYS
@pytest.mark.parametrize("size", [16, (12, 20), 1, (1, 7), (7, 1)], ids=str)
def test_size_gives_one_tensor(way: str, size: Any) -> None:
    """With `size` the batch is one tensor, close to Pillow's antialiased resize."""
    register_double(decode_all)
    height, width = (size, size) if isinstance(size, int) else size

    batch = decode_batch(MIXED, device="cpu", decode=way, size=size)

    assert tuple(batch.shape) == (len(MIXED), 3, height, width)
    for image, item in zip(batch, MIXED, strict=True):
        whole = PillowImage.fromarray(decode(item))
        resized = np.asarray(whole.resize((width, height), PillowImage.Resampling.BILINEAR))
        assert np.abs(array_of(image).astype(int) - resized).max() <= 1


def test_without_a_batch_backend_a_device_changes_no_pixel() -> None:
    """With a size, in grey and in threads, tensors equal the arrays that no device would give."""
    for options in ({"size": 9}, {"size": (8, 5), "mode": "L", "threads": 3}):
        array = decode_batch(MIXED, **options)
        batch = decode_batch(MIXED, device="cpu", **options)

        np.testing.assert_array_equal(batch.permute(0, 2, 3, 1).numpy().reshape(array.shape), array)


def test_an_image_that_lies_on_its_side() -> None:
    """With orient=True rotated images go to the CPU, and upright ones to the backend."""
    register_double()
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    lying = encode(drawing(40, 24), exif=exif)

    stored, plain = decode_batch([lying, PHOTOS[0]], **DOUBLE)
    seen, upright = decode_batch([lying, PHOTOS[0]], orient=True, **DOUBLE)

    assert tuple(stored.shape) == (3, 24, 40)
    np.testing.assert_array_equal(array_of(seen), decode(lying, orient=True))
    assert [is_marked(image) for image in (stored, plain, seen, upright)] == [1, 1, 0, 1]


# ---- what is refused ----


@pytest.mark.parametrize(("how", "on_cpu"), [(refusing, [1, 7]), (raising, list(range(9)))])
def test_what_it_refuses_is_the_cpus(how: Any, on_cpu: list[int]) -> None:
    """Refused items, or all of a batch that failed, are decoded on the CPU and counted."""
    double = register_double(how(lambda item: item.header.width in (43, 61)))

    images = decode_batch(PHOTOS, **DOUBLE)

    assert [at for at, image in enumerate(images) if not is_marked(image)] == on_cpu
    for image, item in zip(images, PHOTOS, strict=True):
        np.testing.assert_array_equal(array_of(image)[1:], decode(item)[1:])
    assert stats().fallbacks == {("double", "cpu"): len(on_cpu)}
    assert double.asked == [len(PHOTOS)]


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda images: [image.float() for image in images], "float32"),
        (lambda images: [image[:, 1:] for image in images], "gave"),
        (lambda images: [image[:1] for image in images], "gave"),
        (lambda images: [image.numpy() for image in images], "not a tensor"),
        (lambda images: images[1:], "gave 2 images for 3"),
    ],
    ids=["type", "height", "channels", "array", "count"],
)
def test_what_is_not_of_the_right_form_is_refused(lie: Any, words: str) -> None:
    """A result of the wrong shape or type counts as a refusal."""
    register_double(lambda items, layout: lie(decode_and_mark(items, layout)))

    images = decode_batch(PHOTOS[:3], **DOUBLE)

    for image, item in zip(images, PHOTOS[:3], strict=True):
        np.testing.assert_array_equal(array_of(image), decode(item))
    assert words in stats().recent[0]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        torch.cuda.OutOfMemoryError("Tried to allocate 20 GiB"),
        getattr(torch, "AcceleratorError", torch.cuda.OutOfMemoryError)("misaligned address"),
    ],
    ids=["text", "memory", "class"],
)
def test_a_device_that_failed_is_no_refusal(error: Exception) -> None:
    """A failure of the device is raised, and the CPU does not decode the images instead."""

    def fails(items: Any, layout: str) -> list[Any]:
        raise error

    double = register_double(fails)

    with pytest.raises(type(error)):
        decode_batch(PHOTOS, **DOUBLE)

    assert double.asked == [len(PHOTOS)]
    assert stats().fallbacks == {}


@pytest.mark.parametrize("fill", [(128, 128, 128), (0, 135, 0), (0, 0, 0), (0,)], ids=str)
def test_what_looks_filled_in_is_looked_at_again(fill: tuple[int, ...]) -> None:
    """An image whose last block a decoder has filled in is decoded again on the CPU."""
    whole = encode(drawing(64, 64), quality=95)
    forged = whole[: len(whole) * 2 // 3] + whole[-2:]
    with pytest.raises(DecodeError):
        decode(forged)

    def filled(items: Any, layout: str) -> list[Any]:
        blank = torch.tensor(fill, dtype=torch.uint8)[:, None, None].expand(-1, 64, 64)
        return [blank if item.data == forged else tensor_of(item, layout) for item in items]

    register_double(filled)
    mode = "RGB" if len(fill) == 3 else "L"
    images = decode_batch([PHOTOS[0], forged, PHOTOS[1]], on_error="return", mode=mode, **DOUBLE)

    assert [type(image) for image in images] == [torch.Tensor, DecodeError, torch.Tensor]


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (9, 9), (17, 31)], ids=str)
def test_an_honest_grey_image_is_shown(size: tuple[int, int]) -> None:
    """An image that is really grey is decoded on the CPU with the right pixels."""
    grey = encode(PillowImage.new("RGB", size, (128, 128, 128)))
    double = register_double(decode_all)

    image = decode_batch([grey], **DOUBLE)[0]

    assert double.asked == [1]
    np.testing.assert_array_equal(array_of(image), decode(grey))
    assert stats().fallbacks == {("double", "cpu"): 1}


def test_results_last() -> None:
    """Images do not change when the backend reuses its memory."""
    memory = torch.empty(3 * 64 * 64, dtype=torch.uint8)

    def reusing(items: Any, layout: str) -> list[Any]:
        out = []
        for image in decode_all(items, layout):
            place = memory[: image.numel()].view(image.shape)
            place.copy_(image)
            out.append(place)
        return out

    register_double(reusing)
    first = decode_batch(PHOTOS[:1], **DOUBLE)[0]
    decode_batch(PHOTOS[1:2], **DOUBLE)

    np.testing.assert_array_equal(array_of(first), decode(PHOTOS[0]))


# ---- errors ----


@WAYS
def test_errors_are_those_of_the_cpu_path(tmp_path: Path, way: str) -> None:
    """A damaged file raises an error with its index and name, or is in the list."""
    register_double()
    path = tmp_path / "cut.jpg"
    path.write_bytes(CUT)
    options = {"device": "cpu", "decode": way}
    items = [*PHOTOS[:2], CUT, b"none", tmp_path / "missing.jpg", *PHOTOS[2:4]]

    with pytest.raises(DecodeError, match=r"^item 2: "):
        decode_batch(items, **options)
    for more in ({}, {"size": 8}):
        with pytest.raises(DecodeError, match=rf"^item 1: .*{path.name}"):
            decode_batch([PHOTOS[0], path], **options, **more)
        images = decode_batch(items, on_error="return", **options, **more)
        kinds = [type(image) for image in images[2:5]]
        assert kinds == [DecodeError, UnsupportedFormat, FileNotFoundError]
        assert len({type(image) for image in images[:2] + images[5:]}) == 1


@WAYS
def test_the_first_error_is_raised_of_whatever_kind(way: str) -> None:
    """The first error in the items' order is raised, whichever kind it is and whoever refuses."""
    register_double(refusing(lambda item: item.header.width == 64))
    whole = encode(drawing(64, 64), quality=95)
    broken = whole[: len(whole) * 2 // 3] + whole[-2:]
    options = {"device": "cpu", "decode": way}

    with pytest.raises(UnsupportedFormat, match=r"^item 0: "):
        decode_batch([b"xx" * 50, None], **options)
    with pytest.raises(TypeError, match=r"^item 1: "):
        decode_batch([PHOTOS[0], None, CUT], **options)
    with pytest.raises(TypeError, match=r"^item 1: "):
        decode_batch([CUT, None], on_error="return", **options)
    with pytest.raises(DecodeError, match=r"^item 1: "):
        decode_batch([PHOTOS[0], broken, CUT], **options)
    with pytest.raises(ImageTooLarge, match=r"^item 0: "):
        decode_batch(PHOTOS[:1], max_pixels=100, **options)


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, DOUBLE], ids=str)
def test_an_error_holds_no_images(options: dict[str, Any]) -> None:
    """A kept error does not keep the batch's images in memory."""
    register_double(decode_all)

    *_, error = decode_batch([*PHOTOS, CUT], on_error="return", **options)

    assert isinstance(error, DecodeError)
    assert _frames_of(error) == 0


def _frames_of(error: BaseException | None) -> int:
    """Count the frames of an error and its causes."""
    if error is None:
        return 0
    own = len(list(traceback.walk_tb(error.__traceback__)))
    return own + _frames_of(error.__cause__ or error.__context__)


@WAYS
def test_nothing_gives_nothing(way: str) -> None:
    """Without items, the result is an empty list, or an empty tensor of the size."""
    register_double()
    options = {"device": "cpu", "decode": way}

    assert decode_batch([], **options) == []
    assert decode_batch([], size=8, on_error="return", **options) == []
    assert decode_batch([], size=8, **options).shape == (0, 3, 8, 8)
    assert decode_batch([], mode="L", size=8, **options).shape == (0, 1, 8, 8)
    assert [type(image) for image in decode_batch([CUT], on_error="return", **options)] == [
        DecodeError
    ]


def test_every_file_of_the_collection() -> None:
    """Every file gives its pixels or the error of `decode`, in its place."""
    register_double(decode_all)
    files = sorted(path for path in (CORPUS / "malformed").rglob("*") if path.is_file())[:200]
    files += sorted((CORPUS / "jpeg_kinds").glob("*.jpg"))[:100]

    together = decode_batch(files, on_error="return", **DOUBLE)
    alone = decode_batch(files, on_error="return")

    for path, image, other in zip(files, together, alone, strict=True):
        if isinstance(other, np.ndarray):
            np.testing.assert_array_equal(array_of(image), other, err_msg=str(path))
        else:
            assert type(image) is type(other), path


# ---- parts, and forks ----


@pytest.mark.parametrize("limit", ["_MAX_FILES", "_MAX_PIXELS"])
def test_it_is_done_in_parts(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large batch is decoded in parts, with the same result."""
    double = register_double(decode_all)
    items = [*MIXED, *PHOTOS, CUT]
    whole = decode_batch(items[:-1], size=16, **DOUBLE)
    monkeypatch.setattr(f"fastdecode.gpu._decode_batch.{limit}", 3)

    batch = decode_batch(items[:-1], size=16, **DOUBLE)
    with pytest.raises(DecodeError, match=f"^item {len(items) - 1}: "):
        decode_batch(items, size=16, **DOUBLE)

    assert torch.equal(batch, whole)
    assert max(double.asked[1:]) <= 3


def _sizes(**options: Any) -> list[tuple[int, ...]]:
    return [tuple(image.shape) for image in decode_batch(PHOTOS, device="cpu", **options)]


def _answer(answers: Any, options: dict[str, Any]) -> None:
    answers.put(_sizes(**options))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("options", [{}, {"size": 224}], ids=str)
def test_a_forked_child_decodes_too(options: dict[str, Any]) -> None:
    """After decoding onto the CPU, a process can fork, and its child can decode."""
    expected = _sizes(**options)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_answer, args=(answers, options))

    child.start()
    child.join(60)
    ended = not child.is_alive()
    child.kill()

    assert ended
    assert answers.get() == expected
