"""What else is decoding meanwhile, as far as it can be told without asking anybody."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastdecode.types import Context

__all__ = ["context", "speaks_for_all"]

_main_thread = threading.main_thread().ident
_worker: bool | None = None


def _is_worker() -> bool:
    """Whether `multiprocessing` started this process.

    Looked up at the first decode, not on import: a spawned child imports this while it is still
    being set up, before it is known as a child.
    """
    global _worker
    if _worker is None:
        process = sys.modules.get("multiprocessing.process")
        _worker = process is not None and process.parent_process() is not None
    return _worker


def context() -> Context:
    """Return which of the measured situations this call is in.

    Returns
    -------
    {"one", "threads", "processes"}
        ``"processes"`` in a child process, such as a DataLoader's worker; ``"threads"`` in any
        thread but the main one, such as those of `decode_batch`; else ``"one"``.
    """
    if _worker or (_worker is None and _is_worker()):
        return "processes"
    return "one" if threading.get_ident() == _main_thread else "threads"


def speaks_for_all() -> bool:
    """Whether a warning should come from this process: sixteen workers need not say it each."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or not _is_worker():
        return True
    name: str = process.current_process().name
    return name.endswith("-1")


def _note_fork() -> None:
    """Know in a forked child that it is one; its only thread is the main one."""
    global _main_thread, _worker
    _main_thread = threading.get_ident()
    _worker = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
