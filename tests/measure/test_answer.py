"""The answer that ends a report: the facts that it gives, in any words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import results
from results import automatic, measurement, says

from fastdecode.measure import _report as report
from fastdecode.measure.result import Result

Ask: TypeAlias = "Callable[..., str]"


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Print the report of a result or of measurements, and return its last part."""

    def ask(*given: Any) -> str:
        one = given[0] if isinstance(given[0], Result) else results.result(*given)
        report.show_result(one)
        return " ".join(capsys.readouterr().out.strip().rpartition("\n\n")[2].split())

    return ask


def test_the_answer_of_a_whole_run(answer: Ask) -> None:
    """The answer names the fastest, decode()'s choice, the counts, the bottleneck, wrong pixels."""
    text = answer(results.full())

    assert says(text, "JPEG", "full size", "simplejpeg", "200 images/s", "turbojpeg", "3%", "3%")
    assert says(text, "4 threads", "enough", "653 images/s", "5%")
    assert says(text, "4 DataLoader workers", "enough", "653 images/s", "5%")
    assert says(text, "Reading", "cache", "4%", "decoding is the bottleneck")
    assert says(text, "DIFFER", "swapped")
    assert text.index("simplejpeg") < text.index("4 threads") < text.index("Reading")


def test_the_gain_over_pillow_comes_first(answer: Ask) -> None:
    """The answer says how many times as fast as Pillow files decode and become batches."""
    text = answer(results.full())

    assert text.startswith("On your 40 JPEG images")
    assert says(text, "decodes", "1.7x", "Pillow", "training batches", "4.0x", "DataLoader")
    assert says(text, "Faster still", "native", "apt-get install gcc && pip install fastdecode")


def test_the_gain_is_of_what_was_measured(answer: Ask) -> None:
    """Without Pillow there is no gain; the answer says which files or batches were measured."""
    collection = replace(results.result().collection, formats={"jpeg": 80}, samples=True)
    trained = results.training()

    assert "Pillow" not in answer(measurement("opencv", 100.0), automatic(98.0, best=100.0))
    assert "batches" not in answer(measurement(), automatic(300.0), trained[0], *trained[3:])
    assert answer(results.result(*trained, collection=collection)).startswith(
        "On 40 of the package's 80 photos fastdecode with its Loader makes training batches 4.0x as"
    )


def test_doubt_stands_beside_the_gain(answer: Ask) -> None:
    """A busy machine, or a difference within the spread, is mentioned in the same sentence."""
    found = [measurement("pillow", 100.0, best=109.0), automatic(109.0)]
    wide = [replace(one, ratio=results.spread(one.ratio.median, 0.2)) for one in found]
    machine = replace(results.MACHINE, load=9.0)

    assert says(answer(*found), "1.09x", "as fast as Pillow.")
    assert says(answer(*wide), "1.09x", "as fast as Pillow, which is within the spread.")
    assert (
        "(the machine was busy, load 9.00 on 4 cores"
        in answer(results.result(*found, machine=machine)).partition(".\n")[0]
    )
    assert says(answer(found[0], automatic(101.0, best=109.0)), "decodes as fast as Pillow")


def test_a_faster_choice_is_told_with_its_measured_gain(answer: Ask) -> None:
    """If decode() is clearly not the fastest, the answer names the option that helps."""
    slow = measurement("pillow", 80.0, best=100.0)
    text = answer(measurement("opencv", 100.0), slow, automatic(80.0, best=100.0, chosen="pillow"))

    assert says(text, "Faster still", "opencv", "pillow", "--save", "+25%")


def test_wrong_pixels_are_never_the_fastest(answer: Ask) -> None:
    """A backend with wrong pixels is not named as the fastest, or as close to it."""
    wrong = measurement("swapped", 150.0, best=100.0, differing=("a.jpg",))
    close = measurement("shifted", 99.0, best=100.0, differing=("a.jpg",))

    text = answer(wrong, close, measurement("pillow", 100.0))
    fastest, _, rest = text.partition("DIFFER")

    assert says(fastest, "Fastest", "full size", "pillow", "100 images/s")
    assert "swapped" not in fastest
    assert "shifted" not in fastest
    assert says(rest, "swapped", "shifted")


def test_the_choice_may_be_another(answer: Ask) -> None:
    """If decode() does not choose the fastest, the answer says what that costs."""
    text = answer(measurement("pillow", 100.0), automatic(88.0, best=100.0, chosen="opencv"))

    assert says(text, "pillow", "decode()", "opencv", "88%")


def test_the_choice_may_not_be_among_those_asked_for(answer: Ask) -> None:
    """With ``--backend pillow``, decode() may be faster than the fastest named backend."""
    text = answer(measurement("pillow", 100.0), automatic(400.0, best=100.0, chosen="native"))

    assert says(text, "pillow", "decode()", "native", "4.0x as fast")
    assert "within" not in text


def test_shares_are_of_the_fastest(answer: Ask) -> None:
    """Shares refer to the fastest backend, even if ratios refer to another one."""
    found = [
        measurement("turbojpeg", 100.0),
        measurement("simplejpeg", 103.0, best=100.0),
        measurement("opencv", 99.0, best=100.0),
    ]

    text = answer(*found, automatic(95.0, best=100.0))
    same = answer(*found, automatic(104.0, best=100.0))

    assert says(text, "simplejpeg", "103 images/s", "turbojpeg", "3%", "decode()", "92%")
    assert "opencv" not in text
    assert says(same, "decode()", "within 3%")
    assert "101%" not in same


def test_the_commonest_format_at_the_smallest_reduction_speaks(answer: Ask) -> None:
    """The answer covers the most frequent format at full size; tables have the rest."""
    png = measurement("opencv", 300.0, format="png")
    small = measurement("opencv", 900.0, reduce=8)

    text = answer(png, small, measurement("pillow", 70.0, reduce=2))

    assert says(text, "JPEG", "1/2 size", "pillow", "70.0 images/s")
    assert "opencv" not in text


@pytest.mark.parametrize(
    ("speeds", "least", "most"),
    [
        ({1: 100.0, 2: 190.0, 4: 201.0}, "4 threads", True),
        ({1: 100.0, 2: 190.0, 4: 200.0}, "2 threads", False),
        ({1: 100.0, 2: 99.0, 4: 60.0}, "1 thread", False),
        ({1: 100.0, 2: 200.0}, "2 threads", True),
    ],
)
def test_enough_is_the_smallest_count_near_the_best(
    speeds: dict[int, float], least: str, most: bool, answer: Ask
) -> None:
    """The smallest count within 5 % of the best is enough; 5 % exactly still is.

    If the largest count is needed, more might be better still, and the answer says so.
    """
    text = answer(*(automatic(speed, protocol="threads", threads=n) for n, speed in speeds.items()))

    assert says(text, least, *(["most that were tried"] if most else ["enough"]))
    assert ("enough" in text) is not most


def test_the_best_backend_scales_where_decode_was_not_asked(answer: Ask) -> None:
    """Without decode(), the counts are those of the fastest backend with several counts."""
    options = {"protocol": "loader"}
    found = [
        measurement(name, speed * gain, best=speed * gain, workers=n, **options)
        for name, speed in (("pillow", 50.0), ("opencv", 100.0))
        for n, gain in ((1, 1.0), (2, 1.01 if name == "opencv" else 2.0))
    ]

    assert says(answer(*found), "1 DataLoader worker", "enough", "100 images/s", "5%")


@pytest.mark.parametrize(
    ("share", "facts"),
    [
        (0.001, ("<1%", "decoding is the bottleneck")),
        (0.3, ("30%", "decoding is the bottleneck", "reading counts")),
        (0.7, ("70%", "reading is the bottleneck", "not decoding")),
    ],
)
def test_the_bottleneck(share: float, facts: tuple[str, ...], answer: Ask) -> None:
    """The bottleneck is what takes more than half of the time."""
    text = answer(*results.reading(share))

    assert says(text, *facts)
    assert ("reading counts" in text) is ("reading counts" in facts)


def test_what_was_not_measured_is_passed_over(answer: Ask) -> None:
    """The answer does not mention threads, workers or files that were not measured."""
    one = measurement("pillow", 100.0)

    assert not [word for word in ("thread", "worker", "eading") if word in answer(one)]
    checked = replace(one, images_per_s=results.spread(0.0))
    for nothing in (results.result(), results.result(checked)):
        assert says(answer(nothing), "Nothing was measured")


def test_a_run_of_one_count_says_nothing_of_counts(answer: Ask) -> None:
    """With one count of threads, the answer does not say how many are enough."""
    text = answer(measurement("pillow", 100.0, protocol="threads", threads=4))

    assert says(text, "Fastest", "pool of threads", "pillow", "100 images/s")
    assert "enough" not in text
    assert "most that were tried" not in text


def test_decode_alone_has_nothing_to_be_compared_with(answer: Ask) -> None:
    """If only decode() was timed, its speed is given and nothing is called the fastest."""
    text = answer(automatic(100.0))

    assert says(text, "Only decode()", "full size", "100 images/s")
    assert "astest" not in text
