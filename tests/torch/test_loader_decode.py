"""`Loader(decode=…)`, here with a double of a batch backend, and `normalize_on="device"`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from device_doubles import (  # noqa: F401
    CMYK,
    CUT,
    NO_END,
    PHOTOS,
    PNG,
    PROGRESSIVE,
    decode_all,
    own_registry,
    raising,
    refusing,
    register_double,
    registry_with_cpu_backends,
)
from loading import (
    EXACT,
    LEVEL,
    PROCESS_WARNINGS,
    Images,
    Plain,
    Sources,
    add_random,
    copies,
    device_loader,
    epoch,
    epochs,
    indices,
)
from loading import SeededLoader as Loader
from same import assert_same

from fastdecode import stats
from fastdecode.native._augment import Operation, Program, do
from fastdecode.torch import Fused
from fastdecode.torch._loader.transfer import Transfer
from fastdecode.torch.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)

pytestmark = pytest.mark.usefixtures("registry_with_cpu_backends")


@pytest.mark.parametrize(
    "transform",
    [
        EXACT,
        RandomResizedCropFlipNormalize((30, 20), flip=1.0, quality="exact"),
        ResizeCenterCropNormalize(30, 24, quality="exact"),
        ResizeCenterCropNormalize(80, 24, quality="exact", flip=0.5),
        Resize((50, 30), dtype=torch.float32, quality="exact"),
    ],
    ids=repr,
)
def test_the_same_crops_of_the_same_items(transform: Any) -> None:
    """Order, labels, boxes and flips of two shuffled epochs are equal, also in the short batch."""
    double = register_double(decode_all)

    loader = Loader(Images(), 4, decode="double")
    assert (loader.decoding, loader.workers, "decode='double'" in repr(loader)) == (
        "double",
        0,
        True,
    )
    ours = epochs(2, Images(transform), 5, shuffle=True, decode="double")
    theirs = epochs(2, Images(transform), 5, shuffle=True)

    assert_same(ours, theirs, within=LEVEL)
    assert double.asked == [5, 5, 5, 5, 3] * 2


@pytest.mark.parametrize("how", [refusing, raising])
@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("channels_last", [False, True])
def test_refused_images_are_decoded_on_the_cpu(how: Any, threads: int, channels_last: bool) -> None:
    """The pixels of refused images, and of batches that failed, are those of the CPU."""
    odd = {id(PHOTOS[at]) for at in (1, 3)}
    register_double(how(lambda item: id(item.data.obj) in odd, decode_all))
    options = {"threads": threads, "channels_last": channels_last}
    files = Sources(*PHOTOS, transform=EXACT)

    ours = epoch(files, decode="double", **options)
    theirs = epoch(files, **options)

    assert_same(ours, theirs, within=LEVEL)
    refused = (1, 3) if how is refusing else (0, 1, 2, 3)
    assert stats().fallbacks[("double", "cpu")] == len(refused)
    for (images, numbers), (expected, _) in zip(ours, theirs, strict=True):
        for image, other, index in zip(images, expected, numbers.tolist(), strict=True):
            if index in refused:
                assert_same(image, other, index)


def test_odd_and_damaged_files_join_in_order() -> None:
    """Progressive, CMYK, PNG and cut files: readable ones join, others are skipped and recorded."""
    double = register_double(decode_all)
    files = [CUT, PHOTOS[0], PROGRESSIVE, CMYK, PHOTOS[1], PNG, b"", NO_END, PHOTOS[2], b"no"]

    def run(**options: Any) -> Any:
        dataset = Sources(*files, transform=EXACT, on_error="skip")
        with Loader(dataset, 4, threads=2, **options) as loader:
            made = copies(loader)
            return made, loader.skipped, sorted(one.index for one in dataset.errors)

    ours, theirs = run(decode="double"), run()

    assert_same(ours[0], theirs[0], within=LEVEL)
    assert ours[1:] == theirs[1:]
    assert sum(double.asked) == 3


class Counted(Sources):
    """A dataset that counts the transforms of targets, and reads no file for None."""

    def __init__(self, files: Any) -> None:
        super().__init__(
            *files, transform=EXACT, target_transform=self.transformed, on_error="skip"
        )
        self.transformed_of: Counter[int] = Counter()

    def read(self, index: int) -> tuple[Any, Any]:
        data, target = super().read(index)
        if data is None:
            raise FileNotFoundError("none")
        return data, target

    def transformed(self, target: int) -> int:
        self.transformed_of[target] += 1
        return -target


@pytest.mark.parametrize("threads", [0, 2])
def test_files_that_the_backend_decodes_are_read_once(threads: int) -> None:
    """The dataset makes the others, and reads them again for that."""
    register_double(refusing(lambda item: id(item.data.obj) == id(PHOTOS[3]), decode_all))
    files = [PHOTOS[0], PROGRESSIVE, CMYK, PHOTOS[3], CUT, None, PNG, PHOTOS[4]]
    dataset = Counted(files)

    ours = epoch(dataset, decode="double", threads=threads)

    assert_same(ours, epoch(Counted(files), threads=threads), within=LEVEL)
    assert indices(ours) == [0, -1, -2, -3, -6, -7]
    assert Counter(dataset.reads) == {at: 1 if at in (0, 7) else 2 for at in range(8)}
    assert dataset.transformed_of == {at: 2 if at == 3 else 1 for at in (0, 1, 2, 3, 6, 7)}


# Bytes that the device normalises

NORMALISED = [
    RandomResizedCropFlipNormalize(24),
    RandomResizedCrop((20, 31), quality="exact", mean=(0.1, 0.2, 0.3), std=(0.5, 2.0, 1.0)),
    ResizeCenterCrop(40, 60, dtype=torch.float32),
    Resize((16, 18), flip=0.5, mean=IMAGENET_MEAN, std=IMAGENET_STD),
    Fused(RandomResizedCropFlipNormalize(24, flip=0.0)),
]


@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
@pytest.mark.parametrize("transform", NORMALISED, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("options", [{}, {"channels_last": True}, {"workers": 2}], ids=str)
@pytest.mark.parametrize("disabled", ["", "native"])
def test_floats_are_those_of_the_host(
    transform: Any, options: dict[str, Any], disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any transform, layout and maker of samples, floats are bit-identical."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    options = {
        "shuffle": True,
        "seed": 3,
        **({} if "workers" in options else {"threads": 2}),
        **options,
    }
    with device_loader(Images(transform), 5, **options) as loader:
        ours = copies(loader)
    theirs = epoch(Images(transform), 5, **options)

    assert_same(ours, theirs)
    for (images, _), (expected, _) in zip(ours, theirs, strict=True):
        assert images.dtype == torch.float32
        assert images.stride() == expected.stride()


@pytest.mark.parametrize("normalize_on", ["host", "device"])
def test_bytes_are_copied_where_the_device_normalises(
    monkeypatch: pytest.MonkeyPatch, normalize_on: Any
) -> None:
    """Bytes are copied to another device, and the consumer gets floats."""
    staged: list[Any] = []
    original = Transfer.stage

    def stage(self: Transfer, batch: Any) -> Any:
        staged.append(batch.batch[0].dtype)
        return original(self, batch)

    monkeypatch.setattr(Transfer, "stage", stage)
    with Loader(Images(), 8, threads=2, device="meta", normalize_on=normalize_on) as loader:
        for images, _ in loader:
            assert (images.dtype, images.device.type) == (torch.float32, "meta")

    assert set(staged) == {torch.uint8 if normalize_on == "device" else torch.float32}


# Leaving before the end, and what was chosen


class Shared(RandomResizedCrop):
    """A dataset that draws from global generators."""

    isolated = False


class Own(Images):
    """A dataset with its own `__getitem__`."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


CROP = RandomResizedCropFlipNormalize(24)
LATER = {"normalize_on": "device"}
DECODE = {"decode": "double"}
GREY = CROP.but(program=Program([*CROP.program, *do(Operation("grey"))]))
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (Plain(lambda index: index), LATER, "Plain"),
    (Images(add_random), LATER, "transform"),
    (Images(Fused(CROP, [add_random])), LATER, "function"),
    (Images(RandomResizedCrop(24, dtype=torch.uint8, flip=0.5)), LATER, "float32"),
    (Images(Resize(24)), LATER, "size"),
    (Own(), LATER, "Own has its own __getitem__"),
    (Images(), LATER | {"collate_fn": list}, "collate_fn"),
    (Images(), DECODE | {"workers": 2}, "workers"),
    (Images(), DECODE | {"collate_fn": list}, "collate_fn"),
    (Images(Resize(24)), DECODE, "size"),
    (Images(Shared(24)), DECODE, "isolated = True"),
    (Images(GREY), DECODE, "augmentations"),
    (Images(RandomResizedCrop(24, interpolation="bicubic")), DECODE, "bilinear"),
]
INSTEAD = {"normalize_on": "normalize_on='host'", "decode": "decode='cpu'"}


@pytest.mark.parametrize(("dataset", "options", "why"), REFUSED)
def test_what_is_not_possible_is_refused_with_the_reason(
    dataset: Any, options: Any, why: str
) -> None:
    """The error names the option, what does not allow it, and what to do instead."""
    register_double(decode_all)

    with pytest.raises(ValueError, match=why) as caught:
        Loader(dataset, **({"threads": 1} if "workers" not in options else {}), **options)

    assert INSTEAD[next(iter(options))] in str(caught.value)
