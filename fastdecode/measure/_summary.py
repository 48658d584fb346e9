"""What a result says: measurements in groups, the answer in sentences, and what went wrong."""

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

_NEAR = 0.97  # of the best: closer than what repeated runs differ by
_DEVICE_NEAR = 0.05  # of the CPU's speed: closer than what repeated runs differ by
_SPARES = 0.5  # of the CPU's processor time: less than that is worth a word
_ENOUGH = 0.95  # of the best count: more threads or workers are not worth it
_SLOW = 0.25  # of the time, for reading: so much is worth a word about packing
_WIDE = 0.1  # half of what lies between the quartiles, as a share of the gain
_MANY = 20  # images: fewer say little of others
_HARDLY = 0.1  # of the time: reading less than this is not worth a word about both
_BY = {
    "file": " with reading",
    "threads": " in a pool of threads",
    "loader": " in a DataLoader",
}


@dataclass(frozen=True)
class Group:
    """The backends at one setting, the fastest first."""

    members: tuple[Measurement, ...]  # those without figures, which were only checked, come last

    @property
    def one(self) -> Measurement:
        """Any of them: it has the settings that all of them have."""
        return self.members[0]

    @property
    def timed(self) -> tuple[Measurement, ...]:
        """Those that have figures."""
        return tuple(one for one in self.members if one.images_per_s.median > 0)

    @property
    def automatic(self) -> Measurement | None:
        """The automatic choice, if it was timed."""
        return next((one for one in self.timed if one.backend == AUTOMATIC), None)

    @property
    def pillow(self) -> Measurement | None:
        """Pillow, if it was timed: what all are held against."""
        return next((one for one in self.timed if one.backend == PILLOW), None)

    @property
    def own(self) -> Measurement | None:
        """What a user of this package has: the automatic choice, or `Loader`."""
        names = (AUTOMATIC, _LOADER) if self.one.protocol == "train" else (AUTOMATIC,)
        return next((one for one in self.timed if one.backend in names), None)

    def beside_pillow(self, one: Measurement) -> Spread | None:
        """Return how many times as fast as Pillow one is, by way of ratios paired within rounds."""
        base = self.pillow
        if base is None or one.images_per_s.median <= 0:
            return None
        return Spread(1.0, 1.0, 1.0) if one is base else one.ratio.over(base.ratio)

    def beside_base(self, one: Measurement) -> Spread | None:
        """Return how many times as fast as Pillow one is; on a device, as the CPU path."""
        if one.protocol == "device":
            return one.ratio if one.ratio.median else None
        return self.beside_pillow(one)

    def to_pillow(self) -> Group:
        """Return the same with all ratios to Pillow's speed; 0 where that is not known."""
        beside = (self.beside_pillow(one) or NOTHING for one in self.members)
        return Group(
            tuple(replace(one, ratio=own) for one, own in zip(self.members, beside, strict=True))
        )

    @property
    def right(self) -> tuple[Measurement, ...]:
        """Backends that were timed and whose pixels agree, without the automatic choice."""
        return tuple(one for one in self.timed if one.backend != AUTOMATIC and not one.differing)


def groups(result: Result) -> list[Group]:
    """Put measurements with the same settings together: by protocol, format, counts, reduction."""
    formats = _by_frequency(result)
    return sorted(_alike(result.measurements), key=lambda group: _place(group.one, formats))


def device_groups(result: Result) -> list[Group]:
    """Put together what was measured with the same batches."""
    return _alike(result.on_device)


def _alike(measurements: Iterable[Measurement]) -> list[Group]:
    found: dict[tuple[object, ...], list[Measurement]] = {}
    for one in measurements:
        found.setdefault((*one.key[:3], *one.key[4:]), []).append(one)
    return [Group(tuple(sorted(own, key=_speed, reverse=True))) for own in found.values()]


def by_protocol(every: Iterable[Group]) -> list[list[Group]]:
    """Collect what stands in one table: the same protocol, format, output and size."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in every:
        one = group.one
        found.setdefault((one.protocol, one.format, one.output, one.size), []).append(group)
    return list(found.values())


class Sheet(NamedTuple):
    """A table before it is laid out."""

    title: str
    figures: Sequence[Figure]
    # what is the same for the rows of a section, and what each row shows
    sections: Sequence[tuple[str, tuple[Measurement, ...]]]


def sheet(title: str, figures: Sequence[Figure], own: Sequence[Group]) -> Sheet:
    """Choose what a table shows; speeds are held against Pillow's, if that was timed."""
    if VS_BEST in figures and any(group.pillow for group in own):
        figures = [VS_PILLOW if figure is VS_BEST else figure for figure in figures]
        own = [group.to_pillow() for group in own]
    parts = [
        (f"{setting(group.one)}, {count(group.one.files, 'file')}", group.members) for group in own
    ]
    return Sheet(title, figures, parts)


def commonest(result: Result) -> str:
    """Return the format that most files have; of the files that were measured."""
    measured = {one.format for one in result.measurements}
    return next((name for name in _by_frequency(result) if name in measured), "")


def main_group(every: Sequence[Group], format: str) -> Group | None:
    """Return the group that speaks for the run: one thread, from memory, as large as was asked.

    What was not measured is replaced by what comes nearest: files, then threads, then workers.
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
    if one.protocol == "device":  # not all have a ratio: of the CPU's path there may be no figures
        return one.images_per_s.median, 0.0
    return one.ratio.median if one.images_per_s.median else -1.0, one.images_per_s.median


def _place(one: Measurement, formats: Sequence[str]) -> tuple[object, ...]:
    protocol = PROTOCOLS.index(one.protocol)
    return protocol, formats.index(one.format), one.threads, one.workers, one.reduce, one.key[6:]


class Gain(NamedTuple):
    """How much faster than Pillow this package does the same."""

    own: Measurement  # the automatic choice, or `Loader`
    pillow: Measurement
    times: Spread  # speed over Pillow's

    @property
    def clear(self) -> bool:
        """Whether the difference is larger than the spread of both."""
        return self.times.low > 1 or self.times.high < 1


def gains(result: Result) -> list[Gain]:
    """Compare this package with Pillow: decoding first, then training batches, if measured."""
    every, kind = groups(result), commonest(result)
    trained = [group for group in every if group.one.protocol == "train"]
    found = []
    for group in (main_group(every, kind), *trained[:1]):
        own, pillow = (group.own, group.pillow) if group else (None, None)
        if group and own and pillow and (times := group.beside_pillow(own)):
            found.append(Gain(own, pillow, times))
    return found


class Improvement(NamedTuple):
    """What would make decoding faster here."""

    what: str
    how: str  # a line for a shell, or an option of this command
    gain: float | None  # as a share of the speed now; None where it was not measured


def improvements(result: Result) -> list[Improvement]:
    """List what would make `decode` faster, the most promising first."""
    found = [
        Improvement(f"{name}, which is usually faster, is missing here", line, None)
        for name, line in result.faster.items()
    ]
    group = main_group(groups(result), commonest(result))
    automatic = group.automatic if group else None
    if group is None or automatic is None:
        return found
    best = group.right[0]
    chosen = next((one for one in group.right if one.backend == automatic.chosen), best)
    gain = best.ratio.median / automatic.ratio.median - 1
    if gain > 1 - _NEAR and best.ratio.low > chosen.ratio.high and best.protocol != "file":
        what = f"{best.backend} is faster here than {chosen.backend}, which decode() chooses"
        found.insert(0, Improvement(what, "--save", gain))
    return found


def ways(result: Result) -> list[Improvement]:
    """List what else would save time here, by what was measured: other calls, or other files."""
    every, kind = groups(result), commonest(result)
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
        least = enough(speeds) if speeds else 1
        if least > min(speeds, default=1):
            gain = speeds[least] / speeds[min(speeds)] - 1
            more = what.format(least, min(speeds))
            found.append(Improvement(more, how.format(least), gain))
    sizes = {group.one.reduce: group for group in own if group.one.protocol == "decode"}
    whole = sizes.get(1, Group(())).automatic if 1 in sizes else None
    small = max(sizes, default=1)
    part = sizes[small].automatic if sizes else None
    if whole and part and part.images_per_s.median > whole.images_per_s.median / _ENOUGH:
        gain = part.images_per_s.median / whole.images_per_s.median - 1
        what = f"reducing to {size(small)} inside the decoder, where that is enough"
        found.append(Improvement(what, "decode(data, min_size=224)", gain))
    files = [group.automatic for group in own if group.one.protocol == "file" and group.automatic]
    if files and files[0].read_share >= _SLOW:
        what = f"reading takes {percent(files[0].read_share)} of the time: one file instead of many"
        found.append(Improvement(what, "fastdecode pack FOLDER train.tar", None))
    return found


def caveats(result: Result) -> list[str]:
    """Say what speaks against taking the gain for certain."""
    found = [f"{text[0].upper()}{text[1:]}." for text in [disturbed(result.machine)] if text]
    compared = gains(result)
    for gain in compared:
        what = "Training" if gain.own.protocol == "train" else "Decoding"
        low, high = times(gain.times.low), times(gain.times.high)
        if not gain.clear:
            found.append(f"{what}: {low} to {high}, so that the difference may be chance.")
        elif half_range(gain.times) > _WIDE:
            found.append(f"{what}: {low} to {high}, by the quartiles of the rounds.")
    if result.collection.samples:
        found.append("These are the package's own photos; yours may differ.")
    elif compared and compared[0].own.files < _MANY:
        found.append(f"Only {count(compared[0].own.files, 'image')}: others may differ.")
    return found


def times(quotient: float) -> str:
    """Write how many times as fast something is, as exactly as that is worth."""
    return f"{quotient:.{2 if quotient < 1.2 else 1 if quotient < 9.95 else 0}f}x"


def sentences(result: Result, *, advise: bool = True) -> tuple[str, ...]:
    """Say in plain words what was found; what was not measured is passed over."""
    every = groups(result)
    kind = commonest(result)
    group = main_group(every, kind)
    found = _gained(result)
    found += [_fastest(group, several=len(_formats(every)) > 1)] if group else []
    found += _only_automatic(every, kind) if group is None else []
    found += _counts([one for one in every if one.one.format == kind])
    found += device_answer(result)
    found += _bottleneck([one for one in every if one.one.protocol == "file"])
    wrong = list(dict.fromkeys(one.backend for one in result.measurements if one.differing))
    if wrong:
        found.append(f"The pixels DIFFER from the reference: {', '.join(wrong)}.")
    for one in improvements(result)[:1] if advise else ():
        gain = f" (+{percent(one.gain)})" if one.gain else ""
        found.append(f"Faster still: {one.what}: {one.how}{gain}")
    return tuple(found) or ("Nothing was measured.",)


def _gained(result: Result) -> list[str]:
    """Say in one sentence how much is gained over Pillow, on which files, and how sure that is."""
    said: list[str] = []
    found = gains(result)
    for gain in found:
        own = gain.own
        what = f"decodes{_BY.get(own.protocol, '')}"
        if own.protocol == "train":
            what = f"{'and its' if said else 'with its'} Loader makes training batches"
        speed = "as fast as" if _is_near(gain) else f"{times(gain.times.median)} as fast as"
        base = "Pillow in PyTorch's DataLoader" if own.protocol == "train" else "Pillow"
        few = f" (on {own.files:,} of them)" if own.files != found[0].own.files else ""
        caveat = ""
        if not (gain.clear or _is_near(gain)):
            caveat = ", which is within the spread"
        elif half_range(gain.times) > _WIDE:
            caveat = f" ({times(gain.times.low)} to {times(gain.times.high)})"
        said.append(f"{what} {speed} {base}{few}{caveat}")
    if not said:
        return []
    remark = disturbed(result.machine)
    text = f"{_where(result, found[0].own)} fastdecode {', '.join(said)}"
    return [f"{text} ({remark})." if remark else f"{text}."]


def _is_near(gain: Gain) -> bool:
    return _NEAR <= gain.times.median <= 1 / _NEAR


def _where(result: Result, one: Measurement) -> str:
    """Say on which files: "On your 100 photos", or on how many of them."""
    alone = len(result.collection.formats) == 1
    noun = "photo" if alone and one.format == "jpeg" else f"{one.format.upper()} image"
    every = result.collection.formats.get(one.format, one.files)
    whose = "the package's" if result.collection.samples else "your"
    some = f"{one.files:,} of " if one.files != every else ""
    return f"On {some}{whose} {count(every, noun)}"


def disturbed(here: Machine) -> str:
    """Say that the machine was too busy for figures to be trusted; empty if it was not."""
    if here.load is None or here.load <= here.cores / 2:
        return ""
    cores = count(here.cores, "core")
    return f"the machine was busy, load {number(here.load)} on {cores}: figures may be disturbed"


def enough(speeds: dict[int, float]) -> int:
    """Return the smallest count whose speed is within 5 % of the best."""
    best = max(speeds.values())
    return min(number for number, speed in speeds.items() if speed >= _ENOUGH * best)


def _formats(every: Sequence[Group]) -> set[str]:
    return {group.one.format for group in every if group.timed}


def _what(group: Group, *, several: bool) -> str:
    kind = f"for {group.one.format.upper()} " if several else ""
    return f"{kind}at {size(group.one.reduce)}{_BY.get(group.one.protocol, '')}"


def _fastest(group: Group, *, several: bool) -> str:
    best = group.right[0]
    speed = f"{number(best.images_per_s.median)} images/s"
    near = [one.backend for one in group.right[1:] if _share(one, best) >= _NEAR]
    if near:
        speed += f"; {series(near)} within 3%"
    text = f"Fastest here {_what(group, several=several)}: {best.backend} ({speed})"
    automatic = group.automatic
    if automatic is None:
        return f"{text}."
    chosen = "it too" if automatic.chosen == best.backend else automatic.chosen or "nothing"
    share = _share(automatic, best)
    # More than the fastest is noise: the automatic choice has only more to do.
    close = f"at {percent(share)} of its speed, by the ratios within blocks"
    if share > 1 / _NEAR and automatic.chosen not in {one.backend for one in group.right}:
        close = f"which is {share:.1f}x as fast"  # not among the backends that were asked for
    elif share >= _NEAR:
        close = "within 3% of that"
    elif automatic.ratio.high >= best.ratio.median:
        close = "within the spread of that"
    return f"{text}; decode() chooses {chosen}, {close}."


def _share(one: Measurement, best: Measurement) -> float:
    """Divide speeds by way of the ratios, which are paired within blocks."""
    return one.ratio.median / best.ratio.median if best.ratio.median else 0.0


def _only_automatic(every: Sequence[Group], kind: str) -> list[str]:
    """Give the speed of `decode` where no backend has one that it could be compared with."""
    for group in every:
        if group.automatic and group.one.format == kind:
            speed = number(group.automatic.images_per_s.median)
            what = _what(group, several=len(_formats(every)) > 1)
            return [f"Only decode() could be measured {what}: {speed} images/s."]
    return []


def _counts(every: Sequence[Group]) -> list[str]:
    """Say in one sentence how many threads, and how many workers, are enough."""
    said = []
    for protocol, noun in (("threads", "thread"), ("loader", "DataLoader worker")):
        own = [group for group in every if group.one.protocol == protocol]
        reduce = min((group.one.reduce for group in own), default=1)
        speeds = _scaling([group for group in own if group.one.reduce == reduce])
        if len(speeds) > 1:
            said.append(_count(speeds, noun))
    text = "; ".join(said)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def by_count(every: Iterable[Group]) -> dict[str, dict[int, float]]:
    """Return images a second of each right backend, by how many threads or workers there were."""
    found: dict[str, dict[int, float]] = {}
    for group in every:
        for one in (*group.right, *([group.automatic] if group.automatic else [])):
            found.setdefault(one.backend, {})[counts(one)] = one.images_per_s.median
    return found


def _scaling(every: Iterable[Group]) -> dict[int, float]:
    """Return the speeds of `decode`, else of the fastest backend that has several counts."""
    scaled = {name: speeds for name, speeds in by_count(every).items() if len(speeds) > 1}
    if AUTOMATIC in scaled:
        return scaled[AUTOMATIC]
    return max(scaled.values(), key=lambda speeds: max(speeds.values()), default={})


def counts(one: Measurement) -> int:
    """Return how many threads or workers there were."""
    return one.workers if one.protocol == "loader" else one.threads


def _count(speeds: dict[int, float], noun: str) -> str:
    least = enough(speeds)
    speed = f"{number(speeds[least])} images/s"
    if least == max(speeds):
        return f"{count(least, noun)}, the most that were tried, are the fastest ({speed})"
    verb = "is" if least == 1 else "are"
    return f"{count(least, noun)} {verb} enough ({speed}, within 5% of the best)"


def _bottleneck(every: Sequence[Group]) -> list[str]:
    shares = [
        (group.automatic or group.right[0]).read_share
        for group in every[:1]
        if group.automatic or group.right
    ]
    if not shares:
        return []
    share = shares[0]
    # Every file is read several times, so that the system holds it after the first.
    reading = f"Reading the files, from the system's cache, takes {percent(share)} of the time"
    if share >= 0.5:
        return [f"{reading}: reading is the bottleneck, not decoding."]
    clear = "" if share < _HARDLY else ", though reading counts"
    return [f"{reading}: decoding is the bottleneck{clear}."]


def device_answer(result: Result) -> list[str]:
    """Say in one sentence whether decoding on the device pays, or feeding it from the CPU."""
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
        f"Onto {where}, {best.backend} brings {number(best.images_per_s.median)} {kind} images/s "
        f"in batches of {most}, {best.ratio.median:.2f} times what the CPU brings with "
        f"{'all its ' if result.machine.cores > 1 else 'its '}{cores} "
        f"({number(cpu.images_per_s.median)}), for {percent(_cost(best, cpu))} of the processor "
        f"time: {_verdict(best, cpu)}."
    )
    return [said]


def _cost(best: Measurement, cpu: Measurement) -> float:
    return best.cpu_s_per_1000 / cpu.cpu_s_per_1000 if cpu.cpu_s_per_1000 else 0.0


def _verdict(best: Measurement, cpu: Measurement) -> str:
    """Say which pays; a decoder that is slower still spares the processor."""
    if best.on_cpu > _SPARES:
        return f"it left {percent(best.on_cpu)} of them to the CPU, so that this says little of it"
    ratio, spares = best.ratio.median, _cost(best, cpu) < _SPARES
    if ratio > 1 + _DEVICE_NEAR:
        return "decoding with it pays"
    if ratio >= 1 - _DEVICE_NEAR:
        how = "decoding with it spares the CPU" if spares else "it does not matter which decodes"
        return f"as fast, {how}"
    if spares:
        return "decoding on the CPU is faster, and pays where its cores have nothing else to do"
    return "decoding on the CPU pays"


class Listing(NamedTuple):
    """Files, and what is to be said of each."""

    title: str
    files: dict[str, str]  # the reason by file name; empty where there is none to give


def busy(here: Machine) -> str:
    """Say how busy the machine was before the run, and whether that may have done harm."""
    if here.load is None:
        return ""
    remark = disturbed(here)
    return f"Load before the run: {number(here.load)}{'; ' if remark else ''}{remark}."


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
        found += device_missing(result.device)
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
