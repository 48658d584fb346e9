"""Which parts of a batch are moved to a device, and what keeps its type."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
from same import assert_same
from torch.utils import _pytree

from fastdecode.torch._loader.transfer import _dense, map_leaves, move


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass
class Sample:
    """A class of the caller's, which is registered below."""

    image: Any
    name: str = ""


_pytree.register_pytree_node(
    Sample, lambda one: ([one.image], one.name), lambda children, name: Sample(*children, name)
)


class Boxes:
    """A user's batch type that moves itself."""

    def __init__(self, xyxy: Any) -> None:
        self.xyxy = xyxy

    def to(self, device: Any) -> Boxes:
        return Boxes(self.xyxy.to(device))


class InPlace:
    def to(self, device: Any) -> None:
        self.device = device


def doubled(data: Any) -> Any:
    return map_leaves(data, "to", lambda leaf: leaf * 2)


META = torch.device("meta")
ONE = torch.ones(2)
CONTAINERS = {
    "tensor": (ONE, lambda d: d),
    "dict": ({"a": ONE}, lambda d: d["a"]),
    "ordered": (collections.OrderedDict(a=ONE), lambda d: d["a"]),
    "defaultdict": (collections.defaultdict(list, a=ONE), lambda d: d["a"]),
    "list": ([ONE], lambda d: d[0]),
    "deque": (collections.deque([ONE]), lambda d: d[0]),
    "tuple": ((ONE,), lambda d: d[0]),
    "named tuple": (Pair(ONE, 5), lambda d: d.image),
    "registered": (Sample(ONE, "x"), lambda d: d.image),
    "nested": ({"a": [(Pair(Sample(ONE), 1),)]}, lambda d: d["a"][0][0].image.image),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_tensors_are_replaced_and_containers_keep_their_type(name: str) -> None:
    """New tensors are in place, and the loader's own batch is not changed."""
    data, first = CONTAINERS[name]

    result = doubled(data)

    assert type(result) is type(data)
    assert first(result).tolist() == [2, 2]
    assert first(data) is ONE


@pytest.mark.parametrize(
    "data",
    [
        3,
        "text",
        b"bytes",
        bytearray(2),
        None,
        range(10**12),
        torch.float32,
        torch.Tensor,
        {1, 2},
        META,
    ],
)
def test_what_holds_no_tensor_stays(data: Any) -> None:
    """Numbers, strings, long ranges, types and objects are returned unchanged."""
    assert doubled(data) is data


def test_what_lies_beside_a_tensor_stays() -> None:
    """Names and a default factory are kept, and so is the type of torch's own results."""
    sample = doubled(Sample(ONE, "cat.jpg"))
    mapping = doubled(collections.defaultdict(list, a=ONE, b="cat"))
    largest = doubled(torch.max(torch.tensor([[1.0, 3.0]]), dim=1))

    assert (sample.name, mapping["b"], mapping["new"]) == ("cat.jpg", "cat", [])
    assert type(largest) is torch.return_types.max
    assert largest.values.tolist() == [6]


def test_objects_move_themselves() -> None:
    """By their own ``to``, as a whole, also if it moves in place and returns None."""
    changed = InPlace()
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])

    boxes, same, whole = map_leaves(
        (Boxes(ONE), changed, packed), "to", lambda leaf: move(leaf, META, non_blocking=True)
    )

    assert boxes.xyxy.is_meta
    assert (same is changed, changed.device) == (True, META)
    assert type(whole) is type(packed)  # which is also a named tuple
    assert (whole.data.device.type, whole.batch_sizes.device.type) == ("meta", "cpu")


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda t: t, True),
        (lambda t: t.to(memory_format=torch.channels_last), True),
        (lambda t: t.transpose(1, 2), True),
        (lambda t: t[:, :, ::2], False),
        (lambda t: t[:1].expand(2, -1, -1, -1), False),
    ],
)
def test_only_tensors_with_gaps_are_copied_before_they_are_pinned(make, same: bool) -> None:
    """A slice or an expanded tensor is copied; dense memory in any order is not."""
    tensor = make(torch.rand(2, 3, 4, 5))

    dense = _dense(tensor)

    assert (dense is tensor) is same
    assert_same(dense, tensor)
    assert dense.untyped_storage().nbytes() == 4 * dense.numel()
