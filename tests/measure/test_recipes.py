"""``bench --recipe``: the recipes, and how they are measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from benches import ONE, WRONG_ARGUMENT, bench, read_result

from fastdecode import cli
from fastdecode._backends import registry
from fastdecode.measure._recipes import RECIPES


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_library_that_is_missing_is_named(
    recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, with the line that installs it."""
    for library in RECIPES[recipe].libraries:
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--recipe", recipe])
    assert ended.value.code == WRONG_ARGUMENT
    said = " ".join(capsys.readouterr().err.split())
    assert f"--recipe {recipe} needs torchvision" in said
    assert " ".join(registry.pip_install("torchvision").split()) in said


def test_a_recipe_makes_training_batches(capsys: pytest.CaptureFixture[str]) -> None:
    """``--no-train`` contradicts ``--recipe``."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--recipe", "plain", "--no-train"])
    assert ended.value.code == WRONG_ARGUMENT
    assert "--no-train forbids them" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("recipe", RECIPES)
def test_batches_are_those_of_the_recipe(recipe: str, folder: Path) -> None:
    """The loaders of this package and of torchvision make batches of the same shapes."""
    pytest.importorskip("torchvision")
    for library in RECIPES[recipe].libraries:
        pytest.importorskip(library)
    from fastdecode.measure._pipelines import MAKERS, recipe_setup

    samples: Any = [(str(path), n) for n, path in enumerate(sorted(folder.glob("*.jpg")))]
    shapes = []
    for name in ("fastdecode", "torchvision"):
        [(batch, labels)] = MAKERS[name](recipe_setup(recipe, samples, len(samples), 1))  # type: ignore[index]
        views = batch if isinstance(batch, list) else [batch]
        shapes.append([(view.shape, view.dtype) for view in views])
        assert sorted(labels.tolist()) == list(range(len(samples)))
    assert shapes[0] == shapes[1]
    assert shapes[0][0][0] == (len(samples), 3, RECIPES[recipe].size, RECIPES[recipe].size)


def test_the_command_measures_a_recipe(folder: Path, tmp_path: Path) -> None:
    """The table and the JSON name the recipe; Pillow and the plain crop are left out."""
    pytest.importorskip("torchvision")
    file = tmp_path / "result.json"
    done = bench(folder, *ONE, "--recipe", "clip", "--seconds", "0.01", "--json", file)
    assert done.returncode == 0, done.stderr
    assert "recipe clip, training batches of" in done.stdout
    result = read_result(file.read_text(encoding="utf-8"))
    assert result.settings["recipe"] == "clip"
    train = [one for one in result.measurements if one.protocol == "train"]
    assert {one.recipe for one in train} == {"clip"}
    assert {one.backend for one in train} == {"fastdecode", "torchvision"}
    assert all(one.images_per_s.median > 0 for one in train)
