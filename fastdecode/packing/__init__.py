"""Packing pictures into a store that is cheap to read and decode, and checking them.

``python -m fastdecode pack`` and ``python -m fastdecode check`` are its command lines.
"""

from __future__ import annotations

from fastdecode.packing.job import pack
from fastdecode.packing.results import BadItems, Packed
from fastdecode.packing.surveying import Finding, survey

__all__ = ["BadItems", "Finding", "Packed", "pack", "survey"]
