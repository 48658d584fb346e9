"""Measuring which backend is fastest here: `samples` to decode, `worker` processes, a `race`.

`decode` never measures; it reads the ranking that this makes. What begins with ``device`` measures
how fast pictures come onto a device, which `decode_batch` goes by there.
"""

from fastdecode.calibration.api import calibrate

__all__ = ["calibrate"]
