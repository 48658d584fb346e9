"""``python -m fastdecode.bench``: what it measures, what it says, and how it ends."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image as PillowImage

import fastdecode
from fastdecode.bench import files
from fastdecode.bench.check import AUTOMATIC

QUICK = ("--seconds", "0")
NO_IMAGES = 2
INTERRUPTED = 130
TERMINAL = 80


def photo(width: int = 40, height: int = 30, kind: str = "JPEG", turn: int = 0) -> bytes:
    """Encode a picture whose three channels run in three directions."""
    ramp = PillowImage.linear_gradient("L")
    channels = [ramp.rotate(90 * (step + turn)) for step in range(3)]
    file = io.BytesIO()
    PillowImage.merge("RGB", channels).resize((width, height)).save(file, kind)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three JPEG files in two folders, beside files that are no images or hidden."""
    inner = tmp_path / "photos" / "inner"
    inner.mkdir(parents=True)
    for turn, place in enumerate((inner.parent, inner, inner)):
        (place / f"{turn}.jpg").write_bytes(photo(turn=turn))
    (inner / ".hidden.jpg").write_bytes(photo())
    (inner / "notes.txt").write_text("not an image")
    return inner.parent


def environment(**variables: str) -> dict[str, str]:
    """Return what a child process gets: 80 columns, and no preference among the backends."""
    kept = {name: value for name, value in os.environ.items() if "FASTDECODE" not in name}
    return {**kept, "COLUMNS": str(TERMINAL), **variables}


def bench(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fastdecode.bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment(**variables),
        timeout=300,
        check=False,
    )


def test_a_folder_is_measured(folder: Path) -> None:
    """Every image under the folder is decoded at every size, and the answer comes first."""
    done = bench(folder, *QUICK)

    assert done.returncode == 0, done.stderr
    assert "3 images" in done.stdout
    assert "Passed over, not images: 1 file" in done.stdout
    for size in ("full", "1/2", "1/4", "1/8"):
        assert f"{size} size, 3 files" in done.stdout
    text = done.stdout
    assert text.index("Fastest here at full size: ") < text.index("The pixels agree")
    assert text.index("The pixels agree") < text.index("backend ")
    assert re.search(r"^decode\(\) .* agree$", text, re.MULTILINE)


def test_samples_are_the_default() -> None:
    """Without a folder the photos of the package are measured."""
    done = bench("--backend", "pillow", "--reduce", "8", *QUICK)

    assert done.returncode == 0, done.stderr
    assert "6 images" in done.stdout
    assert "Passed over" not in done.stdout


def test_samples_have_a_licence() -> None:
    """Each sample photo is named in the licence file beside it, and all of them are small."""
    licence = (files.SAMPLES / "LICENSE.txt").read_text(encoding="utf-8")
    photos = sorted(files.SAMPLES.glob("*.jpg"))

    assert photos
    assert all(f"\n{path.name}\n" in licence for path in photos)
    assert sum(path.stat().st_size for path in photos) < 350_000


def test_only_what_was_asked_for(folder: Path) -> None:
    """``--backend``, ``--reduce`` and ``--limit`` leave the rest out."""
    done = bench(folder, "--backend", "pillow", "--reduce", "4,2", "--limit", 2, *QUICK)

    assert done.returncode == 0, done.stderr
    assert "2 images" in done.stdout
    assert "1/2 size, 2 files" in done.stdout
    assert "full size" not in done.stdout
    names = re.findall(r"^(\S+) .* agree$", done.stdout, re.MULTILINE)
    assert set(names) == {"pillow", AUTOMATIC}


def test_disabled_backends_are_left_out(folder: Path) -> None:
    """``FASTDECODE_DISABLE`` holds for the benchmark as it does for `decode`."""
    others = [info.name for info in fastdecode.backends() if info.name != "pillow"]
    done = bench(folder, "--reduce", 1, *QUICK, FASTDECODE_DISABLE=",".join(others))

    assert done.returncode == 0, done.stderr
    assert not [name for name in others if re.search(rf"^{name} ", done.stdout, re.MULTILINE)]


def test_formats_are_measured_apart(folder: Path) -> None:
    """PNG and JPEG have a table and an answer each: the fastest decoder may differ."""
    (folder / "a.png").write_bytes(photo(kind="PNG"))
    done = bench(folder, "--reduce", 1, *QUICK)

    assert done.returncode == 0, done.stderr
    assert "Fastest here for jpeg at full size" in done.stdout
    assert "Fastest here for png at full size" in done.stdout


def test_list_measures_nothing(folder: Path) -> None:
    """``--list`` names the images with their size, and ends."""
    done = bench(folder, "--list")

    assert done.returncode == 0, done.stderr
    assert "0.jpg" in done.stdout
    assert str(Path("inner", "1.jpg")) in done.stdout
    assert "40 x 30" in done.stdout
    assert done.stdout.endswith("3 images\n")


def test_damaged_files_are_listed(folder: Path) -> None:
    """A file without a header, and one that ends too soon, are named; the others are measured."""
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "half.jpg").write_bytes(photo(400, 300)[:2000])
    done = bench(folder, "--reduce", 1, *QUICK)

    assert done.returncode == 0, done.stderr
    assert "full size, 3 of 4 files" in done.stdout
    assert "Refused by all (1 file):\n  half.jpg: " in done.stdout
    assert "Unreadable (1 file):\n  empty.jpg: " in done.stdout


def test_nothing_decodes(folder: Path) -> None:
    """If no file at all can be decoded the status is 1, and the files are named."""
    half = folder / "half.jpg"
    half.write_bytes(photo(400, 300)[:2000])
    done = bench(half, "--reduce", 1)

    assert done.returncode == 1
    assert "Nothing was measured." in done.stdout
    assert "half.jpg" in done.stdout


def test_empty_folder(tmp_path: Path) -> None:
    """A folder without images is an error that says so."""
    done = bench(tmp_path)

    assert done.returncode == NO_IMAGES
    assert "no readable images" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reduce", "3"], "1, 2, 4 and 8"),
        (["--reduce", ","], "empty"),
        (["--backend", "nope"], "no backend is called 'nope'"),
        (["--limit", "0"], "positive"),
        (["--seconds", "-1"], "seconds"),
        (["--seconds", "nan"], "seconds"),
        (["--what"], "unrecognized"),
        (["no-such-folder"], "no file or folder"),
    ],
)
def test_bad_arguments(arguments: list[str], words: str) -> None:
    """A wrong argument ends with status 2 and says what is wrong."""
    done = bench(*arguments)

    assert done.returncode == NO_IMAGES
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_unusable_preference(folder: Path) -> None:
    """``FASTDECODE_BACKEND`` with a wrong name is an error before anything is measured."""
    done = bench(folder, FASTDECODE_BACKEND="nope")

    assert done.returncode == NO_IMAGES
    assert "FASTDECODE_BACKEND=nope" in done.stderr


def test_help_has_examples() -> None:
    """``--help`` shows how to call it, within 80 columns."""
    done = bench("--help")

    assert done.returncode == 0
    assert "python -m fastdecode.bench photos/" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_interrupt_prints_what_there_is(folder: Path) -> None:
    """Ctrl-C ends a long run with the figures so far and status 130."""
    arguments = [sys.executable, "-m", "fastdecode.bench", str(folder), "--seconds", "1000"]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(),
        # Where the tests themselves run in the background, children are born deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stderr is not None
        # The line comes after the first round.
        assert any(line.startswith("timing") for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)

    assert process.returncode == INTERRUPTED, errors
    assert "Interrupted" in output
    assert "full size, 3 files" in output
    assert "Traceback" not in errors


def test_output_fits_a_terminal(folder: Path) -> None:
    """No line is wider than 80 characters, long names and reasons included."""
    (folder / f"{'long-name-' * 20}.jpg").write_bytes(photo(400, 300)[:2000])
    (folder / f"{'long name ' * 20}.jpg").write_bytes(b"")
    done = bench(folder, *QUICK)

    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL


def test_memory_is_capped(folder: Path) -> None:
    """Files beyond the memory set aside are left out, and counted."""
    size = (folder / "0.jpg").stat().st_size
    collection = files.collect([folder], max_bytes=2 * size)

    assert collection.full
    assert sum(len(one.data) for one in collection.photos) <= 2 * size
    assert collection.photos
    assert collection.left_out > 0


def test_limit_is_drawn_the_same(folder: Path) -> None:
    """The same two of three files are drawn each time."""
    first, second = (files.collect([folder], limit=2).photos for _ in range(2))

    assert first == second
    assert len(first) == 2


def test_a_path_given_twice_counts_once(folder: Path) -> None:
    """A folder and a file in it give that file once."""
    collection = files.collect([folder, folder / "0.jpg"])

    assert len(collection.photos) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows allows no such names")
def test_names_are_printable(tmp_path: Path) -> None:
    """A file name cannot send the terminal commands, or break a line."""
    (tmp_path / "a\x1b[2J\nb.jpg").write_bytes(photo())
    names = [one.name for one in files.collect([tmp_path]).photos]

    assert names == ["a?[2J?b.jpg"]
