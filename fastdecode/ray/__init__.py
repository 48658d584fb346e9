"""Ray Data: read and decode images on a cluster, into an ordinary `ray.data.Dataset`.

Install it with ``pip install "fastdecode[ray]"``. Decoding does not need PyTorch.
"""

from __future__ import annotations

from fastdecode.errors import BackendUnavailable

try:
    import pyarrow as _pa  # noqa: F401, ICN001 - Ray Data needs it, and Ray may lack it
    import ray  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("pyarrow", "ray"):
        raise
    raise BackendUnavailable(
        f"fastdecode.ray needs Ray Data, of which {error.name} is not installed\n"
        "Install it with: pip install 'fastdecode[ray]'"
    ) from error

from fastdecode.ray.images import decode_images, read_images

__all__ = ["decode_images", "read_images"]
