"""Keep a result, with what it was measured on."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import fastdecode
from fastdecode.bench.result import machine

RESULTS = Path(__file__).parent / "results"


def record(name: str, result: Any, **settings: Any) -> Path:
    """Write ``results/<name>.json`` and return its path."""
    backends = {
        info.name: f"{info.version} ({info.codec})" if info.codec else info.version
        for info in fastdecode.backends()
        if info.usable
    }
    content = {
        "measured": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "machine": dataclasses.asdict(machine()),
        "backends": backends,
        "settings": settings,
        "result": result,
    }
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
