"""Decoding into the memory of a device: on the device itself, or on the CPU with a copy."""

from __future__ import annotations
