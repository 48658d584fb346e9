"""The sentences on top of a result."""

from __future__ import annotations

from dataclasses import replace

import pytest
import results
from results import automatic, measurement

from fastdecode.bench.answer import enough, sentences


def test_the_answer_of_a_whole_run() -> None:
    """It names the fastest, the choice of decode(), the counts, the bottleneck and wrong pixels."""
    assert sentences(results.full()) == (
        (
            "Fastest here for JPEG at full size: simplejpeg (200 images/s; turbojpeg within 3%); "
            "decode() chooses it too, at 99% of that speed."
        ),
        (
            "4 threads are enough (653 images/s, within 5% of the best); 4 DataLoader workers are "
            "enough (653 images/s, within 5% of the best)."
        ),
        (
            "Reading the files, from the system's cache, takes 4% of the time: decoding is the "
            "bottleneck."
        ),
        "The pixels DIFFER from the reference: swapped.",
    )


def test_wrong_pixels_are_never_the_fastest() -> None:
    """A backend whose pixels differ is not named as the fastest, nor as close to it."""
    wrong = measurement("swapped", 150.0, best=100.0, differing=("a.jpg",))
    close = measurement("shifted", 99.0, best=100.0, differing=("a.jpg",))

    text = sentences(results.result(wrong, close, measurement("pillow", 100.0)))

    assert text[0] == "Fastest here at full size: pillow (100 images/s)."
    assert text[1] == "The pixels DIFFER from the reference: swapped, shifted."


def test_the_choice_may_be_another() -> None:
    """Where decode() does not choose the fastest, the answer says what it costs."""
    chosen = automatic(88.0, best=100.0, chosen="opencv")

    text = sentences(results.result(measurement("pillow", 100.0), chosen))

    assert "decode() chooses opencv, at 88% of that speed." in text[0]


def test_shares_are_of_the_fastest() -> None:
    """Where ratios are to a backend that another one beats by a little, shares are of that one."""
    found = [
        measurement("turbojpeg", 100.0),
        measurement("simplejpeg", 103.0, best=100.0),
        measurement("opencv", 99.0, best=100.0),
    ]

    text = sentences(results.result(*found, automatic(95.0, best=100.0)))
    same = sentences(results.result(*found, automatic(104.0, best=100.0)))

    assert "simplejpeg (103 images/s; turbojpeg within 3%)" in text[0]
    assert text[0].endswith("decode() chooses it too, at 92% of that speed.")
    assert same[0].endswith("decode() chooses it too, just as fast.")


def test_the_commonest_format_at_the_smallest_reduction_speaks() -> None:
    """Other formats, and greater reductions, are left to the tables."""
    png = measurement("opencv", 300.0, format="png")
    small = measurement("opencv", 900.0, reduce=8)

    text = sentences(results.result(png, small, measurement("pillow", 70.0, reduce=2)))

    assert text[0] == "Fastest here for JPEG at 1/2 size: pillow (70.0 images/s)."


@pytest.mark.parametrize(
    ("speeds", "least"),
    [
        ({1: 100.0, 2: 190.0, 4: 201.0}, 4),
        ({1: 100.0, 2: 190.0, 4: 200.0}, 2),
        ({1: 100.0, 2: 99.0, 4: 60.0}, 1),
        ({8: 10.0}, 8),
    ],
)
def test_enough_is_the_smallest_count_near_the_best(speeds: dict[int, float], least: int) -> None:
    """The smallest count within 5 % of the best is enough; 5 % exactly still is."""
    assert enough(speeds) == least


def test_the_most_that_were_tried_are_not_called_enough() -> None:
    """If the largest count is needed, more might be better still, and the answer says so."""
    found = [automatic(100.0 * n, protocol="threads", threads=n) for n in (1, 2)]

    text = sentences(results.result(*found))

    assert text[-1] == "2 threads, the most that were tried, are the fastest (200 images/s)."


def test_the_best_backend_scales_where_decode_was_not_asked() -> None:
    """Without decode(), the counts are those of the fastest backend that has several."""
    options = {"protocol": "loader"}
    found = [
        measurement(name, speed * gain, best=speed * gain, workers=n, **options)
        for name, speed in (("pillow", 50.0), ("opencv", 100.0))
        for n, gain in ((1, 1.0), (2, 1.01 if name == "opencv" else 2.0))
    ]

    text = sentences(results.result(*found))

    assert text[-1] == "1 DataLoader worker is enough (100 images/s, within 5% of the best)."


@pytest.mark.parametrize(
    ("share", "end"),
    [
        (0.001, "takes <1% of the time: decoding is the bottleneck."),
        (0.3, "takes 30% of the time: decoding is the bottleneck, though reading counts."),
        (0.7, "takes 70% of the time: reading is the bottleneck, not decoding."),
    ],
)
def test_the_bottleneck(share: float, end: str) -> None:
    """What takes more than half of the time is the bottleneck."""
    assert sentences(results.result(*results.reading(share)))[-1].endswith(end)


def test_what_was_not_measured_is_passed_over() -> None:
    """Without threads, workers and files there is one sentence; without anything there is one."""
    one = measurement("pillow", 100.0)

    assert len(sentences(results.result(one))) == 1
    assert sentences(results.result()) == ("Nothing was measured.",)
    checked = replace(one, images_per_s=results.spread(0.0))
    assert sentences(results.result(checked)) == ("Nothing was measured.",)


def test_a_run_of_one_count_says_nothing_of_counts() -> None:
    """One count of threads cannot tell how many are enough."""
    text = sentences(results.result(measurement("pillow", 100.0, protocol="threads", threads=4)))

    assert text == ("Fastest here at full size in a pool of threads: pillow (100 images/s).",)


def test_decode_alone_has_nothing_to_be_compared_with() -> None:
    """If only decode() could be timed, its speed is given and nothing is called the fastest."""
    text = sentences(results.result(automatic(100.0)))

    assert text == ("Only decode() could be measured at full size: 100 images/s.",)
