"""Damaged samples: the effect of each policy, and the recorded failures."""

from __future__ import annotations

import errno
import gc
import pickle
import re
import weakref
from functools import partial
from typing import Any

import pytest
import torch
from damaged import CUT, NO_SUCH_FILE, PHOTO, SMALL, Listed
from same import assert_same
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, default_collate

from fastdecode import errors
from fastdecode.torch import Loader
from fastdecode.torch._errors import SKIPPED, Failure, replacement_candidates


@pytest.mark.parametrize("transform", [SMALL, None], ids=["encoded", "images"])
def test_error_names_the_file_and_the_index(transform: Any) -> None:
    """The path of a damaged file, or the index of damaged bytes; also in a library's error."""

    def fail(image: Any) -> Any:
        raise OSError("image file is truncated")  # without a number, as Pillow's

    dataset = Listed(PHOTO, CUT, CUT.read_bytes(), NO_SUCH_FILE, transform=transform)
    by_library = Listed(PHOTO, transform=fail)
    for of, index, error, told in (
        (dataset, 1, errors.DecodeError, rf"^{re.escape(str(CUT))} \(item 1\): \w"),
        (dataset, 2, errors.DecodeError, r"^item 2: \w"),
        (dataset, 3, FileNotFoundError, rf"\(item 3\): '{re.escape(str(NO_SUCH_FILE))}'$"),
        (by_library, 0, OSError, rf"^{re.escape(str(PHOTO))} \(item 0\): image file is truncated$"),
    ):
        with pytest.raises(error, match=told) as caught:
            of[index]

        if index == 3:
            assert caught.value.errno == errno.ENOENT
            assert caught.value.filename == str(NO_SUCH_FILE)
    assert by_library.errors == [Failure(0, str(PHOTO), "image file is truncated")]


def test_what_failed_is_remembered_once() -> None:
    """`errors` has the index, path and reason of each damaged sample, until the list is cleared."""
    dataset = Listed(PHOTO, CUT, CUT.read_bytes(), NO_SUCH_FILE)
    for index in (1, 2, 3, 1, torch.tensor(1)):
        with pytest.raises((errors.DecodeError, OSError)):
            dataset[index]
    cut, data, gone = dataset.errors

    assert (cut.index, cut.path) == (1, str(CUT))
    assert (data.index, data.path) == (2, "")
    assert cut.reason == data.reason
    assert str(CUT) not in cut.reason
    assert gone == (3, str(NO_SUCH_FILE), "No such file or directory")
    for clear in (dataset.errors.clear, lambda: setattr(dataset, "errors", [])):
        clear()
        with pytest.raises(errors.DecodeError):
            dataset[1]
        assert [failure.index for failure in dataset.errors] == [1]


def test_skipped_samples_are_left_out_of_the_batch() -> None:
    """With "skip", a batch lacks them; what must return something raises the error."""
    dataset = Listed(PHOTO, CUT, PHOTO, *([CUT] * 6), on_error="skip")
    _, targets = next(iter(DataLoader(dataset, batch_size=3)))

    assert targets.tolist() == [0, 2]
    assert [failure.path for failure in dataset.errors] == [str(CUT)]
    with pytest.raises(errors.DecodeError, match=r"\(item 4\)"):
        dataset[4]
    assert [failure.index for failure in dataset.errors] == [1, 4]
    names = rf"all 6 samples .*{re.escape(CUT.name)} \(item 3\): .*; and 1 more$"
    with pytest.raises(errors.DecodeError, match=names):
        dataset.__getitems__(range(3, 9))
    assert dataset.__getitems__([]) == []


def test_replacement_is_the_same_each_time() -> None:
    """With "replace", always the same other sample comes, with its own target."""
    sources = [CUT if index % 3 else PHOTO for index in range(30)]
    chosen = [Listed(*sources, on_error="replace")[index][1] for index in (1, 2, 4, 5, 7)]
    dataset = Listed(*sources, on_error="replace")
    backwards = [dataset[index][1] for index in (7, 5, 4, 2, 1)]

    assert chosen == backwards[::-1]
    assert {sources[index] for index in chosen} == {PHOTO}
    assert len(set(chosen)) > 1
    assert_same(dataset[1][0], SMALL(PHOTO.read_bytes()))
    assert 0 not in {failure.index % 3 for failure in dataset.errors}


@pytest.mark.parametrize("count", [2, 5, 30])
def test_an_index_from_the_end_is_the_same_sample(count: int) -> None:
    """`ds[-1]` has the replacement, the entry and the name of `ds[n - 1]`, and so on."""
    for index in range(1, count):
        made = []
        for asked in (index, index - count, torch.tensor(index - count)):
            sources = [CUT if number == index else PHOTO for number in range(count)]
            dataset = Listed(*sources, on_error="replace")
            made.append((dataset[asked][1], dataset.errors))
            assert dataset[index][1] == made[0][0]
            assert len(dataset.errors) == 1
            dataset = Listed(*[CUT] * count, on_error="skip")
            with pytest.raises(errors.DecodeError, match=rf"\(item {index}\)"):
                dataset[asked]
            with pytest.raises(errors.DecodeError, match=rf"\(item {index}\)"):
                dataset.__getitems__([asked])
        assert made[1:] == made[:1] * 2


class Through(Listed):
    """With its own `__getitem__`, which calls ours."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


@pytest.mark.parametrize("kind", [Listed, Through])
def test_replacing_ends(kind: Any) -> None:
    """If all files are damaged, each is tried once, and no more than 33 in all."""
    few, many = (kind(*([CUT] * count), on_error="replace") for count in (5, 500))

    for dataset, tried in ((few, 5), (many, 33)):
        with pytest.raises(errors.DecodeError, match=rf"sample 3: {tried} .*\(item 3\)"):
            dataset[3]
        assert len(set(dataset.reads)) == len(dataset.reads) == len(dataset.errors) == tried


def test_replacements_never_change() -> None:
    """For the same index, because runs must be repeatable; they are of those allowed."""
    assert list(replacement_candidates(3, range(1000)))[:5] == [531, 591, 669, 996, 550]
    assert list(replacement_candidates(0, range(1))) == []
    assert set(replacement_candidates(3, [3, 50, 51])) == {50, 51}
    assert list(replacement_candidates(3, [])) == []


@pytest.mark.parametrize("policy", ["raise", "replace"])
def test_error_that_is_dropped_keeps_no_memory(policy: str) -> None:
    """What it refers to is free when it is, without a garbage collection."""
    dataset = Listed(CUT, CUT, transform=SMALL, on_error=policy)
    gone = weakref.ref(dataset)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(errors.DecodeError) as caught:
            dataset[0]
        del dataset, caught
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(
    "error",
    [
        TypeError("a mistake"),
        IndexError("a mistake"),
        errors.UnknownBackend("a mistake"),
        errors.BackendUnavailable("a mistake"),
        KeyboardInterrupt("a mistake"),
        OSError(errno.EMFILE, "a mistake"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_mistakes_are_raised_whatever_the_policy(on_error: Any, error: BaseException) -> None:
    """Errors of the program or machine are raised under any policy, and not recorded."""

    def fail(image: Any) -> Any:
        if dataset:  # not yet where it is tried
            raise error
        return image

    dataset: Any = None
    dataset = Listed(PHOTO, PHOTO, transform=fail, on_error=on_error)

    for ask in (dataset.__getitem__, lambda index: dataset.__getitems__([index])):
        with pytest.raises(type(error), match="a mistake"):
            ask(0)
    assert dataset.errors == []


def test_mistake_of_a_replacement_is_raised() -> None:
    """An error of the program ends the search for a replacement."""

    class Wrong(Listed):
        def read(self, index: int) -> tuple[Any, Any]:
            if index:
                raise errors.UnknownBackend("a mistake")
            return super().read(index)

    with pytest.raises(errors.UnknownBackend, match=r"^a mistake$"):
        Wrong(CUT, PHOTO, on_error="replace")[0]


def test_failures_cross_process_borders() -> None:
    """SKIPPED is the same object after pickling, and errors keep their text."""
    dataset = Listed(CUT, PHOTO, on_error="skip")
    assert len(dataset.__getitems__([0, 1])) == 1
    again = pickle.loads(pickle.dumps(dataset))
    assert len(again.__getitems__([0, 1])) == 1

    assert pickle.loads(pickle.dumps(SKIPPED)) is SKIPPED
    assert repr(SKIPPED) == "SKIPPED"
    assert again.errors == dataset.errors


class Numbered(Dataset[Any]):
    """A wrapper of the user's that hands on what it does not have."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    __getattr__ = lambda self, name: getattr(self.__dict__.get("dataset"), name)  # noqa: E731

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index][0], self.dataset[index][1] + 100


IN_SUBSETS: dict[str, Any] = {
    "subset": lambda whole: Subset(whole, [1, 2, 5]),
    "nested": lambda whole: Subset(Subset(whole, [0, 2, 1, 3, 5]), torch.tensor([2, 1, 4])),
    "joined": lambda whole: Subset(ConcatDataset([Subset(whole, [0, 1]), whole]), [1, 4, 7]),
    "parts": lambda whole: ConcatDataset([Subset(whole, [1, 2]), Subset(whole, [5])]),
    "wrapper": lambda whole: Numbered(Subset(whole, [1, 2, 5])),
}


def _one_by_one(dataset: Any, count: int) -> Any:
    return [default_collate([dataset[index] for index in range(count)])]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("how", IN_SUBSETS)
@pytest.mark.parametrize("load", [_one_by_one, DataLoader, Loader, partial(Loader, num_workers=0)])
def test_replacement_lies_in_the_subset(load: Any, how: str) -> None:
    """One by one and in both loaders, "replace" takes no sample that the subset leaves out."""
    whole = Listed(PHOTO, CUT, CUT, *[PHOTO] * 9, transform=SMALL, on_error="replace")
    [(_, targets)] = load(IN_SUBSETS[how](whole), 3)

    assert {target % 100 for target in targets.tolist()} == {5}
