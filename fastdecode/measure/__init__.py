"""Measuring which backend is fastest here: `samples` to decode, `workers`, a `race` among them.

`decode` never measures; it reads the ranking that `measure` makes. What begins with ``device``
measures how fast images come onto a device, which `decode_batch` goes by there.
"""

from fastdecode.measure._calibrate import calibrate

__all__ = ["calibrate"]
