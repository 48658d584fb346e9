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

from fastdecode import (
    DecodeError,
    UnsupportedFormat,
    decode,
    decode_batch,
    probe,
    stats,
)
from fastdecode._arrays import decode_arrays
from fastdecode.errors import ImageTooLarge
from fastdecode.gpu._batch import make_request
from fastdecode.testing import drawing, encode

pytestmark = pytest.mark.usefixtures("registry_with_cpu_backends")


def test_the_kinds_that_it_declares_go_to_it() -> None:
    """Baseline JPEGs go to the batch backend in one call, others to the CPU, and order is kept."""
    double = register_double()

    images = decode_batch(MIXED, device="cpu", backend="double")

    assert double.asked == [len(MIXED) - len(CPU_INDICES)]
    assert [at for at, image in enumerate(images) if not is_marked(image)] == CPU_INDICES
    assert stats().fallbacks == {("double", "cpu"): len(CPU_INDICES)}
    for image, item in zip(images, MIXED, strict=True):
        expected = decode(item)
        assert tuple(image.shape) == (3, *expected.shape[:2])
        assert (image if is_marked(image) else image.permute(1, 2, 0)).is_contiguous()
        np.testing.assert_array_equal(array_of(image)[1:], expected[1:])


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


@pytest.mark.parametrize("how", [refusing, raising])
def test_what_it_refuses_is_the_cpus(how: Any) -> None:
    """Refused items, or a refused batch, are decoded on the CPU and counted."""
    double = register_double(how(lambda item: item.header.width in (43, 61)))

    images = decode_batch(PHOTOS, device="cpu", backend="double")

    assert [at for at, image in enumerate(images) if not is_marked(image)] == [1, 7]
    for image, item in zip(images, PHOTOS, strict=True):
        np.testing.assert_array_equal(array_of(image)[1:], decode(item)[1:])
    assert stats().fallbacks == {("double", "cpu"): 2}
    assert max(double.asked) == len(PHOTOS)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda images: [image.float() for image in images], "float32"),
        (lambda images: [image[:, 1:] for image in images], "gave"),
        (lambda images: [image[:1] for image in images], "gave"),
        (lambda images: [image.numpy() for image in images], "not a tensor"),
        (lambda images: images[1:], "gave 0 images for 1"),
    ],
    ids=["type", "height", "channels", "array", "count"],
)
def test_what_is_not_of_the_right_form_is_refused(lie: Any, words: str) -> None:
    """A result of the wrong shape or type counts as a refusal."""
    register_double(lambda items, layout: lie(decode_and_mark(items, layout)))

    images = decode_batch(PHOTOS[:3], device="cpu", backend="double")

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
    """A permanent failure of the device is raised at once, not retried image by image."""

    def fails(items: Any, layout: str) -> list[Any]:
        raise error

    double = register_double(fails)

    with pytest.raises(type(error), match=str(error)):
        decode_batch(PHOTOS, device="cpu", backend="double")

    assert double.asked == [len(PHOTOS)]
    assert stats().fallbacks == {}


def test_errors_are_those_of_the_cpu_path(tmp_path: Path) -> None:
    """A damaged file raises an error with its index or name, or is in the list."""
    register_double()
    path = tmp_path / "cut.jpg"
    path.write_bytes(CUT)
    items = [*PHOTOS[:2], CUT, b"none", tmp_path / "missing.jpg", *PHOTOS[2:4]]

    with pytest.raises(DecodeError, match=r"^item 2: "):
        decode_batch(items, device="cpu", backend="double")
    for options in ({}, {"size": 8}):
        with pytest.raises(DecodeError, match=rf"^item 1: {path}: "):
            decode_batch([PHOTOS[0], path], device="cpu", backend="double", **options)
    images = decode_batch(items, device="cpu", backend="double", on_error="return")

    assert [type(image) for image in images[2:5]] == [
        DecodeError,
        UnsupportedFormat,
        FileNotFoundError,
    ]
    assert [is_marked(image) for image in images[:2] + images[5:]] == [True] * 4


def test_the_first_error_in_order_is_raised() -> None:
    """Items that neither the backend nor the CPU decodes raise errors in the items' order."""
    whole = encode(drawing(64, 64), quality=95)
    broken = whole[: len(whole) * 2 // 3] + whole[-2:]
    double = register_double(refusing(lambda item: item.header.width == 64))
    with pytest.raises(DecodeError):
        decode(broken)

    with pytest.raises(DecodeError, match=r"^item 1: "):
        decode_batch([PHOTOS[0], broken, CUT], device="cpu", backend="double")

    assert double.asked[0] == 2


def test_what_looks_filled_in_is_looked_at_again() -> None:
    """An image that looks filled in is decoded again on the CPU."""
    whole = encode(drawing(64, 64), quality=95)
    forged = whole[: len(whole) * 2 // 3] + whole[-2:]
    with pytest.raises(DecodeError):
        decode(forged)

    def filled(items: Any, layout: str) -> list[Any]:
        grey = torch.full((3, 64, 64), 128, dtype=torch.uint8)
        return [grey if item.data == forged else tensor_of(item, layout) for item in items]

    register_double(filled)
    images = decode_batch(
        [PHOTOS[0], forged, PHOTOS[1]], device="cpu", backend="double", on_error="return"
    )

    assert [type(image) for image in images] == [torch.Tensor, DecodeError, torch.Tensor]


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (9, 9), (17, 31)], ids=str)
def test_an_honest_grey_image_is_shown(size: tuple[int, int]) -> None:
    """An image that is really grey is decoded on the CPU with the right pixels."""
    grey = encode(PillowImage.new("RGB", size, (128, 128, 128)))
    double = register_double(decode_all)

    image = decode_batch([grey], device="cpu", backend="double")[0]

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
    first = decode_batch(PHOTOS[:1], device="cpu", backend="double")[0]
    decode_batch(PHOTOS[1:2], device="cpu", backend="double")

    np.testing.assert_array_equal(array_of(first), decode(PHOTOS[0]))


def test_every_file_of_the_collection() -> None:
    """Every file gives its pixels or the error of `decode`, in its place."""
    register_double(decode_all)
    files = sorted(path for path in (CORPUS / "malformed").rglob("*") if path.is_file())[:200]
    files += sorted((CORPUS / "jpeg_kinds").glob("*.jpg"))[:100]

    together = decode_batch(files, device="cpu", backend="double", on_error="return")
    alone = decode_batch(files, on_error="return")

    for path, image, expected in zip(files, together, alone, strict=True):
        if isinstance(expected, np.ndarray):
            np.testing.assert_array_equal(array_of(image), expected, err_msg=str(path))
        else:
            assert type(image) is type(expected), path


# ---- errors, reading, forking ----


@pytest.mark.parametrize("backend", ["double", None])
def test_the_first_error_is_raised_of_whatever_kind(backend: str | None) -> None:
    """The first error in the items' order is raised, whichever kind it is."""
    register_double()

    with pytest.raises(UnsupportedFormat, match=r"^item 0: "):
        decode_batch([b"xx" * 50, None], device="cpu", backend=backend)
    with pytest.raises(TypeError, match=r"^item 1: data must be"):
        decode_batch([PHOTOS[0], None, CUT], device="cpu", backend=backend)
    with pytest.raises(TypeError, match=r"^item 1: data must be"):
        decode_batch([CUT, None], device="cpu", backend=backend, on_error="return")


def test_each_file_is_read_once(tmp_path: Path) -> None:
    """Each file is read once, whichever backend decodes it."""
    register_double()
    paths = [tmp_path / f"{at}.jpg" for at in range(len(MIXED))]
    for path, data in zip(paths, MIXED, strict=True):
        path.write_bytes(data)
    # A file object reports itself, with a mode, and so does the call of the system that it makes.
    objects: list[str] = []
    calls: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(str(tmp_path)):
            (calls if arguments[1] is None else objects).append(str(arguments[0]))

    sys.addaudithook(note)
    decode_batch(paths, device="cpu", backend="double")

    assert sorted(objects) == [str(path) for path in paths]
    assert sorted(calls) == [str(path) for path in paths]


@pytest.mark.parametrize(
    "options", [{}, {"device": "cpu"}, {"device": "cpu", "backend": "double"}], ids=str
)
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


def _sizes(**options: Any) -> list[tuple[int, ...]]:
    return [tuple(image.shape) for image in decode_batch(PHOTOS, device="cpu", **options)]


def _answer(answers: Any, options: dict[str, Any]) -> None:
    answers.put(_sizes(**options))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize(
    "options",
    [{}, {"size": 224}, {"backend": "double"}, {"backend": "double", "size": 224}],
    ids=str,
)
def test_a_forked_child_decodes_too(options: dict[str, Any]) -> None:
    """After decoding onto the CPU, a process can fork, and its child can decode."""
    register_double(decode_all)
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


# ---- regions, sizes, modes, and the CPU alone ----


@pytest.mark.parametrize("regions", [True, False], ids=["decodes regions", "decodes all"])
def test_a_region_is_cut_out(*, regions: bool) -> None:
    """The region is that of `decode`, whether the backend decodes only it or the whole image."""
    register_double(decode_all, regions=regions)

    images = decode_batch(MIXED, device="cpu", backend="double", region=(3, 5, 17, 19))

    for image, item in zip(images, MIXED, strict=True):
        np.testing.assert_array_equal(array_of(image), decode(item, region=(3, 5, 17, 19)))


@pytest.mark.parametrize("windows", [True, False])
def test_a_backend_may_be_asked_for_the_whole(*, windows: bool) -> None:
    """If windows are off, the backend decodes the whole image, and the region is cut out."""
    backend = register_double(decode_all, regions=True)(torch.device("cpu"), 1)
    region = (3, 5, 17, 19)

    request = make_request(
        PHOTOS[0], probe(PHOTOS[0]), backend, {"region": region}, windows=windows
    )

    assert request is not None
    assert (request.item.window, request.cut) == ((region, None) if windows else (None, region))


def test_grey() -> None:
    """mode="L" returns one channel, from the backend and the CPU."""
    register_double()

    images = decode_batch(MIXED, device="cpu", backend="double", mode="L")

    for image, item in zip(images, MIXED, strict=True):
        np.testing.assert_array_equal(image[0].numpy()[1:], decode(item, mode="L")[1:])
    assert is_marked(images[0])


@pytest.mark.parametrize(
    "options",
    [{"reduce": 2}, {"min_size": 8}, {"strict": True}, {"mode": "RGBA"}, {"mode": "stored"}],
    ids=str,
)
def test_what_it_does_not_do_is_the_cpus(options: dict[str, Any]) -> None:
    """Reductions, strict decoding and other modes are bit-identical to `decode`."""
    double = register_double()
    items = [item for item in MIXED if item is not NO_END]

    images = decode_batch(items, device="cpu", backend="double", **options)

    assert double.asked == []
    for image, item in zip(images, items, strict=True):
        expected = decode(item, **options)
        np.testing.assert_array_equal(
            array_of(image), expected if expected.ndim == 3 else expected[:, :, None]
        )


def test_an_image_that_lies_on_its_side() -> None:
    """With orient=True rotated images go to the CPU, and upright ones to the backend."""
    register_double()
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    lying = encode(drawing(40, 24), exif=exif)

    stored, plain = decode_batch([lying, PHOTOS[0]], device="cpu", backend="double")
    seen, upright = decode_batch([lying, PHOTOS[0]], device="cpu", backend="double", orient=True)

    assert tuple(stored.shape) == (3, 24, 40)
    assert is_marked(stored)
    np.testing.assert_array_equal(array_of(seen), decode(lying, orient=True))
    assert is_marked(upright)
    assert is_marked(plain)


def test_an_image_over_the_limit_is_not_tried() -> None:
    """max_pixels also applies to the batch backend."""
    double = register_double()

    with pytest.raises(ImageTooLarge, match=r"^item 0: "):
        decode_batch(PHOTOS[:1], device="cpu", backend="double", max_pixels=100)

    assert double.asked == []


@pytest.mark.parametrize("size", [16, (12, 20), 1, (1, 7), (7, 1)], ids=str)
@pytest.mark.parametrize("backend", ["double", None])
def test_size_gives_one_tensor(size: Any, backend: str | None) -> None:
    """With `size` the batch is one tensor, close to Pillow's antialiased resize."""
    register_double(decode_all)
    height, width = (size, size) if isinstance(size, int) else size

    batch = decode_batch(MIXED, device="cpu", backend=backend, size=size)

    assert tuple(batch.shape) == (len(MIXED), 3, height, width)
    assert batch.dtype == torch.uint8
    for image, item in zip(batch, MIXED, strict=True):
        whole = PillowImage.fromarray(decode(item))
        expected = np.asarray(whole.resize((width, height), PillowImage.Resampling.BILINEAR))
        assert np.abs(array_of(image).astype(int) - expected).max() <= 1


def test_size_with_errors_is_a_list() -> None:
    """With on_error="return" a list is returned, whose images have the size."""
    register_double()

    images = decode_batch(
        [PHOTOS[0], CUT, PNG], device="cpu", backend="double", size=16, on_error="return"
    )

    assert isinstance(images[1], DecodeError)
    assert [tuple(images[at].shape) for at in (0, 2)] == [(3, 16, 16)] * 2


@pytest.mark.parametrize("items", [[], [CUT]], ids=["no items", "only errors"])
def test_nothing_gives_nothing(items: list[bytes]) -> None:
    """Without items, the result is an empty list, or an empty tensor of the size."""
    register_double()

    images = decode_batch(items, device="cpu", backend="double", on_error="return")

    assert [type(image) for image in images] == [DecodeError] * len(items)
    if not items:
        assert decode_batch([], device="cpu", backend="double", size=8).shape == (0, 3, 8, 8)
        assert decode_batch([], device="cpu", mode="L", size=8).shape == (0, 1, 8, 8)


@pytest.mark.parametrize(
    "options",
    [{"threads": 1}, {"threads": 3}, {"backend": "pillow", "decode": "cpu"}],
    ids=str,
)
def test_without_a_batch_backend_the_cpu_decodes(options: dict[str, Any]) -> None:
    """Without a batch backend, the pixels are those of `decode`."""
    images = decode_batch(MIXED, device="cpu", **options)

    for image, item in zip(images, MIXED, strict=True):
        expected = decode(item, backend=options.get("backend"))
        np.testing.assert_array_equal(array_of(image), expected)


@pytest.mark.parametrize("limit", ["_MAX_FILES", "_MAX_PIXELS"])
def test_it_is_done_in_parts(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large batch is decoded in parts, with the same result."""
    double = register_double(decode_all)
    items = [*MIXED, *PHOTOS, CUT]
    whole = decode_batch(items[:-1], device="cpu", backend="double", size=16)
    monkeypatch.setattr(f"fastdecode.gpu._decode_batch.{limit}", 3)

    batch = decode_batch(items[:-1], device="cpu", backend="double", size=16)
    with pytest.raises(DecodeError, match=f"^item {len(items) - 1}: "):
        decode_batch(items, device="cpu", backend="double", size=16)

    assert torch.equal(batch, whole)
    assert max(double.asked[1:]) <= 3
