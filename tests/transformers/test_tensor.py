"""The tensor that records what is done to an image, against the tensor that it stands for."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage
from same import assert_same

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers", minversion="5")

from torch.nn import functional  # noqa: E402
from torchvision.transforms.v2 import functional as tv  # noqa: E402

import fastdecode  # noqa: E402
from fastdecode.transformers import _tensor, accelerated  # noqa: E402
from fastdecode.transformers._picture import Picture  # noqa: E402
from fastdecode.transformers._tensor import RecordedImage  # noqa: E402

SAMPLE = Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg"
MODELS = ("CLIP", "Qwen2VL", "LlavaNext", "Idefics3", "DINOv3ViT", "Siglip2")
FILTERS = ["bilinear", "bicubic", "lanczos"]


def _small() -> bytes:
    stream = io.BytesIO()
    PillowImage.open(SAMPLE).resize((123, 90)).save(stream, "JPEG")
    return stream.getvalue()


PHOTO = _small()
Step = Callable[[list[Any]], Any]


def _recorded() -> RecordedImage:
    [image] = accelerated(transformers.CLIPImageProcessor()).fetch_images([PHOTO])
    return image


def _crop(data: Any) -> Step:
    at, share = data.draw(st.integers(0, 3)), data.draw(st.floats(0.1, 1))
    return lambda made: made[at % len(made)][
        ..., at : at + int(99 * share), -int(90 * share) : [None, -3, 10**6][at % 3]
    ]


def _resize(data: Any) -> Step:
    at, mode = data.draw(st.integers(0, 3)), data.draw(st.sampled_from(FILTERS))
    size = [data.draw(st.integers(1, 150)), data.draw(st.integers(2, 150))]  # 1 x 1 fails in torch
    return lambda made: tv.resize(
        made[at % len(made)], size, interpolation=tv.InterpolationMode(mode), antialias=True
    )


def _pad(data: Any) -> Step:
    at, border = data.draw(st.integers(0, 3)), [data.draw(st.integers(0, 30)) for _ in range(4)]
    fill = data.draw(st.sampled_from([0, 7, 255, 0.5]))
    return lambda made: functional.pad(made[at % len(made)], border, value=fill)


def _floats(data: Any) -> Step:
    at = data.draw(st.integers(0, 3))
    mean, std = torch.tensor([0.1, 0.5, 0.7])[:, None, None], data.draw(st.floats(0.01, 300))
    changes = [
        lambda one: one.to(torch.float32),
        lambda one: one.float().sub_(mean).div_(std),
        lambda one: (one * (1 / 255) - mean) / std,
        lambda one: one.float().unsqueeze(0).mul_(std)[0],
        lambda one: one / 127.5 - 1,
    ]
    change = data.draw(st.sampled_from(changes))
    return lambda made: change(made[at % len(made)])


def _in_place(data: Any) -> Step:
    at, value = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 200))
    changes = [
        lambda one: one.add_(value),
        lambda one: one.__setitem__((..., slice(0, 9), slice(0, 5)), value),
        lambda one: torch.mul(one, 1, out=one),
    ]
    change = data.draw(st.sampled_from(changes))

    def changed(made: list[Any]) -> Any:
        change(made[at % len(made)])
        return made[at % len(made)]

    return changed


def _cut(data: Any) -> Step:
    """Cut an image into patches, as a processor does, in any order of the axes."""
    at, order = data.draw(st.integers(0, 3)), data.draw(st.permutations(range(5)))
    rows, columns, repeats = (data.draw(st.integers(1, 3)) for _ in range(3))

    def cut(made: list[Any]) -> Any:
        image = made[at % len(made)]
        *_, height, width = image.shape
        sizes = (3, rows, height // rows, columns, width // columns)
        patches = image.reshape(sizes).permute(order).unsqueeze(2)
        return patches.expand(-1, -1, repeats, -1, -1, -1).reshape(sizes[order[0]], -1)

    return cut


def _tiles(data: Any) -> Step:
    at, side = data.draw(st.integers(0, 3)), data.draw(st.integers(5, 40))
    which, dim = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 1))

    def tiles(made: list[Any]) -> Any:
        image = made[at % len(made)][None]
        squares = image.unfold(2, side, side).unfold(3, side, side).contiguous()
        frames = squares.view(1, 3, -1, side, side).permute(0, 2, 1, 3, 4)
        small = tv.resize(image, [side, side], antialias=True)
        batch = torch.cat((frames, small.unsqueeze(1)), dim=1)
        return torch.stack([one.float() for one in batch[0]], dim)[which % len(batch[0])]

    return tiles


def _other(data: Any) -> Step:
    at = data.draw(st.integers(0, 3))
    others = [
        *(lambda one: one.flip(-1), lambda one: one[0], lambda one: one.unsqueeze(0).squeeze(0)),
        *(lambda one: one.reshape(-1, *one.shape[-3:])[0], lambda one: one[..., ::2, :]),
        *(lambda one: one.clone(), lambda one: one.permute(0, 2, 1), lambda one: one[None]),
        *(lambda one: one.unbind(-1)[0], lambda one: one.movedim(0, -1), torch.zeros_like),
        *(lambda one: torch.stack((one, one)), lambda one: one.split(2, -2)[0].bfloat16()),
        *(lambda one: one.to(torch.float64), lambda one: one.view(torch.int8), torch.Tensor.numpy),
    ]
    change = data.draw(st.sampled_from(others))
    return lambda made: change(made[at % len(made)])


def _done(step: Step, made: list[Any]) -> Any:
    """Return what a step returns, or the kind of its error."""
    try:
        return step(made)
    except Exception as error:
        return type(error)


@settings(max_examples=examples(150))
@given(st.data())
def test_any_calls_have_the_results_of_a_tensor(data: Any) -> None:
    """Whatever is called, in any order, also on parts of the same memory that are changed."""
    made, wanted = [_recorded()], [torch.from_numpy(fastdecode.decode(PHOTO)).permute(2, 0, 1)]
    wanted = [wanted[0].contiguous()]
    kinds = (_crop, _resize, _pad, _floats, _cut, _tiles, _in_place, _other)
    for make in data.draw(st.lists(st.sampled_from(kinds), max_size=7)):
        step = make(data)
        got, right = _done(step, made), _done(step, wanted)
        if isinstance(right, torch.Tensor):
            made.append(got)
            wanted.append(right)
            assert got.shape == right.shape
            assert got.dtype == right.dtype
        else:
            assert_same(got, right)
    for got, right in zip(made, wanted, strict=True):
        assert_same(got.made() if isinstance(got, RecordedImage) else got, right)


@pytest.mark.parametrize("batch", [torch.stack, torch.cat])
def test_batches_are_recorded(batch: Any) -> None:
    """Of pictures of one kind of values, and of parts of pictures; they are made together."""
    size = {"interpolation": tv.InterpolationMode.BICUBIC, "antialias": True}

    def several() -> list[Any]:
        made = [tv.resize(_recorded()[:, 3 * at :], [50, 60], **size).float() for at in range(5)]
        return [*made, made[0][..., :50, :]]

    fresh, plain = several(), [one.made() for one in several()]
    made = batch(fresh)
    assert isinstance(made, RecordedImage)
    assert all(one.picture.values is None for one in fresh)
    assert_same(made.sub_(3).made(), batch(plain) - 3)
    assert_same(fresh[0].made(), plain[0])
    image, copy_ = _recorded(), _recorded().made()
    pairs = [
        batch([one.reshape(3, 3, 30, -1).permute(1, 0, 2, 3).reshape(3, -1)] * 2)
        for one in (image, copy_)
    ]
    image.add_(1)  # of which the patches are copies
    assert_same(pairs[0].made(), pairs[1])
    tiles = [fresh[1][..., :20, :], fresh[1][..., 20:40, :]]
    assert_same(batch(tiles), batch([plain[1][..., :20, :], plain[1][..., 20:40, :]]))


def test_colours_and_memory_are_recorded() -> None:
    """A pad with a colour for each channel, and an image that becomes a part of a batch."""
    batch, border = torch.zeros(2, 3, 92, 127, dtype=torch.uint8), {"fill": [3, 200, 7]}
    made, wanted = (
        tv.pad(one, [1, 2, 3, 0], **border) for one in (_recorded(), _recorded().made())
    )
    batch[1] = made
    assert made.picture.values is None
    assert_same(batch[1], wanted)
    made[..., :9, :5] = wanted[..., :9, :5] = 7
    assert made.picture.values is None
    before = made.float()
    made[..., :2, 0] = wanted[..., :2, 0] = 9
    assert_same(made.made(), wanted)
    assert_same(before.made()[:, 2:], wanted[:, 2:].float())
    assert (before.made()[:, :2, 0] == 7).all()


def test_results_hold_no_cycle() -> None:
    """The memory of a request is given back at once, not when garbage is collected."""
    processors = [accelerated(getattr(transformers, f"{one}ImageProcessor")()) for one in MODELS]
    gc.collect()
    gc.disable()
    try:
        for processor in processors:
            processor([PHOTO, PHOTO], return_tensors="pt")
        left = [one for one in gc.get_objects() if type(one) is Picture]
    finally:
        gc.enable()
    assert not left


@pytest.mark.parametrize("form", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["Qwen2VL", "Glm4v", "Siglip2", "HunYuanVL", "Cosmos3Edge"])
def test_patches_are_written_by_the_core(
    kind: str, form: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the layout of each model, with a size that is not square, repeated where it asks."""
    own = getattr(transformers, f"{kind}ImageProcessor")()
    raw = {"do_rescale": False, "do_normalize": False} if form is torch.uint8 else {}
    wanted: list[Any] = []
    right = own(PillowImage.open(io.BytesIO(PHOTO)), return_tensors="pt", **raw)["pixel_values"]
    stored = _tensor._library.stored
    monkeypatch.setattr(
        _tensor._library, "stored", lambda *a, **k: (wanted.append(k), stored(*a, **k))[1]
    )
    if form is torch.bfloat16:
        to = type(own).rescale_and_normalize
        monkeypatch.setattr(type(own), "rescale_and_normalize", lambda *a: to(*a).to(form))
    made = accelerated(own)(PHOTO, return_tensors="pt", **raw)["pixel_values"]
    assert_same(made, right.to(form))
    assert [one["patches"] is not None for one in wanted] == [True]


def test_it_is_an_ordinary_tensor_to_others() -> None:
    """Copies, pickles, `repr`, NumPy and functions of torch's core."""
    wanted = torch.from_numpy(fastdecode.decode(PHOTO)).permute(2, 0, 1).contiguous()
    assert_same(copy.deepcopy(_recorded()), wanted)
    assert_same(pickle.loads(pickle.dumps(_recorded())), wanted)
    assert repr(_recorded()) == repr(wanted)
    assert_same(_recorded().numpy(), wanted.numpy())
    assert_same(torch.ops.aten.flip(_recorded(), [0]), wanted.flip(0))
    assert type(_recorded() + _recorded()) is torch.Tensor


def test_tensors_like_a_recorded_one_have_its_type() -> None:
    """Or the one that is named."""
    image = _recorded()
    for like in (torch.zeros_like, torch.ones_like):
        assert like(image).dtype == image.dtype == torch.uint8
        assert like(image, dtype=torch.int64).dtype == torch.int64
