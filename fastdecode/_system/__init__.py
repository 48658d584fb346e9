"""What the package asks of the system: files, processes, threads, the processor."""

from __future__ import annotations
