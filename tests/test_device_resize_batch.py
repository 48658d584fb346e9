"""The resize of a batch on a device: what shares a buffer, what is launched, what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402 - it is torch

from fastdecode.gpu import _resize  # noqa: E402 - they need torch
from fastdecode.gpu._resize import grouped, in_parts, resized  # noqa: E402

NEEDS_CUDA = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="needs a CUDA device, and a PyTorch that is built with CUDA",
)
LATE = 20_000_000
"""Clock cycles: some 10 milliseconds."""


def ramp(height: int, width: int, *, device: str = "cpu") -> Any:
    """Make a smooth picture, so that no level depends on how sums are rounded."""
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    plane = (rows * 100 // height + columns * 100 // width).to(torch.uint8)
    return torch.stack([plane, plane + 20, 255 - plane]).to(device)


MIXED = [(60, 80), (8, 300), (61, 77), (300, 8), (1, 1), (59, 80), (290, 9), (70, 70)]


# ---- what shares a buffer ----


@given(st.lists(st.tuples(st.integers(1, 70000), st.integers(1, 70000)), max_size=40))
def test_padding_at_most_doubles_the_pixels(sides: list[tuple[int, int]]) -> None:
    """Each picture is in one group, and no large group is more than half padding."""
    made = grouped(sides)

    assert sorted(index for group in made for index in group) == list(range(len(sides)))
    for group in made:
        assert group == sorted(group)
        heights, widths = zip(*(sides[index] for index in group), strict=True)
        padded = len(group) * max(heights) * max(widths)
        own = sum(height * width for height, width in zip(heights, widths, strict=True))
        assert padded <= max(2 * own, _resize._NOTHING)


def test_one_large_picture_does_not_make_the_others_large() -> None:
    """Small pictures share a buffer of their own, and few buffers are enough."""
    sides = [(375, 500), (500, 375)] * 100
    sides[57] = (3000, 4000)

    made = grouped(sides)

    assert [57] in made
    assert len(made) == 2


@pytest.mark.parametrize(
    ("count", "most", "sizes"),
    [(1, 0, [1]), (5, 0, [1] * 5), (5, 5, [5]), (6, 5, [3, 3]), (7, 3, [3, 3, 1])],
)
def test_a_group_is_cut_into_even_parts(count: int, most: int, sizes: list[int]) -> None:
    """Parts are at most so large, hold at least one, and are about equal."""
    parts = list(in_parts(range(count), most))

    assert [len(part) for part in parts] == sizes
    assert [index for part in parts for index in part] == list(range(count))


@pytest.mark.parametrize("channels_last", [False, True])
def test_results_come_in_order(monkeypatch: pytest.MonkeyPatch, channels_last: bool) -> None:
    """However pictures are put together, each result is that of its picture alone."""
    images = [ramp(*sides) for sides in MIXED]
    flips = [index % 2 == 0 for index in range(len(images))]
    alone = [resized([i], (20, 30), flips=[f]) for i, f in zip(images, flips, strict=True)]
    for nothing, most in ((1 << 22, 1 << 28), (0, 1 << 28), (0, 1), (1 << 22, 300_000)):
        monkeypatch.setattr(_resize, "_NOTHING", nothing)
        monkeypatch.setattr(_resize, "_MOST", most)

        result = resized(images, (20, 30), flips=flips, channels_last=channels_last)

        layout = torch.channels_last if channels_last else torch.contiguous_format
        assert result.is_contiguous(memory_format=layout)
        assert (result.int() - torch.cat(alone).int()).abs().max() <= 1


# ---- where results go ----


@pytest.mark.parametrize("nothing", [0, 1 << 22])
def test_results_are_written_where_one_wants_them(
    monkeypatch: pytest.MonkeyPatch, nothing: int
) -> None:
    """`out` may have any strides; it is returned, and nothing beside it is written."""
    monkeypatch.setattr(_resize, "_NOTHING", nothing)
    images = [ramp(*sides) for sides in MIXED]
    room = torch.full((len(images) + 2, 31, 22, 4), 77, dtype=torch.uint8)
    out = room[1:-1, :30, 1:-1, :3].permute(0, 3, 2, 1)

    result = resized(images, (20, 30), out=out)

    assert result is out
    assert torch.equal(out, resized(images, (20, 30)))
    out.fill_(77)
    assert (room == 77).all()


def test_no_picture_gives_no_result() -> None:
    """An empty batch is empty, in the shape that others have."""
    assert resized([], (20, 30)).shape == (0, 3, 20, 30)
    assert resized([], (20, 30), boxes=[], flips=[]).dtype == torch.uint8
    out = torch.empty((0, 1, 20, 30), dtype=torch.uint8)
    assert resized([], (20, 30), out=out) is out


def test_autocast_changes_nothing() -> None:
    """Within autocast the products keep their precision."""
    images = [ramp(375, 500)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = resized(images, (224, 200))

    assert torch.equal(within, resized(images, (224, 200)))


def test_a_result_from_a_block_without_gradients_is_an_ordinary_one() -> None:
    """Results may be written into, and mode for inference does no harm."""
    out = torch.empty((1, 3, 20, 30), dtype=torch.uint8)
    with torch.inference_mode():
        resized([ramp(60, 80)], (20, 30), out=out)

    assert torch.equal(out, resized([ramp(60, 80)], (20, 30)))


# ---- what is launched ----


class Counting(TorchFunctionMode):
    """Count what is called of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def test_a_larger_batch_launches_only_more_copies() -> None:
    """Two products are enough for any number of pictures of like size."""
    looks = {"__get__", "__getitem__"}
    counted = []
    for count in (4, 64):
        images = [ramp(60 + index % 5, 80 - index % 7) for index in range(count)]
        with Counting() as mode:
            resized(images, (20, 30), flips=[index % 2 == 0 for index in range(count)])
        counted.append({name: n for name, n in mode.calls.items() if name not in looks})

    few, many = counted
    assert many.pop("copy_") - few.pop("copy_") == 60
    assert few == many
    assert many["bmm"] == 2


# ---- on a GPU ----


@NEEDS_CUDA
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # that it is a prototype
def test_nothing_waits_for_the_device() -> None:
    """No call synchronises, after a first that makes what libraries need."""
    images = [ramp(*sides, device="cuda") for sides in MIXED]
    resized(images, (20, 30))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = resized(images, (20, 30), boxes=[(0.5, 0, *i.shape[:0:-1]) for i in images])
    finally:
        torch.cuda.set_sync_debug_mode("default")

    assert result.is_cuda


@NEEDS_CUDA
def test_work_is_in_the_order_of_the_current_stream() -> None:
    """Pictures that come late, on a stream of one's own, are waited for; so is the result."""
    stream = torch.cuda.Stream()
    want = resized([ramp(60, 80, device="cuda")] * 5, (20, 30)).cpu()
    with torch.cuda.stream(stream):
        images = [torch.zeros(3, 60, 80, dtype=torch.uint8, device="cuda") for _ in range(5)]
        torch.cuda._sleep(LATE)
        for image in images:
            image.copy_(ramp(60, 80).pin_memory(), non_blocking=True)
        result = resized(images, (20, 30))
        del images, image
        torch.zeros(1 << 20, dtype=torch.uint8, device="cuda").fill_(255)
        have = result.cpu()

    assert (have.int() - want.int()).abs().max() <= 1


@NEEDS_CUDA
def test_memory_does_not_grow() -> None:
    """Buffers are used again: after the first batches nothing more is reserved."""
    images = [ramp(*sides, device="cuda") for sides in MIXED]
    reserved = []
    for _ in range(6):
        resized(images, (64, 64))
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())

    assert len(set(reserved[1:])) == 1


# ---- what is refused ----


GOOD = torch.zeros(3, 6, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ([GOOD, GOOD.float()], {}, r"images\[1\] must be uint8 .* of torch.float32"),
        ([GOOD, GOOD[0]], {}, r"images\[1\] must be uint8 of shape \(C, H, W\), not \(6, 8\)"),
        ([GOOD, GOOD[:, :0]], {}, r"images\[1\] must be .* not \(3, 0, 8\)"),
        ([GOOD, GOOD[:1]], {}, r"images\[1\] has 1 channels on cpu, but images\[0\] has 3"),
        ([GOOD, GOOD.to("meta")], {}, r"images\[1\] has 3 channels on meta"),
        ([GOOD], {"boxes": [(2, 0, 2, 6)]}, r"boxes\[0\] must be \(left, top, right, bottom\)"),
        ([GOOD], {"boxes": [(0, 5, 8, 4)]}, r"boxes\[0\] must be"),
        ([GOOD], {"boxes": [(0, float("nan"), 8, 6)]}, r"boxes\[0\] must be"),
        ([GOOD], {"boxes": [(0, 0, float("inf"), 6)]}, r"boxes\[0\] must be"),
        ([GOOD] * 2, {"boxes": [(0, 0, 8, 6), (8, 0, 9, 6)]}, r"boxes\[1\] .* outside .* 8 x 6"),
        ([GOOD], {"boxes": [(0, -3, 8, 0)]}, r"boxes\[0\] .* lies outside"),
        ([GOOD], {"boxes": []}, "there are 1 images, but 0 boxes"),
        ([GOOD], {"flips": [True, False]}, "there are 1 images, but 2 flips"),
        ([GOOD], {"size": (0, 5)}, "size must be"),
        ([GOOD], {"size": (5,)}, "size must be"),
        ([GOOD], {"size": (5.0, 5)}, "size must be"),
        ([GOOD], {"out": torch.zeros(1, 3, 5, 4, dtype=torch.uint8)}, r"out must be \(1, 3, 4, 5"),
        ([GOOD], {"out": torch.zeros(1, 3, 4, 5)}, "out must be .* not .* of torch.float32"),
        ([GOOD], {"out": torch.zeros(1, 3, 4, 5).byte().to("meta")}, "out must be .* on meta"),
    ],
)
def test_what_does_not_fit_is_refused(images: Any, options: Any, message: str) -> None:
    """The error says what is wrong, and with which picture."""
    with pytest.raises(ValueError, match=message):
        resized(images, **{"size": (4, 5), **options})


def test_other_types_are_refused() -> None:
    """An array is no tensor, and three numbers are no box."""
    with pytest.raises(TypeError, match=r"images\[1\] must be a tensor, not ndarray"):
        resized([GOOD, GOOD.numpy()], (4, 5))
    with pytest.raises(TypeError, match=r"boxes\[0\] must be four numbers"):
        resized([GOOD], (4, 5), boxes=[(0, 0, 8)])
