"""Tests of `pack` under kills, Ctrl-C, a second process at the same place, and a full disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from packed import KINDS, make_source, name_of
from processes import python

import fastdecode
from fastdecode.packing import pack

if os.name != "posix":
    pytest.skip("needs signals and limits", allow_module_level=True)

PLACES = {**{kind: (kind, None) for kind in KINDS}, "shards": ("tar", 16_000)}
"""The kind and the size of shards, by the id of a test."""

_FORKS = """
import os, signal, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from pathlib import Path
from packed import checksums
from fastdecode.packing import pack

source, folder, whole, name, size = sys.argv[2:7]
expected = checksums(Path(whole))

def packing(threads=2):
    child = os.fork()  # so that a kill at any moment costs no import
    if not child:
        status = 1
        try:
            options = {"max_side": 32, "skip_bad": True, "shard_size": int(size) or None}
            pack(source, Path(folder, name), threads=threads, **options)
            status = 0
        except (ValueError, OSError) as error:
            os.write(1, f"{type(error).__name__} {error}\\n".encode())
            status = 3
        finally:
            os._exit(status)
    return child

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def check():
    # Each file under its final name is complete and right, at any moment. Without shards, a pack
    # that ends behind the renaming has made the store, but not the manifest.
    found = {
        name: sum_ for name, sum_ in checksums(Path(folder)).items() if not name.startswith(".")
    }
    assert found.items() <= expected.items(), sorted(found.items() ^ expected.items())
    return found == expected or (size == "0" and name in {each.partition("/")[0] for each in found})

def clear():
    for path in sorted(Path(folder).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
"""


def _run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-c", code, *arguments, PYTHONPATH=str(Path(fastdecode.__file__).parents[1]))


def _fork(code: str, folder: Path, place: str) -> str:
    """Run code after `_FORKS`, next to a pack that nothing has interrupted; return its output."""
    kind, size = PLACES[place]
    name = name_of(kind)
    source = make_source(folder / "source", damaged=True)
    for part in ("whole", "killed"):
        (folder / part).mkdir()
    pack(source, folder / "whole" / name, max_side=32, skip_bad=True, shard_size=size)
    places = Path(fastdecode.__file__).parents[1], Path(__file__).parents[1] / "support"
    imports = os.pathsep.join(map(str, places))
    done = _run(
        _FORKS + code, imports, source, folder / "killed", folder / "whole", name, size or 0
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("place", ["folder", "tar", "shards"])
def test_kill_at_every_step(tmp_path: Path, place: str) -> None:
    """A pack that is killed before any fsync or renaming is finished by the next one.

    Whatever has its final name is complete, and the result is that of a pack without a kill.
    """
    code = """
steps = 0
for kept in ("fsync", "replace"):
    def wrapped(*arguments, real=getattr(os, kept), **options):
        global steps
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(os, kept, wrapped)
number, killed = 0, True
while killed:
    number += 1
    steps = number
    killed = ended(packing()) == -signal.SIGKILL
    check()
    if killed:
        steps = -1
        assert ended(packing()) == 0 or check()
    assert check()
    clear()
print(number)
"""
    assert int(_fork(code, tmp_path, place).split()[-1]) >= 4


@pytest.mark.parametrize("place", ["folder", "shards"])
def test_two_packs_at_once(tmp_path: Path, place: str) -> None:
    """Of several packs to one place, one at most makes its result; the others end with an error."""
    code = """
for attempt in range(3):
    statuses = [ended(child) for child in [packing(1), packing(2), packing(2)]]
    assert statuses.count(0) <= 1 and set(statuses) <= {0, 3}, statuses
    check()
    assert 0 in statuses or ended(packing()) == 0 and check()
    clear()
"""
    said = _fork(code, tmp_path, place)
    assert {line.split()[0] for line in said.splitlines()} == {"FileExistsError"}


def test_control_c(tmp_path: Path) -> None:
    """After Ctrl-C the command returns 130, says how to go on, and keeps complete shards."""
    source = make_source(tmp_path / "source")
    code = (
        "import os, signal, sys\n"
        "from fastdecode.cli import main\n"
        "from fastdecode.packing._rewrite import Work\n"
        "work = Work.__call__\n"
        "def stopped(self, index):\n"
        "    if index == 5:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return work(self, index)\n"
        "Work.__call__ = stopped\n"
        "sys.exit(main(['pack', '--threads', '1', *sys.argv[1:]]))\n"
    )
    for name, options, words in [
        ("out.tar", ["--shard-size", "8kB"], "goes on after the last complete shard"),
        ("out", [], "nothing is written"),
    ]:
        done = _run(code, source, tmp_path / name, *options)
        assert done.returncode == 130, done.stderr
        assert words in " ".join(done.stderr.split())

    assert 0 < pack(source, tmp_path / "out.tar", shard_size=8000).resumed <= 5
    assert pack(source, tmp_path / "out").resumed == 0


@pytest.mark.parametrize(("place", "room"), [("tar", 8192), ("shards", 2000), ("lmdb", 24_000)])
def test_a_full_disk(tmp_path: Path, place: str, room: int) -> None:
    """On a full disk the command returns 1 with a clear error, and leaves nothing unfinished."""
    kind, size = PLACES[place]
    name = name_of(kind)
    source = make_source(tmp_path / "source")
    code = (
        "import resource, signal, sys\n"
        "from fastdecode.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, resource.RLIM_INFINITY))\n"
        "sys.exit(main(['pack', *sys.argv[1:]]))\n"
    )
    options = ["--shard-size", f"{size}B"] if size else []
    done = _run(code, source, tmp_path / name, *options)

    assert done.returncode == 1, done.stderr
    assert name in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "source"] == []
    assert pack(source, tmp_path / name, shard_size=size).items == 8
