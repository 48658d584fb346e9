"""The page is well-formed, complete, self-contained, and safe for any file names."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
import results
from benches import Page
from results import automatic, measurement, says

pytest.importorskip("jinja2", reason="the extra `bench` brings it")

from fastdecode.measure import _charts as charts
from fastdecode.measure import _html as html
from fastdecode.measure._charts import axis_ticks, log_ticks
from fastdecode.measure._summary import groups
from fastdecode.measure._text import COST, READING, SPEED

_LOADS = {"src", "href", "srcset", "action", "data", "poster", "xlink:href", "background"}


@pytest.fixture(scope="module")
def page() -> Page:
    """Parse the page of a full run."""
    return Page(html.result_page(results.full()))


def test_the_page_is_well_formed(page: Page) -> None:
    """All tags are balanced, and the page has its frame."""
    assert page.open == []
    for tag in ("html", "head", "body", "main", "h1"):
        assert page.tags[tag] == 1
    assert ("html", "lang", "en") in page.attributes
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes


def test_the_gain_is_the_largest_thing(page: Page) -> None:
    """The gain over Pillow is in large type, with the speeds and the caveats."""
    busy = replace(results.MACHINE, load=3.0)
    wide = {"ratio": results.spread(1.0, 0.4)}
    few = results.result(
        automatic(150.0, files=6, **wide), measurement(files=6, best=150.0, **wide), machine=busy
    )
    shown = Page(html.result_page(few))

    assert page.strong[:2] == ["1.7x", "4.0x"]
    assert "198 images/s; Pillow 120" in page.texts
    assert "How sure is that?" not in page.texts
    place = shown.texts.index("How sure is that?")
    assert says(" ".join(shown.texts[place : place + 7]), "busy", "3.00", "chance", "6 images")


def test_what_would_be_faster_is_listed(page: Page) -> None:
    """Missing and faster backends are listed with the line that installs or selects them."""
    text = "\n".join(page.texts)
    lines = [results.full().faster["native"], "decode_batch(paths, threads=4)"]
    lines += ["DataLoader(dataset, num_workers=4)", "decode(data, min_size=224)"]
    slow = Page(html.result_page(results.result(*results.reading(0.4))))

    assert page.strong[2:5] == ["3.3x as fast", "3.3x as fast", "6.2x as fast"]
    assert [line for line in lines if f"\n{line}\n" not in text] == []
    assert "fastdecode pack FOLDER train.tar" in slow.texts
    assert "fastdecode pack FOLDER train.tar" not in page.texts


def test_the_page_as_markdown() -> None:
    """The gain and two tables can be copied as Markdown, with its characters escaped."""
    full = results.full()
    evil = replace(full, machine=replace(full.machine, cpu="a|b\n[c](d) <e>"))
    text = html.markdown(evil)
    shown = "".join(Page(html.result_page(evil)).texts)

    assert text.startswith("**1.7x as fast as Pillow at decoding; 4.0x as fast as Pillow")
    assert "\n| decode() | 1.7x | 198 |\n" in text
    assert "\n| Pillow + DataLoader | 1.00x | 130 |\n" in text
    assert "a\\|b?\\[c\\](d) \\<e\\>, 4 cores" in text
    assert text in shown


def test_the_card_is_small_and_stands_alone() -> None:
    """The card is XML with its own dark style, the gains, photos, machine and version."""
    full = results.full()
    evil = replace(full.machine, cpu="<script>&" * 30)
    for one in (full, replace(full, machine=evil), results.result(), results.result(measurement())):
        text = html.card(one)
        root = ET.fromstring(text)
        assert (root.get("width"), root.get("height")) == ("600", "200")
        assert len(text) < 8000
    said = " ".join("".join(ET.fromstring(html.card(full)).itertext()).split())

    assert "prefers-color-scheme: dark" in said
    for words in ("1.7x", "4.0x", "40 JPEG", "2026-03-04", "Example CPU 3000", "fastdecode 0.2.0"):
        assert words in said


def test_every_chart_is_there(page: Page) -> None:
    """Training (1), decoding (4 JPEG, 2 PNG), latency (2), scaling (2) and pixels (2) are drawn."""
    assert {"Training", "Decoding", "Latency", "Scaling", "Pixels"} <= set(page.texts)
    titles = [text for text in page.texts if re.match(r"(Images per|Millisec|Pixels, )", text)]
    assert titles == [
        "Images per second, JPEG, batches of 64, 4 threads or workers",
        *(f"Images per second, JPEG, {size} size" for size in ("full", "1/2", "1/4", "1/8")),
        *(f"Images per second, PNG, {size} size" for size in ("full", "1/2")),
        *(f"Milliseconds per image, {kind}, full size" for kind in ("JPEG", "PNG")),
        *(f"Images per second, JPEG, full size, by {noun}" for noun in ("threads", "workers")),
        *(f"Pixels, {kind}" for kind in ("JPEG", "PNG")),
    ]
    assert page.tags["svg"] == len(titles)


def test_charts_can_be_read_without_seeing_them(page: Page) -> None:
    """Each chart is an image with a unique title and a description of its figures."""
    ids = page.values("id")

    assert len(ids) == len(set(ids)) == 2 * page.tags["svg"] + len(("copy", "markdown"))
    assert page.values("role").count("img") == page.tags["svg"]
    for names in page.values("aria-labelledby"):
        assert set(names.split()) <= set(ids)
    text = "\n".join(page.texts)
    assert "simplejpeg 200 (1.7x); decode() 198 (1.7x); turbojpeg 196 (1.6x); opencv 180" in text
    assert "fastdecode Loader 520 (4.0x)" in text
    assert "Pillow + DataLoader 130 (1.00x)" in text
    assert "decode(): 1 thread 198; 2 threads 376; 4 threads 653; 8 threads 663." in text
    assert "swapped full size: 2 differ" in text
    assert "opencv 1/2 size: averaged" in text
    assert "nojpeg 1/8 size: refused" in text


def test_the_page_loads_nothing(page: Page) -> None:
    """Only the page's own script may run, and a browser fetches nothing."""
    text = html.result_page(results.full())
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not {name for _, name, _ in page.attributes} & _LOADS
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert set(re.findall(r"https?://[^\"' <]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import", text)
    rules = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert rules in page.values("content")


def test_names_are_text(page: Page) -> None:
    """A file name with markup is shown as text; control characters are not."""
    text = html.result_page(results.full())

    assert text.count("<script") == 1
    assert "\x1b" not in text
    assert "".join(page.texts).count("<script>alert(1)</script>&\"'?[31m.jpg") == 5
    assert "A note <of> the run." in page.texts


def test_backends_called_like_scripts_are_text() -> None:
    """A plugin's name with markup is shown as text in every chart, table and sentence."""
    name = '<script>alert("b")</script>'
    whole = results.full()
    renamed = tuple(
        replace(one, backend=name if one.backend == "simplejpeg" else one.backend, chosen=name)
        for one in whole.measurements
    )
    backends = tuple(
        replace(one, name=name, codec="<i>", version="<b>") if one.name == "simplejpeg" else one
        for one in whole.backends
    )

    text = html.result_page(replace(whole, measurements=renamed, backends=backends, answer=()))

    page = Page(text)
    assert page.open == []
    assert not {"i", "b"} & set(page.tags)
    assert page.tags["script"] == 1
    assert sum(name in row[0] for row in page.rows if row) >= 5
    assert any(name in part for part in page.texts)
    assert "alert(" not in "".join(value for _, key, value in page.attributes if key != "title")


def test_names_that_are_no_unicode_can_be_saved() -> None:
    """A page with undecodable file names can be written as UTF-8."""
    found = results.result(measurement(refused={"\udcff.jpg": "\udcff <b>"}))

    assert b"?.jpg: ? &lt;b&gt;" in html.result_page(found).encode("utf-8")


def test_every_column_is_in_the_tables(page: Page) -> None:
    """The tables have all columns of speed and cost, and reading if files are read."""
    titles = [figure.title for figure in (*SPEED, *COST[1:])]
    titles[titles.index("vs best")] = "vs Pillow"
    heads = [row for row in page.rows if row[0] == "backend"]

    assert heads == [titles] * 5 + [[*titles, READING.title]]
    first = next(row for row in page.rows if row[0] == "swapped")
    assert first[:8] == [
        "swapped", "220", "3%", "1.83 ±0.04", "4.56", "9.61", "11.0", "2 differ",
    ]  # fmt: skip


def test_the_machine_and_the_answer_are_there(page: Page) -> None:
    """The page has the answer, machine, versions with codecs, load and settings."""
    text = "\n".join(page.texts)

    assert "Fastest here for JPEG at full size: simplejpeg" in text
    assert "Example CPU 3000" in text
    assert "1.2.3 (libjpeg-turbo 3.1)" in text
    assert "\nLoad\n0.31\n" in text
    assert "\nSeconds per backend\n0.5\nReduced by\n1, 8\n" in text
    assert "interrupted" not in text


@pytest.mark.parametrize(
    "measurements",
    [
        (),
        (measurement(),),
        (automatic(100.0),),
        (measurement("swapped", differing=("a.jpg",)),),
        (measurement(latency_ms=()),),
        (measurement(latency_ms=(0.0,) * 101),),
        (replace(measurement(), images_per_s=results.spread(0.0), refused={"a.jpg": "no"}),),
        (measurement("a_name_longer_than_any_chart_has_room_for", 1e7),),
        (measurement(speed=0.001), automatic(0.001)),
        tuple(measurement(protocol="threads", threads=n, differing=("a",)) for n in (1, 2)),
        tuple(automatic(9.0 * n, protocol="loader", workers=n) for n in (2, 96)),
        tuple(results.reading(0.5)),
    ],
    ids=str,
)
def test_a_page_of_little_is_still_a_page(measurements: tuple[object, ...]) -> None:
    """Interrupted runs, runs of one kind and unusual figures are drawn as far as possible."""
    text = html.result_page(results.result(*measurements, interrupted=True))
    page = Page(text)

    assert page.open == []
    assert "The run was interrupted" in text
    assert not re.search(r'"(?:nan|inf|-inf)"|[ ",](?:nan|inf)[ ",]', text)


def test_wrong_pixels_in_one_protocol_are_wrong() -> None:
    """A backend that agrees from memory and differs in another protocol is shown as wrong."""
    found = [measurement(), measurement(protocol="threads", threads=2, differing=("a.jpg",))]

    assert "pillow full size: 1 differ." in charts.agreement_chart("one", "jpeg", found)


def test_the_readme_chart_stands_alone() -> None:
    """The chart for the README is XML with its own dark style, and one panel per reduction."""
    text = charts.readme_chart(results.full())
    root = ET.fromstring(text)
    said = "".join(root.itertext())

    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in said
    for word in ("full size", "1/2 size", "1/4 size", "1/8 size", "Images per second: JPEG"):
        assert word in said
    assert len(root.findall("{*}g")) == 4


def test_nothing_measured_makes_no_chart() -> None:
    """Drawing a chart for the README without figures is an error."""
    with pytest.raises(ValueError, match="no figures to draw"):
        charts.readme_chart(results.result())


def test_bars_are_as_long_as_their_speeds() -> None:
    """The length of a bar is its speed; wrong pixels look different."""
    found = results.result(
        measurement("opencv", 200.0),
        measurement("pillow", 100.0, best=200.0, images_per_s=results.spread(100.0, 0.4)),
        measurement("swapped", 50.0, best=200.0, differing=("a.jpg",)),
    )
    root = ET.fromstring(charts.throughput_chart("one", charts.bars(groups(found)[0])))
    bars = {bar.get("class"): float(bar.get("width")) for bar in root.findall("{*}rect")[1:]}
    longest = float(root.findall("{*}rect")[0].get("width"))

    assert bars == pytest.approx({"bar": longest / 2, "wrong": longest / 4}, rel=1e-3)


@pytest.mark.parametrize("highest", [0.003, 0.9, 1.0, 7.0, 20.0, 99.0, 1234.0, 5e6])
def test_axes_have_a_few_round_marks(highest: float) -> None:
    """The marks of an axis begin at 0, are evenly spaced, and stay within the axis."""
    marks = axis_ticks(highest)

    assert marks[0] == 0
    assert 3 <= len(marks) <= 6
    assert highest * 0.6 <= marks[-1] <= highest * (1 + 1e-9)


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0.5, 187, [1, 10, 100]),
        (0.9, 4, [1, 3]),
        (2.5, 4, [2.5, 4]),
        (2, 2, [2]),
        (0.02, 0.3, [0.03, 0.1, 0.3]),
    ],
)
def test_logarithmic_axes_have_round_marks(low: float, high: float, marks: list[float]) -> None:
    """The marks are powers of ten, or values in between if there are fewer than two."""
    assert log_ticks(low, high) == pytest.approx(marks)
