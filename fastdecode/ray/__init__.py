"""Ray Data: read and decode images on a cluster, into an ordinary `ray.data.Dataset`.

`pip install "fastdecode[ray]"`. Nothing of PyTorch is needed where images are decoded.
"""

from __future__ import annotations

from fastdecode.errors import BackendUnavailable

try:
    import pyarrow as _pa  # noqa: F401, ICN001 - of Ray Data: Ray comes without it, too
    import ray  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("pyarrow", "ray"):
        raise
    raise BackendUnavailable(
        f"fastdecode.ray needs Ray Data, of which {error.name} is not installed\n"
        "Install it with: pip install 'fastdecode[ray]'"
    ) from error

from fastdecode.ray.decode import decode_images
from fastdecode.ray.read import read_images
from fastdecode.ray.skipped import Skipped

__all__ = ["Skipped", "decode_images", "read_images"]
