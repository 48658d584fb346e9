"""Helpers for tests with a CUDA device: slow streams, and the consumer's stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

LATE = 20_000_000
"""Clock cycles: some 10 milliseconds, for `torch.cuda._sleep`."""

NEEDS_CUDA = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="needs a CUDA device, and a PyTorch that is built with CUDA",
)


@pytest.fixture(params=["default stream", "own stream"])
def consumer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test with the consumer on the default stream, and on another one."""
    if request.param == "default stream":
        yield
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()
