"""What a `Loader` is made of: the order of items, who makes the samples, and what a batch is."""

from __future__ import annotations
