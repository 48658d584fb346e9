"""Helpers for the tests that need a CUDA device: delayed streams and consumer streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

LATE = 20_000_000
"""Clock cycles for `torch.cuda._sleep`, about 10 milliseconds."""

NEEDS_CUDA = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="needs a CUDA device, and a PyTorch that is built with CUDA",
)


@pytest.fixture(params=["default stream", "own stream"])
def consumer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test once on the default stream and once on another."""
    if request.param == "default stream":
        yield
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()
