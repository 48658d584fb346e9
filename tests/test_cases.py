"""Which cases of the tests a run tries."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import cases
import pytest
from processes import python

_MANY = 3 * cases.FEW
_TESTS = Path(__file__).parent


class _Case:
    """What pytest says of a test that it has collected."""

    def __init__(self, name: str, *markers: str, **places: int) -> None:
        self.get_closest_marker = markers.count
        self.nodeid = f"{name}[{places}]" if places else name
        if places:
            self.callspec = SimpleNamespace(indices=places)


@pytest.fixture
def default_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases.Run, "every", False)


@pytest.mark.usefixtures("default_run")
def test_values_of_each_parameter_are_tried() -> None:
    """Of few values every one is, of many some, and a test without parameters is unless long."""
    alone, long = _Case("alone"), _Case("long", "thorough")
    square = [_Case("square", a=a, b=b) for a in range(4) for b in range(5)]
    files = [_Case("files", file=file) for file in range(_MANY)]

    kept = cases.chosen([alone, long, *square, *files])

    tried = [case.callspec.indices for case in square if case in kept]
    assert alone in kept
    assert long not in kept
    assert ({at["a"] for at in tried}, {at["b"] for at in tried}) == ({*range(4)}, {*range(5)})
    assert len(tried) < len(square)
    assert len([case for case in files if case in kept]) == cases.FEW


@pytest.mark.usefixtures("default_run")
def test_the_seed_draws_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ones again, and others by another seed."""
    values, files = range(_MANY), [_Case("files", file=file) for file in range(_MANY)]
    drawn = []
    for seed in (1, 1, 2):
        monkeypatch.setattr(cases.Run, "seed", seed)
        chosen = [file.nodeid for file in files if file in cases.chosen(files)]
        drawn.append((cases.some(values), chosen))

    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[2][0]
    assert drawn[0][1] != drawn[2][1]
    assert cases.examples(800) == 100
    assert cases.examples(5) == 5


@pytest.mark.parametrize(
    ("options", "count"),
    [((), cases.FEW + 2), (("--all",), _MANY + 2), (("-k", "test_pair"), 2)],
    ids=["default", "all", "some"],
)
def test_the_options_of_the_command(options: tuple[str, ...], count: int, tmp_path: Path) -> None:
    """The command tries some cases, every one, or those that were asked for; and says which."""
    many = tmp_path / "test_many.py"
    many.write_text(
        f"import pytest\n@pytest.mark.parametrize('n', range({_MANY}))\ndef test(n): pass\n"
        "@pytest.mark.parametrize('n', range(2))\ndef test_pair(n): pass\n"
    )
    pytest_there = ("-m", "pytest", "-p", "conftest", "-o", f"pythonpath={_TESTS / 'support'}")

    done = python(
        *(*pytest_there, "--seed", "31", *options, many), cwd=tmp_path, PYTHONPATH=str(_TESTS)
    )

    assert f"{count} passed" in done.stdout, done.stdout + done.stderr
    assert "--seed 31" in done.stdout
