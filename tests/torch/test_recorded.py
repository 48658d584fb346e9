"""Recorded samples: tensors whose values are made when they are used, and a `Loader` of them."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import random
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import COUNT, PROCESS_WARNINGS, Seeded, generator_states
from PIL import Image, ImageOps
from random_transforms import WITHOUT_SHRINKING
from same import assert_same
from torch.utils.data import DataLoader, Dataset, StackDataset, Subset, default_collate

import fastdecode
from fastdecode.native import _library
from fastdecode.torch import Loader, _recorded, fuse
from fastdecode.torch._recorded import LazyTensor

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
tv_tensors = pytest.importorskip("torchvision.tv_tensors")

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)

CROP = v1.RandomResizedCrop((24, 24), (0.08, 1.0), (0.75, 1.3))
END = [v1.ToTensor(), v1.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))]
FUSED = fuse(v1.Compose([CROP, v1.RandomHorizontalFlip(), *END]))
OF_V2 = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
CROP_V2 = v2.RandomResizedCrop((24, 24))
IMAGES = fuse(v2.Compose([CROP, v2.RandomHorizontalFlip(), *OF_V2]))
DRAWN = [v2.RandomHorizontalFlip(), v2.ColorJitter(0.3), v2.RandomRotation(20)]
BOTH = fuse(v2.Compose([CROP_V2, v2.RandomHorizontalFlip(), v2.ColorJitter(0.3), *OF_V2]))
BYTES = fuse(v1.Compose([v1.Resize((24, 24)), v1.PILToTensor()]))


def _pair(folder: Path, number: int = 0, fused: Any = FUSED) -> tuple[Any, torch.Tensor]:
    """Return a recorded sample, and the same as an ordinary tensor."""
    path = folder / f"{number}.jpg"
    torch.manual_seed(number)
    recorded = fused(fastdecode.open(path))
    torch.manual_seed(number)
    return recorded, fused(path.read_bytes())


def _is_recorded(found: Any) -> bool:
    return isinstance(found, LazyTensor) and found._recordings is not None


def _rgb(image: Any) -> Any:
    return image.convert("RGB")


def _in_place(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(tensor: Any) -> Any:
        change(tensor)
        return tensor

    return changed


USES: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: x * 2 + x,
    "comparison": lambda x: x == x.mean(),
    "-=": lambda x: x.__isub__(0.5),
    "sub_": _in_place(lambda x: x.sub_(0.5)),
    "assignment": _in_place(lambda x: x.__setitem__(0, 1.0)),
    "a view is changed": _in_place(lambda x: x[1].zero_()),
    "out=": _in_place(lambda x: torch.add(x, 1, out=x)),
    "slice": lambda x: x[:, 3:5],
    "rows": list,
    "channels": lambda x: x.permute(1, 2, 0),
    "T": lambda x: x.mT,
    "data": lambda x: x.data,
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(memory_format=torch.contiguous_format),
    "to": lambda x: x.to(torch.float64),
    "type": lambda x: x.double(),
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x[0, 0, 0].item(),
    "bool": lambda x: bool((x < 9).all()),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "stack at the end": lambda x: torch.stack((x, x), -1),
    "stack with others": lambda x: torch.stack([x, x + 1]),
    "where": lambda x: torch.where(x > 0, x, -x),
    "module": lambda x: torch.nn.functional.avg_pool2d(x[None], 3),
    "operator": lambda x: torch.ops.aten.mul.Tensor(x, 2),
    "vmap": torch.vmap(lambda row: row * 2),
    "dlpack": torch.from_dlpack,
    "storage": lambda x: x.untyped_storage().nbytes(),
    "as_tensor": torch.as_tensor,
    "view": lambda x: x.view(3, -1),
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "queue": lambda x: pickle.loads(bytes(ForkingPickler.dumps(x))),
    "repr": repr,
    "format": lambda x: f"{x}",
    "hash": lambda x: isinstance(hash(x), int),
    "save": lambda x: _saved([x]),
    "gradient": lambda x: _gradient(x[None]),
    "stack along an axis": lambda x: torch.stack([x, x], axis=1),
    "subclass": lambda x: x.as_subclass(Own),
    "unsqueeze_": _in_place(lambda x: x.unsqueeze_(0)),
    "transpose_": _in_place(lambda x: x.transpose_(0, 2)),
    "resize_": _in_place(lambda x: x.resize_(2, 3)),
    "requires_grad": _in_place(lambda x: setattr(x, "requires_grad", True)),
    "requires_grad_": lambda x: x.requires_grad_().requires_grad,
    "set data": _in_place(lambda x: setattr(x, "data", torch.zeros(2))),
    "what it is": lambda x: (x.unsqueeze_(0), x.shape, x.dim(), len(x), x.requires_grad)[1:],
    "inference": lambda x: _gradient(_inferred(x)),
    "torch.func": lambda x: torch.func.grad(lambda y: (y * x).sum())(torch.ones(3, 1, 1)),
}


class Own(torch.Tensor):
    """A class of one's own."""


def _compiled(x: Any) -> Any:
    return torch.compile(lambda y: (y.mul_(2) + 1).sum(), backend="eager")(x)


def _inferred(x: Any) -> Any:
    with torch.inference_mode():
        x.sum()
    return x


def _saved(x: Any) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _gradient(x: Any) -> Any:
    weight = torch.ones(3, 1, 1, requires_grad=True)
    (x * weight).sum().backward()
    return weight.grad


USES["compiled"] = _compiled


def _in_v2(step: Any, image: Any) -> Any:
    torch.manual_seed(3)
    return step(image, {"label": 3})[0]


OF_IMAGES: dict[str, Callable[[Any], Any]] = {
    **{
        f"v2 {type(step).__name__}": functools.partial(_in_v2, step)
        for step in (
            *(v2.RandomHorizontalFlip(1), v2.RandomResizedCrop(9), v2.RandomErasing(1)),
            *(v2.ToPureTensor(), v2.ToDtype(torch.float64)),
        )
    },
    "vertical_flip": v2.functional.vertical_flip,
    "get_size": v2.functional.get_size,
    "to_pil_image": v2.functional.to_pil_image,
    "invert": v2.functional.invert,
    "isinstance": lambda x: isinstance(x, tv_tensors.Image) and issubclass(x.__class__, type(x)),
    "method wrap": lambda x: x.wrap(torch.ones(3), like=x),
    "wrap": lambda x: tv_tensors.wrap(torch.zeros(3, 2, 2), like=x),
    "flipped, changed": lambda x: v2.functional.horizontal_flip(x).add_(1),
}
"""What torchvision does with its images: it asks for the class, and wraps results in it."""


@pytest.mark.parametrize(
    ("fused", "use"),
    [(FUSED, USES[name]) for name in USES] + [(IMAGES, use) for use in (USES | OF_IMAGES).values()],
    ids=[*USES, *(f"{name} of an Image" for name in USES | OF_IMAGES)],
)
def test_it_is_a_tensor_to_everyone(folder: Path, fused: Any, use: Callable[[Any], Any]) -> None:
    """Whatever is done with it has the result that it has with an ordinary tensor."""
    recorded, ordinary = _pair(folder, fused=fused)
    assert _is_recorded(recorded)
    assert isinstance(recorded, type(ordinary))

    made, expected = use(recorded), use(ordinary)

    assert _class(made) == _class(expected)
    assert_same(made, expected)
    assert_same(recorded, ordinary)


def _class(made: Any) -> Any:
    """Return the class of a result; that of a recorded tensor is the one that it becomes."""
    if isinstance(made, list):
        return [*map(_class, made)]
    return made._kind or torch.Tensor if isinstance(made, LazyTensor) else type(made)


def test_a_batch_is_of_the_class_that_torchvision_is_told(folder: Path) -> None:
    """Torch's stack makes a tensor of its images, or an image again."""
    pairs = [_pair(folder, number, IMAGES) for number in range(3)]
    with tv_tensors.set_return_type("TVTensor"):
        made, expected = (torch.stack(list(those)) for those in zip(*pairs, strict=True))
        assert _class(made) is _class(expected) is tv_tensors.Image
        assert_same(made, expected)


def test_what_is_recorded_for_another_size_is_an_error(folder: Path) -> None:
    """Operations of a larger image would read behind the pixels of this one."""
    recorded, _ = _pair(folder)
    (one,) = recorded._recordings
    wider = one.drawn._replace(width=2 * one.drawn.width)
    recorded._recordings[:] = [one._replace(drawn=wider)]

    with pytest.raises(fastdecode.DecodeError, match="recorded for"):
        recorded.sum()


def test_what_it_says_of_itself_needs_no_values(folder: Path) -> None:
    """Shape, type and device are known before."""
    recorded, ordinary = _pair(folder)

    for tell in (
        lambda x: x.shape,
        lambda x: x.size(1),
        lambda x: (x.dim(), x.ndim, len(x), x.numel()),
        lambda x: (x.dtype, x.device, x.layout, x.is_floating_point()),
        lambda x: (x.requires_grad, x.is_cuda, x.is_sparse, x.is_contiguous()),
        lambda x: isinstance(x, torch.Tensor),
    ):
        assert tell(recorded) == tell(ordinary)

    assert _is_recorded(recorded)


def test_a_queue_gets_what_is_recorded_and_a_file_the_values(folder: Path) -> None:
    """A process that gets it at once makes it; what is kept does not depend on the photo."""
    recorded, ordinary = _pair(folder)

    sent = bytes(ForkingPickler.dumps(recorded))
    received = pickle.loads(sent)

    assert len(sent) < (folder / "0.jpg").stat().st_size + 2000
    assert _is_recorded(received)
    assert_same(received, ordinary)
    assert type(pickle.loads(pickle.dumps(recorded))) is torch.Tensor


@pytest.mark.parametrize("fused", [FUSED, BYTES], ids=["floats", "bytes"])
@pytest.mark.parametrize("workers", [0, 2])
def test_they_are_stacked_by_default_collate(folder: Path, fused: Any, workers: int) -> None:
    """In this process, and in a worker of PyTorch's own DataLoader, into its shared memory."""
    pairs = [_pair(folder, number, fused) for number in range(8)]
    recorded = [one for one, _ in pairs]

    loader = DataLoader(recorded, 4, num_workers=workers)  # type: ignore[arg-type]

    batches = [*loader]
    assert all(type(batch) is torch.Tensor for batch in batches)
    assert_same(torch.cat(batches), torch.stack([ordinary for _, ordinary in pairs]))


def test_a_sample_that_is_kept_is_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset that keeps its samples has them decoded for two batches, and not for the third."""
    kept = [_pair(folder)[0] for _ in range(2)]
    expected, _ = default_collate(kept), default_collate(kept)

    monkeypatch.setattr(_recorded, "make", pytest.fail)

    assert_same(default_collate(kept), expected)


def test_damage_names_the_file(folder: Path, tmp_path: Path) -> None:
    """When the values are made."""
    data = (folder / "0.jpg").read_bytes()
    path = tmp_path / "photo.jpg"
    path.write_bytes(data[: len(data) // 2] + data[-2:])
    torn = FUSED(fastdecode.open(path))

    with pytest.raises(fastdecode.DecodeError, match=r"photo\.jpg"):
        torn.sum()


class OneTemporaryFile(Dataset[Any]):
    """Each sample goes through the same file, as those of archives and videos do."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder, self.place = folder, place

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        path = self.place / "frame.jpg"
        path.write_bytes((self.folder / f"{index}.jpg").read_bytes())
        image = BYTES(fastdecode.open(path))
        path.unlink()
        return image


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_may_be_another_one_or_gone_later(
    folder: Path, tmp_path: Path, workers: int
) -> None:
    """A sample is of what was in the file when it was opened."""
    expected = [_pair(folder, number, BYTES)[1] for number in range(COUNT)]

    with Loader(OneTemporaryFile(folder, tmp_path), 6, num_workers=workers) as loader:
        got = torch.cat([*loader])

    assert_same(got, torch.stack(expected))


def _transposed(image: Any, method: Any) -> Any:
    return image.transpose(method)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a part": lambda image: image.crop((3, 4, 50, 40)),
    "a part of a part": lambda image: image.crop((1, 2, 50, 40)).crop((2, 3, 40, 30)),
    "mirrored": ImageOps.mirror,
    "resized": lambda image: image.resize((40, 31)),
    "resized, mirrored, a part": lambda image: ImageOps.mirror(
        image.resize((40, 50), Image.Resampling.LANCZOS)
    ).crop((1, 2, 39, 50)),
    "a part, resized": lambda image: image.crop((2, 2, 40, 41)).resize((64, 30)),
    **{
        f"transpose {method.name}": functools.partial(_transposed, method=method)
        for method in Image.Transpose
    },
    "mirrored often": lambda image: functools.reduce(
        lambda one, _: ImageOps.mirror(one), range(50), image
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    "steps",
    [
        [v1.ToTensor()],
        [v1.Resize(28), v1.CenterCrop(24), *END],
        [v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), *END],
        [v1.Resize((24, 24)), v1.RandomRotation(30), v1.ToTensor()],
    ],
    ids=["as it is", "evaluation", "training", "augmented"],
)
def test_what_is_done_to_an_image_before_is_recorded(
    folder: Path, change: Callable[[Any], Any], steps: list[Any]
) -> None:
    """Crops, resizes and mirror images are made with the sample, within a level of the image."""
    for number in range(3):
        path = folder / f"{number}.jpg"
        torch.manual_seed(number)
        made = fuse(v1.Compose(steps))(change(fastdecode.open(path).convert("RGB")))
        torch.manual_seed(number)
        expected = v1.Compose(steps)(change(Image.open(path).convert("RGB")))

        assert _is_recorded(made)
        levels = 1e-6 if len(steps) == 1 else 1.01 / 255 / 0.2
        assert_same(made, expected, path, within=levels)


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image.resize((40, 31), box=(1, 2, 30, 31)),
        lambda image: image.resize((40, 31), Image.Resampling.NEAREST),
        lambda image: image.rotate(20),
        lambda image: (image.load(), image)[1],
        lambda image: image.crop((-3, 4, 50, 40)),
        lambda image: image.convert("L").convert("RGB"),
    ],
)
def test_what_the_core_does_not_do_is_done_before(
    folder: Path, change: Callable[[Any], Any]
) -> None:
    """It has Pillow's pixels."""
    path = folder / "0.jpg"
    made = fuse(v1.ToTensor())(change(fastdecode.open(path).convert("RGB")))

    assert not _is_recorded(made)
    assert_same(made, v1.ToTensor()(change(Image.open(path).convert("RGB"))))


@pytest.mark.parametrize(
    "steps",
    [
        [_rgb, v1.Resize((24, 24)), *END],
        [v1.Resize(28), v1.CenterCrop(24), _rgb, *END],
        [CROP, v1.RandomHorizontalFlip(), v1.Lambda(_rgb), v1.ToTensor()],
        [CROP, ImageOps.invert, v1.ToTensor()],
    ],
)
def test_what_follows_a_step_of_ones_own_is_recorded(folder: Path, steps: list[Any]) -> None:
    """The steps up to it are called with the image; pixels that they make go on as bytes."""
    path = folder / "0.jpg"
    torch.manual_seed(3)
    made = fuse(v1.Compose(steps))(fastdecode.open(path).convert("RGB"))
    torch.manual_seed(3)
    expected = v1.Compose(steps)(Image.open(path).convert("RGB"))

    assert _is_recorded(made)
    assert_same(made, expected, within=1.01 / 255 / 0.2)


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (500, 375)])
def test_pixels_that_a_step_makes_are_kept(folder: Path, size: tuple[int, int]) -> None:
    """They travel as a file, which is resized as any other, and refused if it is cut off."""
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8)
    resize = v1.Compose([v1.Resize((9, 8)), v1.ToTensor()])

    made, whole = (
        fuse(v1.Compose([lambda _: Image.fromarray(pixels), *steps]))(
            fastdecode.open(folder / "0.jpg").convert("RGB")
        )
        for steps in ([resize], [v1.PILToTensor()])
    )

    assert _is_recorded(made) is (pixels.nbytes <= made.nbytes)  # as many as a batch has are kept
    assert _is_recorded(whole)
    assert_same(made, resize(Image.fromarray(pixels)), within=1.01 / 255)
    assert_same(whole.permute(1, 2, 0).numpy(), pixels)
    file = _recorded.ppm(pixels)
    for damaged in (file[:-1], file + b"1", file.replace(b"255", b"254", 1)):
        assert _library.probe(damaged) is None


def _normalised_in_place(image: Any) -> Any:
    image -= 0.5
    image /= 0.5
    return image


def _mask_of(image: Any) -> Any:
    rows, columns = torch.meshgrid(*map(torch.arange, (image.height, image.width)), indexing="ij")
    return tv_tensors.Mask((rows // 7 + columns // 5).to(torch.uint8))


STEPS: dict[str, Callable[[Any], Any]] = {
    "recorded": FUSED,
    "recorded bytes": BYTES,
    "image of v2": IMAGES,
    "with a mask": lambda image: BOTH(image, _mask_of(image)),
    "drawn by v2": fuse(v2.Compose([CROP_V2, *DRAWN, *OF_V2])),
    "changed by v2": lambda image: v2.functional.invert(IMAGES(image)),
    "changed": lambda image: FUSED(image) * random.random(),
    "changed in place": lambda image: _normalised_in_place(FUSED(image)),
    "resized before": lambda image: FUSED(ImageOps.mirror(image.resize((30, 40)))),
    "of a part": lambda image: FUSED(image.crop((3, 4, 50, 40))),
    "a step of one's own": fuse(v1.Compose([v1.Resize(40), _rgb, CROP, *END])),
    "turned": lambda image: FUSED(image.rotate(float(torch.rand(())) * 30)),
    "reseeded": lambda image: (torch.manual_seed(7), FUSED(image))[1],
    "twice": lambda image: torch.cat([FUSED(image), FUSED(image)]),
    "as written": v1.Compose([CROP, v1.ColorJitter(0.3), *END]),
    "jitter": fuse(v1.Compose([CROP, v1.ColorJitter(0.3), *END])),
    "array": lambda image: np.asarray(image)[:4, :4].copy() + np.random.randint(5),  # noqa: NPY002
    "draws": lambda _: (random.random(), torch.rand(2), np.random.rand(2)),  # noqa: NPY002
    "words": lambda image: {"size": image.size, "mode": image.mode},
}


class Written(Dataset[Any]):
    """A dataset of one's own: hypothesis says what it makes of an image, and how nested."""

    def __init__(self, folder: Path, steps: list[str], form: str) -> None:
        self.folder, self.steps, self.form = folder, steps, form

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        image = fastdecode.open(self.folder / f"{index % COUNT}.jpg").convert("RGB")
        parts = [STEPS[name](image) for name in self.steps]
        if self.form == "dict":
            return {"index": index, **{f"{at}": part for at, part in enumerate(parts)}}
        if self.form == "list":
            return parts, index
        return (*parts, index) if self.form == "tuple" else parts[0]


@given(
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=3),
    st.sampled_from(["tuple", "list", "dict", "bare"]),
    st.integers(0, 2**40),
    st.integers(0, 3),
    st.integers(1, 7),
    st.sampled_from([0, 0, 2]),
)
@settings(WITHOUT_SHRINKING, max_examples=examples(100))
def test_a_loader_gives_what_a_seeded_dataset_gives(
    folder: Path, steps: list[str], form: str, seed: int, epoch: int, batch: int, workers: int
) -> None:
    """`Loader` of a dataset is DataLoader of the same with each sample seeded, bit for bit."""
    dataset, states = Written(folder, steps, form), generator_states()
    with Loader(dataset, batch, num_workers=workers, seed=seed) as loader:
        loader.set_epoch(epoch)
        got = [*loader]
    assert_same(generator_states(), states)  # those of the training

    expected = [*DataLoader(Seeded(dataset, seed, epoch), batch)]

    assert len(got) == len(expected)
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert_same(one, other, f"batch {number}")


def test_samples_of_a_stack_of_datasets_are_seeded_one_by_one(folder: Path) -> None:
    """Its ``__getitems__``, which would draw for a whole batch, only collects them."""
    parts = {name: Written(folder, [name], "bare") for name in ("recorded", "draws")}
    for stack in (StackDataset(**parts), StackDataset(*parts.values())):
        with Loader(stack, 4, num_workers=0, seed=0) as loader:
            assert_same([*loader], [*DataLoader(Seeded(stack, 0, 0), 4)])


def _written_to_memory(samples: list[Any]) -> Any:
    memory = torch.full((len(samples), 3, 24, 24), -7.0)
    torch.stack([image for image, _ in samples], out=memory)
    return memory


@pytest.mark.parametrize("how", ["list", "stack", "names", "memory", "nothing"])
def test_a_collate_function_gets_tensors(folder: Path, how: str) -> None:
    """One's own function, called in a worker process, may stack them or hand them on."""
    functions: dict[str, Callable[[Any], Any]] = {
        "list": list,
        "stack": lambda samples: torch.stack([image for image, _ in samples]).mean((2, 3)),
        "names": lambda samples: {"images": default_collate([image for image, _ in samples])},
        "memory": _written_to_memory,
        "nothing": lambda samples: None if samples[0][1] else "first",
    }
    dataset = Written(folder, ["recorded"], "tuple")
    with Loader(dataset, 4, num_workers=2, seed=0, collate_fn=functions[how]) as loader:
        got = [*loader]

    expected = [*DataLoader(Seeded(dataset, 0, 0), 4, collate_fn=functions[how])]

    assert_same(got, expected)


def test_worker_processes_only_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that gets a batch makes it, in one call."""
    counts = []
    monkeypatch.setattr(
        _recorded, "make", lambda found, images: (counts.append(len(found)), MAKE(found, images))
    )

    with Loader(Written(folder, ["recorded"], "tuple"), 8, num_workers=1, seed=0) as loader:
        assert len([*loader]) == 3

    assert counts == [8, 8, 7]


def test_batches_of_large_files_are_made_in_the_worker_process(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their values are much less to send, and to keep."""
    for number in range(4):  # what is behind the end of a JPEG does not matter
        data = (folder / f"{number}.jpg").read_bytes() + bytes(2**20)
        (tmp_path / f"{number}.jpg").write_bytes(data)
    counts = []
    monkeypatch.setattr(
        _recorded, "make", lambda found, images: (counts.append(len(found)), MAKE(found, images))
    )

    dataset = Subset(Written(tmp_path, ["recorded"], "tuple"), range(4))
    with Loader(dataset, 4, num_workers=1, seed=0, channels_last=True) as loader:
        [(images, _)] = loader

    assert counts == []
    assert images.is_contiguous(memory_format=torch.channels_last)
    [(expected, _)] = DataLoader(Seeded(dataset, 0, 0), 4)
    assert_same(images.contiguous(), expected)


def test_an_interrupt_loses_no_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a signal's handler raises while a batch is made, the next call makes good."""
    interrupts = [KeyboardInterrupt()]

    def interrupted(recordings: Any, images: Any) -> None:
        if interrupts:
            raise interrupts.pop()
        MAKE(recordings, images)

    dataset = Written(folder, ["recorded"], "tuple")
    with Loader(dataset, 8, num_workers=1, seed=0) as loader:
        monkeypatch.setattr(_recorded, "make", interrupted)
        batches = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        got = [*batches]

    assert_same(got, [*DataLoader(Seeded(dataset, 0, 0), 8)])


MAKE = _recorded.make
