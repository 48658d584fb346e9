"""Images in the memory of a device: decoded there, or on the CPU and copied."""

from __future__ import annotations

__all__: list[str] = []
