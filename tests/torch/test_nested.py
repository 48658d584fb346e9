"""Walking through batches: what is replaced, and what keeps its type."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any, NamedTuple

import pytest
import torch

from fastdecode.torch._transfer import map_leaves, moved


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass
class Sample:
    image: Any
    name: str = ""
    length: int = dataclasses.field(init=False, default=3)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    image: Any


@dataclasses.dataclass
class Late:
    image: Any
    later: Any = dataclasses.field(init=False)


class Boxes:
    """A batch type of somebody's own, that moves itself."""

    def __init__(self, xyxy: Any) -> None:
        self.xyxy = xyxy
        self.options: dict[str, Any] = {}

    def to(self, device: Any, **options: Any) -> Boxes:
        other = Boxes(self.xyxy.to(device))
        other.options = options
        return other


class InPlace:
    def to(self, device: Any) -> None:
        self.device = device


def doubled(data: Any) -> Any:
    return map_leaves(data, "to", lambda leaf: leaf * 2)


def same(data: Any) -> Any:
    return map_leaves(data, "to", lambda leaf: leaf)


META = torch.device("meta")
ONE = torch.ones(2)
CONTAINERS = {
    "tensor": (ONE, lambda d: d),
    "dict": ({"a": ONE}, lambda d: d["a"]),
    "ordered": (collections.OrderedDict(a=ONE), lambda d: d["a"]),
    "defaultdict": (collections.defaultdict(list, a=ONE), lambda d: d["a"]),
    "user dict": (collections.UserDict(a=ONE), lambda d: d["a"]),
    "mapping proxy": (types.MappingProxyType({"a": ONE}), lambda d: d["a"]),
    "list": ([ONE], lambda d: d[0]),
    "deque": (collections.deque([ONE]), lambda d: d[0]),
    "tuple": ((ONE,), lambda d: d[0]),
    "named tuple": (Pair(ONE, 5), lambda d: d.image),
    "dataclass": (Sample(ONE, "x"), lambda d: d.image),
    "frozen dataclass": (Frozen(ONE), lambda d: d.image),
    "nested": ({"a": [(Pair(Sample(ONE), 1),)]}, lambda d: d["a"][0][0].image.image),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_tensors_are_replaced_and_containers_keep_their_type(name: str) -> None:
    """Whatever holds a tensor comes back as the same type with the new tensor in its place."""
    data, first = CONTAINERS[name]

    result = doubled(data)

    assert type(result) is type(data)
    assert first(result).tolist() == [2, 2]


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_original_is_left_as_it_was(name: str) -> None:
    """The loader's own batch is not changed, for it may use it again."""
    data, first = CONTAINERS[name]

    doubled(data)

    assert first(data) is ONE


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_with_nothing_new_is_the_same_object(name: str) -> None:
    """Nothing is copied where every tensor stayed."""
    data, _ = CONTAINERS[name]

    assert same(data) is data


@pytest.mark.parametrize(
    "data", [3, "text", b"bytes", None, range(10**12), torch.float32, torch.Tensor, {1, 2}]
)
def test_what_holds_no_tensor_stays(data: Any) -> None:
    """Numbers, strings, long ranges, types and sets are handed through, not walked."""
    assert doubled(data) is data


def test_what_lies_beside_a_tensor_stays() -> None:
    """Names, fields outside the constructor and a default factory survive."""
    sample = doubled(Sample(ONE, "cat.jpg"))
    mapping = doubled(collections.defaultdict(list, a=ONE, b="cat"))

    assert (sample.name, sample.length) == ("cat.jpg", 3)
    assert mapping["b"] == "cat"
    assert mapping["new"] == []


def test_a_field_that_was_never_set_is_no_error() -> None:
    """A dataclass with a field that has no value yet is copied without it."""
    result = doubled(Late(ONE))

    assert result.image.tolist() == [2, 2]
    assert not hasattr(result, "later")


def test_a_sequence_that_cannot_be_rebuilt_becomes_a_list() -> None:
    """As in PyTorch, a type whose constructor takes something else gives a plain list."""

    class Odd(collections.abc.Sequence):
        def __init__(self, first: Any, second: Any) -> None:
            self.items = [first, second]

        def __getitem__(self, index: Any) -> Any:
            return self.items[index]

        def __len__(self) -> int:
            return 2

    result = doubled(Odd(ONE, "b"))

    assert type(result) is list
    assert (result[0].tolist(), result[1]) == ([2, 2], "b")


def test_results_of_torch_keep_their_type() -> None:
    """What `max` along an axis returns is a tuple of PyTorch's own kind."""
    result = doubled(torch.max(torch.tensor([[1.0, 3.0]]), dim=1))

    assert type(result) is torch.return_types.max
    assert result.values.tolist() == [6]


def test_an_object_that_moves_itself_is_not_taken_apart() -> None:
    """A PackedSequence, which is a named tuple too, is asked to move as a whole."""
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])

    result = map_leaves([packed], "to", lambda leaf: moved(leaf, META, non_blocking=False))

    assert type(result[0]) is type(packed)
    assert result[0].data.device.type == "meta"
    assert result[0].batch_sizes.device.type == "cpu"


def test_own_types_are_told_not_to_block_if_they_can_be() -> None:
    """`non_blocking` goes to a `to` that takes it, and to no other."""
    boxes = moved(Boxes(ONE), META, non_blocking=True)
    changed = InPlace()

    assert boxes.options == {"non_blocking": True}
    assert moved(changed, META, non_blocking=True) is changed
    assert changed.device == META
