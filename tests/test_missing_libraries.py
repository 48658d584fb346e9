"""A library that is not there: one error class, with the line that installs it."""

from __future__ import annotations

from pathlib import Path

from processes import answers

_CODE = """
import importlib

def missing(name, work):
    sys.modules[name] = None
    try:
        work()
    except FastDecodeError as error:
        return [type(error).__name__, isinstance(error, ImportError), str(error)]
    finally:
        del sys.modules[name]

from fastdecode.stores import open_store

answers = {
    "torch": missing("torch", lambda: importlib.import_module("fastdecode.torch")),
    "ray": missing("ray", lambda: importlib.import_module("fastdecode.ray")),
    "batch": missing("torch", lambda: fastdecode.decode_batch([], device="cuda")),
    "lmdb": missing("lmdb", lambda: open_store("x.lmdb", "lmdb")),
    "hdf5": missing("h5py", lambda: open_store("x.h5", "hdf5")),
    "remote": missing("fsspec", lambda: open_store("s3://bucket/x.tar", "tar")),
}
"""


def test_importing_a_part_without_its_library_says_how_to_install_it(tmp_path: Path) -> None:
    """`fastdecode.torch`, `.ray`, a device, stores: a FastDecodeError and ImportError each."""
    told = answers(_CODE)

    for name, extra in {**{name: name for name in told}, "batch": "torch"}.items():
        kind, importing, words = told[name]

        assert (kind, importing) == ("BackendUnavailable", True), name
        assert f"pip install 'fastdecode[{extra}]'" in words.replace('"', "'"), name


def test_half_of_ray_data_is_named(tmp_path: Path) -> None:
    """Ray without pyarrow is told apart from no Ray at all."""
    (tmp_path / "ray.py").touch()
    told = answers(
        """
sys.modules["pyarrow"] = None
try:
    import fastdecode.ray
except FastDecodeError as error:
    answers["said"] = str(error)
""",
        tmp_path,
    )

    assert "of which pyarrow is not installed" in told["said"]
