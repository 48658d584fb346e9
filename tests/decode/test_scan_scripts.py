"""Progressive JPEGs with any script of scans: libjpeg-turbo's pixels, or missing data."""

from __future__ import annotations

import io
import itertools
from functools import cache

import numpy as np
import pytest
from cases import examples
from corpus import jpeg_backends
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from same import assert_same
from scans import EOI, Scan, coefficients, segment, write

from fastdecode import DecodeError, FastDecodeError, decode, decode_batch
from fastdecode.types import Image as Pixels

READERS = [*jpeg_backends(), None]
every_reader = pytest.mark.parametrize("backend", READERS)

COLOURS = coefficients(3, 1)
ALL = tuple(range(3))
FIRST = [Scan(ALL, 0, 0, 0, 1), *(Scan((c,), 1, 63, 0, 1) for c in ALL)]
REFINED = [Scan(ALL, 0, 0, 1, 0), *(Scan((c,), 1, 63, 1, 0) for c in ALL)]
BETWEEN = {
    "fill bytes": b"\xff\xff",
    "TEM": b"\xff\x01",
    "RSTn": b"\xff\xd3",
    "stray bytes": b"\0\x11\xab",
    "a stuffed FF": b"\xff\0\x07",
    "COM and a fill byte": segment(0xFE, b"\xff\xda\0\x08\1") + b"\xff",
    "APPn of odd length": segment(0xE5, b"\xff\xd9\xff\xda\0"),
    "APPn without length": b"\xff\xe3\0\0",
    "DRI and stray bytes": segment(0xDD, b"\0\0") + b"\1\2\3",
    "DNL": segment(0xDC, b"\0\x20") + b"\xff",
}
every_between = pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)


def reference(data: bytes) -> Pixels:
    """Return libjpeg-turbo's pixels, as Pillow shows them."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@cache
def hostile(between: bytes) -> bytes:
    return write(COLOURS, [*FIRST, *REFINED, *[Scan((0,), 0, 0, 1, 0)] * 600], [between])


@every_reader
@every_between
def test_bytes_between_scans_hide_none(between: bytes, backend: str | None) -> None:
    """Scans are counted, and found, behind everything that libjpeg passes over."""
    whole = write(COLOURS, [*FIRST, *REFINED], [between])
    strays = not between.startswith(b"\xff")

    with pytest.raises(DecodeError):
        decode(hostile(between), backend=backend)
    try:
        image = decode(whole, backend=backend)
    except DecodeError:
        assert backend is not None
        # Some libraries stop at warnings of them, and the core at all that no encoder writes.
        assert backend == "native" or strays or between[1] in (0, 0xD3, 0xDD)
    else:
        assert_same(image, reference(whole))


def test_hidden_scans_are_refused_in_batches() -> None:
    """`decode_batch` refuses them, too."""
    hidden = [hostile(between) for between in BETWEEN.values()]

    answers = decode_batch([write(COLOURS, [*FIRST, *REFINED]), *hidden], on_error="return")

    assert [type(answer) for answer in answers] == [np.ndarray] + [DecodeError] * len(hidden)


@every_reader
@pytest.mark.parametrize("end", [EOI, b""], ids=["closed", "cut"])
@pytest.mark.parametrize("missing", range(len(FIRST)))
def test_a_first_scan_that_is_missing_is_an_error(
    missing: int, end: bytes, backend: str | None
) -> None:
    """Without the first DC or AC scan of a component there are no pixels, also in other modes."""
    for refined in ([], REFINED):
        scans = [*FIRST[:missing], *FIRST[missing + 1 :], *refined]
        data = write(COLOURS, scans, end=end)
        for options in ({}, {"mode": "L"}, {"reduce": 8}, {"region": (0, 0, 8, 8)}):
            with pytest.raises(DecodeError):
                decode(data, backend=backend, **options)


@every_reader
def test_a_last_refinement_may_be_missing(backend: str | None) -> None:
    """Without last refinements the image decodes, a little coarser; backends may refuse it."""
    for missing in range(1, len(REFINED) + 1):
        data = write(COLOURS, [*FIRST, *REFINED[:-missing]])
        try:
            image = decode(data, backend=backend)
        except FastDecodeError:
            assert backend not in (None, "pillow", "simplejpeg")
        else:
            assert_same(image, reference(data), missing)


@every_reader
def test_a_refinement_that_skips_a_bit_is_an_error(backend: str | None) -> None:
    """If a bit in the middle is missing, as a scan or within one, the next one means nothing."""
    # With two bits at once, no coefficient is new that the bit between would have begun.
    grey = coefficients(1, 3)
    grey[:, :, 1:][np.isin(abs(grey[:, :, 1:]), (1, 4, 5, 6, 7))] = 0
    for first, last in ((0, 0), (1, 63)):
        begun = [Scan((0,), 0, 0, 0, 0), Scan((0,), 1, 63, 0, 0)]
        begun[first] = Scan((0,), first, last, 0, 3)
        for bits in ([(3, 1), (1, 0)], [(3, 2), (1, 0)], [(2, 1), (1, 0)], [(3, 0)], [(1, 0)]):
            scans = [*begun, *(Scan((0,), first, last, *two) for two in bits)]
            with pytest.raises(DecodeError):
                decode(write(grey, scans), backend=backend)


@every_reader
def test_a_scan_cut_in_the_middle_is_an_error(backend: str | None) -> None:
    """Any scan whose data is cut is noticed, also by backends that report no warnings."""
    scans = [*FIRST, *REFINED]
    whole = write(COLOURS, scans)
    sizes = [len(write(COLOURS, scans[:count], end=b"")) for count in range(len(scans) + 1)]
    for begin, end in itertools.pairwise(sizes[1:]):
        size = (end - begin) // 2
        with pytest.raises(DecodeError):
            decode(whole[: end - size] + whole[end:], backend=backend)


@pytest.mark.parametrize("interval", [0, 2, 3])
def test_a_run_of_ended_blocks_stops_at_a_restart_marker(interval: int) -> None:
    """A run that claims more blocks than its interval has ends there, as for libjpeg.

    So it does at the end of the image; and the core alone leaves such a file to others.
    """
    grey = coefficients(1, 2)
    grey[:, 1::4, 1:] = 0
    scans = [Scan((0,), 0, 0, 0, 0), Scan((0,), 1, 63, 0, 0, interval=interval)]
    whole = write(grey, scans)
    assert_same(decode(whole, backend="native"), reference(whole))

    for overrun in (*range(1, 16), 100):  # one of them ends with the image
        odd = write(grey, [scans[0], scans[1]._replace(overrun=overrun)])
        assert_same(decode(odd), reference(odd), overrun)
        with pytest.raises(DecodeError):
            decode(odd, backend="native")


@pytest.mark.parametrize("bands", [[(1, 63)], [(1, 5), (6, 63)]])
@pytest.mark.parametrize("low", [0, 1])
def test_only_strict_refuses_a_band_before_its_first_values(
    low: int, bands: list[tuple[int, int]]
) -> None:
    """AC before DC of the same component is a warning of libjpeg; the pixels are the same.

    The core alone refuses it.
    """
    begun = [Scan((c,), *band, 0, low) for c in ALL for band in bands]
    refined = [scan._replace(before=b, low=b - 1) for b in range(low, 0, -1) for scan in begun]
    for early in (None, *begun):
        scans = sorted([Scan(ALL, 0, 0, 0, 0), *begun], key=lambda scan: scan is not early)
        whole = write(COLOURS, [*scans, *refined])
        assert_same(decode(whole), reference(whole), early)
        if early is None and low and jpeg_backends("warnings") == ["native"]:
            continue  # the core leaves such tables of a refinement to others
        if early is None:
            decode(whole, strict=True)
        else:
            for options in ({"strict": True}, {"backend": "native"}):
                with pytest.raises(DecodeError):
                    decode(whole, **options)


# ---- scripts that are drawn ----


@st.composite
def legal_scripts(draw: st.DrawFn) -> list[Scan]:
    """Draw a script that has all bits: bands, bits, components together or apart, intervals."""
    low = draw(st.integers(0, 2))
    together = draw(st.booleans())
    sets = [ALL] if together else [(c,) for c in ALL]
    chains = [
        [Scan(c, 0, 0, 0, low), *(Scan(c, 0, 0, b, b - 1) for b in range(low, 0, -1))] for c in sets
    ]
    for c in ALL:
        cut = draw(st.integers(1, 63))
        for first, last in ((1, cut), (cut + 1, 63)):
            if first > last:
                continue
            low = draw(st.integers(0, 3))
            interval = draw(st.sampled_from([0, 0, 3, 7]))
            refined = [Scan((c,), first, last, b, b - 1, interval) for b in range(low, 0, -1)]
            chains.append([Scan((c,), first, last, 0, low, interval), *refined])
    firsts = [chain.pop(0) for chain in chains]  # DC comes before AC
    rest: list[Scan] = []
    while any(chains):
        rest.append(draw(st.sampled_from([chain for chain in chains if chain])).pop(0))
    return [*firsts, *rest]


@settings(max_examples=examples(60))
@given(
    st.data(),
    legal_scripts(),
    st.lists(st.sampled_from(list(BETWEEN.values())) | st.just(b""), max_size=3),
)
def test_any_script_gives_the_pixels_of_libjpeg_or_an_error(
    data: st.DataObject, scans: list[Scan], between: list[bytes]
) -> None:
    """All bits: libjpeg-turbo's pixels. Without some scan: an error, or only the last bits lack."""
    whole = write(COLOURS, scans, between)
    assert_same(decode(whole), reference(whole))

    gone = data.draw(st.sampled_from(scans))
    left = [scan for scan in scans if scan is not gone]
    later = [s for s in left if (s.components, s.first) == (gone.components, gone.first)]
    needed = gone.before == 0 or any(scan.low < gone.low for scan in later)
    cut = write(COLOURS, left, between)
    try:
        image = decode(cut)
    except DecodeError:
        assert needed
    else:
        assert not needed
        assert_same(image, reference(cut))
