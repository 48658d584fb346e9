"""The benchmark's check: wrong pixels are flagged, and crashes do not end the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benches import make_photos, photo
from doubles import restore_registry

import fastdecode
from fastdecode import registry
from fastdecode.cli import main
from fastdecode.measure import _collection as files
from fastdecode.measure import _run as run
from fastdecode.measure._check import Finding, examine, reference_digest
from fastdecode.measure._run import Plan
from fastdecode.measure._samples import comparable_files
from fastdecode.measure.result import AUTOMATIC, from_json

if TYPE_CHECKING:
    from fastdecode.measure.result import Measurement, Result

WRONG = ("swapped", "fullsize", "shifted", "smaller", "broken", "crashing", "unstable")
FILES = {"0.jpg", str(Path("inner", "1.jpg")), str(Path("inner", "2.jpg"))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create three JPEGs in two folders, next to hidden files and files that are not images."""
    return make_photos(tmp_path)


@pytest.fixture(autouse=True)
def _wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the wrong backends for one test."""
    restore_registry(monkeypatch)
    for name in WRONG:
        fastdecode.register(name, f"doubles:{name.title()}")


def bench(folder: Path, *arguments: str, status: int = 0) -> Result:
    """Run the command in this process, where the wrong backends are registered."""
    kept = folder.parent / "result.json"
    asked = [str(folder), "--seconds", "0", "--json", str(kept), *arguments]

    assert main(["bench", *asked]) == status

    return from_json(kept.read_text(encoding="utf-8"))


def by_name(result: Result, reduce: int = 1) -> dict[str, Measurement]:
    """Return the measurements of one size."""
    return {one.backend: one for one in result.measurements if one.reduce == reduce}


def test_wrong_pixels_are_flagged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Swapped channels and a shifted row are called different; a missing row is a refusal."""
    names = "swapped,shifted,smaller,pillow"
    result = bench(folder, "--backend", names, "--reduce", "1,2", "--protocol", "decode")
    output = capsys.readouterr().out

    for reduce in (1, 2):
        found = by_name(result, reduce)
        for name in ("swapped", "shifted"):
            assert set(found[name].differing) == FILES
            assert 0 < found[name].max_difference <= 255
            assert not found[name].refused
        assert set(found["smaller"].refused) == FILES
        for name in ("pillow", AUTOMATIC):
            assert not found[name].differing
            assert found[name].max_difference == 0
    assert "differ" in " ".join(result.answer).lower()
    assert "swapped" in output


def test_wrong_pixels_are_flagged_when_averaged(folder: Path) -> None:
    """Averaged values, which differ by design, are told from wrong ones."""
    names = "fullsize,pillow"
    result = bench(folder, "--backend", names, "--reduce", "2", "--protocol", "decode")
    found = by_name(result, 2)

    assert set(found["fullsize"].differing) == FILES
    assert found["fullsize"].averaged == 3
    assert found["pillow"].ratio.median == 1


def test_wrong_pixels_are_not_the_best(folder: Path) -> None:
    """Ratios are to a backend with right pixels, even if a wrong one is faster."""
    result = bench(folder, "--backend", "swapped,pillow", "--reduce", "1", "--protocol", "decode")

    assert by_name(result)["pillow"].ratio.median == 1


def test_a_broken_backend_ends_nothing(folder: Path) -> None:
    """A backend that refuses every file is not timed, and the others are."""
    result = bench(folder, "--backend", "broken,pillow", "--reduce", "1", "--protocol", "decode")
    found = by_name(result)

    assert found["pillow"].files == 3
    assert found["broken"].files == 0
    assert found["broken"].images_per_s.median == 0
    assert found["broken"].latency_ms == ()
    assert set(found["broken"].refused) == FILES
    assert "out of order" in found["broken"].refused["0.jpg"]


@pytest.mark.parametrize("protocol", ["decode", "threads", "file"])
def test_a_crash_ends_nothing(folder: Path, protocol: str) -> None:
    """A backend that crashes its process is reported as refusing."""
    result = bench(
        folder, "--backend", "crashing,unstable,pillow", "--reduce", "1",
        "--protocol", protocol, *(["--threads", "2"] if protocol == "threads" else []),
    )  # fmt: skip
    found = by_name(result)

    for name in ("crashing", "unstable"):
        assert set(found[name].refused) == FILES
        assert "died" in found[name].refused["0.jpg"]
        assert found[name].files == 0
    assert found["pillow"].files == found[AUTOMATIC].files == 3
    assert found["pillow"].ratio.median == 1


def test_only_the_crashing_is_asked_for(folder: Path) -> None:
    """If only the automatic choice is left, it is measured."""
    result = bench(folder, "--backend", "crashing", "--reduce", "1", "--protocol", "decode")

    assert by_name(result)[AUTOMATIC].ratio.median == 1


def test_averaged_is_not_differing(folder: Path) -> None:
    """Averaged full-size pixels are not those of a reduced DCT, and nobody says they should be."""
    fastdecode.register("averaging", "doubles:Averaging")
    result = bench(folder, "--backend", "averaging,pillow", "--reduce", "2", "--protocol", "decode")
    one = by_name(result, 2)["averaging"]

    assert one.averaged == 3
    assert one.max_difference > 0
    assert not one.differing


def test_fallbacks_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the first choice refuses and another decodes counts as a fallback."""
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(set(registry.BUILTIN) - {"pillow"}))
    ranking = fastdecode.Ranking({("jpeg", 1): ("broken", "pillow")})
    ranking.save(folder.parent / "ranking.json")
    monkeypatch.setenv("FASTDECODE_RANKING", str(folder.parent / "ranking.json"))
    result = bench(folder, "--backend", "pillow", "--reduce", "1", "--protocol", "decode")
    one = by_name(result)[AUTOMATIC]

    assert one.fallbacks == 3
    assert one.chosen == "broken"
    assert not one.refused


def test_one_file(tmp_path: Path) -> None:
    """What one file comes to: the same pixels, others by so much, or a reason."""
    path = tmp_path / "a.jpg"
    path.write_bytes(photo())
    [one] = files.collect([path]).photos
    right = reference_digest(path.read_bytes(), 1)

    assert examine(one, 1, "pillow", right) == Finding()
    assert examine(one, 1, "swapped", right).differs
    assert examine(one, 1, "swapped", None) == Finding()
    assert "ValueError: out of order" in examine(one, 1, "broken", right).refused
    path.unlink()
    assert "FileNotFoundError" in examine(one, 1, "pillow", right).refused
    assert reference_digest(b"no image", 1) is None


def test_common_files() -> None:
    """All are compared on the files that all read; one that reads hardly any is left out."""
    read = {"most": {0, 1, 2}, "all": {0, 1, 2, 3}, "few": {3}}

    assert comparable_files(read) == (("most", "all"), (0, 1, 2))
    assert comparable_files({"all": {0, 1, 2}, "most": {0, 1}, "one": {2}, "none": set()})[1] == (
        0,
        1,
    )
    assert comparable_files({"none": set()}) == ((), ())


def test_interrupted_group_is_kept(folder: Path) -> None:
    """Whole rounds that were measured before an interruption stay in the results."""
    found = run.Run()
    plan = Plan(("pillow",), (1, 2), 9)

    def interrupt(what: str, share: float) -> None:
        if what.startswith("timing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.measure(files.collect([folder]).photos, plan, found, interrupt)

    assert [len(case.rounds) for case in found.cases] == [1]
    assert {one.backend for one in found.measurements()} == {"pillow", AUTOMATIC}
    assert all(one.files == 3 for one in found.measurements())


def test_every_file_is_timed(folder: Path) -> None:
    """However short the time, each file is timed at least three times; progress ends at 1."""
    found = run.Run()
    shares: list[float] = []
    photos = files.collect([folder]).photos
    plan = Plan(("pillow",), (1,), 0)
    run.measure(photos, plan, found, lambda what, share: shares.append(share))
    visits = [index for one in found.cases[0].rounds for index in one.block]

    assert {index: visits.count(index) >= 3 for index in visits} == dict.fromkeys(range(3), True)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
