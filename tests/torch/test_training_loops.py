"""The loops of training libraries, run as they are, with `Loader` in place of DataLoader.

Each needs its library.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from loading import NEEDS_GLOO, Images, encoded, indices, script
from torch import nn

from fastdecode.torch import DevicePrefetcher, ImageFolder, Loader

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the libraries' own, which are many
]
COUNT = 11


def training(**options: Any) -> Loader:
    usual = {"batch_size": 4, "shuffle": True, "num_workers": 2, "seed": 3}
    return Loader(Images(count=COUNT), **{**usual, **options})


def orders(epochs: int) -> list[list[int]]:
    with training() as loader:
        return [indices(loader) for _ in range(epochs)]


class Net(nn.Module):
    """A small model that records its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 24 * 24, COUNT)

    def forward(self, images: Any) -> Any:
        return self.layer(images.flatten(1))


def lightning_parts(tmp_path: Path) -> tuple[Any, Any]:
    """Return a class of models that record what they see, and a function for trainers."""
    lightning = pytest.importorskip("lightning", exc_type=ImportError)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.seen: dict[str, list[list[int]]] = {"train": [], "val": [], "test": []}

        def noted(self, stage: str, batch: Any) -> Any:
            images, labels = batch
            self.seen[stage][-1] += labels.tolist()
            return nn.functional.cross_entropy(self.net(images), labels)

        def on_train_epoch_start(self) -> None:
            self.seen["train"].append([])

        def on_validation_epoch_start(self) -> None:
            self.seen["val"].append([])

        def on_test_epoch_start(self) -> None:
            self.seen["test"].append([])

        def training_step(self, batch: Any) -> Any:
            return self.noted("train", batch)

        def validation_step(self, batch: Any) -> None:
            self.noted("val", batch)

        def test_step(self, batch: Any) -> None:
            """Run Lightning's test step; this is not a test of ours."""
            self.noted("test", batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    def trainer(**options: Any) -> Any:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        return lightning.Trainer(
            accelerator="cpu", default_root_dir=tmp_path, **{**quiet, **options}
        )

    return Module, trainer


@pytest.mark.parametrize("wrap", [lambda loader: loader, lambda one: DevicePrefetcher(one, "cpu")])
def test_lightning_fits_validates_and_tests(tmp_path: Path, wrap: Any) -> None:
    """Its Trainer takes loaders for all three, with the loader's own orders."""
    module, trainer = lightning_parts(tmp_path)
    model = module()
    whole = wrap(Loader(Images(count=COUNT), 4, num_workers=2))
    one = trainer(max_epochs=3, enable_checkpointing=False)
    one.fit(model, wrap(training()), whole)
    one.test(model, whole)

    assert model.seen["train"] == orders(3)
    assert model.seen["val"][-3:] == [list(range(COUNT))] * 3
    assert model.seen["test"] == [list(range(COUNT))]


def test_lightning_resumes_with_the_orders_that_follow(tmp_path: Path) -> None:
    """A run that resumes after two epochs trains on the third epoch's order."""
    module, trainer = lightning_parts(tmp_path)
    first = trainer(max_epochs=2)
    first.fit(module(), training())
    model = module()
    trainer(max_epochs=4).fit(
        model, training(), ckpt_path=first.checkpoint_callback.best_model_path
    )

    assert model.seen["train"] == orders(4)[2:]


def test_accelerate_prepares_and_trains() -> None:
    """`prepare` takes the loader unchanged, and training sees its orders."""
    accelerate = pytest.importorskip("accelerate", exc_type=ImportError)
    accelerator = accelerate.Accelerator(cpu=True)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with training() as loader:
        net, optimizer, prepared = accelerator.prepare(net, optimizer, loader)
        seen = []
        for _ in range(2):
            for images, labels in prepared:
                seen += labels.tolist()
                loss = nn.functional.cross_entropy(net(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        assert prepared is loader
        assert seen == [index for order in orders(2) for index in order]


@NEEDS_GLOO
def test_accelerate_on_several_processes() -> None:
    """Each process has its share of the items."""
    pytest.importorskip("accelerate", exc_type=ImportError)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in ("0", "1"):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_PORT": port}
        processes.append(
            script(f"""
import os
os.environ |= {place | {"MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "true"}!r}
import json, accelerate
accelerator = accelerate.Accelerator(cpu=True)
loader = accelerator.prepare(Loader(loading.Images(), 4, True, threads=1))
print(json.dumps(loading.indices(loader)))
accelerator.end_training()
""")
        )
    outputs = [process.communicate(timeout=200) for process in processes]

    shares = []
    for out, error in outputs:
        assert out, error
        shares += json.loads(out.splitlines()[-1])
    assert sorted(shares) == list(range(23))


def test_hugging_faces_trainer_trains(tmp_path: Path) -> None:
    """Its Trainer takes a loader with an augmented recipe from `get_train_dataloader`."""
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    transforms = pytest.importorskip("torchvision.transforms.v2", exc_type=ImportError)
    recipe = transforms.Compose(
        [
            transforms.RandomResizedCrop(24),
            transforms.TrivialAugmentWide(),
            transforms.PILToTensor(),
            transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ]
    )
    for number, data in enumerate(encoded()):
        folder = tmp_path / "train" / f"class{number % 5}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(data)
    dataset = ImageFolder(tmp_path / "train", recipe)
    loader = Loader(dataset, 4, shuffle=True, collate_fn=inputs, threads=2)

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return loader

        def compute_loss(self, model: Any, inputs: Any, **options: Any) -> Any:
            loss = nn.functional.cross_entropy(model(inputs["images"]), inputs["labels"])
            seen.extend(inputs["labels"].tolist())
            return loss

    seen: list[int] = []
    options = transformers.TrainingArguments(
        str(tmp_path / "out"), num_train_epochs=2, use_cpu=True, report_to=[], save_strategy="no"
    )
    Trainer(Net(), options, train_dataset=dataset).train()
    loader.close()

    assert "in Python" not in str(dataset)
    assert sorted(seen) == sorted(2 * dataset.targets)


def inputs(samples: list[Any]) -> dict[str, Any]:
    images, labels = zip(*samples, strict=True)
    return {"images": torch.stack(images), "labels": torch.tensor(labels)}
