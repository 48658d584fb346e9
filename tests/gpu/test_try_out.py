"""What a batch backend tries when it is constructed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_doubles import batch_double, decode_all, refusing

from fastdecode._backends.batch_base import try_out
from fastdecode.errors import BackendUnavailable


def raise_always(items: Any, layout: str) -> Any:
    raise OSError("no nvJPEG here")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (raise_always, "no nvJPEG here"),
        (refusing(lambda _: True, decode_all), "does not say why"),
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
        try_out(batch_double(answer)(torch.device("cpu"), 1))


def test_a_device_that_failed_is_not_unavailable() -> None:
    """A device without memory is the device's error: a later attempt may succeed."""

    def fail(items: Any, layout: str) -> Any:
        raise torch.cuda.OutOfMemoryError("Tried to allocate 20 GiB")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        try_out(batch_double(fail)(torch.device("cpu"), 1))
