"""Measuring which backend is fastest here: `samples` to decode, `worker` processes, a `race`.

`decode` never measures; it reads the ranking that this makes.
"""

from fastdecode.calibration.measure import calibrate

__all__ = ["calibrate"]
