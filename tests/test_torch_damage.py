"""What counts as a damaged sample, and who else meets it: subclasses, threads, processes."""

from __future__ import annotations

import errno
import pickle
import re
import threading
from typing import Any

import pytest

from fastdecode import errors

torch = pytest.importorskip("torch")

from damaged import CUT, FILES, PHOTO, Listed  # noqa: E402

from fastdecode.torch._errors import SKIPPED, Failure  # noqa: E402


@pytest.mark.parametrize("on_error", ["skip", "replace", lambda index, error: None])
@pytest.mark.parametrize(
    "error",
    [
        TypeError("a mistake"),
        IndexError("a mistake"),
        errors.UnknownBackend("a mistake"),
        errors.BackendUnavailable("a mistake"),
        KeyboardInterrupt("a mistake"),
        OSError(errno.EMFILE, "a mistake"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_mistakes_are_raised_whatever_the_policy(on_error: Any, error: BaseException) -> None:
    """Errors of the program or of the machine are no damage, and are not recorded as such."""

    def fail(image: Any) -> Any:
        raise error

    dataset = Listed(PHOTO, PHOTO, transform=fail, on_error=on_error)

    for ask in (dataset.fetch, dataset.__getitem__, lambda index: dataset.__getitems__([index])):
        with pytest.raises(type(error), match="a mistake"):
            ask(0)
    assert dataset.errors == []


def test_every_kind_of_damage_can_be_skipped() -> None:
    """No image at all, a header that promises too much and a folder are damage like any other."""
    too_large = FILES / "gen_jpeg_claims_65500x65500_jpg.jpg"
    dataset = Listed(FILES / "gen_text.png", too_large, FILES, b"", on_error="skip")

    assert [dataset.fetch(index) for index in range(4)] == [SKIPPED] * 4
    for index, kind in enumerate([errors.UnsupportedFormat, errors.ImageTooLarge, OSError]):
        with pytest.raises(kind):
            dataset.load(index)


def test_errors_of_libraries_are_named_too() -> None:
    """An OSError without a number, as Pillow's are, gets path and index like ours."""

    def fail(image: Any) -> Any:
        raise OSError("image file is truncated")

    dataset = Listed(PHOTO, transform=fail, on_error="skip")

    with pytest.raises(
        OSError, match=rf"^{re.escape(str(PHOTO))} \(item 0\): image file is truncated$"
    ):
        dataset[0]
    assert dataset.errors == [Failure(0, str(PHOTO), "image file is truncated")]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_own_getitem_keeps_the_policy(on_error: str) -> None:
    """A subclass's own `__getitem__` may go through ours or decode by itself: both are covered."""

    class Through(Listed):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    class ByItself(Listed):
        def __getitem__(self, index: int) -> Any:
            return self.decode(self.sources[index]), index

    for kind in (Through, ByItself):
        dataset = kind(PHOTO, CUT, on_error=on_error)
        targets = [target for _, target in dataset.__getitems__([0, 1])]

        assert targets == ([0] if on_error == "skip" else [0, 0])
        assert [failure.index for failure in dataset.errors] == [1]


def test_function_is_asked_once_by_an_own_getitem() -> None:
    """What ours has decided inside a subclass's `__getitem__` is not decided again outside."""
    asked = []

    class Through(Listed):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    dataset = Through(PHOTO, CUT, on_error=lambda index, error: asked.append(index))

    assert [target for _, target in dataset.__getitems__([0, 1])] == [0]
    assert asked == [1]


def test_mistake_of_a_replacement_is_raised() -> None:
    """An error of the program ends the search for another sample."""

    class Wrong(Listed):
        def read(self, index: int) -> tuple[Any, Any]:
            if index:
                raise errors.UnknownBackend("a mistake")
            return super().read(index)

    with pytest.raises(errors.UnknownBackend, match=r"^a mistake$"):
        Wrong(CUT, PHOTO, on_error="replace")[0]


@pytest.mark.parametrize("on_error", ["ignore", None, 3])
def test_unknown_policy_is_refused(on_error: Any) -> None:
    """A policy that does not exist is refused by the constructor, the attribute and the class."""
    with pytest.raises(ValueError, match="on_error must be"):
        Listed(PHOTO, on_error=on_error)
    with pytest.raises(ValueError, match="on_error must be"):
        type("Wrong", (Listed,), {"on_error": on_error})


def test_several_threads_fail_at_once() -> None:
    """Threads that meet the same damaged files record each of them once."""
    dataset = Listed(*([CUT] * 40), on_error="skip")
    start = threading.Barrier(8)

    def fetch_all() -> None:
        start.wait(30)
        for index in range(40):
            assert dataset.fetch(index) is SKIPPED

    threads = [threading.Thread(target=fetch_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(failure.index for failure in dataset.errors) == list(range(40))


def test_failures_cross_process_borders() -> None:
    """SKIPPED stays the same object when pickled, and errors keep what they say."""
    dataset = Listed(CUT, on_error="skip")
    dataset.fetch(0)
    again = pickle.loads(pickle.dumps(dataset))
    again.fetch(0)

    assert pickle.loads(pickle.dumps(SKIPPED)) is SKIPPED
    assert repr(SKIPPED) == "SKIPPED"
    assert again.errors == dataset.errors
