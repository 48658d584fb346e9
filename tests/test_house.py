"""The rules of the code base: layers, sizes, documentation, and the cost of imports."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from corpus import TESTS
from processes import python

import fastdecode
from fastdecode._backends import registry
from fastdecode.samples import photo

_PACKAGE = Path(fastdecode.__file__).parent
_MODULES = sorted(_PACKAGE.rglob("*.py"))
_TESTS = sorted(TESTS.rglob("test_*.py"))
_REFERENCE = frozenset(
    begun or said
    for page in (TESTS.parent / "docs" / "reference").glob("*.md")
    for begun, said in re.findall(
        r"<!-- (?:begin ([\w.]+):|here: ([\w.]+)\.\w+ -->)", page.read_text(encoding="utf-8")
    )
)
"""The modules that users import from."""

# A module imports only from rows above its own (and, in the lowest, from its neighbours).
_LAYERS = (
    ("errors", "types", "samples"),
    ("_error_policy",),
    ("_arguments", "_system", "_formats", "native"),
    ("_pixels",),
    ("_backends", "geometry"),
    ("_decode",),
    ("gpu", "stores", "cli"),
    ("testing", "torch", "packing", "ray"),
    ("transformers",),
    ("measure",),
    ("bench", "__main__"),
)


_OF_LIBRARIES = {entry.target.partition(":")[0] for entry in registry.BUILTIN.values()}
"""The modules that decode with one library each."""


def _name(path: Path) -> str:
    return ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)


_NAMES = {_name(path).removesuffix(".__init__"): path for path in _MODULES}
"""The files of all modules, by name."""


def _layer(module: str) -> int:
    part = module.split(".")[1]
    return next(row for row, names in enumerate(_LAYERS) if part in names)


def _imports(path: Path, *, for_types: bool = False) -> set[str]:
    """Return the modules of the package that a file imports; those for type checking if asked."""
    found = set()
    tree = ast.parse(path.read_text())
    left_out = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
        if not for_types
    }
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "fastdecode":
            found |= {f"fastdecode.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastdecode."):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in _NAMES else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("fastdecode.")}
    return found


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_imports_go_upwards(path: Path) -> None:
    """A module imports only from lower layers, and nothing imports a backend's module."""
    module = _name(path)
    if module == "fastdecode.__init__":
        return
    for imported in _imports(path):
        public = imported.split(".")[1] in fastdecode.__all__
        if public and _layer(module) == len(_LAYERS) - 1:
            continue  # the command line uses the public names, as anyone does

        assert _layer(imported) <= _layer(module), f"{module} imports {imported}"
        assert imported not in _OF_LIBRARIES, f"{module} imports {imported}"


def test_there_are_no_circles() -> None:
    """No module imports itself by way of others, not even inside functions or for type checking.

    Only what an ``__init__.py`` imports for type checking does not count: these are the public
    names, which are imported when they are used.
    """
    left = {
        name: _imports(path, for_types=path.name != "__init__.py") - {name}
        for name, path in _NAMES.items()
    }
    size = None
    while size != len(left):  # leave out what imports nothing that is left, or is not imported
        size = len(left)
        imported = set().union(*left.values())
        left = {
            name: found & left.keys()
            for name, found in left.items()
            if name in imported and found & left.keys()
        }

    assert not left, "these import each other"


def test_every_class_has_a_name_of_its_own() -> None:
    """No two classes of the package have the same name."""
    places: dict[str, list[str]] = {}
    for path in _MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(_name(path))

    assert not {name: modules for name, modules in places.items() if len(modules) > 1}


@pytest.mark.parametrize("path", [*_MODULES, *_TESTS], ids=lambda path: path.stem)
def test_functions_stay_small(path: Path) -> None:
    """No function has more than 60 lines without its docstring, and each test has a docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            documentation = ast.get_docstring(node, clean=False) or ""
            length = node.end_lineno - node.lineno + 1 - len(documentation.splitlines())

            assert length <= 60, f"{node.name} has {length} lines"
            assert documentation or not node.name.startswith("test_"), node.name


def _run(*words: str) -> str:
    """Return code that runs the command."""
    return (
        "import contextlib; from fastdecode.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({words!r})"
    )


@pytest.mark.parametrize(
    ("code", "kept_out"),
    [
        ("import fastdecode; fastdecode.FastDecodeError", "numpy PIL cv2 torch"),
        ("import fastdecode.native", "fastdecode.native._library"),
        (f"import fastdecode; fastdecode.decode_batch([{str(photo)!r}] * 3, size=8)", "torch"),
        (
            """import fastdecode.torch, sys
assert sum(name.startswith("fastdecode") for name in sys.modules) == 3
fastdecode.torch.transforms.Resize, fastdecode.torch.ImageFolder
assert "Loader" in dir(fastdecode.torch)""",
            "fastdecode.torch.loader fastdecode.gpu",
        ),
        (
            "from fastdecode.torch import limit_threads; limit_threads()",
            "cv2 fastdecode.torch.loader",
        ),
        (_run("--version"), "numpy fastdecode._backends.registry"),
        (_run("--help"), "numpy PIL torch fastdecode.measure fastdecode.packing"),
        (_run("check", "nothing-here"), "torch fastdecode.measure"),
    ],
    ids=str,
)
def test_nothing_is_loaded_that_is_not_used(code: str, kept_out: str) -> None:
    """The package, its modules and its commands import no library, and no module, without need."""
    if "fastdecode.torch" in code:
        pytest.importorskip("torch")
    told = f"import sys; print([n for n in {kept_out.split()!r} if n in sys.modules])"

    done = python("-c", f"{code}\n{told}")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_only_what_is_in_the_reference_is_public(path: Path) -> None:
    """A module has an `__all__` if the reference describes it; the names in it are sorted."""
    declared = re.search(r"^__all__ = (\[[^]]*\])", path.read_text(), re.MULTILINE)
    described = _name(path).removesuffix(".__init__") in _REFERENCE

    assert (declared is not None) == described
    if declared is not None:
        names = ast.literal_eval(declared[1])
        assert names == sorted(
            names, key=lambda name: (not name.isupper(), name[0].islower(), name)
        )
