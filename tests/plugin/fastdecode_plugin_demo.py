"""A backend of another package: BMP of 24 bits, in NumPy alone."""

from __future__ import annotations

import numpy as np

from fastdecode import Backend, Header, Support

__all__ = ["Demo"]


class Demo(Backend):
    """Rows from the bottom up, in BGR, each filled up to a multiple of 4 bytes."""

    distribution = "fastdecode-plugin-demo"
    supports = {"bmp": (Support(colors=frozenset({"rgb"})),)}

    def decode(self, data, header: Header, *, reduce, layout, window, out, strict):
        if bytes(data[28:34]) != b"\x18\0\0\0\0\0":
            raise ValueError("only 24 bits, uncompressed")
        start = int.from_bytes(data[10:14], "little")
        row = (header.width * 3 + 3) // 4 * 4
        rows = np.frombuffer(data, np.uint8, header.height * row, start).reshape(-1, row)
        return rows[::-1, : header.width * 3].reshape(header.height, header.width, 3)[:, :, ::-1]
