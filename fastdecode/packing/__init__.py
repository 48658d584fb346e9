"""Packing images into a store that is cheap to read and decode, and checking them.

``fastdecode pack`` and ``fastdecode check`` are its command lines.
"""

from __future__ import annotations

from fastdecode.packing._check import Finding, Limits, survey
from fastdecode.packing._journal import BadItems, Packed
from fastdecode.packing._pack import pack

__all__ = ["BadItems", "Finding", "Limits", "Packed", "pack", "survey"]
