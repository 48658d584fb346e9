"""Results that the core cuts into patches, as transformers does it with torch."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from instructions import ffi, lib, with_each
from same import assert_same

import fastdecode
from fastdecode._decode.resizing import resize_unchanged
from fastdecode.native import _library
from fastdecode.native._augment import Operation, Program, as_operations
from fastdecode.native._library import Axis, Patches
from fastdecode.native._pool import Pool, Recorded

torch = pytest.importorskip("torch")

AXES: tuple[Axis, ...] = get_args(Axis)
PIXELS: tuple[Axis, ...] = ("patch", "row", "column", "channel", "repeat")
AFFINE = (0.017, 0.0175, 0.0174), (-2.1, -2.0, -1.8)
TABLE = np.random.default_rng(1).normal(0, 2, (3, 256)).astype(np.float32)
TABLE[:, ::2] = 1 + np.arange(128) / 256  # every other one lies between two numbers of bfloat16
FORMS: dict[str, dict[str, Any]] = {
    "uint8": {"affine": None},
    "float32": {"affine": AFFINE},
    "bfloat16": {"affine": AFFINE, "dtype": "bfloat16"},
    "float32 by a table": {"affine": None, "table": TABLE.tobytes()},
    "bfloat16 by a table": {"affine": None, "table": TABLE.tobytes(), "dtype": "bfloat16"},
}
GUARD = 64
SAMPLES = Path(fastdecode.__file__).parent / "samples"


def noise(height: int, width: int) -> Any:
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


def values(pixels: Any, form: str) -> Any:
    """Return the tensor (C, H, W) of the values that are stored for pixels (H, W, C)."""
    table = TABLE
    if "table" not in FORMS[form]:
        scale, bias = (np.float32(three)[:, None] for three in AFFINE)
        table = np.arange(256, dtype=np.float32) * scale + bias
    made = torch.from_numpy(np.stack([table[c][pixels[..., c]] for c in range(pixels.shape[2])]))
    if form == "uint8":
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    return made.bfloat16() if "bfloat16" in form else made


def cut(image: Any, how: Patches) -> Any:
    """Cut a tensor (C, H, W) as `Qwen2VLImageProcessor.patchify` does, then order the axes."""
    channels, height, width = image.shape
    (rows, columns), merge = how.size, how.merge
    down, across = height // rows // merge, width // columns // merge
    squares = image.reshape(channels, down, merge, rows, across, merge, columns)
    patches = squares.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, channels, 1, rows, columns)
    repeated = patches.expand(-1, -1, how.repeats, -1, -1)
    return repeated.permute([AXES.index(axis) for axis in how.order])


def patches_of(image: Any, how: Patches, form: str, channels: int = 3) -> Any:
    """Return the core's patches of pixels, the same with every instruction set."""
    size = image.shape[:2]
    pixels = _library.stored(**FORMS[form], channels_first=False, channels=channels, patches=how)
    shape = how.shape(size, channels)
    dtype = getattr(torch, form.partition(" ")[0])
    count = int(np.prod(shape)) * dtype.itemsize
    whole = resize_unchanged(size[1], size[0])

    def make() -> Any:
        memory = np.full(count + GUARD, 77, np.uint8)
        assert _library.resize_pixels(image, whole, pixels, memory.ctypes.data)
        return memory

    guarded = with_each(make)
    assert_same(guarded[count:], 77)
    return torch.from_numpy(guarded[:count].copy()).view(dtype).view(shape)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("merge", [1, 2, 3])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_layout_is_that_of_torch(form: str, merge: int, repeats: int) -> None:
    """Patches of any size, in any order of axes, have the values of torch's permute and reshape."""
    orders = list(permutations(AXES))
    for at, size in enumerate([(14, 14), (16, 16), (1, 1), (3, 5), (20, 7), (2, 33)]):
        for order in (AXES, PIXELS, *orders[at + 7 * merge + 21 * repeats :: 41]):
            how = Patches(size, merge, repeats, order)
            image = noise(size[0] * merge * 3, size[1] * merge)
            assert_same(patches_of(image, how, form), cut(values(image, form), how), str(how))
            grey = patches_of(image, how, form, channels=1)
            assert_same(grey, cut(values(image[..., :1], form), how), str(how))


def test_file_is_cut_in_one_call() -> None:
    """Files are decoded, padded and cut in one call, also several of other sizes by a pool."""
    form, pool = "bfloat16", Pool(2)
    how = Patches((14, 14), 2, 2)
    pixels = _library.stored(**FORMS[form], channels_first=True, patches=how)
    samples, recorded, outs, wanted = [], [], [], []
    for path in sorted(SAMPLES.glob("*.jpg"))[:3]:
        data = path.read_bytes()
        image = fastdecode.decode(data)
        height, width = image.shape[:2]
        right, bottom = -width % 28, 28 - height % 28
        padded = np.pad(image, ((0, bottom), (0, right), (0, 0)))
        operations = as_operations([Operation("pad", (0, 0, right, bottom), "constant")])
        out = torch.zeros(how.shape(padded.shape[:2]), dtype=torch.bfloat16)
        whole, size = resize_unchanged(width, height), padded.shape[:2]
        assert _library.decode_resized(data, whole, pixels, out.data_ptr(), operations)
        want = cut(values(padded, form), how)
        assert_same(out, want)
        assert not _library.decode_resized(data, whole, pixels, out.zero_().data_ptr())
        samples.append(data)
        done = bytes(ffi.buffer(operations))
        recorded.append(Recorded(width, height, done, out.data_ptr(), size))
        outs.append(out)
        wanted.append(want)
    wrong = recorded[0]._replace(size=(28, 28))
    recipe = ffi.new("fd_recipe *", {"program": Program().core, "pixels": 1 << 40})

    with pool.items() as items:
        made, left = items.make(
            pool, [*samples, samples[0]], [*recorded, wrong], recipe, pixels, 0, 0
        )

    assert (list(made), list(left)) == ([0, 1, 2], [3])
    for out, want in zip(outs, wanted, strict=True):
        assert_same(out, want)


REFUSED: dict[str, dict[str, Any]] = {
    "too wide": {"width": 16},
    "too high": {"height": 29},
    "no width": {"width": 0},
    "a negative height": {"height": -14},
    "no square": {"merge": 0},
    "an incomplete square": {"merge": 3},
    "a huge square": {"merge": 2**31 - 1},
    "no repeat": {"repeats": 0},
    "an axis twice": {"order": [0, 1, 2, 3, 3]},
    "an unknown axis": {"order": [0, 1, 2, 3, 5]},
    "a negative axis": {"order": [-1, 1, 2, 3, 4]},
}


@pytest.mark.parametrize("operations", [(), (Operation("invert"),)])
@pytest.mark.parametrize("fault", REFUSED)
def test_bad_description_is_refused(fault: str, operations: Any) -> None:
    """Patches that do not fit the result, or make no sense, leave the memory as it was."""
    image, members = noise(28, 56), {**Patches((14, 14), 2, 1).core(), **REFUSED[fault]}
    pixels = ffi.new("fd_pixels *", {"dtype": lib.FD_UINT8, "channels": 3, "patches": members})
    memory = np.full(2 * image.size, 77, np.uint8)
    how = resize_unchanged(56, 28), pixels, memory.ctypes.data

    assert not _library.resize_pixels(image, *how, as_operations(operations))
    assert_same(memory, 77)


def test_shape_says_what_fits() -> None:
    """A size that cannot be cut is refused with the multiples that can."""
    assert Patches((14, 14), 2, 2).shape((28, 56)) == (8, 3, 2, 14, 14)
    with pytest.raises(ValueError, match="multiples of that"):
        Patches((14, 14), 2).shape((28, 42))
    with pytest.raises(ValueError, match="squares of 14 x 16:"):
        Patches((14, 16)).shape((28, 40))
