"""`fuse` and what it makes, on doubles of torchvision's transforms."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image as PillowImage

import fastdecode

torch = pytest.importorskip("torch")

from torchvision_doubles import (  # noqa: E402
    FLOAT,
    MEAN,
    STD,
    TENSOR,
    compose,
    crop,
    flip,
    normalize,
    resize,
    v1,
    v2,
)

from fastdecode.torch._fuse import Fused, fuse  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    Normalize,
    RandomResizedCrop,
    Resize,
)

PHOTO = (Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg").read_bytes()
BYTES: dict[str, Any] = {"mean": None, "dtype": torch.uint8}


def test_nothing_and_the_packages_own_are_returned() -> None:
    """None stays None, and what takes bytes already is not wrapped."""
    own = Resize(32)

    assert fuse(None) is None
    assert fuse(own) is own
    assert fuse(fuse(crop())).__class__ is Fused


class Seen:
    """A part of somebody's own that keeps what it was given."""

    def __call__(self, image: Any) -> Any:
        self.image = image
        return image


def test_the_rest_gets_what_it_would_have_got() -> None:
    """A Pillow image before the conversion, bytes after it, then floats."""
    for parts, kind in (
        ([resize((20, 30))], PillowImage.Image),
        ([resize((20, 30)), v1("PILToTensor")], torch.uint8),
        ([resize((20, 30)), TENSOR], torch.float32),
    ):
        seen = Seen()
        fused = fuse(compose(*parts, seen), quality="exact")
        result = fused(PHOTO)

        assert result is seen.image
        assert (result.dtype if isinstance(kind, torch.dtype) else type(result)) is kind
    fused = fuse(resize((20, 30)), quality="exact")
    pillow = fused(PHOTO)
    exact = Resize((20, 30), **BYTES, quality="exact")(PHOTO)
    expected = PillowImage.fromarray(exact.permute(1, 2, 0).numpy())
    assert fused.shape is None  # no batch memory for a Pillow image
    assert pillow.size == (30, 20)
    assert pillow.tobytes() == expected.tobytes()


def test_tensors_of_torchvisions_class_are_handed_out(monkeypatch: Any) -> None:
    """After ToImage the tensors are of the class that the user's torchvision has."""
    module = ModuleType("torchvision.tv_tensors")
    module.Image = type("Image", (torch.Tensor,), {})
    monkeypatch.setitem(sys.modules, "torchvision.tv_tensors", module)

    image = fuse(compose(v2("ToImage"), resize((20, 30), v2), FLOAT))
    pure = fuse(compose(v2("ToImage"), resize((20, 30), v2), FLOAT, v2("ToPureTensor")))
    left = fuse(compose(resize(), v2("ToImage"), flip()))

    assert type(image(PHOTO)) is module.Image
    assert type(pure(PHOTO)) is torch.Tensor
    assert len(left.rest) == 1  # v1 on such a tensor may or may not keep its class


def test_a_flip_that_never_happens_draws_as_well() -> None:
    """The global generator is where torchvision leaves it, which draws for p=0 too."""
    for p in (0.0, 0.5, 1.0):
        torch.manual_seed(1)
        fuse(compose(resize(), flip(p), TENSOR))(PHOTO)
        after = torch.get_rng_state()
        torch.manual_seed(1)
        torch.rand(1)
        assert torch.equal(after, torch.get_rng_state())


def test_a_slot_of_a_batch_is_written() -> None:
    """`out` may have any strides, and a rest writes into it as well."""
    expected = Resize((20, 30), mean=MEAN, std=STD)(PHOTO)
    for rest in ((), (Seen(),)):
        batch = torch.zeros((20, 30, 3, 2))
        slot = batch.permute(3, 2, 0, 1)[1]
        fused = fuse(compose(resize((20, 30)), TENSOR, normalize(), *rest))

        assert fused(PHOTO, out=slot) is slot
        assert torch.equal(slot, expected)
        assert not batch[..., 0].any()


def test_a_slot_that_does_not_fit_is_refused() -> None:
    """A Pillow image goes into no tensor, and a tensor into none of another shape or dtype."""
    with pytest.raises(ValueError, match="the result is Image"):
        fuse(resize((20, 30)))(PHOTO, out=torch.zeros((3, 20, 30)))
    for slot in (torch.zeros((3, 20, 31)), torch.zeros((3, 20, 30), dtype=torch.uint8)):
        for rest in ((), (Seen(),)):
            with pytest.raises(ValueError, match="out must be"):
                fuse(compose(resize((20, 30)), TENSOR, *rest))(PHOTO, out=slot)


def test_a_transform_of_the_package_may_begin_a_compose() -> None:
    """What follows it gets its tensors."""
    head, seen = RandomResizedCrop(32, flip=0.5), Seen()
    result = fuse(compose(head, seen))(PHOTO, generator=torch.Generator().manual_seed(4))

    assert result is seen.image
    assert torch.equal(result, head(PHOTO, generator=torch.Generator().manual_seed(4)))


def test_geometry_is_told_only_where_it_is_known() -> None:
    """A rest that changes values only keeps it; anything else might move pixels."""
    erasing = fuse(compose(resize((20, 30)), TENSOR))
    result, geometry = erasing.with_geometry(PHOTO)

    assert result.shape == (3, 20, 30)
    assert geometry == Resize((20, 30)).with_geometry(PHOTO)[1]
    known = Fused(Resize((20, 30), **BYTES), [Normalize()])
    assert known.with_geometry(PHOTO)[1] == geometry
    with pytest.raises(ValueError, match="may move pixels"):
        fuse(compose(resize((20, 30)), Seen())).with_geometry(PHOTO)


def test_it_can_be_pickled() -> None:
    """A copy in another process does the same."""
    fused = Fused(RandomResizedCrop(32, **BYTES, flip=0.5), [Normalize()], form="tensor", draws=1)
    copy = pickle.load(io.BytesIO(pickle.dumps(fused)))

    results = [one(PHOTO, generator=torch.Generator().manual_seed(2)) for one in (fused, copy)]
    assert torch.equal(*results)
    assert repr(copy) == repr(fused)


def test_repr_tells_what_was_fused() -> None:
    """The parts that were fused, what decodes, and what runs as written."""
    shown = repr(fuse(compose(crop(), flip(), TENSOR, normalize(), torch.nn.ReLU())))

    assert "fused: RandomResizedCrop, RandomHorizontalFlip, ToTensor, Normalize\n" in shown
    assert "decoded by: RandomResizedCrop(size=(64, 64)" in shown
    assert "as written: ReLU()" in shown


def test_wrong_options_are_refused() -> None:
    """Quality and headroom are checked; floats make no Pillow image."""
    with pytest.raises(ValueError, match="quality"):
        fuse(crop(), quality="best")
    with pytest.raises(ValueError, match="quality"):
        fuse(None, quality="default")
    with pytest.raises(ValueError, match="headroom"):
        fuse(crop(), headroom=0)
    with pytest.raises(ValueError, match="Pillow"):
        Fused(Resize(32, dtype=torch.float32), form="pil")
