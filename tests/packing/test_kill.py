"""`pack` as a process that is killed, interrupted or out of space, and then resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packed import KINDS, make_source, name_of, sums

import fastdecode
from fastdecode.packing import pack

if os.name != "posix":
    pytest.skip("needs signals and limits", allow_module_level=True)

_ROOT = str(Path(fastdecode.__file__).parents[1])

# Every item is written down on its own. The process ends itself at a moment counted in `fsync`,
# before or after it: these are the moments on which going on depends.
_KILLED = """
import os, signal, sys
from fastdecode.packing import _pack, pack
_pack.EVERY_S = 0
left, after = int(sys.argv[3]), sys.argv[4] == "after"
whole = os.fsync
def fsync(handle):
    global left
    left -= 1
    if left == 0 and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(handle)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
pack(sys.argv[1], sys.argv[2], threads=2, max_side=32, skip_bad=True)
"""


def _run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": _ROOT},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("kind", "moment"), [*((kind, "after") for kind in KINDS), ("tar", "before")]
)
def test_it_goes_on_after_a_kill(tmp_path: Path, kind: str, moment: str) -> None:
    """A pack that is killed repeatedly makes the same bytes as an uninterrupted one."""
    name = name_of(kind)
    source = make_source(tmp_path / "source", damaged=True)
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
    pack(source, tmp_path / "whole" / name, max_side=32, skip_bad=True)
    kills = 0
    for _ in range(30):
        done = _run(_KILLED, source, tmp_path / "killed" / name, 11 if kills else 6, moment)
        if done.returncode != -signal.SIGKILL:
            break
        kills += 1

    # After the last kill everything may be at its place already.
    assert done.returncode == 0 or "packed already" in done.stderr, done.stderr
    assert kills >= 2
    assert sums(tmp_path / "killed") == sums(tmp_path / "whole")


def test_control_c(tmp_path: Path) -> None:
    """Ctrl-C ends with status 130 and says how to resume; no work is repeated."""
    source = make_source(tmp_path / "source")
    code = (
        "import os, signal, sys\n"
        "from fastdecode.cli import main\n"
        "from fastdecode.packing import _pack\n"
        "_pack.EVERY_S = 0\n"
        "take = _pack.Chunk.take\n"
        "def stopped(self, outcome):\n"
        "    take(self, outcome)\n"
        "    if outcome.key == 'cats/2.jpg':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "_pack.Chunk.take = stopped\n"
        "sys.exit(main(['pack', *sys.argv[1:]]))\n"
    )
    done = _run(code, source, tmp_path / "out.tar")

    assert done.returncode == 130
    assert "same command goes on" in done.stderr
    assert pack(source, tmp_path / "out.tar").resumed == 3


@pytest.mark.parametrize(("kind", "room"), [("tar", 8192), ("lmdb", 24_000), ("hdf5", 1_060_000)])
def test_a_full_disk(tmp_path: Path, kind: str, room: int) -> None:
    """A full disk ends with a clear error and status 1, and the pack can be resumed."""
    name = name_of(kind)
    if kind != "tar" and not hasattr(os, "posix_fallocate"):
        pytest.skip("room cannot be set aside here, and free room knows of no such limit")
    source = make_source(tmp_path / "source")
    code = (
        "import resource, signal, sys\n"
        "from fastdecode.cli import main\n"
        "from fastdecode.packing import _pack\n"
        "_pack.EVERY_S = 0\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))\n"
        "sys.exit(main(['pack', *sys.argv[1:]]))\n"
    )
    done = _run(code.replace("ROOM", str(room)), source, tmp_path / name)

    assert done.returncode == 1, done.stderr
    assert "with more room the same command goes on" in " ".join(done.stderr.split())
    assert not (tmp_path / name).exists()
    packed = pack(source, tmp_path / name)
    (tmp_path / "again").mkdir()
    pack(source, tmp_path / "again" / name)
    assert packed.items == 8
    assert packed.resumed > 0
    assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
