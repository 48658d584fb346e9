"""What decides when a call names no backend: `use` and the environment."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from doubles import double, flat, own_registry  # noqa: F401

from fastdecode import BackendUnavailable, UnknownBackend, decode, register, use
from fastdecode._backends import registry, selection
from fastdecode.testing import drawing, encode

pytestmark = pytest.mark.usefixtures("numbered")

PNG = encode(drawing(13, 7), "png")
VALUES = {"one": 1, "two": 2, "three": 3, "four": 4}


def _in_block(name: str) -> None:
    """Enter a block, and stay in it."""
    use(name).__enter__()


@pytest.fixture
def numbered(own_registry: None) -> None:  # noqa: F811
    """Register test doubles whose images show which of them decoded."""
    for name, value in VALUES.items():
        register(name, double(flat(value)))


def asked(**options: Any) -> str:
    """Return the name of the test double that decodes."""
    value = decode(PNG, **options)[0, 0, 0]
    return next(name for name in VALUES if VALUES[name] == value)


def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument goes before `use`, that before the environment, that before the default.

    A plain `use` holds for every later image; None sets it back. The name in the environment may
    have spaces around it; spaces alone are nothing.
    """
    assert asked() == "one"

    monkeypatch.setenv("FASTDECODE_BACKEND", " two ")
    use(None)  # which looks at the environment again
    assert asked() == "two"

    use("four")
    use("three")
    assert [asked(), asked()] == ["three", "three"]
    assert asked(backend="four") == "four"

    use(None)
    assert asked() == "two"
    monkeypatch.setenv("FASTDECODE_BACKEND", "  ")
    use(None)
    assert asked() == "one"


@pytest.mark.parametrize(
    ("preference", "error"),
    [
        ("nobody", UnknownBackend),
        ("broken", BackendUnavailable),
        (5, TypeError),
        (b"one", TypeError),
    ],
)
def test_wrong_preference_changes_nothing(preference: Any, error: type[Exception]) -> None:
    """An invalid preference is refused at once, and the previous one stays."""
    register("broken", "no_such_module:Thing")
    use("two")

    with pytest.raises(error):
        use(preference)

    assert asked() == "two"


@pytest.mark.parametrize("disabled", ["one", "one,two", " one , two ", "one,nobody,,"])
def test_disabled_backends_are_left_out(disabled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FASTDECODE_DISABLE excludes names from the automatic choice, not from named calls."""
    builtin = ",".join(registry.BUILTIN)
    monkeypatch.setenv("FASTDECODE_DISABLE", f"{builtin},{disabled}")

    assert asked() == ("three" if "two" in disabled else "two")
    assert asked(backend="one") == "one"


def test_blocks_restore_what_was_before() -> None:
    """Also after an error, and where those of two threads overlap or begin together."""
    use("two")
    with use("three"):
        assert asked() == "three"
        use("one")
        assert asked() == "one"
        use("three")
        with use("four"):
            assert asked() == "four"
        assert asked() == "three"
        with use(None):
            assert asked() == "one"
    assert asked() == "two"
    with pytest.raises(ZeroDivisionError), use("three"):
        raise ZeroDivisionError
    assert asked() == "two"
    use(None)

    first = use("two")
    first.__enter__()
    second = use("three")
    second.__enter__()
    first.__exit__(None, None, None)
    assert asked() == "three"
    second.__exit__(None, None, None)
    assert asked() == "one"
    first, second = use("two"), use("three")
    with first:
        with second:
            assert asked() == "three"
        assert asked() == "two"
    assert asked() == "one"


def test_many_plain_calls_are_not_all_kept() -> None:
    """Calling `use` for every image takes no more memory, and a block still ends correctly."""
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(2):
            for _ in range(1000):
                use("two")
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    with use("three"):
        assert asked() == "three"

    assert asked() == "two"
    assert sizes[1] - sizes[0] < 20_000  # bytes: the second thousand needs no room of its own


@pytest.mark.parametrize("change", [partial(use, "two"), partial(_in_block, "two")])
def test_what_was_concluded_meanwhile_is_forgotten(change: Callable[[], object]) -> None:
    """A choice that was made during a change is not kept after it."""
    assert asked() == "one"
    meanwhile = []

    def at_each_line(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_globals.get("__name__") != selection.__name__:
            return None
        meanwhile.append(asked())
        return at_each_line

    before = sys.gettrace()
    sys.settrace(at_each_line)
    try:
        change()
    finally:
        sys.settrace(before)

    assert asked() == "two"
    assert {"one"} <= {*meanwhile} <= {"one", "two"}
