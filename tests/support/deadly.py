"""A child of the sweep that crashes in one case, to test how the crash is reported."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence

from sweep import Case, Report


class Deadly:
    """A child that crashes on one case in one setting."""

    def each(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        if 6 in settings and any(case.number == 45 for case in group):
            os.kill(os.getpid(), signal.SIGSEGV)
        return Report(Counter(pixels=len(group)), [])

    def together(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        del settings
        return Report(Counter(pixels=len(group)), [])
