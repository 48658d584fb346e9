"""The README says what the package does today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import TESTS, usable_backends
from processes import answers

from fastdecode import probe, reduce_for, registry

_ROOT = TESTS.parent
_TEXT = (_ROOT / "README.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```python\n(.*?)^```$", _TEXT, re.DOTALL | re.MULTILINE)
_SAMPLE = _ROOT / "fastdecode" / "samples" / "casa-mila.jpg"


def _check_readme() -> subprocess.CompletedProcess[str]:
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, str(_ROOT / "bench" / "readme.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_the_tables_are_those_of_the_declarations_and_results() -> None:
    """The matrix and the figures are what bench/readme.py would write now."""
    pytest.importorskip("jinja2", reason="it draws the chart")
    done = _check_readme()

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "ending"), [("bench", ".venv/bin/fastdecode bench"), ("test", "-m pytest -n 2")]
)
def test_each_command_stands_alone_behind_its_mark(name: str, ending: str) -> None:
    """Each of the two commands is one line of shell that begins with its own environment."""
    found = re.findall(rf"^<!-- command: {name} -->\n```sh\n(.*?)\n```$", _TEXT, re.MULTILINE)

    assert len(found) == 1
    assert found[0].startswith("python3 -m venv ")
    assert found[0].endswith(ending)


# A stand-in for the reader's own library, which the README's example of a backend wraps.
_MYLIB = """
import io
import numpy
import PIL.Image

def read(data, gray):
    return numpy.array(PIL.Image.open(io.BytesIO(data)).convert("L" if gray else "RGB"))
"""


@pytest.mark.parametrize("block", _BLOCKS, ids=range(len(_BLOCKS)))
def test_every_example_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example runs in a process of its own, given `data` and `paths`, and no other name."""
    if "calibrate(" in block:
        compile(block, "README.md", "exec")
        pytest.skip("it measures for minutes; the tests of calibration run it on less")
    if "device=" in block:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            block = block.replace('device="cuda"', 'device="cpu"')
    named = {*re.findall(r'(?:use\(|backend=)"(\w+)"', block)} & {*registry.BUILTIN}
    if missing := sorted(named - {*usable_backends()}):
        pytest.skip(f"it names {', '.join(missing)}, which cannot be used here")
    (tmp_path / "mylib.py").write_text(_MYLIB)
    monkeypatch.chdir(tmp_path)  # whatever it saves

    given = answers(
        f"""
data = open({str(_SAMPLE)!r}, "rb").read()
names = dict(data=data, paths=[{str(_SAMPLE)!r}], __name__="readme")
exec(compile({block!r}, "README.md", "exec"), names)
if "image" in names:
    answers["image"] = names["image"].shape
if "Mine" in names:
    fastdecode.register("mine", names["Mine"])
    answers["mine"] = said(decode, encode(image, "png"), backend="mine")
    answers["expected"] = said(decode, encode(image, "png"))
if "TestMine" in names:
    answers["tests"] = [name for name in dir(names["TestMine"]) if name.startswith("test_")]
""",
        tmp_path,
    )

    header = probe(_SAMPLE.read_bytes())
    assert given.get("image", [header.height, header.width, 3]) == [header.height, header.width, 3]
    assert given.get("mine") == given.get("expected")
    assert given.get("tests", ["some"])


def test_the_first_example_runs() -> None:
    """The first example gives images of the sizes that it promises."""
    data = _SAMPLE.read_bytes()
    header = probe(data)
    names: dict[str, Any] = {"data": data, "paths": [_SAMPLE, str(_SAMPLE)]}

    exec(compile(_BLOCKS[0], "README.md", "exec"), names)

    height, width = header.height, header.width
    least = reduce_for(header, 224)
    assert names["image"].shape == (height, width, 3)
    assert names["image"].dtype == np.uint8
    assert names["quarter"].shape == (-(-height // 4), -(-width // 4), 3)
    assert names["small"].shape == (-(-height // least), -(-width // least), 3)
    assert [image.shape for image in names["images"]] == [names["quarter"].shape] * 2
