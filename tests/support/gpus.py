"""For the tests that need a CUDA device: streams that are late, and whose the consumer's is."""

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
    """Let the test consume on the default stream, and on another."""
    if request.param == "default stream":
        yield
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()
