"""Packing images into a store that is cheap to read and decode, and checking images.

``fastdecode pack`` and ``fastdecode check`` do the same from the command line.
"""

from __future__ import annotations

from fastdecode.packing._check import Finding, Limits, survey
from fastdecode.packing._pack import BadItems, Packed, pack

__all__ = ["BadItems", "Finding", "Limits", "Packed", "pack", "survey"]
