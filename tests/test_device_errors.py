"""`decode_batch(device=…)`: which error is raised, what is read and counted, and forking."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from device_doubles import (  # noqa: E402, F401
    CUT,
    MIXED,
    OF_CPU,
    PHOTOS,
    NoSingle,
    batch_double,
    honest,
    own_registry,
    register_double,
    with_the_others,
)

from fastdecode import (  # noqa: E402
    DecodeError,
    UnknownBackend,
    UnsupportedFormat,
    decode_batch,
    register,
    stats,
    use,
)
from fastdecode.gpu._policy import choose  # noqa: E402

pytestmark = pytest.mark.usefixtures("with_the_others")


@pytest.mark.parametrize("backend", ["double", None])
def test_the_first_error_is_raised_of_whatever_kind(backend: str | None) -> None:
    """The items' order decides, and not whose fault it is; as without a device."""
    register_double()

    with pytest.raises(UnsupportedFormat, match=r"^item 0: "):
        decode_batch([b"xx" * 50, None], device="cpu", backend=backend)
    with pytest.raises(TypeError, match=r"^item 1: data must be"):
        decode_batch([PHOTOS[0], None, CUT], device="cpu", backend=backend)
    with pytest.raises(TypeError, match=r"^item 1: data must be"):
        decode_batch([CUT, None], device="cpu", backend=backend, on_error="return")


def test_each_file_is_read_once(tmp_path: Path) -> None:
    """Whoever decodes it: files may come over a network."""
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
def test_an_error_holds_no_pictures(options: dict[str, Any]) -> None:
    """Who keeps the errors of damaged files does not keep their batches with them."""
    register_double(honest)

    *_, error = decode_batch([*PHOTOS, CUT], on_error="return", **options)

    assert isinstance(error, DecodeError)
    assert _frames_of(error) == 0


def _frames_of(error: BaseException | None) -> int:
    """Count the frames that an error, and those that led to it, hold."""
    if error is None:
        return 0
    own = len(list(traceback.walk_tb(error.__traceback__)))
    return own + _frames_of(error.__cause__ or error.__context__)


def test_what_is_left_to_the_cpu_is_counted() -> None:
    """`stats` shows how much the device did not decode."""
    register_double()

    decode_batch(MIXED, device="cpu", backend="double")

    assert stats().fallbacks == {("double", "cpu"): len(OF_CPU)}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"decode": "GPU"}, ValueError),
        ({"backend": "nobody"}, UnknownBackend),
        ({"device": "meta"}, ValueError),
    ],
    ids=str,
)
def test_options_are_checked_before_anything_is_taken(
    wrong: dict[str, Any], error: type[Exception]
) -> None:
    """A generator is not used up by a call that cannot succeed."""

    def items() -> Iterator[bytes]:
        raise AssertionError("it was asked for an item")
        yield b""

    with pytest.raises(error):
        decode_batch(items(), **{"device": "cpu", **wrong})


def test_the_preferred_backend_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`use` decides who decodes, also with decode="gpu"; one that cannot is passed over there."""
    monkeypatch.setattr("fastdecode.gpu._policy.measured", lambda device: ())
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


def test_what_is_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all switched off the error says by what."""
    monkeypatch.setattr("fastdecode.gpu._policy.measured", lambda device: ())
    monkeypatch.setenv("FASTDECODE_DISABLE", "nvimgcodec,dali,torchvision,torchcodec")

    with pytest.raises(ImportError, match="'nvimgcodec' is left out by FASTDECODE_DISABLE"):
        choose(torch.device("cuda", 0), "gpu")


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
    """A process that has decoded onto the CPU forks, and its child does the same."""
    register_double(honest)
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


def test_a_damaged_file_is_named_with_its_path(tmp_path: Path) -> None:
    """Also where the file was read for the device before."""
    register_double()
    path = tmp_path / "cut.jpg"
    path.write_bytes(CUT)

    with pytest.raises(DecodeError, match=rf"^item 1: {path}: "):
        decode_batch([PHOTOS[0], path], device="cpu", backend="double", size=8)
