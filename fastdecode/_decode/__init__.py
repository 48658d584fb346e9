"""The call of `decode`, and what else returns decoded images: `decode_batch`, `open`, `imread`.

The folder is not called ``decode``, because importing it would hide the function of that name.
"""

from __future__ import annotations
