"""The figures of the README and of docs/, each drawn from a result that is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from _common import RESULTS

from fastdecode.measure.result import Result, from_json
from fastdecode.registry import BUILTIN

_AIM_US_AT_10_KB, _AIM_PERCENT = 12, 1
_KINDS = ("train", "eval")
_COLLECTIONS = {"px500": "500 x 375", "hd1080": "1920 x 1080", "mp12plus": "17 megapixels"}
_BACKENDS = {name: f"`{name}`" for name in (*BUILTIN, "decode()")}
_PIPELINES = {
    "loader": "this `ImageFolder` and `Loader`",
    "loader-exact": 'the same, `quality="exact"`',
    "loader-without-core": "`Loader` without the native core",
    "imagefolder": "this `ImageFolder`, PyTorch's DataLoader",
    "dali": "DALI on the CPU",
    "torchvision-v2": "torchvision v2, PyTorch's DataLoader",
    "torchvision-v1": "torchvision v1, PyTorch's DataLoader",
    "pillow": "Pillow, PyTorch's DataLoader",
}
_BARS = {
    "loader": "fastdecode",
    "dali": "DALI (CPU)",
    "torchvision-v2": "torchvision v2",
    "pillow": "Pillow",
}
_RAW = "https://raw.githubusercontent.com/fastdecode/fastdecode/main"
_LIGHT = {
    "surface": "#ffffff",
    "ink": "#1f2328",
    "muted": "#57606a",
    "own": "#2f6fb5",
    "other": "#b8c0c8",
}
_DARK = {
    "surface": "#0d1117",
    "ink": "#e6edf3",
    "muted": "#9aa4af",
    "own": "#5b9ee6",
    "other": "#4a535d",
}
_WIDTH, _WIDEST = 540, 320  # of a chart, and of a bar
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
_EARLIER = "From before the core had a decoder of its own."
_PREFIX = 5500  # GET/s, as Amazon says

_GAINS = """\
- **Training batches {small[dali]:.1f} times as fast as DALI's on the CPU**,
  {small[torchvision-v2]:.1f} times torchvision v2's and {small[pillow]:.1f} times Pillow's, from
  photos of 500 x 375; {large[dali]:.1f}, {large[torchvision-v2]:.1f} and {large[pillow]:.1f} times
  from 17 megapixels. Only what a crop shows is decoded, straight into the batch. With
  `quality="exact"`, whose pixels are torchvision's to {level} level of 255, it is {exact[0]:.1f}
  (500 x 375), {exact[1]:.1f} (1920 x 1080) and {exact[2]:.1f} (17 megapixels) times as fast.
- **JPEG decoding {decode[pillow]:.1f} times as fast as Pillow's**, and {decode[simplejpeg]:.1f}
  times as fast as simplejpeg's, by a decoder of its own in C, without the GIL. The other libraries
  are optional.
- **The same pixels from every CPU decoder that `decode` chooses**: {backends} backends behind one
  call, bit-identical for JPEG. Training batches differ slightly from torchvision's by default
  ([how much]({docs}/pytorch.md#how-near)). A truncated file is an error, never a grey image.
- **Parts of large photos {region:.1f} times as fast**: 512 x 512 pixels of 17 megapixels, compared
  with decoding the whole and slicing it; {markers:.0f} times after `add_restart_markers`, which
  leaves an ordinary JPEG with the same pixels. (Measured before there was a decoder of its own.)
- **From a folder to a cluster**: tar shards, LMDB, HDF5, RecordIO and `s3://` are read like a
  folder, and training resumes in the middle of an epoch. On Ray, images are decoded about
  {ray:.0f} times as fast as by Ray's own reader."""

Records = Mapping[str, Mapping[str, Any]]


# Helpers


def load(name: str) -> dict[str, Any]:
    """Read a result that is kept."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def measured(content: Mapping[str, Any], script: str, *more: str) -> str:
    """Say when, on what and by which script it was measured."""
    machine = content["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, {machine['python']}"
    parts = (content["measured"], where, f"NumPy {machine['numpy']}", *more)
    return f"Measured {', '.join(parts)}, by `bench/{script}`."


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    head = [*head]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def grid(
    corner: str,
    titles: Mapping[str, str],
    columns: Mapping[str, tuple[str, Records]],
    *last_rows: Sequence[str],
) -> str:
    """Write a table: for each column a template, and by name the records that fill it in."""
    rows = [
        [title, *(filled(template, found.get(name, {})) for template, found in columns.values())]
        for name, title in titles.items()
        if any(name in found for _, found in columns.values())
    ]
    return table([corner, *columns], [*rows, *last_rows])


def listing(corner: str, records: Records, columns: Mapping[str, str]) -> str:
    """Write a table of the same records in every column."""
    titles = {name: name for name in records}
    return grid(corner, titles, {head: (cell, records) for head, cell in columns.items()})


def filled(template: str, record: Mapping[str, Any]) -> str:
    """Fill in a template; empty where a figure is missing."""
    try:
        return template.format_map(record).replace("%", " %")
    except (KeyError, TypeError):
        return ""


def titled(records: Records, titles: Mapping[str, str]) -> Records:
    """Name the records that are there by their titles."""
    return {title: records[name] for name, title in titles.items() if name in records}


def _and(values: Iterable[float]) -> str:
    return " and ".join(f"{value:.2f}" for value in values)


def _named(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _threads(count: str) -> str:
    return f"{count} thread{'s' * (count != '1')}"


# README.md


def training_picture() -> str:
    """Show the chart of training batches, for a light page and a dark one."""
    train = _lanes("px500", "train")
    told = ", ".join(
        f"{name} {train[key]['median_images_per_s']:.0f}" for key, name in _BARS.items()
    )
    results = f"{_RAW}/bench/results"
    return (
        "<picture>\n"
        f'  <source media="(prefers-color-scheme: dark)" srcset="{results}/training-dark.svg">\n'
        f'  <img alt="Training batches, images/s on the same two cores: {told}." '
        f'src="{results}/training.svg">\n'
        "</picture>"
    )


def training_chart(*, dark: bool) -> str:
    """Draw images/s of training batches by each loader, as bars."""
    content = load("pipeline_px500")
    train, settings = content["result"]["train"]["pipelines"], content["settings"]
    colours = _DARK if dark else _LIGHT
    most = max(train[key]["median_images_per_s"] for key in _BARS)
    top, rows = 84, []
    for key, name in _BARS.items():
        speed = train[key]["median_images_per_s"]
        width = round(_WIDEST * speed / most)
        kind = "own" if key == "loader" else "other"
        rows += [
            f'<text x="140" y="{top + 20}" class="name {kind}">{name}</text>',
            f'<rect x="150" y="{top}" width="{width}" height="28" rx="3" class="{kind}"/>',
            f'<text x="{158 + width}" y="{top + 20}" class="{kind}">{speed:.0f}</text>',
        ]
        top += 40
    machine = content["machine"]
    where = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['python']}, {content['measured']}."
    )
    foot = (
        f"Photos of 500 x 375 to batches of {settings['batch']} random crops of 224 x 224,",
        ". ".join([f"median of {settings['epochs']} epochs in turn", where]),
    )
    below = [
        f'<text x="18" y="{top + 24 + 20 * line}" class="small">{words}</text>'
        for line, words in enumerate(foot)
    ]
    height = top + 62
    style = (
        "text { font: 17px system-ui, -apple-system, 'Segoe UI', sans-serif; "
        f"fill: {colours['ink']} }} text.own {{ font-weight: 600 }} .name {{ text-anchor: end }} "
        f".title {{ font-size: 20px; font-weight: 600 }} rect.own {{ fill: {colours['own']} }} "
        f"rect.other {{ fill: {colours['other']} }} "
        f".small {{ font-size: 14px; fill: {colours['muted']} }}"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"',
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title">',
        '<title id="title">Training batches on the same two cores, images/s</title>',
        f"<style>{style}</style>",
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="{colours["surface"]}"/>',
        '<text x="18" y="36" class="title">Training batches, images/s</text>',
        '<text x="18" y="60" class="small">on the same two cores; longer is faster</text>',
        *rows,
        *below,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def claim_figures() -> str:
    """Say in one sentence what it is, with the range of what is gained."""
    ratios = [
        _gain(lanes, key)
        for lanes in (_lanes(name, kind) for name in _COLLECTIONS for kind in _KINDS)
        for key in _BARS
        if key != "loader"
    ]
    return (
        f"fastdecode makes training batches from JPEGs {min(ratios):.0f} to {max(ratios):.0f} "
        "times as fast as DALI, torchvision v2 and Pillow on the same two CPU cores, and decodes a "
        f"JPEG {_decoding()['pillow']:.0f} times as fast as Pillow. It is for programs that wait "
        "for JPEGs: training, thumbnails, indexing. It needs no GPU and no new file format."
    )


def _gain(lanes: Mapping[str, Any], key: str, own: str = "loader") -> float:
    """Return how many times as fast one is as another: the median over epochs beside each other."""
    epochs = (lanes[name]["images_per_s"] for name in (own, key))
    return median(ours / others for ours, others in zip(*epochs, strict=True))


def _decoding() -> dict[str, float]:
    """Return how many times as fast as each backend `decode` decodes a whole JPEG."""
    shares = {
        one.backend: one.ratio.median
        for one in _photos().measurements
        if (one.protocol, one.format, one.reduce) == ("decode", "jpeg", 1)
    }
    return {name: shares["decode()"] / share for name, share in shares.items()}


def gain_figures() -> str:
    """Say in five points what is gained, each with its figure."""
    runs = {name: _lanes(name, "train") for name in ("px500", "mp12plus")}
    small, large = ({key: _gain(lanes, key) for key in _BARS} for lanes in runs.values())
    exact = [_gain(_lanes(name, "train"), "dali", "loader-exact") for name in _COLLECTIONS]
    ways = load("regions")["result"]["ways"]
    return _GAINS.format(
        small=small,
        large=large,
        exact=exact,
        decode=_decoding(),
        backends=len(BUILTIN),
        level=load("quality")["result"]["train"]["all"]["exact"]["largest_difference"],
        region=ways["native: region"]["to_fastest_other"],
        markers=ways["native: region, restart markers"]["to_fastest_other"],
        ray=min(one["fastdecode"]["to_ray"] for one in load("ray_scaling")["result"].values()),
        docs="https://github.com/fastdecode/fastdecode/blob/main/docs",
    )


# docs/benchmarks.md: decoding


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
    ways: dict[str, dict[str, dict[str, float]]] = {}
    most: dict[str, int] = {}
    for one in result.measurements:
        most[one.protocol] = max(most.get(one.protocol, 0), one.threads + one.workers)
    for one in result.measurements:
        at_most = one.threads + one.workers == most[one.protocol]
        if one.format == "jpeg" and at_most and one.images_per_s.median:
            how = {
                "decode": "",
                "threads": f", {one.threads} threads",
                "loader": f", DataLoader, {one.workers} workers",
            }.get(one.protocol, ", from files")
            figures = {"ratio": one.ratio.median, "images_per_s": one.images_per_s.median}
            ways.setdefault(f"1/{one.reduce}{how}", {})[one.backend] = figures
    here, files = result.machine, result.collection
    wrong = ", ".join(sorted({one.backend for one in result.measurements if one.differing}))
    return (
        "![Images/s by backend and reduction](../bench/results/photos.svg)\n\n"
        f"Speed as a share of the fastest (1.00) on {files.images} photos of "
        f"{files.bytes / files.images / 1000:.0f} KB on average:\n\n"
        f"{_shares(ways, '{ratio:.2f}')}\n\n{' '.join(result.answer)}\n\n"
        f"Pixels: {f'they differ for {wrong}' if wrong else 'the same from all'}, where "
        "the decoder reduces by itself. "
        f"Measured {result.measured[:10]} by `python -m fastdecode.bench`, {here.cpu}, "
        f"{here.cores} cores, {here.system}, {here.python}, NumPy {here.numpy}, load before "
        f"{here.load}. {', '.join(f'{b.name} {b.version}' for b in result.backends)}. "
        "All figures: `bench/results/photos.json`."
    )


def _shares(groups: Mapping[str, Records], template: str, *more: Sequence[str]) -> str:
    """Draw the backends' shares of the fastest, and its images/s."""
    best = (max(one["images_per_s"] for one in found.values()) for found in groups.values())
    last = ["best, images/s", *(f"{speed:.0f}" for speed in best)]
    columns = {head: (template, found) for head, found in groups.items()}
    return grid("backend", _BACKENDS, columns, last, *more)


def order_figures() -> str:
    """Draw other formats: the results that the default order follows from."""
    content = load("default_order")
    groups = {name: content["result"][name] for name in ("png 1/1", "webp 1/1", "jpeg2000 1/1")}
    files = ["files", *(str(lanes.pop("files")) for lanes in groups.values())]
    return (
        "The same for other formats, at full size, one thread, from memory:\n\n"
        f"{_shares(groups, '{ratio_to_best:.2f}', files)}\n\n"
        f"{measured(content, 'default_order.py', _named(content['backends']))}"
    )


def regret_figures() -> str:
    """Draw how much slower `decode` is than the best backend."""
    content = load("regret")
    result, took = content["result"], content["result"]["calibration_s"]
    pillow = sorted(1 / cell["speeds"]["pillow"] - 1 for cell in result["cells"].values())
    result["pillow"] = {
        "within_3_percent": sum(regret <= 0.03 for regret in pillow) / len(pillow),
        "median": median(pillow),
        "worst": pillow[-1],
        "worst_cell": max(
            result["cells"], key=lambda n: 1 / result["cells"][n]["speeds"]["pillow"]
        ),
    }
    titles = {
        "decode()": "calibrated",
        "quick": "quickly calibrated",
        "default": "default order",
        "pillow": "Pillow always",
    }
    columns = {
        "within 3 % of the best": "{within_3_percent:.0%}",
        "median": "{median:.1%}",
        "worst": "{worst:.1%}, {worst_cell}",
    }
    return (
        "How much slower `decode` is than the best backend for the same work, over "
        f"{len(result['cells'])} kinds of work (JPEG of 10 KB to 5 MB, PNG, WebP, each `reduce`, "
        "one thread and all cores), on photos that calibration has not seen:\n\n"
        f"{listing('choice', titled(result, titles), columns)}\n\n"
        f"Calibration took {took['full']:.0f} s in full and {took['quick']:.1f} s with `--quick`. "
        f"{measured(content, 'regret.py')}"
    )


def overhead_figures() -> str:
    """Draw what `decode` costs on top."""
    content = load("overhead")
    missed = []
    for size, row in content["result"].items():
        us, percent = (
            max(row[f"named_more_{of}"], row[f"automatic_more_{of}"]) for of in ("us", "percent")
        )
        if percent > _AIM_PERCENT and (size != "10 KB" or us > _AIM_US_AT_10_KB):
            missed.append(size)
    columns = {
        "simplejpeg, µs": "{direct_us:.0f}",
        "more when named, µs": "{named_more_us:+.1f} ({named_more_percent:+.1f}%)",
        "more in automatic choice, µs": "{automatic_more_us:+.1f} ({automatic_more_percent:+.1f}%)",
    }
    verdict = f"missed here at {', '.join(missed)}" if missed else "met here"
    return (
        "What `decode` costs on top of the library it calls, median of paired calls:\n\n"
        f"{listing('JPEG of', content['result'], columns)}\n\n"
        f"The aim is at most {_AIM_US_AT_10_KB} µs more at 10 KB and {_AIM_PERCENT} % more from "
        f"100 KB on: {verdict}. {measured(content, 'overhead.py')}"
    )


# docs/benchmarks.md and docs/pytorch.md: pipelines


def _lanes(name: str, kind: str) -> dict[str, Any]:
    lanes: dict[str, Any] = load(f"pipeline_{name}")["result"][kind]["pipelines"]
    return lanes


def pipeline_figures() -> str:
    """Draw images/s of each pipeline, by collection."""
    columns = {
        f"{photos}, {kind}": (
            "{median_images_per_s:.0f} ({to_pillow_median:.2f})",
            _lanes(name, kind),
        )
        for name, photos in _COLLECTIONS.items()
        for kind in _KINDS
    }
    content = load("pipeline_px500")
    settings = content["settings"]
    epochs = sorted({str(load(f"pipeline_{name}")["settings"]["epochs"]) for name in _COLLECTIONS})
    ratios = (
        f"{_and(_gain(_lanes(name, kind), 'dali') for kind in _KINDS)} times on {photos}"
        for name, photos in _COLLECTIONS.items()
    )
    return (
        f"{grid('images/s (times Pillow)', _PIPELINES, columns)}\n\n"
        f"Medians of {', '.join(epochs[:-1])} or {epochs[-1]} epochs of 118 photos of 500 x 375, "
        "26 of 1920 x 1080, or 6 of 12 to 22 megapixels (17 on average), repeated; batches of "
        f"{settings['batch']}, {settings['workers']} threads or workers, from files in the "
        "system's cache to normalised float32 tensors of 224 x 224, all in turn in one run. "
        f"Beside DALI, `Loader` makes {', '.join(ratios)} (train and eval). "
        f"{measured(content, 'pipeline.py', _named(settings['libraries']))}"
    )


def cost_figures() -> str:
    """Draw processor time, memory and pixels of each pipeline."""
    content = load("pipeline_px500")
    train, seen = (content["result"][kind]["pipelines"] for kind in _KINDS)
    columns = {
        "CPU s/1000, train": ("{cpu_s_per_1000:.1f}", train),
        "CPU s/1000, eval": ("{cpu_s_per_1000:.1f}", seen),
        "memory, MB": ("{peak_pss_mb}", train),
        "difference, eval": ("{difference:.3f}", seen),
    }
    peaks = _lanes("20_epochs", "train")["loader"]["peak_rss_mb"]
    return (
        f"{grid('500 x 375', _PIPELINES, columns)}\n\n"
        "Memory is that of the process and its workers, pages that they share counted once. The "
        "difference is the mean from torchvision v2's pixels, in levels of 255; DALI rounds sides "
        "and margins in another way, so most of its difference is a shift of up to a pixel. "
        f"{measured(content, 'pipeline.py')} Over {len(peaks)} epochs of training, on another "
        f"machine, `Loader` had {min(peaks)} to {max(peaks)} MB resident."
    )


def worker_figures() -> str:
    """Draw images/s by the number of threads or workers."""
    runs = {count: _lanes(f"px500_{count}", "train") for count in (1, 2, 4)}
    runs[2] = {name: one for name, one in runs[2].items() if name in runs[1]}
    columns = {
        f"{count}: {what}": (template, runs[count])
        for what, template in (("images/s", "{median_images_per_s:.0f}"), ("MB", "{peak_pss_mb}"))
        for count in runs
    }
    return (
        f"{grid('500 x 375, train', _PIPELINES, columns)}\n\n"
        f"{_EARLIER} {measured(load('pipeline_px500_1'), 'pipeline.py --workers')}"
    )


def quality_figures() -> str:
    """Draw how near the transforms come to torchvision's pixels."""
    content = load("quality")
    columns = {
        'largest difference, `quality="exact"`': "{exact[largest_difference]}",
        "default: mean of all": "{default[mean_db]:.1f} dB",
        "mean of those that were reduced": (
            "{default[mean_db_reduced]:.1f} dB ({default[reduced]} of {results})"
        ),
        "worst": "{default[worst_db]:.1f} dB, {default[worst_photo]}",
    }
    found = {kind: content["result"][kind]["all"] for kind in _KINDS}
    return (
        f"{listing('', found, columns)}\n\n"
        f"Against torchvision v2 on uint8 tensors, over {found['eval']['results']} photos; each "
        f"counts for at most {content['settings']['at_most_db']:.0f} dB. {_EARLIER} "
        f"{measured(content, 'quality.py')}"
    )


# docs/native.md


def decoder_figures() -> str:
    """Draw what the core's own decoder gains, and where its time goes."""
    content = load("decoder_px500")
    result, settings, stages = content["result"], content["settings"], content["result"]["stages"]
    for one in result["calls"].values():
        one["other"] = one[one["fastest_other"]]
    columns = {
        "`decode`, ms": "{decode()[ms]:.2f}",
        "fastest other takes times": "{other[ratio]:.2f} ({fastest_other})",
        "libjpeg-turbo in the core": "{decode(), libjpeg-turbo[ratio]:.2f}",
    }
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
        f"{listing('JPEG, reduced to', result['calls'], columns)}\n\n"
        f"Where its time goes: Huffman decoding {huffman:.0f} %, inverse DCT {idct:.0f} %, "
        f"upsampling and colours {colours:.0f} %. Its Huffman decoding takes "
        f"{1 / stages['entropy_ratio']:.2f} of the time of libjpeg-turbo's `decode_mcu` on the "
        "same data. Files that are left to libjpeg-turbo, beside the core without its decoder: "
        f"{', '.join(slower)}. One thread, from memory, photos of 500 x 375 pixels, medians of "
        f"{settings['rounds']} rounds in turn. {measured(content, 'decoder.py', settings['core'])}"
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
    columns = {name: ("{images_per_s:.0f} ({to_limit:.0%})", lanes) for name, lanes in runs.items()}
    loader, regions, before = (
        ", ".join(f"{aim['ratio']:.2f}" for aim in aims)
        for aims in zip(*(lanes["aims"] for lanes in runs.values()), strict=True)
    )
    most = max(result["train"], key=int)
    own, core = (
        _and(by_count[most][name]["to_fewest_threads"] for by_count in result.values())
        for name in ("loader", "core")
    )
    return (
        f"{grid('images/s (of the limit)', _LANES, columns)}\n\n"
        f"In the order of the columns, `Loader` makes {loader} of what the core makes; the core "
        f"makes its tensors {before} times as fast as by libjpeg-turbo, and {regions} times as "
        "fast as libjpeg-turbo decodes their regions and does nothing else. "
        f"With {_threads(most)} `Loader` makes {own} times as many images as with 1 "
        f"(train and eval), the core alone {core}. Medians of {settings['rounds']} rounds of "
        f"{settings['images_per_epoch']} images of 500 x 375 pixels, all in turn in one run. "
        f"{measured(content, 'limit.py', settings['core'])}"
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
    columns = {"images/s": "{images_per_s:.1f}", f"to {fastest}": "{to_fastest_other:.2f}"}
    files = result["rewritten"].values()
    changes = [100 * one["bytes_after"] / one["bytes"] - 100 for one in files]
    megapixels = sum(one["width"] * one["height"] for one in files) / len(files) / 1e6
    return (
        f"{listing(f'{side} x {side} pixels', titled(result['ways'], titles), columns)}\n\n"
        f"One thread, from memory, {len(files)} photos of {megapixels:.0f} megapixels on average; "
        f"{fastest} is the fastest of the other backends here. `add_restart_markers` took "
        f"{1000 * result['rewriting_s']:.0f} ms a photo, and changed their bytes by "
        f"{min(changes):+.1f} % to {max(changes):+.1f} %, together by "
        f"{100 * result['bytes_ratio'] - 100:+.1f} %. "
        f"{measured(content, 'regions.py', settings['core'])}"
    )


def gil_figures() -> str:
    """Draw what a thread of Python loses beside a Loader."""
    content = load("gil")
    settings = content["settings"]
    count, found = next(iter(content["result"].items()))
    titles = {"core": "the core, without Python", "loader": "`Loader`"}
    rows = {
        f"{title}, {_threads(count)}": found[name]
        for count, found in content["result"].items()
        for name, title in titles.items()
    }
    columns = {
        "speed, to alone": "{to_alone:.3f}",
        "waits for the GIL": "{waits:.1%}",
        "images/s there": "{images_per_s:.0f}",
        "to undisturbed": "{to_no_counter:.3f}",
    }
    return (
        f"{listing('beside', rows, columns)}\n\n"
        f"A thread of pure Python, which counts on a core of its own, counts "
        f"{100 * max(0.0, found['lost_to_gil']):.1f} % less beside a `Loader` of {_threads(count)} "
        f"than beside the core; {100 * found['lost_waiting']:.1f} % of the time it waits for the "
        f"GIL. {settings['seconds']:.0f} s in each situation, medians of {settings['rounds']} "
        f"rounds. {measured(content, 'gil.py')}"
    )


# docs/stores.md and docs/scaling.md


def store_figures() -> str:
    """Draw what each kind of store gives, beside a folder of files."""
    content = load("stores")
    result, settings = content["result"], content["settings"]
    jobs = [f"{job}, {cache}" for job in ("train", "shuffled") for cache in ("warm", "cold")]
    columns = {
        job: ("{images_per_s:.0f} ({to_folder:.2f})", result[job])
        for job in (*jobs, "in order, cold", "stream, cold")
    }
    columns["opening, cold, s"] = ("{seconds:.3f}", result["open, cold"])
    return (
        f"{grid('images/s (times folder)', {kind: kind for kind in result[jobs[0]]}, columns)}\n\n"
        f"{settings['images']} photos of 500 x 375 pixels, {settings['bytes'] / 1e6:.0f} MB, "
        f"{settings['threads']} threads, medians of {settings['rounds']} rounds, all in turn in "
        f"one run. {measured(content, 'stores.py')}"
    )


def ray_figures() -> str:
    """Draw what Ray makes by `fastdecode.ray`, and by its own reader."""
    content = load("ray_scaling")
    settings = content["settings"]
    for lanes in content["result"].values():
        rounds = lanes["fastdecode"]["to_ray_rounds"]
        lanes |= {"low": min(rounds), "high": max(rounds)}
    columns = {
        "`fastdecode`, rows/s": "{fastdecode[rows_per_s]:.0f}",
        "Ray's own, rows/s": "{ray[rows_per_s]:.0f}",
        "times as many (lowest to highest round)": (
            "{fastdecode[to_ray]:.2f} ({low:.2f} to {high:.2f})"
        ),
        "CPU-s for 1000 images": "{fastdecode[cpu_s_per_1000]:.2f}",
        "times less CPU time": "{fastdecode[cpu_to_ray]:.2f}",
    }
    size = settings["size"]
    return (
        f"{listing('workers', content['result'], columns)}\n\n"
        f"`fastdecode.ray.read_images(folder, size={size})` beside `ray.data.read_images(folder, "
        f'size=({size}, {size}), mode="RGB", ...)`: {settings["images"]} photos of 500 x 375 '
        f"pixels, {settings['different_photos']} of them different; medians of "
        f"{settings['rounds']} rounds, in turn. The machine's load was "
        f"{content['machine']['load']:.0f}, most of it other work: the ratios, which are those "
        "within a round, say more than the rows. "
        f"{measured(content, 'ray_scaling.py', 'Ray ' + settings['ray'])}"
    )


def request_figures() -> str:
    """Draw how many requests each reader sends to an object store."""
    content = load("s3_requests")
    settings = content["settings"]
    asked = {
        name: {
            when: ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
            for when, kinds in found.items()
        }
        for name, found in content["result"].items()
    }
    shards = -(-settings["images"] // settings["images_per_shard"])
    return (
        f"{listing('', asked, {'to open': '{opening}', 'to read all': '{reading}'})}\n\n"
        f"{settings['images']} images of {settings['bytes_per_image'] // 1000} kB on average, as "
        f"files and in {shards} tar shards with indexes, found by a pattern; Loader shuffled, Ray "
        f"in tasks of {settings['images_per_task']} images by two processes. Counted by a server "
        f"of S3's interface on the same machine, {content['measured']}, by `bench/s3_requests.py`."
    )


def billion_figures() -> str:
    """Draw what a pass over a billion images costs on Ray, from the processor time measured."""
    runs = dict(zip(_COLLECTIONS, map(load, _ON_RAY), strict=True))
    rows = {_COLLECTIONS[name]: _pass(run) for name, run in runs.items()}
    columns = {
        "CPU-s for 1000": "{cost:.2f}",
        "all files": "{terabytes:.0f} TB",
        "core-hours": "{core_hours:.0f}",
        f"{_CORES} cores take": "{hours:.1f} hours",
        "images": "{thousands:.0f} thousand/s",
        "they read": "{gigabytes:.0f} GB/s",
    }
    small = rows[_COLLECTIONS["px500"]]
    gets = 1000 * small["thousands"]
    loads = [run["machine"]["load"] for run in runs.values()]
    return (
        f"{listing('photos', rows, columns)}\n\n"
        "CPU-s for 1000: of all processes of a cluster of one worker, the driver's among them, "
        f"decoding and resizing to 224 x 224 ({', '.join(f'`{name}.json`' for name in _ON_RAY)} in "
        f"`bench/results`; {runs['px500']['machine']['cpu']}, with a load of {min(loads):.0f} to "
        f"{max(loads):.0f}, which makes every figure larger). Core-hours are 10^9 · CPU-s / 1000 / "
        f"3600.\n\nFor 500 x 375, {_NODES} nodes read {8 * small['gigabytes'] / _NODES:.1f} Gbit/s "
        f"each; as files, these are {gets:.0f} GET/s, or {gets / _PREFIX:.0f} prefixes of S3; and "
        f"a task of 100 000 images is {100 * small['cost'] / 60:.1f} minutes of a core."
    )


def _pass(run: dict[str, Any]) -> dict[str, float]:
    """Work out a pass over a billion images."""
    cost = run["result"]["1"]["fastdecode"]["cpu_s_per_1000"]
    seconds = _BILLION * cost / 1000 / _CORES
    size = _BILLION * run["settings"]["bytes_per_photo"]
    return {
        "cost": cost,
        "terabytes": size / 1e12,
        "core_hours": _CORES * seconds / 3600,
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
    for one in feeds.values():
        one["step"] = one["kernels_ms"] * settings["batch"]
        one["waiting"] = one["waiting_ms"] / (one["waiting_ms"] + one["kernels_ms"])
    columns = {
        "images/s": "{images_per_s:.0f}",
        "of random": "{to_random:.1%}",
        "step, ms": "{step:.1f}",
        "waiting": "{waiting:.1%}",
        "CPU s/1000": "{cpu_ms:.2f}",
    }
    libraries = settings["device"], _named(settings["libraries"])
    return (
        f"{listing('fed by', titled(feeds, _FEEDS), columns)}\n\n"
        f"Training a ResNet-50: bfloat16, channels last, SGD, batches of {settings['batch']}, "
        f"{settings['workers']} threads or workers; medians of {settings['rounds']} rounds, all in "
        f"turn in one run, over {settings['different_photos']} different photos of 500 x 375 "
        "pixels. Waiting is the share of the time in which the GPU had no step to work on; a "
        "step that takes longer than with random tensors shares the GPU with what makes its data. "
        f"{measured(content, 'gpu.py', *libraries)}"
    )
