"""A dataset of one's own: a fused pipeline on images of `fastdecode.open`, and a `Loader` of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loading import COUNT, PROCESS_WARNINGS, Sources, encoded
from loading import SeededLoader as Loader
from PIL import Image
from same import assert_same
from torch.utils.data import ConcatDataset, Dataset, Subset

import fastdecode
from fastdecode.torch import DecodeOptions, fuse
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch.mixin import DecodeMixin
from fastdecode.torch.transforms import RandomResizedCrop

v1 = pytest.importorskip("torchvision.transforms")

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)

CROP = v1.RandomResizedCrop((24, 24), (0.08, 1.0), (0.75, 1.3))
PLAIN = v1.Compose([CROP, v1.RandomHorizontalFlip(0.5), v1.ToTensor()])
JITTER = v1.Compose([CROP, v1.ColorJitter(0.4), v1.ToTensor()])


class OwnImages(Dataset[Any]):
    """What people write: it opens an image, and calls its transform."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.transform(fastdecode.open(encoded()[index]).convert("RGB")), index


class ThreadSafeImages(OwnImages):
    """The same, and its class says so."""

    thread_safe = True


class OfBatches(OwnImages):
    """It has a loader of its own, which nobody asked for processes."""

    def __getitem__(self, index: int) -> Any:
        return next(iter(Loader(OwnImages(self.transform), 2, seed=index)))[0]


def _drawn(transform: Any, image: Any) -> torch.Tensor:
    torch.manual_seed(5)
    made: torch.Tensor = transform(image)
    return made


@pytest.mark.parametrize("pipeline", [PLAIN, JITTER])
def test_an_opened_image_is_its_file(pipeline: Any) -> None:
    """An image that has only been opened, or made RGB, gives what its bytes give."""
    fused, data = fuse(pipeline), encoded()[3]
    image = fastdecode.open(data)

    for one in (image, image.convert("RGB"), image.copy(), {"bytes": data, "path": "a.jpg"}):
        assert_same(_drawn(fused, one), _drawn(fused, data), type(one))


def test_other_images_go_through_the_pipeline_as_written() -> None:
    """An image that was drafted, has pixels, or is Pillow's runs as without `fuse`.

    So does a part of one, unless all that the pipeline does to it is recorded.
    """
    fused, data = fuse(PLAIN), encoded()[3]
    drafted, decoded = fastdecode.open(data), fastdecode.open(data)
    drafted.draft("RGB", (16, 16))
    decoded.load()
    beyond = fastdecode.open(data).crop((-3, 4, 60, 40))

    for image in (drafted, decoded, beyond, Image.new("RGB", (50, 40), (9, 99, 199))):
        assert_same(_drawn(fused, image), _drawn(PLAIN, image), image)

    cropped, doubled = fastdecode.open(data).crop((3, 4, 60, 40)), v1.Compose([PLAIN, _doubled])
    assert_same(_drawn(fuse(doubled), cropped), _drawn(doubled, cropped))


def _doubled(image: torch.Tensor) -> torch.Tensor:
    return image * 2


def test_a_transform_of_this_package_says_what_it_takes() -> None:
    """What has no pipeline as written raises for an image whose file is unknown."""
    fused: Any = fuse(v1.Compose([RandomResizedCrop(24), torch.nn.Identity()]))

    with pytest.raises(TypeError, match=r"fastdecode\.open"):
        fused(Image.new("RGB", (50, 40)))


@pytest.mark.parametrize("pipeline", [PLAIN, JITTER])
def test_a_loader_is_a_dataloader_with_seeds(pipeline: Any) -> None:
    """Its batches are those of the dataset, if torch has the seed of each sample before it."""
    dataset = OwnImages(fuse(pipeline))
    for how in ({"threads": 0}, {"num_workers": 1}, {"num_workers": 2}):
        with Loader(dataset, 5, seed=3, **how) as loader:
            assert loader.workers == how.get("num_workers", 0)
            for epoch in range(2):
                made = torch.cat([images for images, _ in loader])
                for index, image in enumerate(made):
                    torch.default_generator.manual_seed(sample_seed(3, epoch, index))
                    assert_same(image, dataset[index][0], (how, epoch, index))


def test_a_class_that_is_thread_safe_is_called_in_threads() -> None:
    """Also in torch's wrappers; of several classes all must say so, whatever their attributes."""
    safe, own = ThreadSafeImages(PLAIN), OwnImages(fuse(PLAIN))
    for one in (own, Subset(own, range(9)), ConcatDataset([safe, own])):
        assert Loader(one, 5, num_workers=2).workers == 2
    for one in (safe, Subset(safe, range(9)), ConcatDataset([safe, safe])):
        assert Loader(one, 5, num_workers=2).workers == 0
        assert len(torch.cat([images for images, _ in Loader(one, 5, num_workers=2)])) == len(one)


def test_a_dataset_with_a_loader_of_its_own_runs_in_worker_processes() -> None:
    """These cannot start others, so that loader makes its batches there."""
    dataset = Subset(OfBatches(PLAIN), range(4))
    with Loader(dataset, 4, num_workers=1) as loader:
        [made] = loader
    assert_same(made, torch.stack([dataset[index] for index in range(4)]))


@pytest.mark.parametrize("on_disk", [False, True])
def test_rows_of_hugging_face_are_sources(on_disk: bool, tmp_path: Any) -> None:
    """A row of ``Image(decode=False)``, with bytes or a path, is taken as these are."""
    rows = []
    for number, data in enumerate(encoded()):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(data)
        rows.append({"bytes": None if on_disk else data, "path": str(path)})
    loaders = [Loader(Sources(*sources, transform=PLAIN), 5) for sources in (rows, encoded())]

    assert_same(*([images for images, _ in loader] for loader in loaders))
    mixin = type("Rows", (DecodeMixin,), {"decode_options": DecodeOptions(reduce=2)})()
    assert_same(mixin.decode(rows[0]), mixin.decode(encoded()[0]))
    assert mixin.transformed(rows[0]) == mixin.transformed(encoded()[0])
    with pytest.raises(TypeError, match="dict"):
        Sources({"data": b""}).load(0)
