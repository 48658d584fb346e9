"""DALI's pipelines, which the scripts compare with: on the CPU, or on a GPU from decoding on.

DALI would apply the EXIF orientation by default; here it does not, as the others do not.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import torch

from fastdecode.measure._pipelines import MEAN, PREFETCH, RATIO, SCALE, STD

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("", {}),
    "trivialaugment": ("trivial_augment.trivial_augment_wide", {}),
    "randaugment": ("rand_augment.rand_augment", {"n": 2, "m": 9}),
    "autoaugment": ("auto_augment.auto_augment_image_net", {}),
}
"""The recipes that DALI has: the function of ``nvidia.dali.auto_aug`` that does the same, empty for
none, and its arguments."""


class DaliLoader:
    """DALI's pipeline on the CPU; batches become tensors as in DALI's PyTorch plugin."""

    def __init__(self, setup: Any) -> None:
        self._count = -(-len(setup.samples) // setup.batch)
        self._ahead = min(PREFETCH, self._count)
        reader = {"shuffle_after_epoch": setup.train}
        self._pipeline = dali_pipeline(setup, reader, ahead=self._ahead)
        self._pipeline.build()
        self._begun = False

    def __iter__(self) -> Iterator[Any]:
        # By default DALI would prefetch the next epoch before the clock starts.
        pipeline = self._pipeline
        for _ in range(self._ahead if self._begun else 1):  # the very first fills the queue
            pipeline.schedule_run()
        self._begun = True
        for number in range(self._count):
            images, labels = pipeline.share_outputs()
            batch = torch.utils.dlpack.from_dlpack(images.as_tensor())
            pipeline.release_outputs()
            if number + self._ahead < self._count:
                pipeline.schedule_run()
            yield batch, labels


def dali_pipeline(
    setup: Any,
    reader: dict[str, Any],
    *,
    ahead: int = PREFETCH,
    device: int | None = None,
    layout: str = "CHW",
) -> Any:
    """Define DALI's operations on the CPU or, from decoding on, on the GPU of that number."""
    dali: Any = importlib.import_module("nvidia.dali")
    fn: Any = importlib.import_module("nvidia.dali.fn")

    paths, labels = map(list, zip(*setup.samples, strict=True))
    on_gpu = device is not None
    policy, arguments = POLICIES[setup.recipe or "plain"]
    module, _, function = policy.partition(".")
    place, decoder = ("gpu", "mixed") if on_gpu else ("cpu", "cpu")

    def graph() -> Any:
        files, label = fn.readers.file(files=paths, labels=labels, name="files", **reader)
        how = {"device": decoder, "adjust_orientation": False}
        if setup.train:
            images = fn.decoders.image_random_crop(
                files, random_area=SCALE, random_aspect_ratio=RATIO, **how
            )
            images = fn.resize(images, device=place, size=(setup.size, setup.size))
        else:
            images = fn.decoders.image(files, **how)
            images = fn.resize(images, device=place, resize_shorter=round(setup.size * 8 / 7))
        if policy:
            augment = getattr(importlib.import_module(f"nvidia.dali.auto_aug.{module}"), function)
            images = augment(images, shape=[setup.size, setup.size], **arguments)
        images = fn.crop_mirror_normalize(
            images,
            device=place,
            crop=(setup.size, setup.size),
            dtype=dali.types.FLOAT,
            output_layout=layout,
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            mirror=fn.random.coin_flip() if setup.train else 0,
        )
        return images, label.gpu() if on_gpu else label

    return dali.pipeline_def(
        graph,
        batch_size=setup.batch,
        num_threads=setup.workers,
        device_id=device,
        prefetch_queue_depth=ahead,
        enable_conditionals=bool(policy),  # DALI's policies need them
        seed=0,
    )()
