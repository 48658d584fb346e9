"""Which backend decodes a file, and why."""

from __future__ import annotations

import numpy as np
import pytest
from corpus import DATA, jpeg_backends, usable_backends
from doubles import double, flat, own_registry  # noqa: F401
from processes import answers
from same import assert_same

from fastdecode import (
    DecodeError,
    UnsupportedFormat,
    backends,
    decode,
    probe,
    register,
    stats,
    use,
)
from fastdecode._backends import registry
from fastdecode._backends.selection import DEFAULT
from fastdecode.testing import drawing, encode
from fastdecode.types import Reduce

_JPEGS = sorted(path.name for path in (DATA / "jpeg_kinds").iterdir())
JPEG, PNG = encode(drawing(80, 64)), encode(drawing(80, 64), "png")
JXL = b"\xff\x0a\xff\x0a\x00\x00"  # the signature and a bare size header of JPEG XL
HEIC = b"\0\0\0\x10ftypheic\0\0\0\0"

own = pytest.mark.usefixtures("own_registry")


@own
def test_strict_needs_a_backend_that_reports_warnings() -> None:
    """Backends without warnings are skipped; if one of them is named, the error says why."""
    register("silent", double(flat(1)))
    register("frank", double(flat(2), warnings=True))

    assert_same(decode(PNG), 1)
    assert_same(decode(PNG, strict=True), 2)
    with pytest.raises(UnsupportedFormat, match="silent"):
        decode(PNG, strict=True, backend="silent")


def test_strict_names_a_library_where_only_the_core_could_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the core leaves to others is refused without one that reports warnings, in words."""
    others = [name for name in registry.BUILTIN if name not in ("native", "pillow")]
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(others))
    odd = JPEG[:-2] + b"\x11" * 40 + JPEG[-2:]

    assert decode(odd).shape == (64, 80, 3)
    with pytest.raises(DecodeError, match=r"^native: .*fastdecode\[simplejpeg\]"):
        decode(odd, strict=True)
    with pytest.raises(DecodeError, match=r"^native: (?!.*simplejpeg)"):
        decode(odd, strict=True, backend="native")


@pytest.mark.parametrize("reduce", [2, 4, 8])
@pytest.mark.parametrize("name", _JPEGS)
def test_strict_never_gives_other_pixels(name: str, reduce: Reduce) -> None:
    """With `strict` a reduced JPEG has the pixels that it has without, or is refused."""
    data = (DATA / "jpeg_kinds" / name).read_bytes()
    try:
        strict = decode(data, reduce=reduce, strict=True)
    except (DecodeError, UnsupportedFormat):
        return

    assert_same(strict, decode(data, reduce=reduce))


def test_default_order_imports_no_further_than_it_must() -> None:
    """Backends after the first usable one are not imported."""
    order = DEFAULT["jpeg", 1]
    first = next(name for name in order if name in jpeg_backends())
    later = [name for name in registry.BUILTIN if name not in order[: order.index(first) + 1]]

    modules = answers('decode(encode(image)); answers["modules"] = list(sys.modules)')["modules"]

    assert f"fastdecode._backends.{first}" in modules
    assert not [name for name in later if f"fastdecode._backends.{name}" in modules]


def test_unread_format_says_what_would_read_it() -> None:
    """If the library for a format is missing, the error has the install command."""
    told = answers(
        f"""
sys.modules.update(dict.fromkeys(("cv2", "imagecodecs", "nvidia", "pillow_heif", "torch")))
answers["jxl"], answers["heic"] = call(decode, {JXL!r}), call(decode, {HEIC!r})
"""
    )

    for name, library in {"jxl": "imagecodecs", "heic": "pillow_heif"}.items():
        kind, message = told[name]
        assert kind == "UnsupportedFormat"
        assert name in message.lower()
        assert f"pip install 'fastdecode[{library}]'" in message


@pytest.mark.parametrize("name", ["simplejpeg", "opencv"])
def test_named_backend_that_cannot_says_who_can(name: str) -> None:
    """The error of a named backend names others that read the file."""
    if name not in usable_backends():
        pytest.skip(f"{name} is not usable here")

    with pytest.raises(UnsupportedFormat, match=f"{name}.*pillow"):
        decode(encode(drawing(9, 9, "P"), "gif"), backend=name)


def rare(coding: str, bits: int) -> tuple[bytes, np.ndarray]:
    """Encode a grey JPEG of a rare kind with imagecodecs."""
    imagecodecs = pytest.importorskip("imagecodecs")
    rng = np.random.default_rng(bits)
    image = rng.integers(0, 1 << bits, (16, 24), dtype=np.uint8 if bits <= 8 else np.uint16)
    if coding == "lossless":
        return imagecodecs.jpeg_encode(image, lossless=True, bitspersample=bits), image
    return imagecodecs.jpeg_encode(image, level=100, bitspersample=bits), image


@pytest.mark.parametrize(("coding", "bits"), [("lossless", 16), ("lossless", 8), ("baseline", 12)])
def test_rare_jpeg_finds_its_backend(coding: str, bits: int) -> None:
    """Each comes in the file's own type and range, lossless ones as they were written.

    It is cut to 8 bits for the other modes, and not given to a backend that does not declare it.
    """
    data, image = rare(coding, bits)

    stored = decode(data, mode="stored")

    assert probe(data).coding == coding
    assert stored.dtype == image.dtype
    if coding == "baseline":
        assert np.abs(stored.astype(int) - image).max() < 64
        assert_same(decode(data, mode="L"), (stored >> 4).astype(np.uint8))
    else:
        assert_same(stored, image)
    for name in {"pillow", "simplejpeg", "opencv"} & {*usable_backends()}:
        if (coding, bits) != ("lossless", 8):
            with pytest.raises(UnsupportedFormat, match=name):
                decode(data, mode="stored", backend=name)


def test_jpeg_ls_is_refused_by_name() -> None:
    """Its decoder does not notice that the last byte is missing, so the error names the coding."""
    data = encode(drawing(16, 16)).replace(b"\xff\xc0", b"\xff\xf7")

    assert probe(data).coding == "jpeg-ls"
    with pytest.raises(UnsupportedFormat, match="jpeg-ls"):
        decode(data)


@own
@pytest.mark.parametrize("form", ["png", "jpeg"])
def test_small_images_are_reduced_outside_of_a_decoder_that_cannot_be_told(form: str) -> None:
    """`reduces_from` applies to each image, whatever larger ones were decoded before."""
    fussy = double(flat(), reduces=frozenset({1, 2}), reduces_from=20)
    register("fussy", fussy)
    sizes = ((64, 64), (20, 20), (19, 19), (9, 9), (9, 64), (64, 9), (9, 19), (64, 64))

    for size in sizes:
        decode(encode(drawing(*size), form), 2, backend="fussy")

    assert [options["reduce"] for options in fussy.asked] == [2, 2, 1, 1, 2, 2, 1, 2]


@own
def test_jpeg_is_reduced_by_a_decoder_that_can() -> None:
    """A backend that reduces inside its DCT precedes a preferred one that does not."""
    register("plain", double(flat(1)))
    register("able", double(flat(2), reduces=frozenset({1, 2, 4, 8})))

    assert_same(decode(JPEG), 1)
    assert_same(decode(JPEG, 4), 2)
    assert_same(decode(PNG, 4), 1)
    assert stats().fallbacks == {}


@own
def test_registering_is_noticed_at_once() -> None:
    """It invalidates earlier choices; the error of a file has the reason of every reader."""
    register("inexact", double(flat(1), exact=False))
    register("mine", double(flat(2)))
    assert_same(decode(PNG), 2)
    register("mine", double(flat(3)), replace=True)
    assert_same(decode(PNG), 3)
    register("mine", double(flat(), bits=frozenset({16})), replace=True)
    register("inexact", double(flat(), colors=frozenset({"gray"})), replace=True)
    with pytest.raises(UnsupportedFormat) as caught:
        decode(PNG)
    assert "mine does not read png with 8 bits a sample" in str(caught.value)
    assert "inexact does not read png with rgb colour" in str(caught.value)


def test_backends_left_out_are_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the environment excludes every reader, the error says so."""
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(registry.BUILTIN))
    use(None)  # choose anew
    try:
        with pytest.raises(UnsupportedFormat) as caught:
            decode(JPEG)
    finally:
        monkeypatch.undo()
        use(None)

    assert "pillow is left out by FASTDECODE_DISABLE" in str(caught.value)
    assert "Support(" not in str(caught.value)


def test_what_holds_the_gil_for_a_format_comes_last() -> None:
    """In the default order; only backends that import PyTorch come behind it."""
    held = {info.name: info.holds_gil for info in backends()}
    for (format, _), names in DEFAULT.items():
        order = [name for name in names if name not in ("torchcodec", "torchvision")]
        holding = [name for name in order if format in held[name]]

        assert order[len(order) - len(holding) :] == holding
    assert held["pillow"] == ("jpeg2000",)
    assert held["imagecodecs"] == ()
