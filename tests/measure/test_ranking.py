"""The ranking that ``--save`` makes from a result of the benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from results import result

from fastdecode import Ranking
from fastdecode.measure._ranking import make_ranking, merge_saved
from fastdecode.measure.result import AUTOMATIC, Measurement, Spread
from fastdecode.ranking import Cell


def measured(backend: str, ratio: float, protocol: Any = "decode", **more: Any) -> Measurement:
    """Return one measurement."""
    spread = Spread(ratio, ratio, ratio)
    values = {"format": "jpeg", "reduce": 1, **more}
    return Measurement(protocol, backend=backend, ratio=spread, images_per_s=spread, **values)


def test_the_protocols_are_contexts() -> None:
    """One thread, threads and loader give one order each; reading files gives none."""
    found = make_ranking(
        result(
            *(measured(name, ratio) for name, ratio in (("a", 0.5), ("b", 1.0), (AUTOMATIC, 1.0))),
            *(measured(name, 1.0, "file") for name in "ab"),
            *(measured(name, r, "threads", threads=2) for name, r in (("a", 0.8), ("b", 1.0))),
            *(measured(name, r, "threads", threads=4) for name, r in (("a", 1.0), ("b", 0.9))),
            *(measured(name, r, "loader", workers=2) for name, r in (("a", 1.0), ("b", 0.7))),
        )
    )

    assert found.orders == {
        Cell("jpeg", 1, None, "array", "one"): ("b", "a"),
        Cell("jpeg", 1, None, "array", "threads"): ("a", "b"),
        Cell("jpeg", 1, None, "array", "processes"): ("a", "b"),
    }
    assert found.speeds[Cell("jpeg", 1, None, "array", "one")] == {"b": 1.0, "a": 0.5}
    assert found.order("jpeg", 1, "huge", "array", "one") == ("b", "a")
    assert not found.stale()


def test_a_lead_that_may_be_chance_is_not_kept() -> None:
    """The default order stays where quartiles overlap, and changes where they do not."""
    default = measured("native", 1.0)
    near = replace(measured("simplejpeg", 1.04), ratio=Spread(1.04, 0.98, 1.1))
    ahead = replace(measured("pillow", 1.3), ratio=Spread(1.3, 1.2, 1.4))

    assert make_ranking(result(near, default)).order("jpeg", 1) == ("native", "simplejpeg")
    assert make_ranking(result(near, default, ahead)).order("jpeg", 1) == (
        "pillow",
        "native",
        "simplejpeg",
    )


@pytest.mark.parametrize(
    "more", [{"differing": ("x.jpg",)}, {"averaged": 3}, {"size": 224}], ids=str
)
def test_what_says_nothing_of_the_order_is_left_out(more: Any) -> None:
    """Wrong or averaged pixels, and times that are mostly resizing, give no order."""
    assert not make_ranking(result(measured("a", 1.0, **more), measured("b", 0.9))).orders


def test_other_formats_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds of work that were not measured keep their saved order."""
    monkeypatch.setenv("FASTDECODE_RANKING", str(tmp_path / "ranking.json"))
    new = make_ranking(result(measured("a", 1.0), measured("b", 0.9)))
    assert merge_saved(new) == new

    Ranking(
        {
            ("jpeg", 1, "small", "array", "one"): ("old",),
            ("jpeg", 1, "small", "array", "threads"): ("old",),
            ("jpeg", 8): ("old",),
            ("png", 1): ("old",),
        }
    ).save()

    both = merge_saved(new)
    assert both.order("jpeg", 1, "small") == ("a", "b")
    assert both.order("jpeg", 1, "small", context="threads") == ("old",)
    assert both.order("jpeg", 8) == both.order("png", 1) == ("old",)
