"""The backend "fastdecode" of transformers' image processors, compared with "torchvision"."""

from __future__ import annotations

import asyncio
import base64
import copy
import importlib
import io
import json
import os
import pickle
import re
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS
from encoded import with_orientation
from PIL import Image as PillowImage
from same import assert_same

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers", minversion="5")

from transformers.image_processing_backends import TorchvisionBackend  # noqa: E402
from transformers.image_utils import load_image_as_tensor  # noqa: E402

import fastdecode  # noqa: E402
from fastdecode.errors import FastDecodeError, ImageTooLarge  # noqa: E402
from fastdecode.torch import fuse  # noqa: E402
from fastdecode.transformers import accelerated  # noqa: E402
from fastdecode.transformers._tensor import RecordedImage  # noqa: E402

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
PHOTO = PHOTOS[0].read_bytes()
GREY, COLOUR = ("L", "LA", "I;16", "1"), ("RGB", "RGBA", "P", "CMYK")


def _classes() -> list[str]:
    """Return the names of all classes that can be constructed without files."""
    made = []
    for name in dir(transformers):
        kind = getattr(transformers, name) if "ImageProcessor" in name else None
        if isinstance(kind, type) and issubclass(kind, TorchvisionBackend):
            try:
                kind()
            except Exception:  # it wants files
                continue
            made.append(name)
    return made


def _saved(mode: str, size: tuple[int, int], kind: str, **options: Any) -> bytes:
    noise = np.random.default_rng(7).integers(0, 256, (*size[::-1], 4), np.uint8)
    smooth = (
        PillowImage.fromarray(noise).resize((7, 5)).resize(size, PillowImage.Resampling.BICUBIC)
    )
    if mode == "I;16":
        image = PillowImage.fromarray(np.asarray(smooth)[:, :, 0].astype(np.uint16) * 256 + 77)
    else:
        image = smooth if mode == "RGBA" else smooth.convert("RGB").convert(mode)
    if "transparency" in options:
        image.paste(0, (0, 0, size[0] // 2, size[1]))
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


FILES: dict[str, bytes] = {
    "photo": PHOTO,
    "grey photo": next(one for one in PHOTOS if "gray" in one.name).read_bytes(),
    "progressive": next(one for one in PHOTOS if "progressive" in one.name).read_bytes(),
    "one pixel": _saved("RGB", (1, 1), "PNG"),
    "one pixel, JPEG": _saved("RGB", (1, 1), "JPEG"),
    "three by three": _saved("RGB", (3, 3), "PNG"),
    "tall": _saved("RGB", (9, 700), "JPEG"),
    "wide": _saved("RGB", (901, 33), "PNG"),
    "very wide": _saved("RGB", (1500, 2), "JPEG"),
    "turned": _saved("RGB", (61, 40), "JPEG", exif=with_orientation(6)),
    "transparent palette": _saved("P", (60, 50), "PNG", transparency=3),
    "black is transparent": _saved("RGB", (60, 50), "PNG", transparency=(0, 0, 0)),
    "CMYK": _saved("CMYK", (60, 50), "JPEG"),
    "cut off": PHOTO[: len(PHOTO) // 2],
    "WebP": _saved("RGB", (60, 50), "WEBP"),
    **{f"{mode} PNG": _saved(mode, (83, 50), "PNG") for mode in (*GREY, "RGB", "RGBA", "P")},
}
ODD = ("photo", "grey photo", "wide", "RGBA PNG", "black is transparent")
ANY: tuple[dict[str, Any], ...] = (
    {"do_rescale": False, "do_normalize": False},
    {"do_resize": False},
    {"resample": 3},
    {"resample": 1},
    {"do_center_crop": True, "crop_size": {"height": 97, "width": 60}},
    {"do_pad": True},
    {"do_convert_rgb": False},
    {"min_pixels": 50_000, "max_pixels": 200_000},
    {"size": {"height": 96, "width": 160}},
    {"size": {"shortest_edge": 100, "longest_edge": 300}},
    {"return_tensors": "np"},
    {"return_tensors": None},
    {"disable_grouping": False},
)
"""Options of the call, which a class may refuse."""
WIDE = bool(os.environ.get("FASTDECODE_EVERY_PROCESSOR"))
if WIDE:  # for every class 20 photos, and all kinds of files but one: that takes an hour
    for folder, count in (("px500", 13), ("hd1080", 5), ("mp12plus", 2)):
        _all = sorted((CORPUS / "photos" / folder).glob("*.jpg"))
        FILES |= {one.name: one.read_bytes() for one in _all[:: len(_all) // count][:count]}
    ODD = tuple(name for name in FILES if name != "very wide")
CLASSES = _classes()
LANCZOS = [
    one
    for one in CLASSES
    if getattr(getattr(transformers, one), "resample", None) == 1
    and hasattr(transformers, f"{one}Pil")
]
VARIED = ("CLIP", "ViT", "Qwen2VL", "Idefics3", "Siglip2", "LlavaNext", "Sam", "BridgeTower")
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "CLIP, larger crop": ("CLIP", {"crop_size": 333, "size": {"shortest_edge": 225}}),
    "CLIP, no crop": ("CLIP", {"do_center_crop": False}),
    "CLIP, bytes": ("CLIP", {"do_rescale": False, "do_normalize": False}),
    "CLIP, not rescaled": ("CLIP", {"do_rescale": False}),
    "CLIP, not normalised": ("CLIP", {"do_normalize": False}),
    "CLIP, not resized": ("CLIP", {"do_resize": False}),
    "CLIP, other colours": ("CLIP", {"do_convert_rgb": False}),
    "CLIP, another scale": ("CLIP", {"rescale_factor": 1 / 127.5}),
    "ViT, nearest": ("ViT", {"resample": 0}),
    "ViT, Lanczos": ("ViT", {"resample": 1, "size": {"height": 30, "width": 333}}),
    "ViT, bicubic": ("ViT", {"resample": 3}),
    "ViT, box": ("ViT", {"resample": 4}),
    "LLaVA, padded": ("Llava", {"do_pad": True}),
    "Qwen, few": ("Qwen2VL", {"min_pixels": 784, "max_pixels": 100 * 784}),
    "Qwen, many": ("Qwen2VL", {"min_pixels": 2000 * 784, "max_pixels": 3000 * 784}),
    "Qwen, bytes": ("Qwen2VL", {"do_rescale": False, "do_normalize": False}),
    "DETR, fixed": ("Detr", {"size": {"height": 301, "width": 200}}),
    "DETR, padded": ("Detr", {"pad_size": {"height": 1400, "width": 1400}}),
    "grouped": ("CLIP", {"disable_grouping": False}),
    "Pixtral, small": ("Pixtral", {"size": {"longest_edge": 320}}),
}


def _result(processor: Any, images: Any, **options: Any) -> Any:
    """Return what a processor returns, as a dictionary, or the error that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return dict(processor(images, **{"return_tensors": "pt"} | options).data)
        except Exception as error:  # an index out of bounds may be another one in each run
            return type(error)(re.sub(r"\d+", "0", str(error)))


def _opened(data: bytes) -> PillowImage.Image:
    return PillowImage.open(io.BytesIO(data))


def _assert_equal(kind: str, images: Any, **options: Any) -> None:
    """Compare what both backends make of `images()`, which is called for each."""
    own = getattr(transformers, kind)(**options)
    assert_same(_result(accelerated(own), images()), _result(own, images()), kind)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_has_its_own_results(kind: str) -> None:
    """Without a table of models, bit for bit, of photos and of odd files, and with options."""
    own = getattr(transformers, kind)()
    ours = accelerated(own)
    for name in ODD:
        made, expected = (_result(one, _opened(FILES[name])) for one in (ours, own))
        if not (isinstance(made, Exception) and isinstance(expected, OSError)):
            assert_same(made, expected, name)  # a class may refuse its options before it decodes
    for options in ANY if WIDE else ANY[:2]:
        made = _result(ours, _opened(PHOTO), **options)
        assert_same(made, _result(own, _opened(PHOTO), **options), str(options))


@pytest.mark.parametrize("kind", LANCZOS)
def test_it_differs_from_pillow_no_more_than_torchvision(kind: str) -> None:
    """Where the backend "pil" is that of checkpoints: older ones of torchvision lack the filter."""
    own, of_pillow = getattr(transformers, kind)(), getattr(transformers, f"{kind}Pil")()
    several = [_result(one, _opened(PHOTO)) for one in (own, accelerated(own), of_pillow)]
    theirs, ours, pillows = (one["pixel_values"] for one in several)
    assert theirs.shape == ours.shape == pillows.shape
    assert (ours - pillows).abs().max() <= (theirs - pillows).abs().max() < pillows.std() / 9


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", VARIED)
def test_every_kind_of_file_has_the_same_result(kind: str, name: str) -> None:
    """From images that Pillow has opened, and that `fastdecode.open` has; errors, too."""
    data = FILES[name]
    _assert_equal(f"{kind}ImageProcessor", lambda: _opened(data))
    own = getattr(transformers, f"{kind}ImageProcessor")()
    wanted = _result(own, _opened(data))
    assert_same(_result(accelerated(own), fastdecode.open(data)), wanted)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_have_the_same_result(name: str) -> None:
    """Given to the class, and in the call."""
    kind, options = OPTIONS[name]
    for data in (PHOTO, FILES["wide"], FILES["RGB PNG"]):
        _assert_equal(f"{kind}ImageProcessor", lambda data=data: _opened(data), **options)
    own = getattr(transformers, f"{kind}ImageProcessor")()
    wanted = _result(own, _opened(PHOTO), **options)
    assert_same(_result(accelerated(own), _opened(PHOTO), **options), wanted)


@pytest.mark.parametrize("return_tensors", [None, "np", "pt"])
@pytest.mark.parametrize("kind", ["CLIP", "Qwen2VL", "LlavaNext", "Pixtral"])
def test_batches_of_anything(kind: str, return_tensors: str | None) -> None:
    """Unread images, some that are read or cut out, arrays and tensors; lists in lists."""

    def images() -> list[Any]:
        read = _opened(PHOTO)
        read.load()
        array = np.asarray(read)
        cut = fastdecode.open(PHOTO).crop((10, 20, 300, 310))
        turned = fastdecode.open(PHOTO).transpose(PillowImage.Transpose.ROTATE_90)
        lazy = fastdecode.open(FILES["grey photo"]).convert("RGB").resize((200, 111))
        return [_opened(PHOTO), read, cut, turned, array, torch.from_numpy(array.copy()), lazy]

    own = getattr(transformers, f"{kind}ImageProcessor")()
    for given in (images, lambda: [images()[:2], images()[2:4]], lambda: [_opened(PHOTO)] * 3):
        wanted = _result(own, given(), return_tensors=return_tensors)
        got = _result(accelerated(own), given(), return_tensors=return_tensors)
        assert_same(got, wanted)
        assert not isinstance(got, Exception) or return_tensors is not None
    made = accelerated(own)(images()[:1])["pixel_values"]
    assert type(made[0]) is torch.Tensor


@pytest.mark.parametrize("name", ["photo", "grey photo", "turned", "RGB PNG", "RGBA PNG", "P PNG"])
@pytest.mark.parametrize("way", ["path", "Path", "base64", "bytes", "bytearray"])
def test_files_are_fetched_upright(name: str, way: str, tmp_path: Path) -> None:
    """As transformers fetches them; bytes, which it does not take, are those of a path."""
    path = tmp_path / "image.any"
    path.write_bytes(FILES[name])
    text = f"data:image/any;base64,{base64.b64encode(FILES[name]).decode()}"
    given: dict[str, Any] = {"path": str(path), "Path": path, "base64": text}
    given |= {"bytes": FILES[name], "bytearray": bytearray(FILES[name])}
    own = transformers.CLIPImageProcessor()
    wanted = _result(own, load_image_as_tensor(_opened(FILES[name])))
    assert_same(_result(accelerated(own), given[way]), wanted)
    assert_same(_result(accelerated(own), [given[way]]), wanted)


@pytest.mark.parametrize("name", ["WebP", "CMYK", "I;16 PNG"])
def test_other_files_are_decoded_by_pillow(name: str) -> None:
    """What the core does not decode as torchvision does, given as bytes."""
    own = transformers.CLIPImageProcessor()
    wanted = _result(own, load_image_as_tensor(_opened(FILES[name])))
    assert_same(_result(accelerated(own), FILES[name]), wanted)


def test_an_image_can_still_be_used() -> None:
    """An image that Pillow has opened is as it was before."""
    for data in (PHOTO, FILES["RGB PNG"]):
        image = _opened(data)
        accelerated(transformers.CLIPImageProcessor())(image)
        assert_same(image, _opened(data))


def test_nothing_is_decoded_before_it_is_asked_for() -> None:
    """A fetched file is a tensor whose size is known."""
    [image] = accelerated(transformers.CLIPImageProcessor()).fetch_images([PHOTO])
    assert isinstance(image, RecordedImage)
    assert image.shape == (3, *_opened(PHOTO).size[::-1])
    assert image.picture.values is None
    assert_same(image.made(), load_image_as_tensor(_opened(PHOTO)))


def test_what_is_saved_is_the_originals(tmp_path: Path) -> None:
    """`to_dict`, `save_pretrained`, the name of the class, copies and pickles."""
    own = transformers.Qwen2VLImageProcessor(patch_size=16)
    ours = accelerated(own, max_pixels=10**7, num_threads=1)
    assert type(ours).__name__ == "Qwen2VLImageProcessor"
    assert isinstance(ours, transformers.Qwen2VLImageProcessor)
    assert ours.backend == "fastdecode"
    assert own.backend == "torchvision"
    for made in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), accelerated(ours)):
        assert made.to_dict() == own.to_dict()
        assert made.backend == "fastdecode"
    own.save_pretrained(tmp_path / "own")
    ours.save_pretrained(tmp_path / "ours")
    [one, two] = [next((tmp_path / name).iterdir()) for name in ("own", "ours")]
    assert (one.name, one.read_text()) == (two.name, two.read_text())


def test_the_auto_classes_know_the_backend(tmp_path: Path) -> None:
    """From a folder, with arguments that it does not use, and beside the other backends."""
    transformers.SiglipImageProcessor(size={"height": 99, "width": 111}).save_pretrained(tmp_path)
    auto = transformers.AutoImageProcessor
    ours, own = (
        auto.from_pretrained(tmp_path, backend=one) for one in ("fastdecode", "torchvision")
    )
    assert (ours.backend, own.backend) == ("fastdecode", "torchvision")
    assert_same(_result(ours, PHOTO), _result(own, _opened(PHOTO)))
    some, unused = auto.from_pretrained(
        tmp_path, backend="fastdecode", return_unused_kwargs=True, unknown=3
    )
    assert (some.backend, unused) == ("fastdecode", {"unknown": 3})
    assert auto.from_pretrained(tmp_path, backend="pil").backend == "pil"


class OfTheHubConfig(transformers.PreTrainedConfig):
    """The configuration of a model that transformers does not have."""

    model_type = "of_the_hub"


def test_registered_classes_have_the_backend(tmp_path: Path) -> None:
    """Those that somebody has added to the Auto class, without this backend, before or after."""
    auto = transformers.AutoImageProcessor
    auto.register(OfTheHubConfig, image_processor_classes={"torchvision": OfTheHub})
    OfTheHub().save_pretrained(tmp_path)
    OfTheHubConfig().save_pretrained(tmp_path)
    made = auto.from_pretrained(tmp_path, backend="fastdecode")
    assert (made.backend, isinstance(made, OfTheHub)) == ("fastdecode", True)


def test_a_whole_processor(tmp_path: Path) -> None:
    """Of a processor with a tokenizer, the image processor is changed, also by its Auto class."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="[UNK]")
    own = transformers.CLIPProcessor(transformers.CLIPImageProcessor(), tokenizer)
    ours = accelerated(own)
    assert own.image_processor.backend == "torchvision"
    assert ours.image_processor.backend == "fastdecode"
    wanted = own(text=["a"], images=[_opened(PHOTO)], return_tensors="pt")
    got = ours(text=["a"], images=[_opened(PHOTO)], return_tensors="pt")
    assert_same(dict(got), dict(wanted))
    ours.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "processor_config.json").read_text())
    assert config["image_processor"]["image_processor_type"] == "CLIPImageProcessor"
    loaded = transformers.AutoProcessor.from_pretrained(tmp_path, backend="fastdecode")
    assert loaded.image_processor.backend == "fastdecode"


class OfTheHub(TorchvisionBackend):
    """A processor as code on the Hub has it."""

    resample = 3
    size = {"height": 50, "width": 70}
    do_resize = True

    def _preprocess(self, images: Any, *, size: Any, resample: Any, **_: Any) -> Any:
        resized = [self.resize(image, size, resample).flip(-1) for image in images]
        return transformers.BatchFeature({"pixel_values": resized}, tensor_type="pt")


def test_code_of_others() -> None:
    """What the class does is done; what it does not say is recorded is done to the pixels."""
    own = OfTheHub()
    assert_same(_result(accelerated(own), PHOTO), _result(own, _opened(PHOTO)))


def test_what_is_built_otherwise_stays() -> None:
    """A processor of the "pil" backend is returned with a warning that says what to do."""
    for kind in ("CLIPImageProcessorPil", "Qwen2VLVideoProcessor"):
        own = getattr(transformers, kind)()
        with pytest.warns(UserWarning, match=f'{kind} .* backend="torchvision"'):
            assert accelerated(own) is own
    with pytest.raises(ValueError, match="max_pixels"):
        accelerated(own, max_pixels=0)
    with pytest.raises(ValueError, match="threads"):
        accelerated(own, num_threads=0)


def test_an_older_transformers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no backends; the message says what to install."""
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.1")
    monkeypatch.delitem(sys.modules, "fastdecode.transformers")
    with pytest.raises(
        ImportError, match=r"needs transformers 5.*\n?.*pip install -U transformers"
    ):
        importlib.import_module("fastdecode.transformers")


def test_fuse_refuses_a_processor() -> None:
    """It takes batches, and returns a dictionary: the error says how it is called."""
    own = transformers.CLIPImageProcessor()
    for one in (own, accelerated(own)):
        with pytest.raises(TypeError, match=r"CLIPImageProcessor .*transformers\.accelerated"):
            fuse(one)


def test_large_and_damaged_files(tmp_path: Path) -> None:
    """An error names the file; a header that promises too much is refused before anything else."""
    large, cut = tmp_path / "large.png", tmp_path / "cut.jpg"
    large.write_bytes(_saved("RGB", (101, 100), "PNG"))
    cut.write_bytes(PHOTO[:-3000] + PHOTO[-2:])
    ours = accelerated(transformers.CLIPImageProcessor(), max_pixels=10_000)
    for given in (large, str(large)):
        with pytest.raises(ImageTooLarge, match=r"large\.png: .*101 x 100"):
            ours(given)
    with pytest.raises(ImageTooLarge, match="101 x 100"):
        ours(large.read_bytes())
    assert accelerated(ours, max_pixels=None)(large)
    with pytest.raises((FastDecodeError, OSError), match=r"cut\.jpg"):
        accelerated(ours)([large, cut])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.png"):
        ours(tmp_path / "nowhere.png")
    with pytest.raises(Exception, match=r"no image|cannot identify"):
        accelerated(ours)(b"no image")
    bomb = bytearray(large.read_bytes())
    bomb[16:24] = (40_000).to_bytes(4, "big") * 2
    bomb[29:33] = zlib.crc32(bomb[12:29]).to_bytes(4, "big")
    large.write_bytes(bomb)
    for given, name in ((bytes(bomb), ""), (large, r"large\.png: .*"), (str(large), r"large\.png")):
        with pytest.raises(ImageTooLarge, match=f"{name}.*40000 x 40000"):
            accelerated(transformers.CLIPImageProcessor())(given)


def test_a_server_goes_on() -> None:
    """After calls that fail or that nobody waits for; and its memory stays as it is."""
    ours = accelerated(transformers.CLIPImageProcessor(), num_threads=2)
    wanted = _result(ours, [PHOTO] * 4)

    async def abandoned() -> None:
        work = asyncio.get_running_loop().run_in_executor(None, _result, ours, [PHOTO] * 9)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(work, 0)

    def used() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for requests in (20, 80):
        before = used()
        for _ in range(requests):
            ours([PHOTO, FILES["RGB PNG"]], return_tensors="pt")
    assert used() < before + 20_000_000
    asyncio.run(abandoned())
    with pytest.raises((FastDecodeError, OSError)):
        ours([PHOTO, PHOTO[:-3000] + PHOTO[-2:], PHOTO])
    assert_same(_result(ours, [PHOTO] * 4), wanted)
