"""The figures of the README and of docs/, each drawn from a result that is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from _common import RESULTS

from fastdecode.measure.result import Measurement, Result, from_json
from fastdecode.registry import BUILTIN

_AIM_US_AT_10_KB = 12
_AIM_PERCENT = 1
_KINDS = ("train", "eval")
_COLLECTIONS = {"px500": "500 x 375", "hd1080": "1920 x 1080", "mp12plus": "12 megapixels"}
_PIPELINES = {
    "loader": "this `ImageFolder` and `Loader`",
    "loader-exact": 'the same, `quality="exact"`',
    "loader-without-core": "`Loader` without the native core",
    "imagefolder": "this `ImageFolder`, PyTorch's DataLoader",
    "pillow": "Pillow, PyTorch's DataLoader",
    "torchvision-v1": "torchvision v1 (Pillow), DataLoader",
    "torchvision-v2": "torchvision v2 (tensors), DataLoader",
    "dali": "DALI on the CPU",
}
_LANES = {
    "loader": "`Loader`",
    "core": "the core makes the same tensors",
    "core-libjpeg": "the same, by libjpeg-turbo",
    "regions-own": "the core decodes the same regions",
    "regions": "the same, by libjpeg-turbo",
    "whole-own": "the core decodes whole images",
    "whole": "the same, by libjpeg-turbo",
    "simplejpeg": "simplejpeg in threads decodes whole images",
}
_FEEDS = {
    "random": "random tensors that stay on the GPU",
    "loader-cpu": '`Loader(decode="cpu")`',
    "loader-gpu": '`Loader(decode="gpu")`',
    "pillow": "Pillow, PyTorch's DataLoader",
    "dali": "DALI on the GPU",
}
_ON_RAY = ("ray_scaling", "ray_scaling_hd1080", "ray_scaling_mp12plus")
_BILLION, _CORES, _NODES = 10**9, 1000, 32
_PREFIX = 5500  # GET/s, as Amazon says


# Helpers


def load(name: str) -> dict[str, Any]:
    """Read a result that is kept."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def where(content: dict[str, Any]) -> str:
    """Say when and on what it was measured."""
    machine = content["machine"]
    return (
        f"{content['measured']}, {machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"{machine['python']}, NumPy {machine['numpy']}"
    )


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    head = [*head]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def drawn(
    corner: str, columns: Mapping[str, str], rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> str:
    """Write a table of titles and what the columns' templates make of each record."""
    filled_in = ([title, *(filled(cell, one) for cell in columns.values())] for title, one in rows)
    return table([corner, *columns], filled_in)


def filled(template: str, one: Mapping[str, Any]) -> str:
    """Fill in a template; empty where a figure is missing."""
    try:
        return template.format_map(one).replace("%", " %")
    except (KeyError, TypeError):
        return ""


def across(template: str, records: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """Fill in one template for each record; empty for none."""
    return [filled(template, one or {}) for one in records]


def _and(values: Iterable[float]) -> str:
    return " and ".join(f"{value:.2f}" for value in values)


def _named(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _threads(count: str) -> str:
    return f"{count} thread{'s' * (count != '1')}"


# README.md: decoding


def chart() -> str:
    """Draw the chart of the run over the photos."""
    from fastdecode.measure._charts import readme_chart  # of all this, it alone needs Jinja2

    return readme_chart(_photos())


def _photos() -> Result:
    return from_json((RESULTS / "photos.json").read_text(encoding="utf-8"))


def decode_figures() -> str:
    """Draw what was measured of `decode`."""
    parts = (photo_figures(_photos()), order_figures(), regret_figures(), overhead_figures())
    return "\n\n".join(parts)


def photo_figures(result: Result) -> str:
    """Draw the run over the photos: a column for each way of asking."""
    ways: dict[tuple[str, int, int], str] = {}
    found: dict[tuple[str, int, int], dict[str, Measurement]] = {}
    most = {
        protocol: max(m.threads + m.workers for m in result.measurements if m.protocol == protocol)
        for protocol in {m.protocol for m in result.measurements}
    }
    for one in result.measurements:
        crowd = one.threads + one.workers
        if one.format != "jpeg" or crowd != most[one.protocol] or not one.images_per_s.median:
            continue
        key = (one.protocol, one.reduce, crowd)
        ways[key] = f"1/{one.reduce}" + {
            "decode": "",
            "threads": f", {one.threads} threads",
            "loader": f", DataLoader, {one.workers} workers",
        }.get(one.protocol, ", from files")
        found.setdefault(key, {})[one.backend] = one
    rows = []
    for name in (*BUILTIN, "decode()"):
        measured = [found[key].get(name) for key in ways]
        if any(measured):
            ratios = ("" if m is None else f"{m.ratio.median:.2f}" for m in measured)
            rows.append([f"`{name}`", *ratios])
    best = [max(m.images_per_s.median for m in found[key].values()) for key in ways]
    rows.append(["best, images/s", *(f"{speed:.0f}" for speed in best)])
    here, files = result.machine, result.collection
    wrong = sorted({m.backend for m in result.measurements if m.differing})
    return (
        "![Images/s by backend and reduction](bench/results/photos.svg)\n\n"
        f"Speed as a share of the fastest (1.00) on {files.images} photos of "
        f"{files.bytes / files.images / 1000:.0f} KB on average:\n\n"
        f"{table(['backend', *ways.values()], rows)}\n\n"
        f"{' '.join(result.answer)}\n\n"
        f"Pixels: {'they differ for ' + ', '.join(wrong) if wrong else 'the same from all'}, where "
        "the decoder reduces by itself. "
        f"Measured {result.measured[:10]} by `python -m fastdecode.bench`, {here.cpu}, "
        f"{here.cores} cores, {here.system}, {here.python}, NumPy {here.numpy}, load before "
        f"{here.load}. {', '.join(f'{b.name} {b.version}' for b in result.backends)}. "
        "All figures: `bench/results/photos.json`."
    )


def order_figures() -> str:
    """Draw other formats: the results that the default order follows from."""
    content = load("default_order")
    groups = {name: content["result"][name] for name in ("png 1/1", "webp 1/1", "jpeg2000 1/1")}
    rows = []
    for name in (*BUILTIN, "decode()"):
        if any(name in lanes for lanes in groups.values()):
            found = (lanes.get(name) for lanes in groups.values())
            rows.append([f"`{name}`", *across("{ratio_to_best:.2f}", found)])
    best = (
        max(row["images_per_s"] for row in lanes.values() if isinstance(row, dict))
        for lanes in groups.values()
    )
    rows.append(["best, images/s", *(f"{speed:.0f}" for speed in best)])
    rows.append(["files", *across("{files}", groups.values())])
    return (
        "The same for other formats, at full size, one thread, from memory:\n\n"
        f"{table(['backend', *groups], rows)}\n\n"
        f"Measured {where(content)}. {_named(content['backends'])}."
    )


def regret_figures() -> str:
    """Draw how much slower `decode` is than the best backend."""
    content = load("regret")
    result = content["result"]
    pillow = sorted(1 / cell["speeds"]["pillow"] - 1 for cell in result["cells"].values())
    names = {"decode()": "calibrated", "quick": "quickly calibrated", "default": "default order"}
    rows = [
        (name, {**result[way], "at": "{worst:.1%}, {worst_cell}".format_map(result[way])})
        for way, name in names.items()
    ]
    always = {
        "within_3_percent": sum(regret <= 0.03 for regret in pillow) / len(pillow),
        "median": median(pillow),
        "at": f"{pillow[-1]:.0%}",
    }
    columns = {
        "within 3 % of the best": "{within_3_percent:.0%}",
        "median": "{median:.1%}",
        "worst": "{at}",
    }
    took = result["calibration_s"]
    return (
        "How much slower `decode` is than the best backend for the same work, over "
        f"{len(result['cells'])} kinds of work (JPEG of 10 KB to 5 MB, PNG, WebP, each `reduce`, "
        "one thread and all cores), on photos that calibration has not seen:\n\n"
        f"{drawn('choice', columns, [*rows, ('Pillow always', always)])}\n\n"
        f"Calibration took {took['full']:.0f} s in full and {took['quick']:.1f} s with `--quick`. "
        f"Measured {where(content)}."
    )


def overhead_figures() -> str:
    """Draw what `decode` costs on top."""
    content = load("overhead")
    missed = [
        size
        for size, row in content["result"].items()
        if max(row["named_more_percent"], row["automatic_more_percent"]) > _AIM_PERCENT
        and (
            size != "10 KB"
            or max(row["named_more_us"], row["automatic_more_us"]) > _AIM_US_AT_10_KB
        )
    ]
    columns = {
        "simplejpeg, µs": "{direct_us:.0f}",
        "more when named, µs": "{named_more_us:+.1f} ({named_more_percent:+.1f}%)",
        "more in automatic choice, µs": "{automatic_more_us:+.1f} ({automatic_more_percent:+.1f}%)",
    }
    verdict = f"missed here at {', '.join(missed)}" if missed else "met here"
    return (
        "What `decode` costs on top of the library it calls, median of paired calls:\n\n"
        f"{drawn('JPEG of', columns, content['result'].items())}\n\n"
        f"The aim is at most {_AIM_US_AT_10_KB} µs more at 10 KB and {_AIM_PERCENT} % more from "
        f"100 KB on: {verdict}. Measured {where(content)}."
    )


# README.md and docs/pytorch.md: pipelines


def pipeline_figures() -> str:
    """Draw images/s of each pipeline, by collection."""
    runs = {name: load(f"pipeline_{name}") for name in _COLLECTIONS}
    rows = []
    for name, title in _PIPELINES.items():
        found = [_pipeline(run, kind, name) for run in runs.values() for kind in _KINDS]
        if any(found):
            rows.append([title, *across("{best_images_per_s:.0f} ({to_pillow:.2f})", found)])
    head = [f"{what}, {kind}" for what in _COLLECTIONS.values() for kind in _KINDS]
    px500, other = runs["px500"], load("pipeline_torchvision")
    settings = px500["settings"]
    epochs = sorted({str(run["settings"]["epochs"]) for run in runs.values()})
    loader, dali = (
        [_pipeline(px500, kind, name)["best_images_per_s"] for kind in _KINDS]
        for name in ("loader", "dali")
    )
    v1, v2, own = (
        _and(_pipeline(other, kind, name)["to_pillow"] for kind in _KINDS)
        for name in ("torchvision-v1", "torchvision-v2", "loader")
    )
    return (
        f"{table(['images/s (times Pillow)', *head], rows)}\n\n"
        f"The best of {' or '.join(epochs)} epochs, batches of {settings['batch']}, "
        f"{settings['workers']} threads or workers on {px500['machine']['cores']} cores, from "
        "files in the system's cache to normalised float32 tensors of 224 x 224. All pipelines "
        "take turns in one run. On the 500 x 375 photos `Loader` makes "
        f"{_and(one / its for one, its in zip(loader, dali, strict=True))} times the batches of "
        "DALI (train and eval). In a run with torchvision "
        f"{other['settings']['libraries']['torchvision']} on the 500 x 375 photos, its v1 "
        f"transforms made {v1} times the batches of Pillow (train and eval), v2 {v2}, and this "
        f"`Loader` {own}. Measured {where(px500)}, {_named(settings['libraries'])} by "
        "`bench/pipeline.py`."
    )


def _pipeline(run: dict[str, Any], kind: str, name: str) -> Any:
    return run["result"][kind]["pipelines"].get(name)


def cost_figures() -> str:
    """Draw processor time, memory and pixels of each pipeline."""
    content = load("pipeline_px500")
    rows = []
    for name, title in _PIPELINES.items():
        train, seen = (_pipeline(content, kind, name) for kind in _KINDS)
        if train and seen:
            rows.append((title, {"train": train, "eval": seen}))
    columns = {
        "CPU s/1000, train": "{train[cpu_s_per_1000]:.1f}",
        "CPU s/1000, eval": "{eval[cpu_s_per_1000]:.1f}",
        "memory, MB": "{train[peak_pss_mb]}",
        "difference, eval": "{eval[difference]:.3f}",
    }
    peaks = _pipeline(load("pipeline_20_epochs"), "train", "loader")["peak_rss_mb"]
    return (
        f"{drawn('500 x 375', columns, rows)}\n\n"
        "Memory is that of the process and its workers, pages that they share counted once. The "
        "difference is the mean from torchvision v2's pixels, in levels of 255; DALI rounds sides "
        "and margins in another way, so most of its difference is a shift of up to a pixel. Over "
        f"{len(peaks)} epochs of training `Loader` had {min(peaks)} to {max(peaks)} MB resident."
    )


def worker_figures() -> str:
    """Draw images/s by the number of threads or workers."""
    runs = {1: load("pipeline_px500_1"), 2: load("pipeline_px500"), 4: load("pipeline_px500_4")}
    rows = []
    for name, title in _PIPELINES.items():
        if _pipeline(runs[1], "train", name):
            found = [_pipeline(run, "train", name) for run in runs.values()]
            speeds, memory = (
                across("{best_images_per_s:.0f}", found),
                across("{peak_pss_mb}", found),
            )
            rows.append([title, *speeds, *memory])
    head = [f"{count}: {what}" for what in ("images/s", "MB") for count in runs]
    return (
        f"{table(['500 x 375, train', *head], rows)}\n\n"
        f"Measured {where(runs[1])}, by `bench/pipeline.py --workers`."
    )


def quality_figures() -> str:
    """Draw how near the transforms come to torchvision's pixels."""
    content = load("quality")
    found = {kind: content["result"][kind]["all"] for kind in _KINDS}
    rows = [
        (kind, {**one, "photo": Path(one["default"]["worst_photo"]).name})
        for kind, one in found.items()
    ]
    columns = {
        'largest difference, `quality="exact"`': "{exact[largest_difference]}",
        "default: mean of all": "{default[mean_db]:.1f} dB",
        "mean of those that were reduced": (
            "{default[mean_db_reduced]:.1f} dB ({default[reduced]} of {results})"
        ),
        "worst": "{default[worst_db]:.1f} dB, {photo}",
    }
    return (
        f"{drawn('', columns, rows)}\n\n"
        f"Against torchvision v2 on uint8 tensors, over {found['eval']['results']} photos; each "
        f"counts for at most {content['settings']['at_most_db']:.0f} dB. By `bench/quality.py`."
    )


# docs/native.md


def decoder_figures() -> str:
    """Draw what the core's own decoder gains, and where its time goes."""
    content = load("decoder_px500")
    result, settings = content["result"], content["settings"]
    rows = [
        (
            title,
            {
                "own": one["decode()"],
                "other": one[one["fastest_other"]],
                "name": one["fastest_other"],
                "libjpeg": one["decode(), libjpeg-turbo"],
            },
        )
        for title, one in result["calls"].items()
    ]
    columns = {
        "`decode`, ms": "{own[ms]:.2f}",
        "fastest other takes times": "{other[ratio]:.2f} ({name})",
        "libjpeg-turbo in the core": "{libjpeg[ratio]:.2f}",
    }
    stages = result["stages"]
    huffman, idct, colours = (
        100 * (stages[after] - stages[before]) / stages["pixels"]
        for before, after in (
            ("prepared", "entropy"),
            ("entropy", "samples"),
            ("samples", "pixels"),
        )
    )
    slower = (
        f"{kind} {100 / one['decode(), libjpeg-turbo']['ratio'] - 100:+.1f} %"
        for kind, one in result["left"].items()
    )
    return (
        f"{drawn('JPEG, reduced to', columns, rows)}\n\n"
        f"Where its time goes: Huffman decoding {huffman:.0f} %, inverse DCT {idct:.0f} %, "
        f"upsampling and colours {colours:.0f} %, the rest for the header, the copy of the scan "
        f"and the tables. Its Huffman decoding takes {1 / stages['entropy_ratio']:.2f} of the time "
        "of libjpeg-turbo's `decode_mcu` on the same data. Files that are left to libjpeg-turbo, "
        f"beside the core without its decoder: {', '.join(slower)}. One thread, from memory, "
        f"photos of 500 x 375 pixels, medians of {settings['rounds']} rounds in turn. "
        f"Measured {where(content)}, {settings['core']} by `bench/decoder.py`."
    )


def limit_figures() -> str:
    """Draw how near the Loader comes to the core, and the core to libjpeg-turbo."""
    content = load("limit_px500")
    result, settings = content["result"], content["settings"]
    runs = {
        f"{kind}, {_threads(count)}": lanes
        for kind, by_count in result.items()
        for count, lanes in by_count.items()
    }
    rows = [
        [
            title,
            *across("{images_per_s:.0f} ({to_limit:.0%})", (run[name] for run in runs.values())),
        ]
        for name, title in _LANES.items()
    ]
    loader, regions, before = (
        ", ".join(f"{aim['ratio']:.2f}" for aim in aims)
        for aims in zip(*(lanes["aims"] for lanes in runs.values()), strict=True)
    )
    fewest, *_, most = sorted(next(iter(result.values())), key=int)
    own, core = (
        _and(by_count[most][name]["to_fewest_threads"] for by_count in result.values())
        for name in ("loader", "core")
    )
    return (
        f"{table(['images/s (of the limit)', *runs], rows)}\n\n"
        f"In the order of the columns, `Loader` makes {loader} of what the core makes; the core "
        f"makes its tensors {before} times as fast as by libjpeg-turbo, and {regions} times as "
        "fast as libjpeg-turbo decodes their regions and does nothing else. "
        f"With {_threads(most)} `Loader` makes {own} times as many images as with "
        f"{fewest} ({' and '.join(result)}), the core alone {core}. "
        f"Medians of {settings['rounds']} rounds of "
        f"{settings['images_per_epoch']} images of 500 x 375 pixels, all in turn in one run. "
        f"Measured {where(content)}, {settings['core']} by `bench/limit.py`."
    )


def region_figures() -> str:
    """Draw what a part of a large photo costs."""
    content = load("regions")
    result, settings = content["result"], content["settings"]
    fastest, side = result["fastest_other"].partition(":")[0], settings["side"]
    titles = {
        result["fastest_other"]: f"full decode by {fastest}, and slice",
        "native: full": "full decode by the core, and slice",
        "native: region": "`decode(data, region=...)`",
        "native: region, restart markers": "the same with restart markers",
    }
    rows = [(title, result["ways"][name]) for name, title in titles.items()]
    columns = {"images/s": "{images_per_s:.1f}", f"to {fastest}": "{to_fastest_other:.2f}"}
    files = result["rewritten"].values()
    changes = [100 * one["bytes_after"] / one["bytes"] - 100 for one in files]
    megapixels = sum(one["width"] * one["height"] for one in files) / len(files) / 1e6
    return (
        f"{drawn(f'{side} x {side} pixels', columns, rows)}\n\n"
        f"One thread, from memory, {len(files)} photos of {megapixels:.0f} megapixels on average; "
        f"{fastest} is the fastest of the other backends here. `add_restart_markers` took "
        f"{1000 * result['rewriting_s']:.0f} ms a photo, and changed their bytes by "
        f"{min(changes):+.1f} % to {max(changes):+.1f} %, together by "
        f"{100 * result['bytes_ratio'] - 100:+.1f} %. Measured {where(content)}, "
        f"{settings['core']} by `bench/regions.py`."
    )


def gil_figures() -> str:
    """Draw what a thread of Python loses beside a Loader."""
    content = load("gil")
    settings = content["settings"]
    titles = {"core": "the core, without Python", "loader": "`Loader`"}
    rows = [
        (f"{title}, {_threads(count)}", found[name])
        for count, found in content["result"].items()
        for name, title in titles.items()
    ]
    columns = {
        "speed, to alone": "{to_alone:.3f}",
        "waits for the GIL": "{waits:.1%}",
        "images/s there": "{images_per_s:.0f}",
        "to undisturbed": "{to_no_counter:.3f}",
    }
    count, found = next(iter(content["result"].items()))
    return (
        f"{drawn('beside', columns, rows)}\n\n"
        f"Beside a `Loader` of {_threads(count)} it counts "
        f"{100 * max(0.0, found['lost_to_gil']):.1f} % less than beside "
        f"the core; {100 * found['lost_waiting']:.1f} % of the time it waits for the lock. "
        f"A thread that counts in pure Python on a core of its own, for "
        f"{settings['seconds']:.0f} s in each situation, medians of {settings['rounds']} rounds, "
        f"on {content['machine']['cores']} cores. "
        f"Measured {where(content)} by `bench/gil.py`."
    )


# docs/stores.md and docs/scaling.md


def store_figures() -> str:
    """Draw what each kind of store gives, beside a folder of files."""
    content = load("stores")
    result, settings = content["result"], content["settings"]
    titles = {
        "train, warm": "train, warm",
        "train, cold": "train, cold",
        "read shuffled, warm": "shuffled, warm",
        "read shuffled, cold": "shuffled, cold",
        "read in order, cold": "in order, cold",
        "stream, cold": "stream, cold",
    }
    rows = []
    for kind in result["train, warm"]:
        speeds = (result[name].get(kind) for name in titles.values())
        opening = f"{result['open, cold'][kind]['seconds']:.3f}"
        rows.append([kind, *across("{images_per_s:.0f} ({to_folder:.2f})", speeds), opening])
    return (
        f"{table(['images/s (times folder)', *titles, 'opening, cold, s'], rows)}\n\n"
        f"{settings['images']} photos of 500 x 375 pixels, {settings['bytes'] / 1e6:.0f} MB, "
        f"{settings['threads']} threads, medians of {settings['rounds']} rounds, all in turn in "
        f"one run. Measured {where(content)} by `bench/stores.py`."
    )


def ray_figures() -> str:
    """Draw what Ray makes by `fastdecode.ray`, and by its own reader."""
    content = load("ray_scaling")
    result, settings = content["result"], content["settings"]
    size, rounds = settings["size"], settings["rounds"]
    own, other = ([lanes[job] for lanes in result.values()] for job in ("fastdecode", "ray"))
    reader = f'`ray.data.read_images(folder, size=({size}, {size}), mode="RGB", ...)`'
    spans = [(min(one["to_ray_rounds"]), max(one["to_ray_rounds"])) for one in own]
    rows = [
        [f"`fastdecode.ray.read_images(folder, size={size})`, rows/s"],
        [f"{reader}, rows/s"],
        ["times as many rows, median of the rounds", *across("{to_ray:.2f}", own)],
        ["... lowest and highest round", *(f"{low:.2f} to {high:.2f}" for low, high in spans)],
        ["CPU-s for 1000 images, `fastdecode`", *across("{cpu_s_per_1000:.2f}", own)],
        ["times less CPU time, median", *across("{cpu_to_ray:.2f}", own)],
    ]
    rows[0] += across("{rows_per_s:.0f}", own)
    rows[1] += across("{rows_per_s:.0f}", other)
    head = ["", *(f"{count} worker{'s' * (count != '1')}" for count in result)]
    return (
        f"{table(head, rows)}\n\n"
        f"{settings['images']} photos of 500 x 375 pixels, {settings['different_photos']} of them "
        f"different; {rounds} round{'s' * (rounds != 1)}, in turn, the order drawn anew in each. "
        f"Ray {settings['ray']}. The machine's load was {content['machine']['load']:.0f}, most of "
        "it other work: the ratios, which are those within a round, say more than the rows. "
        f"Measured {where(content)} by `bench/ray_scaling.py`."
    )


def request_figures() -> str:
    """Draw how many requests each reader sends to an object store."""
    content = load("s3_requests")
    settings = content["settings"]
    rows = [
        [
            name,
            *(
                ", ".join(f"{count} {kind}" for kind, count in found[when].items()) or "none"
                for when in ("opening", "reading")
            ),
        ]
        for name, found in content["result"].items()
    ]
    shards = -(-settings["images"] // settings["images_per_shard"])
    return (
        f"{table(['', 'to open', 'to read all'], rows)}\n\n"
        f"{settings['images']} images of {settings['bytes_per_image'] // 1000} kB on average, as "
        f"files and in {shards} tar shards with indexes, found by a pattern; Loader shuffled, Ray "
        f"in tasks of {settings['images_per_task']} images by two processes. Counted by a server "
        f"of S3's interface on the same machine, {content['measured']}, by `bench/s3_requests.py`."
    )


def billion_figures() -> str:
    """Draw what a pass over a billion images costs on Ray, from the processor time measured."""
    runs = dict(zip(_COLLECTIONS, map(load, _ON_RAY), strict=True))
    rows = {name: _pass(run) for name, run in runs.items()}
    columns = {
        "CPU-s for 1000": "{cost:.2f}",
        "all files": "{terabytes:.0f} TB",
        "core-hours": "{core_hours:.0f}",
        f"{_CORES} cores take": "{hours:.1f} hours",
        "images": "{thousands:.0f} thousand/s",
        "they read": "{gigabytes:.0f} GB/s",
    }
    px500 = rows["px500"]
    gets = 1000 * px500["thousands"]
    machines = [run["machine"] for run in runs.values()]
    least, most = (of(machine["load"] for machine in machines) for of in (min, max))
    return (
        f"{drawn('photos', columns, rows.items())}\n\n"
        "CPU-s for 1000: of all processes of a cluster of one worker, the driver's among them, "
        f"decoding and resizing to 224 x 224 ({', '.join(f'`{name}.json`' for name in _ON_RAY)} in "
        f"`bench/results`; {machines[0]['cpu']}, with a load of {least:.0f} to {most:.0f}, which "
        "makes every figure larger). Core-hours are 10^9 · CPU-s / 1000 / 3600."
        f"\n\nFor px500, {_NODES} nodes read {8 * px500['gigabytes'] / _NODES:.1f} Gbit/s each; as "
        f"files, these are {gets:.0f} GET/s, or {gets / _PREFIX:.0f} "
        f"prefixes of S3; and a task of 100 000 images is {100 * px500['cost'] / 60:.1f} minutes "
        "of a core."
    )


def _pass(run: dict[str, Any]) -> dict[str, float]:
    """Work out a pass over a billion images."""
    cost = run["result"]["1"]["fastdecode"]["cpu_s_per_1000"]
    seconds = _BILLION * cost / 1000 / _CORES
    size = _BILLION * run["settings"]["bytes_per_photo"]
    return {
        "cost": cost,
        "terabytes": size / 1e12,
        "core_hours": _BILLION * cost / 1000 / 3600,
        "hours": seconds / 3600,
        "thousands": _BILLION / seconds / 1000,
        "gigabytes": size / seconds / 1e9,
    }


# docs/gpu.md


def gpu_figures() -> str:
    """Draw what was measured on each machine with a GPU; say so if there was none."""
    names = sorted(path.stem for path in RESULTS.glob("gpu_*.json"))
    return "\n\n".join(machine_figures(load(name)) for name in names) or (
        "Nothing has run on a GPU yet: there was none at hand. `bench/gpu.py` does it, and "
        "its figures will stand here."
    )


def machine_figures(content: dict[str, Any]) -> str:
    """Draw what was measured on one machine."""
    feeds, settings = content["result"]["feeds"], content["settings"]
    rows = []
    for name, title in _FEEDS.items():
        if one := feeds.get(name):
            step = one["kernels_ms"] * settings["batch"]
            waiting = one["waiting_ms"] / (one["waiting_ms"] + one["kernels_ms"])
            rows.append((title, {**one, "step": step, "waiting": waiting}))
    columns = {
        "images/s": "{images_per_s:.0f}",
        "of random": "{to_random:.1%}",
        "step, ms": "{step:.1f}",
        "waiting": "{waiting:.1%}",
        "CPU s/1000": "{cpu_ms:.2f}",
    }
    return (
        f"{drawn('fed by', columns, rows)}\n\n"
        f"Training a ResNet-50: bfloat16, channels last, SGD, batches of {settings['batch']}, "
        f"{settings['workers']} threads or workers; medians of {settings['rounds']} rounds, all in "
        f"turn in one run, over {settings['different_photos']} different photos of 500 x 375 "
        "pixels. Waiting is the share of the time in which the GPU had no step to work on; a "
        "step that takes longer than with random tensors shares the GPU with what makes its data. "
        f"{settings['device']}, {_named(settings['libraries'])}. "
        f"Measured {where(content)} by `bench/gpu.py`."
    )
