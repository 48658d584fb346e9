"""What a result needs to have said beside its figures: files that went wrong, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fastdecode.bench import on_device_words
from fastdecode.bench.groups import Group, groups
from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.words import count, number, size

if TYPE_CHECKING:
    from fastdecode.bench.result import Machine, Result

__all__ = ["Listing", "busy", "listings", "notes"]


class Listing(NamedTuple):
    """Files, and what is to be said of each.

    Attributes
    ----------
    title : str
    files : dict of str to str
        The reason by file name; empty where there is none to give.
    """

    title: str
    files: dict[str, str]


def busy(here: Machine) -> str:
    """Say how busy the machine was before the run, and whether that may have done harm."""
    if here.load is None:
        return ""
    text = f"Load before the run: {number(here.load)}"
    if here.load > here.cores / 2:
        text += f". More than half of {count(here.cores, 'core')}: the figures may be disturbed"
    return f"{text}."


def listings(result: Result) -> list[Listing]:
    """List refused files (first those that nothing reads), wrong pixels, and unreadable files."""
    return [
        *_refused(result),
        *_differing(result),
        *([Listing("Unreadable", result.collection.unreadable)] * _any(result)),
    ]


def notes(result: Result) -> list[str]:
    """Explain what the tables show and what they leave out; the run's own notes come first."""
    found = list(result.notes)
    if any(one.averaged for one in result.measurements):
        found.append(
            "averaged: the backend does not reduce these JPEG files inside its decoder, so the "
            "package averages full-size pixels. That gives other values by design."
        )
    untimed = {
        (one.backend, one.format): None
        for group in groups(result)
        if group.timed
        for one in group.members
        if one not in group.timed and one.refused
    }
    found += [f"Not timed: {name}, which refuses {kind.upper()} files." for name, kind in untimed]
    if result.device is not None:
        found += on_device_words.missing(result.device)
    if result.collection.not_images:
        found.append(f"Passed over, not images: {count(result.collection.not_images, 'file')}.")
    return found


def _any(result: Result) -> int:
    return int(bool(result.collection.unreadable))


def _refused(result: Result) -> list[Listing]:
    hopeless: dict[str, str] = {}
    by_backend: dict[str, dict[str, str]] = {}
    for group in groups(result):
        first, *others = group.members
        for file, reason in first.refused.items():
            if all(file in one.refused for one in others):
                hopeless[file] = _said(group, file, reason)
    for one in result.measurements:
        for file, reason in one.refused.items():
            if file not in hopeless:
                by_backend.setdefault(one.backend, {}).setdefault(file, reason)
    every = [Listing("Refused by all", hopeless)] if hopeless else []
    return every + [Listing(f"Refused by {name}", files) for name, files in by_backend.items()]


def _said(group: Group, file: str, reason: str) -> str:
    """Return what the automatic choice says, which has heard all of them; else one's reason."""
    every = (one.refused[file] for one in group.members if one.backend == AUTOMATIC)
    return next(every, reason)


def _differing(result: Result) -> list[Listing]:
    found: dict[str, dict[str, str]] = {}
    for one in result.measurements:
        if one.differing:
            title = f"Pixels differ, {one.backend}, {one.format.upper()} {size(one.reduce)}"
            found.setdefault(title, {}).update(dict.fromkeys(one.differing, ""))
    return [Listing(title, files) for title, files in found.items()]
