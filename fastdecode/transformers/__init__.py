"""A backend for transformers' image processors that decodes and resizes in fastdecode's core.

`import fastdecode.transformers` adds the backend "fastdecode" to those of ``AutoImageProcessor``
and ``AutoProcessor``, for every model whose image processor has a torchvision backend.
``AutoImageProcessor.from_pretrained(name, backend="fastdecode")`` then takes files.

`accelerated` does the same to a processor that exists. The results are those of the torchvision
backend, bit for bit: its code runs as it is, on tensors that record how an image is cropped,
padded, resized and normalised, and the core makes the result from the file in one go.

Processors take what they took, and files besides: as bytes, and as any kind of path. An image of
Pillow's that has only been opened, also by `fastdecode.open`, is decoded by the core. A file's
image is upright, as transformers has it for a path.
"""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any, TypeVar, cast

from fastdecode._arguments import check_threads, is_int, shown
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS

try:
    import transformers
except ImportError as error:
    advice = "fastdecode.transformers needs transformers 5: pip install transformers torchvision"
    raise type(error)(advice, name=error.name) from error

_OLDEST = 5  # which has backends
if int(transformers.__version__.split(".")[0]) < _OLDEST:
    raise ImportError(
        "fastdecode.transformers needs transformers 5, whose image processors have backends, but "
        f"{transformers.__version__} is installed: pip install -U transformers"
    )

from fastdecode.transformers._picture import ProcessorSettings  # noqa: E402
from fastdecode.transformers._processor import accelerated_class  # noqa: E402

__all__ = ["accelerated"]

_Processor = TypeVar("_Processor")
_NAME = "fastdecode"


def accelerated(
    processor: _Processor,
    *,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    num_threads: int | None = None,
) -> _Processor:
    """Return a processor like another one that takes encoded images, and makes them in the core.

    Parameters
    ----------
    processor : transformers image processor or processor
        One of transformers' torchvision backend, also from code on the Hub; or a processor that has
        such an image processor, beside a tokenizer for instance. It is not changed.
    max_pixels : int, optional
        A file whose header promises more pixels is refused, as by `fastdecode.decode`; None sets no
        limit. Images that Pillow has opened have Pillow's own.
    num_threads : int, optional
        How many threads make the images of a batch; by default, one for each core.

    Returns
    -------
    processor
        Its class has the name of the original one, and is derived from it; what `save_pretrained`
        and `to_dict` write is the same. A processor that is built otherwise, such as one of the
        "pil" backend, is returned as it is, with a warning.

    Examples
    --------
    >>> from fastdecode.transformers import accelerated
    >>> from transformers import CLIPImageProcessor
    >>> processor = accelerated(CLIPImageProcessor())
    >>> processor(data, return_tensors="pt").pixel_values.shape  # the bytes of a JPEG
    torch.Size([1, 3, 224, 224])
    """
    if max_pixels is not None and not (is_int(max_pixels) and max_pixels > 0):
        raise ValueError(f"max_pixels must be a positive integer or None, not {shown(max_pixels)}")
    if num_threads is not None:
        check_threads(num_threads)
    options = ProcessorSettings(max_pixels, num_threads)
    inner = getattr(processor, "image_processor", None)
    if accelerated_class(type(processor)) is None and inner is not None:
        made: Any = copy.copy(processor)
        made.image_processor = _with_options(inner, options)
    else:
        made = _with_options(processor, options)
    return cast("_Processor", made)


def _with_options(processor: Any, options: ProcessorSettings) -> Any:
    kind = accelerated_class(type(processor))
    if kind is None:
        warnings.warn(
            f"{type(processor).__name__} is not made of transformers' torchvision backend, and "
            'stays as it is: load it with backend="torchvision", if its model has that',
            stacklevel=4,
        )
        return processor
    made = kind.__new__(kind)
    vars(made).update(copy.deepcopy(vars(processor)), _fastdecode_settings=options)
    return made


def _add_backend(auto: Any) -> None:
    """Let `from_pretrained` of an Auto class take one more backend.

    transformers' own `register` wants the classes of all models, which are 3 seconds of imports.
    """
    before = auto.from_pretrained.__func__

    @functools.wraps(before)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("backend") != _NAME:
            return before(cls, *args, **kwargs)
        made = before(cls, *args, **{**kwargs, "backend": "torchvision"})
        if isinstance(made, tuple):  # with the arguments that it has not used
            return accelerated(made[0]), *made[1:]
        return accelerated(made)

    auto.from_pretrained = classmethod(from_pretrained)


_add_backend(transformers.AutoImageProcessor)
