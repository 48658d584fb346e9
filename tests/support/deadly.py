"""A sweeper that crashes in one case, for the test that the sweep names that case."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence

from sweep import Case, Report


class Deadly:
    """A stand-in for `Sweeper` that dies of a segmentation fault in case 45, setting 6."""

    def each(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        if 6 in settings and any(case.number == 45 for case in group):
            os.kill(os.getpid(), signal.SIGSEGV)
        return Report(Counter(pixels=len(group)), [])

    def together(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        del settings
        return Report(Counter(pixels=len(group)), [])
