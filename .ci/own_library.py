"""Check that the native core of the installed wheel uses the libjpeg-turbo inside the wheel."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import fastdecode

package = Path(fastdecode.__file__).parent
data = (package / "samples" / "casa-mila.jpg").read_bytes()
image = fastdecode.decode(data, backend="native")
expected = fastdecode.decode(data, backend="pillow")  # its wheel has its own libjpeg-turbo
loaded = set(re.findall(r"/\S*libjpeg\S*", Path("/proc/self/maps").read_text(encoding="utf-8")))
print("libjpeg in use:", *sorted(loaded))
carried = {path for path in loaded if path.startswith(str(package.parent / "fastdecode.libs"))}
others = {path for path in loaded - carried if "/pillow.libs/" not in path}
if others or not carried:
    raise SystemExit("the core does not use the library in its own wheel")
if not np.array_equal(image, expected):
    raise SystemExit("its pixels are not Pillow's")
