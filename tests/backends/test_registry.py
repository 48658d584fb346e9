"""The backends that exist: built in and registered, usable and not."""

from __future__ import annotations

import configparser
import importlib.metadata
import importlib.util
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from corpus import TESTS, usable_backends
from doubles import double, flat, own_registry, restore_registry  # noqa: F401
from processes import answers
from same import assert_raises, assert_same

from fastdecode import (
    Backend,
    BackendUnavailable,
    Support,
    backends,
    decode,
    decode_batch,
    register,
    stats,
    use,
)
from fastdecode._backends import registry
from fastdecode.testing import drawing, encode

HERE = TESTS
PNG = encode(drawing(13, 7), "png")
LIBRARIES = {
    "simplejpeg": "simplejpeg", "opencv": "cv2", "turbojpeg": "turbojpeg", "jpeg4py": "jpeg4py",
    "imagecodecs": "imagecodecs", "tifffile": "imagecodecs", "torchvision": "torchvision",
    "torchcodec": "torchcodec", "kornia_rs": "kornia_rs", "pillow_heif": "pillow_heif",
    "nvimgcodec": "nvidia.nvimgcodec", "dali": "nvidia.dali",
}  # fmt: skip
own = pytest.mark.usefixtures("own_registry")


@pytest.fixture(scope="module")
def without_libraries() -> dict[str, Any]:
    """Return the answers of a process without all libraries but Pillow, and a broken OpenCV."""
    return answers(
        f"""
import importlib

class Broken:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "cv2":
            raise RuntimeError("libGL.so.1: cannot open shared object file")
sys.meta_path.insert(0, Broken)
parts = ["torch", "ray", "lmdb", "h5py", "fsspec"]
sys.modules.update(dict.fromkeys(parts + {[lib for lib in LIBRARIES.values() if lib != "cv2"]}))
answers["decoded"] = call(decode, encode(image, "png")) == __import__("numpy").array(image).tolist()
for name in {list(LIBRARIES)}:
    answers[name] = call(decode, encode(image), backend=name)
answers["infos"] = {{info.name: vars(info) for info in backends()}}

def missing(work, *arguments):
    try:
        work(*arguments)
    except FastDecodeError as error:
        return [type(error).__name__, isinstance(error, ImportError), str(error)]

from fastdecode.stores import open_store
answers["parts"] = {{
    "torch": missing(importlib.import_module, "fastdecode.torch"),
    "ray": missing(importlib.import_module, "fastdecode.ray"),
    "lmdb": missing(open_store, "x.lmdb", "lmdb"),
    "hdf5": missing(open_store, "x.h5", "hdf5"),
    "remote": missing(open_store, "s3://bucket/x.tar", "tar"),
}}
"""
    )


def test_every_backend_but_two_needs_a_library() -> None:
    """The tests of missing libraries know each backend but Pillow's and the core."""
    assert LIBRARIES.keys() == registry.BUILTIN.keys() - {"pillow", "native"}


@pytest.mark.parametrize("name", LIBRARIES)
def test_missing_library_is_named_with_the_line_that_installs_it(
    without_libraries: dict[str, Any], name: str
) -> None:
    """The error has the reason, the install command and the usable backends."""
    info = without_libraries["infos"][name]
    kind, message = without_libraries[name]
    line = registry.pip_install(f"fastdecode[{name}]")
    # Without PyTorch itself it is PyTorch that these miss first; and NVIDIA's share a parent.
    library = {"torchvision": "torch", "torchcodec": "torch"}.get(name, LIBRARIES[name])
    library = library.partition(".")[0]
    reason = "libGL.so.1" if name == "opencv" else f"the Python package '{library}"

    assert kind == "BackendUnavailable"
    for words in (name, reason, line, "Usable here: pillow"):
        assert words in message
    assert (info["usable"], info["install"]) == (False, line)
    assert reason in info["reason"]
    assert info["formats"] == registry.BUILTIN[name].formats.split()
    assert without_libraries["decoded"] is True


@own
@pytest.mark.parametrize("taken", ["pillow", "mine"])
def test_name_that_is_taken_needs_replace(taken: str) -> None:
    """Registering a name again is an error without replace=True."""
    register("mine", double(flat(1)))

    with pytest.raises(ValueError, match=taken):
        register(taken, double(flat(2)))
    register(taken, double(flat(3)), replace=True)

    assert_same(decode(PNG, backend=taken), 3)


WRONG = {
    "no name": (TypeError, None, "json:JSONDecoder"),
    "name of bytes": (TypeError, b"mine", "json:JSONDecoder"),
    "no class named": (ValueError, "mine", "json"),
    "nothing behind the colon": (ValueError, "mine", "json:"),
    "no module": (ValueError, "mine", ":Class"),
    "no target": (TypeError, "mine", None),
    "instance": (TypeError, "mine", double(flat())()),
    # It could not stand in an environment variable's list, or after pip's bracket.
    **{
        f"name {name!r}": (ValueError, name, "json:JSONDecoder")
        for name in ("", "my backend", "2fast", "a-b", "a.b", "a,b")
    },
}


@own
def test_what_can_be_no_backend_is_refused_at_once() -> None:
    """A name, target or `Support` of a wrong type is an error at once, not of a later `decode`."""
    for of, (kind, name, target) in WRONG.items():
        assert_raises(kind, "backend", partial(register, name, target), of)
        assert name not in registry.names()
    nothing = ({"layouts": "RGB"}, {"layouts": {"rgb"}}, {"reduces": {3}}, {"colors": {"YCC"}})
    for declared in nothing:  # such a backend would never be asked
        assert_raises(ValueError, next(iter(declared)), partial(Support, **declared), declared)


@own
def test_registered_by_words_is_imported_on_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target "module:Class" is imported when it is first used."""
    (tmp_path / "late_double.py").write_text("from doubles import *\nLate = double(flat(5))\n")
    monkeypatch.syspath_prepend(tmp_path)
    register("late", "late_double:Late")

    assert "late_double" not in sys.modules
    assert_same(decode(PNG, backend="late"), 5)
    assert "late_double" in sys.modules
    del sys.modules["late_double"]


class Undeclared(Backend):
    """A test double that declares nothing."""

    def decode(self, data: Any, header: Any, **asked: Any) -> Any:
        raise NotImplementedError


class Unfinished(Backend):
    """A test double without its method."""

    supports = {}


class Misspelt(Undeclared):
    """A test double that declares a suffix instead of a format."""

    supports = {"jpg": (Support(),)}


UNUSABLE = {
    "no such module": "no_such_module:Thing",
    "no such class": "json:Thing",
    "not a backend": "json:JSONDecoder",
    "raises": lambda: 1 / 0,
    "ends the program": lambda: sys.exit("no licence"),
    "unfinished": Unfinished,
    "undeclared": Undeclared,
    "misspelt": Misspelt,
}


@own
@pytest.mark.parametrize("target", UNUSABLE.values(), ids=UNUSABLE)
def test_what_is_no_backend_is_reported_and_breaks_nothing(target: Any) -> None:
    """An invalid backend is listed with a reason, and does not affect the others."""
    register("bad", target, distribution="bad-plugin")
    register("good", double(flat(3)))
    info = next(info for info in backends() if info.name == "bad")

    assert not info.usable
    assert info.reason
    assert_same(decode(PNG), 3)
    with pytest.raises(BackendUnavailable, match="'bad'") as caught:
        decode(PNG, backend="bad")
    assert "pip install bad-plugin" in str(caught.value)


@own
def test_a_backend_is_constructed_once_and_need_not_speak_of_itself() -> None:
    """Once per process, even if many threads ask; one that fails to tell its version is listed."""
    made, start = [], threading.Barrier(8)

    class Mute(double(flat())):
        """A test double that raises errors when asked about itself."""

        def version(self) -> str:
            raise RuntimeError("no idea")

        codec = version

    def construct() -> Backend:
        made.append(Mute())
        return made[-1]

    def load(_: int) -> Backend:
        start.wait()
        return registry.load("mute")

    register("mute", construct)
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(load, range(8)))
    info = next(info for info in backends() if info.name == "mute")

    assert loaded == made * 8
    assert info.usable
    assert "unknown" in info.version
    assert "unknown" in info.codec


def test_threads_decode_while_others_choose_and_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads that also change the preference, register and count, the pixels are right."""
    restore_registry(monkeypatch)
    files = [encode(drawing(61, 43), kind) for kind in ("jpeg", "png", "webp")]
    files.append(files[0][:-2] + b"\x11" * 40 + files[0][-2:])  # which the core leaves to others
    wanted: list[dict[str, Any]] = [{}, {"reduce": 2}, {"mode": "L"}, {"region": (3, 2, 30, 20)}]
    whole = [[decode(data, **options).tobytes() for options in wanted] for data in files]

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(100):
            file, option = draw.randrange(len(files)), draw.randrange(len(wanted))
            if draw.random() < 0.1:
                register("mine", "fastdecode._backends.pillow:Pillow", replace=True)
            with use("pillow") if draw.random() < 0.3 else nullcontext():
                image = decode(files[file], **wanted[option])
                assert_same(image.tobytes(), whole[file][option], (file, option))
            (many,) = {image.tobytes() for image in decode_batch([files[file]] * 3, threads=2)}
            assert many == whole[file][0]
            stats()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("name", usable_backends())
def test_table_says_what_the_backend_declares(name: str) -> None:
    """The formats in the table, which needs no library, are those of `supports`."""
    entry, supports = registry.BUILTIN[name], registry.load(name).supports
    assert set(entry.formats.split()) == set(supports)
    assert registry.load(name) is registry.load(name)


@pytest.mark.parametrize("name", registry.BUILTIN)
def test_name_is_also_that_of_the_file_and_the_extra(name: str) -> None:
    """A backend, its module and its extra have the same name; two are always installed."""
    module = str(registry.BUILTIN[name].target).partition(":")[0]
    setup = configparser.ConfigParser()
    setup.read(HERE.parent / "setup.cfg")

    assert module == f"fastdecode._backends.{name}"
    assert importlib.util.find_spec(module)
    assert name in setup["options.extras_require"] or name in ("native", "pillow")
    assert "pip install " in registry.install_line(name)


@pytest.mark.parametrize(
    ("torch", "kept"),
    [
        (None, ""),
        ("2.14.1", " torch==2.14.1"),
        ("2.13.0+cpu", " torch==2.13.0+cpu  # on torch's index"),
    ],
)
def test_advice_keeps_the_torch_that_is_there(
    monkeypatch: pytest.MonkeyPatch, torch: str | None, kept: str
) -> None:
    """What fits one PyTorch alone is installed for that which is there; the rest as always."""

    def version(name: str) -> str:
        if name != "torch" or torch is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return torch

    monkeypatch.setattr(importlib.metadata, "version", version)

    for name in ("torchvision", "torchcodec"):
        assert registry.install_line(name) == f"pip install 'fastdecode[{name}]'{kept}"
    assert registry.pip_install("timm") == f"pip install timm{kept}"
    for name in ("opencv", "dali", "tifffile"):
        assert registry.install_line(name) == f"pip install 'fastdecode[{name}]'"


def test_importing_a_part_without_its_library_says_how_to_install_it(
    without_libraries: dict[str, Any],
) -> None:
    """A module without its library raises a FastDecodeError with an install command."""
    for name, (kind, importing, words) in without_libraries["parts"].items():
        assert (kind, importing) == ("BackendUnavailable", True), name
        assert f"pip install 'fastdecode[{name}]'" in words.replace('"', "'"), name
