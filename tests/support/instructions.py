"""What the core makes with every instruction set that can run here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from same import assert_same

from fastdecode.native._library import ffi, lib

INSTRUCTIONS = ffi.string(lib.fd_instructions()).decode().split()


def with_each(make: Callable[[], Any]) -> Any:
    """Return what is made, which must be the same, bit for bit, with every instruction set."""
    made = []
    try:
        for name in INSTRUCTIONS:
            assert lib.fd_use_instructions(name.encode()) == lib.FD_OK
            made.append(make())
    finally:
        lib.fd_use_instructions(b"")
    for name, other in zip(INSTRUCTIONS, made, strict=True):
        assert type(other) is type(made[0]), name
        if isinstance(other, np.ndarray):
            assert_same(other, made[0], name)
    return made[0]
