"""What a result says: groups of measurements, the answer in sentences, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.measure._text import (
    VS_BEST,
    VS_PILLOW,
    device_missing,
    half_range,
    number,
    percent,
    series,
    setting,
    size,
)
from fastdecode.measure.result import AUTOMATIC, CPU, NOTHING, PILLOW, PROTOCOLS, Spread
from fastdecode.terminal import count

if TYPE_CHECKING:
    from fastdecode.measure._text import Figure
    from fastdecode.measure.result import Machine, Measurement, Pipeline, Protocol, Result

_LOADER: Pipeline = "loader"

_NEAR_SHARE = 0.97  # of the best speed; repeated runs differ by more
_DEVICE_NEAR = 0.05  # of the CPU's speed; repeated runs differ by more
_SPARES = 0.5  # of the CPU's processor time; the answer mentions it below that
_ENOUGH_SHARE = 0.95  # of the best speed; more threads or workers are then not worth it
_SLOW = 0.25  # of the time, for reading; from there on, packing is suggested
_WIDE = 0.1  # half the distance between the quartiles, as a share of the gain
_MANY = 20  # images; fewer say little about other images
_HARDLY = 0.1  # of the time, for reading; below that, reading does not count
_BY = {
    "file": " with reading",
    "threads": " in a pool of threads",
    "loader": " in a DataLoader",
}


@dataclass(frozen=True)
class Group:
    """The backends with the same settings, fastest first."""

    members: tuple[Measurement, ...]  # those that were only checked, without figures, come last

    @property
    def one(self) -> Measurement:
        """Any member, for the settings that all of them share."""
        return self.members[0]

    @property
    def timed(self) -> tuple[Measurement, ...]:
        """The members that have figures."""
        return tuple(one for one in self.members if one.images_per_s.median > 0)

    @property
    def automatic(self) -> Measurement | None:
        """The automatic choice, if it was timed."""
        return next((one for one in self.timed if one.backend == AUTOMATIC), None)

    @property
    def pillow(self) -> Measurement | None:
        """Pillow, the reference for speed, if it was timed."""
        return next((one for one in self.timed if one.backend == PILLOW), None)

    @property
    def own(self) -> Measurement | None:
        """The member that a user of this package gets: the automatic choice, or `Loader`."""
        names = (AUTOMATIC, _LOADER) if self.one.protocol == "train" else (AUTOMATIC,)
        return next((one for one in self.timed if one.backend in names), None)

    def ratio_to_pillow(self, one: Measurement) -> Spread | None:
        """Return the speed divided by Pillow's, from ratios within rounds."""
        base = self.pillow
        if base is None or one.images_per_s.median <= 0:
            return None
        return Spread(1.0, 1.0, 1.0) if one is base else one.ratio.over(base.ratio)

    def ratio_to_base(self, one: Measurement) -> Spread | None:
        """Return the speed divided by Pillow's or, on a device, by that of the CPU path."""
        if one.protocol == "device":
            return one.ratio if one.ratio.median else None
        return self.ratio_to_pillow(one)

    def with_ratios_to_pillow(self) -> Group:
        """Return the group with ratios to Pillow's speed; 0 if that is unknown."""
        beside = (self.ratio_to_pillow(one) or NOTHING for one in self.members)
        return Group(
            tuple(replace(one, ratio=own) for one, own in zip(self.members, beside, strict=True))
        )

    @property
    def right(self) -> tuple[Measurement, ...]:
        """Timed backends whose pixels agree, without the automatic choice."""
        return tuple(one for one in self.timed if one.backend != AUTOMATIC and not one.differing)


def groups(result: Result) -> list[Group]:
    """Group measurements with the same settings; sort by protocol, format, counts, reduction."""
    formats = _by_frequency(result)
    return sorted(
        _group_by_settings(result.measurements), key=lambda group: _sort_key(group.one, formats)
    )


def device_groups(result: Result) -> list[Group]:
    """Group the measurements on a device by batch size and the other settings."""
    return _group_by_settings(result.on_device)


def _group_by_settings(measurements: Iterable[Measurement]) -> list[Group]:
    found: dict[tuple[object, ...], list[Measurement]] = {}
    for one in measurements:
        found.setdefault((*one.key[:3], *one.key[4:]), []).append(one)
    return [Group(tuple(sorted(own, key=_speed, reverse=True))) for own in found.values()]


def by_protocol(every: Iterable[Group]) -> list[list[Group]]:
    """Collect the groups of each table: the same protocol, format, output and size."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in every:
        one = group.one
        found.setdefault((one.protocol, one.format, one.output, one.size), []).append(group)
    return list(found.values())


class Sheet(NamedTuple):
    """A table before it is laid out."""

    title: str
    figures: Sequence[Figure]
    # for each section: the settings that its rows share, and the rows
    sections: Sequence[tuple[str, tuple[Measurement, ...]]]


def sheet(title: str, figures: Sequence[Figure], own: Sequence[Group]) -> Sheet:
    """Return the contents of a table. Ratios are to Pillow's speed, if it was timed."""
    if VS_BEST in figures and any(group.pillow for group in own):
        figures = [VS_PILLOW if figure is VS_BEST else figure for figure in figures]
        own = [group.with_ratios_to_pillow() for group in own]
    parts = [
        (f"{setting(group.one)}, {count(group.one.files, 'file')}", group.members) for group in own
    ]
    return Sheet(title, figures, parts)


def most_frequent_format(result: Result) -> str:
    """Return the most frequent format among those that were measured."""
    measured = {one.format for one in result.measurements}
    return next((name for name in _by_frequency(result) if name in measured), "")


def main_group(every: Sequence[Group], format: str) -> Group | None:
    """Return the most telling group: one thread, from memory, at the largest size.

    If that was not measured, files come next, then threads, then workers.
    """
    own = [group for group in every if group.one.format == format and group.right]
    for wanted in ("decode", "file", "threads", "loader"):
        candidates = [group for group in own if group.one.protocol == wanted]
        if candidates:
            return min(candidates, key=lambda group: group.one.reduce)
    return None


def _by_frequency(result: Result) -> list[str]:
    formats = result.collection.formats
    others = (one.format for one in result.measurements)
    return list(dict.fromkeys([*sorted(formats, key=lambda name: -formats[name]), *others]))


def _speed(one: Measurement) -> tuple[float, float]:
    if one.protocol == "device":  # without figures of the CPU path there are no ratios
        return one.images_per_s.median, 0.0
    return one.ratio.median if one.images_per_s.median else -1.0, one.images_per_s.median


def _sort_key(one: Measurement, formats: Sequence[str]) -> tuple[object, ...]:
    protocol = PROTOCOLS.index(one.protocol)
    return protocol, formats.index(one.format), one.threads, one.workers, one.reduce, one.key[6:]


class Gain(NamedTuple):
    """How many times as fast as Pillow this package is at the same work."""

    own: Measurement  # the automatic choice, or `Loader`
    pillow: Measurement
    times: Spread  # speed divided by Pillow's

    @property
    def clear(self) -> bool:
        """Whether the difference is larger than the spread."""
        return self.times.low > 1 or self.times.high < 1


def gains(result: Result) -> list[Gain]:
    """Compare this package with Pillow: first decoding, then training batches, if measured."""
    every, kind = groups(result), most_frequent_format(result)
    trained = [group for group in every if group.one.protocol == "train"]
    found = []
    for group in (main_group(every, kind), *trained[:1]):
        own, pillow = (group.own, group.pillow) if group else (None, None)
        if group and own and pillow and (times := group.ratio_to_pillow(own)):
            found.append(Gain(own, pillow, times))
    return found


class Improvement(NamedTuple):
    """One thing that would make decoding faster here."""

    what: str
    how: str  # a shell command, or an option of this command
    gain: float | None  # as a share of the present speed; None if it was not measured


def improvements(result: Result) -> list[Improvement]:
    """List what would make `decode` faster, most promising first."""
    found = [
        Improvement(f"{name} is usually faster but not installed here", line, None)
        for name, line in result.faster.items()
    ]
    group = main_group(groups(result), most_frequent_format(result))
    automatic = group.automatic if group else None
    if group is None or automatic is None:
        return found
    best = group.right[0]
    chosen = next((one for one in group.right if one.backend == automatic.chosen), best)
    gain = best.ratio.median / automatic.ratio.median - 1
    if gain > 1 - _NEAR_SHARE and best.ratio.low > chosen.ratio.high and best.protocol != "file":
        what = f"{best.backend} is faster here than {chosen.backend}, which decode() chooses"
        found.insert(0, Improvement(what, "--save", gain))
    return found


def other_savings(result: Result) -> list[Improvement]:
    """List what else would save time, according to the figures: other calls, or other files."""
    every, kind = groups(result), most_frequent_format(result)
    own = [group for group in every if group.one.format == kind]
    crowds: tuple[tuple[Protocol, str, str], ...] = (
        ("threads", "{} threads instead of {}", "decode_batch(paths, threads={})"),
        (
            "loader",
            "{} workers of a DataLoader instead of {}",
            "DataLoader(dataset, num_workers={})",
        ),
    )
    found = []
    for protocol, what, how in crowds:
        speeds = _scaling([group for group in own if group.one.protocol == protocol])
        least = sufficient_count(speeds) if speeds else 1
        if least > min(speeds, default=1):
            gain = speeds[least] / speeds[min(speeds)] - 1
            more = what.format(least, min(speeds))
            found.append(Improvement(more, how.format(least), gain))
    sizes = {group.one.reduce: group for group in own if group.one.protocol == "decode"}
    whole = sizes.get(1, Group(())).automatic if 1 in sizes else None
    small = max(sizes, default=1)
    part = sizes[small].automatic if sizes else None
    if whole and part and part.images_per_s.median > whole.images_per_s.median / _ENOUGH_SHARE:
        gain = part.images_per_s.median / whole.images_per_s.median - 1
        what = f"reducing to {size(small)} inside the decoder, if that is large enough"
        found.append(Improvement(what, "decode(data, min_size=224)", gain))
    files = [group.automatic for group in own if group.one.protocol == "file" and group.automatic]
    if files and files[0].read_share >= _SLOW:
        what = f"reading takes {percent(files[0].read_share)} of the time: pack the files into one"
        found.append(Improvement(what, "fastdecode pack FOLDER train.tar", None))
    return found


def caveats(result: Result) -> list[str]:
    """List the reasons why the gain is uncertain."""
    found = [f"{text[0].upper()}{text[1:]}." for text in [busy_remark(result.machine)] if text]
    compared = gains(result)
    for gain in compared:
        what = "Training" if gain.own.protocol == "train" else "Decoding"
        low, high = format_times(gain.times.low), format_times(gain.times.high)
        if not gain.clear:
            found.append(f"{what}: {low} to {high}, so the difference may be chance.")
        elif half_range(gain.times) > _WIDE:
            found.append(f"{what}: the quartiles of the rounds are {low} and {high}.")
    if result.collection.samples:
        found.append("These are the package's own photos; yours may give other figures.")
    elif compared and compared[0].own.files < _MANY:
        found.append(
            f"Only {count(compared[0].own.files, 'image')}: others may give other figures."
        )
    return found


def format_times(quotient: float) -> str:
    """Format a quotient of speeds, with as many digits as are meaningful."""
    return f"{quotient:.{2 if quotient < 1.2 else 1 if quotient < 9.95 else 0}f}x"


def sentences(result: Result, *, advise: bool = True) -> tuple[str, ...]:
    """Return the answer in sentences. They cover only what was measured."""
    every = groups(result)
    kind = most_frequent_format(result)
    group = main_group(every, kind)
    found = _gain_sentences(result)
    found += [_fastest_sentence(group, several=len(_formats(every)) > 1)] if group else []
    found += _automatic_sentence(every, kind) if group is None else []
    found += _counts_sentence([one for one in every if one.one.format == kind])
    found += device_answer(result)
    found += _bottleneck_sentence([one for one in every if one.one.protocol == "file"])
    wrong = list(dict.fromkeys(one.backend for one in result.measurements if one.differing))
    if wrong:
        found.append(f"The pixels DIFFER from the reference: {', '.join(wrong)}.")
    for one in improvements(result)[:1] if advise else ():
        gain = f" (+{percent(one.gain)})" if one.gain else ""
        found.append(f"Faster still: {one.what}: {one.how}{gain}")
    return tuple(found) or ("Nothing was measured.",)


def _gain_sentences(result: Result) -> list[str]:
    """Return a sentence on the gain over Pillow, the files, and how sure it is."""
    said: list[str] = []
    found = gains(result)
    for gain in found:
        own = gain.own
        what = f"decodes{_BY.get(own.protocol, '')}"
        if own.protocol == "train":
            what = f"{'and its' if said else 'with its'} Loader makes training batches"
        speed = "as fast as" if _is_near(gain) else f"{format_times(gain.times.median)} as fast as"
        base = "Pillow in PyTorch's DataLoader" if own.protocol == "train" else "Pillow"
        few = f" (on {own.files:,} of them)" if own.files != found[0].own.files else ""
        caveat = ""
        if not (gain.clear or _is_near(gain)):
            caveat = ", which is within the spread"
        elif half_range(gain.times) > _WIDE:
            caveat = f" ({format_times(gain.times.low)} to {format_times(gain.times.high)})"
        said.append(f"{what} {speed} {base}{few}{caveat}")
    if not said:
        return []
    remark = busy_remark(result.machine)
    text = f"{_files_phrase(result, found[0].own)} fastdecode {', '.join(said)}"
    return [f"{text} ({remark})." if remark else f"{text}."]


def _is_near(gain: Gain) -> bool:
    return _NEAR_SHARE <= gain.times.median <= 1 / _NEAR_SHARE


def _files_phrase(result: Result, one: Measurement) -> str:
    """Say which files: "On your 100 photos", or how many of them."""
    alone = len(result.collection.formats) == 1
    noun = "photo" if alone and one.format == "jpeg" else f"{one.format.upper()} image"
    every = result.collection.formats.get(one.format, one.files)
    whose = "the package's" if result.collection.samples else "your"
    some = f"{one.files:,} of " if one.files != every else ""
    return f"On {some}{whose} {count(every, noun)}"


def busy_remark(here: Machine) -> str:
    """Return a remark if the machine was too busy for reliable figures; empty if it was not."""
    if here.load is None or here.load <= here.cores / 2:
        return ""
    cores = count(here.cores, "core")
    return f"the machine was busy, load {number(here.load)} on {cores}: figures may be unreliable"


def sufficient_count(speeds: dict[int, float]) -> int:
    """Return the smallest count whose speed is within 5 % of the best."""
    best = max(speeds.values())
    return min(number for number, speed in speeds.items() if speed >= _ENOUGH_SHARE * best)


def _formats(every: Sequence[Group]) -> set[str]:
    return {group.one.format for group in every if group.timed}


def _group_phrase(group: Group, *, several: bool) -> str:
    kind = f"for {group.one.format.upper()} " if several else ""
    return f"{kind}at {size(group.one.reduce)}{_BY.get(group.one.protocol, '')}"


def _fastest_sentence(group: Group, *, several: bool) -> str:
    best = group.right[0]
    speed = f"{number(best.images_per_s.median)} images/s"
    near = [one.backend for one in group.right[1:] if _speed_share(one, best) >= _NEAR_SHARE]
    if near:
        speed += f"; {series(near)} within 3%"
    text = f"Fastest here {_group_phrase(group, several=several)}: {best.backend} ({speed})"
    automatic = group.automatic
    if automatic is None:
        return f"{text}."
    chosen = "it too" if automatic.chosen == best.backend else automatic.chosen or "nothing"
    share = _speed_share(automatic, best)
    # The automatic choice only adds work, so a share above 1 is noise.
    close = f"and reaches {percent(share)} of that speed, compared round by round"
    if share > 1 / _NEAR_SHARE and automatic.chosen not in {one.backend for one in group.right}:
        close = f"which is {share:.1f}x as fast"  # not among the backends that the user named
    elif share >= _NEAR_SHARE:
        close = "and comes within 3% of that speed"
    elif automatic.ratio.high >= best.ratio.median:
        close = "and is within the spread of that speed"
    return f"{text}; decode() chooses {chosen}, {close}."


def _speed_share(one: Measurement, best: Measurement) -> float:
    """Return the quotient of two speeds, from their ratios within rounds."""
    return one.ratio.median / best.ratio.median if best.ratio.median else 0.0


def _automatic_sentence(every: Sequence[Group], kind: str) -> list[str]:
    """Return the speed of `decode` if there is no backend to compare it with."""
    for group in every:
        if group.automatic and group.one.format == kind:
            speed = number(group.automatic.images_per_s.median)
            what = _group_phrase(group, several=len(_formats(every)) > 1)
            return [f"Only decode() could be measured {what}: {speed} images/s."]
    return []


def _counts_sentence(every: Sequence[Group]) -> list[str]:
    """Return a sentence that says how many threads and how many workers are enough."""
    said = []
    for protocol, noun in (("threads", "thread"), ("loader", "DataLoader worker")):
        own = [group for group in every if group.one.protocol == protocol]
        reduce = min((group.one.reduce for group in own), default=1)
        speeds = _scaling([group for group in own if group.one.reduce == reduce])
        if len(speeds) > 1:
            said.append(_count_phrase(speeds, noun))
    text = "; ".join(said)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def by_count(every: Iterable[Group]) -> dict[str, dict[int, float]]:
    """Return the images/s of each backend with right pixels, by count of threads or workers."""
    found: dict[str, dict[int, float]] = {}
    for group in every:
        for one in (*group.right, *([group.automatic] if group.automatic else [])):
            found.setdefault(one.backend, {})[counts(one)] = one.images_per_s.median
    return found


def _scaling(every: Iterable[Group]) -> dict[int, float]:
    """Return the speeds of `decode`, or else of the fastest backend with several counts."""
    scaled = {name: speeds for name, speeds in by_count(every).items() if len(speeds) > 1}
    if AUTOMATIC in scaled:
        return scaled[AUTOMATIC]
    return max(scaled.values(), key=lambda speeds: max(speeds.values()), default={})


def counts(one: Measurement) -> int:
    """Return how many threads or workers there were."""
    return one.workers if one.protocol == "loader" else one.threads


def _count_phrase(speeds: dict[int, float], noun: str) -> str:
    least = sufficient_count(speeds)
    speed = f"{number(speeds[least])} images/s"
    if least == max(speeds):
        return f"{count(least, noun)}, the most that were tried, are the fastest ({speed})"
    verb = "is" if least == 1 else "are"
    return f"{count(least, noun)} {verb} enough ({speed}, within 5% of the best)"


def _bottleneck_sentence(every: Sequence[Group]) -> list[str]:
    shares = [
        (group.automatic or group.right[0]).read_share
        for group in every[:1]
        if group.automatic or group.right
    ]
    if not shares:
        return []
    share = shares[0]
    # Every file is read several times, so it is in the system's cache after the first time.
    reading = f"Reading the files, from the system's cache, takes {percent(share)} of the time"
    if share >= 0.5:
        return [f"{reading}: reading is the bottleneck, not decoding."]
    clear = "" if share < _HARDLY else ", but reading counts"
    return [f"{reading}: decoding is the bottleneck{clear}."]


def device_answer(result: Result) -> list[str]:
    """Return a sentence that says whether decoding on the device pays."""
    if result.device is None or not result.on_device:
        return []
    where, kind = result.device.device, result.on_device[0].format.upper()
    most = max(one.batch for one in result.on_device)
    own = [one for one in result.on_device if one.batch == most]
    cpu = next((one for one in own if one.backend == CPU), None)
    others = [one for one in own if one.backend != CPU]
    if cpu is None or not others:
        name = "the CPU path" if cpu else own[0].backend
        speed = number(own[0].images_per_s.median)
        return [f"Onto {where} only {name} could be measured: {speed} {kind} images/s."]
    best = max(others, key=lambda one: one.ratio.median)
    cores = count(result.machine.cores, "core")
    said = (
        f"Onto {where}, {best.backend} decodes {number(best.images_per_s.median)} {kind} images/s "
        f"in batches of {most}. That is {best.ratio.median:.2f} times the speed of the CPU with "
        f"{'all its ' if result.machine.cores > 1 else 'its '}{cores} "
        f"({number(cpu.images_per_s.median)}), for {percent(_cost(best, cpu))} of the processor "
        f"time: {_verdict(best, cpu)}."
    )
    return [said]


def _cost(best: Measurement, cpu: Measurement) -> float:
    return best.cpu_s_per_1000 / cpu.cpu_s_per_1000 if cpu.cpu_s_per_1000 else 0.0


def _verdict(best: Measurement, cpu: Measurement) -> str:
    """Say which of the two pays. Even a slower backend on the device spares the CPU."""
    if best.on_cpu > _SPARES:
        return f"it left {percent(best.on_cpu)} of them to the CPU, so this says little about it"
    ratio, spares = best.ratio.median, _cost(best, cpu) < _SPARES
    if ratio > 1 + _DEVICE_NEAR:
        return "decoding with it pays"
    if ratio >= 1 - _DEVICE_NEAR:
        how = (
            f"and {best.backend} spares the CPU"
            if spares
            else "so it does not matter which decodes"
        )
        return f"both are equally fast, {how}"
    if spares:
        return "decoding on the CPU is faster, and pays if its cores have nothing else to do"
    return "decoding on the CPU pays"


class Listing(NamedTuple):
    """A list of files, with a remark on each."""

    title: str
    files: dict[str, str]  # the remark by file name; may be empty


def load_sentence(here: Machine) -> str:
    """Say how busy the machine was before the run, and whether that makes figures unreliable."""
    if here.load is None:
        return ""
    remark = busy_remark(here)
    return f"Load before the run: {number(here.load)}{'; ' if remark else ''}{remark}."


def listings(result: Result) -> list[Listing]:
    """List refused files (first those that no backend reads), wrong pixels and unreadable files."""
    return [
        *_refused(result),
        *_differing(result),
        *([Listing("Unreadable", result.collection.unreadable)] * _any(result)),
    ]


def notes(result: Result) -> list[str]:
    """Return the notes of the run, then explain what the tables show and leave out."""
    found = list(result.notes)
    if any(one.averaged for one in result.measurements):
        found.append(
            "averaged: the backend does not reduce these JPEG files inside its decoder, so the "
            "package averages full-size pixels. Their values differ by design."
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
        found += device_missing(result.device)
    if result.collection.not_images:
        found.append(f"Skipped, not images: {count(result.collection.not_images, 'file')}.")
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
                hopeless[file] = _reason(group, file, reason)
    for one in result.measurements:
        for file, reason in one.refused.items():
            if file not in hopeless:
                by_backend.setdefault(one.backend, {}).setdefault(file, reason)
    every = [Listing("Refused by all", hopeless)] if hopeless else []
    return every + [Listing(f"Refused by {name}", files) for name, files in by_backend.items()]


def _reason(group: Group, file: str, reason: str) -> str:
    """Return the error of the automatic choice, which tried all backends, or else `reason`."""
    every = (one.refused[file] for one in group.members if one.backend == AUTOMATIC)
    return next(every, reason)


def _differing(result: Result) -> list[Listing]:
    found: dict[str, dict[str, str]] = {}
    for one in result.measurements:
        if one.differing:
            title = f"Pixels differ, {one.backend}, {one.format.upper()} {size(one.reduce)}"
            found.setdefault(title, {}).update(dict.fromkeys(one.differing, ""))
    return [Listing(title, files) for title, files in found.items()]
