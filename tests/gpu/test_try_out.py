"""What a batch backend tries when it is constructed, and the windows that it decodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_doubles import batch_double, decode_all, refusing, tensor_of

from fastdecode import probe
from fastdecode.adapters.batch_base import (
    BatchBackend,
    BatchItem,
    narrowed,
    try_out,
    widened,
)
from fastdecode.errors import BackendUnavailable
from fastdecode.testing import drawing, encode


def double(answer: Any) -> BatchBackend:
    """Return a test double that declares windows."""
    return batch_double(answer, regions=True)(torch.device("cpu"), 1)


def declares_windows(backend: BatchBackend) -> bool:
    return any(support.region for support in backend.supports["jpeg"])


def test_what_decodes_windows_still_declares_them() -> None:
    """If windows decode with the right shape, the declaration stays."""
    backend = double(decode_all)

    try_out(backend)

    assert declares_windows(backend)


def raise_for_windows(items: Any, layout: str) -> Any:
    if items[0].window:
        raise RuntimeError("no windows with this version")
    return decode_all(items, layout)


@pytest.mark.parametrize(
    "answer",
    [
        refusing(lambda item: item.window is not None, decode_all),
        raise_for_windows,
        lambda items, layout: [tensor_of(item._replace(window=None), layout) for item in items],
    ],
    ids=["refuses them", "raises", "gives the whole"],
)
def test_what_decodes_no_windows_declares_none(answer: Any) -> None:
    """If windows are refused, whole images are requested from then on."""
    backend = double(answer)
    others = backend.supports["jpeg"][0].subsamplings

    try_out(backend)

    assert not declares_windows(backend)
    assert backend.supports["jpeg"][0].subsamplings == others


def raise_always(items: Any, layout: str) -> Any:
    raise OSError("no nvJPEG here")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (raise_always, "decodes nothing: no nvJPEG here"),
        (refusing(lambda _: True, decode_all), "decodes nothing, and does not say why"),
        (
            lambda items, layout: [image[:, 1:] for image in decode_all(items, layout)],
            r"\(3, 95, 96\)",
        ),
    ],
    ids=["raises", "refuses", "gives another shape"],
)
def test_what_decodes_nothing_is_unavailable(answer: Any, words: str) -> None:
    """A library that decodes nothing raises an error at once, in its own words."""
    with pytest.raises(BackendUnavailable, match=words):
        try_out(double(answer))


@pytest.mark.parametrize("margin", [0, 2])
@pytest.mark.parametrize("sides", [(40, 30), (17, 9), (5, 3)], ids=str)
def test_a_window_is_cut_out_of_a_larger_one(sides: tuple[int, int], margin: int) -> None:
    """A window is decoded with a margin of 16 columns and then cut."""
    data = encode(drawing(*sides))
    header = probe(data)
    random = np.random.default_rng(header.width + margin)
    for _ in range(60):
        left, right = sorted(random.choice(header.width + 1, 2, replace=False).tolist())
        top, bottom = sorted(random.choice(header.height + 1, 2, replace=False).tolist())
        item = BatchItem(data, header, (left, top, right, bottom))

        decoded = widened(item, margin)

        assert decoded is not None
        assert 0 <= decoded[0] <= max(0, left - margin)
        assert header.width >= decoded[2] >= min(header.width, right + margin)
        assert decoded[2] - decoded[0] >= min(16, header.width)
        assert decoded[1::2] == (max(0, top - margin), min(header.height, bottom + margin))
        image = narrowed(tensor_of(item._replace(window=decoded), "RGB"), item, decoded)
        np.testing.assert_array_equal(image, tensor_of(item, "RGB"))
