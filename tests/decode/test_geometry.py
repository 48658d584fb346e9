"""Boxes, points and masks of a full image are mapped to the decoded result."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoded import INVERSE, with_orientation
from PIL import Image
from same import assert_same

from fastdecode import Geometry, _pixels, decode, decode_file, probe
from fastdecode.testing import encode

REDUCES = (1, 2, 4, 8)
CROP = Geometry((100, 50, 300, 250), (100, 400))
"""200 x 200 pixels from (100, 50) on, half as high and twice as wide."""


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 3, 4), (0, 4)])
def test_points_and_boxes_move_with_the_crop(shape: tuple[int, ...]) -> None:
    """Corners of the crop become those of the result, also flipped; left stays less than right.

    Any shape is mapped, as long as the last dimension is a box; `keep` has one value a box.
    """
    points = [[100, 50], [300, 250], [110, 60], [0, 0]]
    boxes = [[110, 60, 130, 100], [100, 50, 300, 250]]
    flipped = Geometry(CROP.box, CROP.size, flipped=True)
    many = np.broadcast_to([110, 60, 130, 100], shape)

    mapped, left = CROP.boxes(many, keep=True)

    assert (CROP.scale, CROP.offset) == ((0.5, 2.0), (50, 100))
    assert_same(CROP.points(points), [[0, 0], [400, 100], [20, 5], [-200, -25]])
    assert_same(flipped.points([[100, 50], [110, 60]]), [[400, 0], [380, 5]])
    assert_same(CROP.boxes(boxes), [[20, 5, 60, 25], [0, 0, 400, 100]])
    assert_same(flipped.boxes(boxes), [[340, 5, 380, 25], [0, 0, 400, 100]])
    assert left.shape == shape[:-1]
    assert left.all()
    assert (CROP.boxes([]).shape, CROP.points([]).shape) == ((0, 4), (0, 2))
    assert_same(mapped, np.broadcast_to([20.0, 5, 60, 25], shape))
    assert_same(many, np.broadcast_to([110, 60, 130, 100], shape))


@pytest.mark.parametrize("flipped", [False, True])
def test_boxes_are_cut_at_the_edges(flipped: bool) -> None:
    """A box is clipped at the edges, or becomes empty; clip=False keeps it."""
    geometry = Geometry(CROP.box, CROP.size, flipped=flipped)
    boxes = [[0, 0, 200, 150], [0, 0, 50, 300], [310, 100, 320, 120], [100, 260, 200, 300]]

    cut, kept = geometry.boxes(boxes), geometry.boxes(boxes, clip=False)

    assert_same(cut[0], [200, 0, 400, 50] if flipped else [0, 0, 200, 50])
    assert [one.tolist() for one in cut[1:] if one[2] > one[0] and one[3] > one[1]] == []
    assert_same(kept[0], [200, -25, 600, 50] if flipped else [-200, -25, 200, 50])
    assert_same(kept[:, 2:] - kept[:, :2], [[400, 75], *SIZES])


SIZES = [[100, 150], [20, 10], [200, 20]]


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_boxes_that_are_left(library: str, clip: bool, flipped: bool) -> None:
    """`keep` tells which boxes show any area: not those outside, at an edge, empty or NaN."""
    geometry = Geometry(CROP.box, CROP.size, flipped=flipped)
    given: Any = np.array(
        [
            [110, 60, 130, 100],  # inside
            [0, 0, 101, 51],  # one pixel reaches in
            [0, 0, 100, 300],  # ends at the left edge
            [310, 100, 320, 120],  # to the right
            [100, 250, 200, 300],  # begins at the lower edge
            [120, 80, 120, 90],  # empty
            [np.nan, 60, 130, 100],
        ],
        np.float32,
    )
    labels: Any = np.arange(len(given))
    if library == "torch":
        torch = pytest.importorskip("torch")
        given, labels = torch.from_numpy(given), torch.from_numpy(labels)

    mapped, left = geometry.boxes(given, clip=clip, keep=True)

    assert left.tolist() == [True, True, False, False, False, False, False]
    assert type(left) is type(mapped) is type(given)
    assert str(left.dtype).endswith("bool")
    assert_same(mapped, geometry.boxes(given, clip=clip))
    assert mapped[left].shape == (2, 4)
    assert labels[left].tolist() == [0, 1]


def test_tensors_stay_tensors() -> None:
    """Tensors are mapped like arrays, stay tensors, and are not changed."""
    torch = pytest.importorskip("torch")
    points = torch.tensor([[110, 60]])
    boxes = torch.tensor([[0.0, 60.0, 130.0, 100.0]], dtype=torch.float64)
    mask = torch.arange(250 * 300).view(250, 300) % 251
    for flipped in (False, True):
        geometry = Geometry(CROP.box, CROP.size, flipped=flipped)
        for given, map_ in (
            (points, geometry.points),
            (boxes, geometry.boxes),
            (mask, geometry.mask),
        ):
            kept = given.clone()
            mapped = map_(given)

            assert isinstance(mapped, torch.Tensor)
            assert_same(mapped.numpy(), map_(given.numpy()).tolist(), map_.__name__)
            assert_same(given, kept, map_.__name__)
    assert CROP.points(points).dtype == torch.float32
    assert CROP.boxes(boxes).dtype == torch.float64
    assert CROP.mask(mask).dtype == mask.dtype
    assert CROP.boxes(torch.tensor([])).shape == (0, 4)


def test_a_mask_of_another_size_is_refused() -> None:
    """A mask must have the full image's size, upright if `orient`, also after unpickling."""
    data = drawn(40, 30, (0, 0, 9, 9), 6)
    geometry = Geometry.of_decode(probe(data), 2, region=(8, 0, 24, 30), orient=True)

    for known in (geometry, pickle.loads(pickle.dumps(geometry))):
        assert known.mask(np.zeros((30, 40), np.uint8)).shape == (15, 8)
        with pytest.raises(ValueError, match=r"30.*40"):
            known.mask(np.zeros((40, 30), np.uint8))


def test_masks_are_cut_and_picked_from() -> None:
    """A mask keeps its type and values, and gets the size of the result."""
    mask = np.arange(8 * 6, dtype=np.int16).reshape(8, 6)

    whole = Geometry((0, 0, 6, 8), (8, 6)).mask(mask)
    part = Geometry((2, 1, 6, 7), (3, 2)).mask(mask)
    twice = Geometry((2, 1, 3, 3), (4, 2), flipped=True).mask(mask)

    assert_same(whole, mask)
    assert part.dtype == np.int16
    assert_same(part, [[15, 17], [27, 29], [39, 41]])
    assert_same(twice, [[8, 8], [8, 8], [14, 14], [14, 14]])
    assert not np.shares_memory(whole, mask)


@pytest.mark.parametrize("flipped", [False, True])
def test_masks_are_filled_outside(flipped: bool) -> None:
    """Pixels outside the image get the given value."""
    mask = np.array([[1, 2], [3, 4]], np.uint8)
    geometry = Geometry((-1, 0, 2, 3), (3, 3), flipped=flipped)
    expected = np.array([[9, 1, 2], [9, 3, 4], [9, 9, 9]], np.uint8)

    found = geometry.mask(mask, fill=9)

    assert_same(found, expected[:, ::-1] if flipped else expected)
    assert found.flags.c_contiguous
    assert_same(geometry.mask(mask), np.where(found == 9, np.uint8(0), found))


@pytest.mark.parametrize("mode", ["P", "L", "I;16"])
@pytest.mark.parametrize("flipped", [False, True])
def test_of_a_mask_in_a_file_only_the_region_is_decoded(
    mode: str, flipped: bool, tmp_path: Path
) -> None:
    """The result equals that of the whole mask, for crops inside and across every edge."""
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 200, (31, 47), np.uint8 if mode != "I;16" else np.uint16)
    path = tmp_path / "mask.png"
    image = Image.fromarray(whole)
    if mode == "P":
        image.putpalette(bytes(range(256)) * 3)
    image.save(path)
    for box in (
        (3.0, 5.0, 20.0, 9.0),
        (0.25, 1.5, 46.75, 30.1),
        (-9.0, -4.5, 12.0, 40.0),
        (40.0, 25.0, 60.0, 33.0),
        (-20.0, 3.0, -4.0, 9.0),
        (50.0, 40.0, 60.0, 50.0),
    ):
        geometry = Geometry(box, (11, 17), flipped, full_size=(31, 47))

        part = decode_file(path, mode="stored", region=geometry.region)

        assert part.dtype == whole.dtype
        assert_same(geometry.mask(part, fill=7), geometry.mask(whole, fill=7), box)
    assert Geometry((2.9, 0, 4.1, 1), (1, 1), full_size=(9, 9)).region == (2, 0, 5, 1)


def drawn(width: int, height: int, box: tuple[int, int, int, int], value: int) -> bytes:
    """Encode a black image with a white box at this place in the upright image."""
    seen = np.zeros((height, width, 3), np.uint8)
    seen[box[1] : box[3], box[0] : box[2]] = 255
    stored = np.ascontiguousarray(_pixels.apply_orientation(seen, INVERSE[value]))
    return encode(Image.fromarray(stored), quality=95, exif=with_orientation(value))


def found(image: np.ndarray) -> tuple[tuple[float, float], float]:
    """Return the white box's centre (x, y) and its area in pixels."""
    weights = image[:, :, 1].astype(float) / 255
    y, x = (np.mgrid[: image.shape[0], : image.shape[1]] + 0.5).reshape(2, *weights.shape)
    area = weights.sum()
    return ((x * weights).sum() / area, (y * weights).sum() / area), area


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("region", [None, (50, 33, 350, 290), (101, 70, 403, 301)])
def test_a_box_is_found_where_it_is_decoded_to(value: int, reduce: Any, region: Any) -> None:
    """Reduced, cut and turned: the mapped box is where the drawn one is seen, and as large.

    Neither side is a multiple of 8: a turned image begins with its incomplete blocks.
    """
    box = (120, 96, 227, 171)
    data = drawn(403, 301, box, value)

    image = decode(data, reduce, region=region, orient=True)
    geometry = Geometry.of_decode(probe(data), reduce, region=region, orient=True)

    assert geometry.size == image.shape[:2]
    left, top, right, bottom = geometry.boxes([box])[0]
    (x, y), area = found(image)
    assert (x, y) == pytest.approx(((left + right) / 2, (top + bottom) / 2), abs=0.03)
    assert area == pytest.approx((right - left) * (bottom - top), rel=0.02)


def test_stored_pixels_have_a_geometry_of_their_own() -> None:
    """Without `orient`, sizes and regions are those of the stored image."""
    data = drawn(403, 301, (0, 0, 9, 9), 6)
    header = probe(data)

    assert Geometry.of_decode(header) == Geometry((0, 0, 301, 403), (403, 301))
    assert Geometry.of_decode(header, 8) == Geometry((0, 0, 304, 408), (51, 38))
    assert Geometry.of_decode(header, 8, region=(9, 17, 64, 65)) == Geometry(
        (8, 16, 64, 72), (7, 7)
    )
    assert Geometry.of_decode(header, orient=True).size == (301, 403)
