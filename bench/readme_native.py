"""The figures of docs/native.md."""

from __future__ import annotations

from typing import Any

from readme_figures import load, table, where

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
_STAGES = {
    "entropy": "Huffman decoding",
    "samples": "inverse DCT",
    "pixels": "upsampling and colours",
}
_BESIDE = {"core": "the core, without Python", "loader": "`Loader`"}


def decoder_figures() -> str:
    """Draw what the core's own decoder gains, and where its time goes."""
    content = load("decoder_px500")
    result, settings = content["result"], content["settings"]
    rows = [
        [
            title,
            f"{one['decode()']['ms']:.2f}",
            f"{one[one['fastest_other']]['ratio']:.2f} ({one['fastest_other']})",
            f"{one['decode(), libjpeg-turbo']['ratio']:.2f}",
        ]
        for title, one in result["calls"].items()
    ]
    head = [
        "JPEG, reduced to",
        "`decode`, ms",
        "fastest other takes times",
        "libjpeg-turbo in the core",
    ]
    stages = result["stages"]
    before, shares = stages["prepared"], []
    for name, title in _STAGES.items():
        shares.append(f"{title} {100 * (stages[name] - before) / stages['pixels']:.0f} %")
        before = stages[name]
    slower = [
        f"{kind} {100 / one['decode(), libjpeg-turbo']['ratio'] - 100:+.1f} %"
        for kind, one in result["left"].items()
    ]
    return (
        f"{table(head, rows)}\n\n"
        f"Where its time goes: {', '.join(shares)}, the rest for the header, the copy of the scan "
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
    runs = [
        (f"{kind}, {_threads(count)}", lanes)
        for kind, by_count in result.items()
        for count, lanes in by_count.items()
    ]
    rows = [
        [
            title,
            *(
                f"{lanes[name]['images_per_s']:.0f} ({100 * lanes[name]['to_limit']:.0f} %)"
                for _, lanes in runs
            ),
        ]
        for name, title in _LANES.items()
    ]
    head = ["images/s (of the limit)", *(title for title, _ in runs)]
    return (
        f"{table(head, rows)}\n\n"
        f"{_aims(runs)} {_scaling(result)} Medians of {settings['rounds']} rounds of "
        f"{settings['images_per_epoch']} images of 500 x 375 pixels, all in turn in one run. "
        f"Measured {where(content)}, {settings['core']} by `bench/limit.py`."
    )


def _aims(runs: list[tuple[str, dict[str, Any]]]) -> str:
    """Tell the three ratios that the aims are about."""
    ratios = [[f"{aim['ratio']:.2f}" for aim in lanes["aims"]] for _, lanes in runs]
    loader, regions, before = (", ".join(found) for found in zip(*ratios, strict=True))
    return (
        f"In the order of the columns, `Loader` makes {loader} of what the core makes; the core "
        f"makes its tensors {before} times as fast as by libjpeg-turbo, and {regions} times as "
        "fast as libjpeg-turbo decodes their regions and does nothing else."
    )


def _scaling(result: dict[str, Any]) -> str:
    """Tell how much more threads make."""
    kinds = list(result)
    fewest, *_, most = sorted(result[kinds[0]], key=int)
    ratios = {
        name: " and ".join(f"{result[kind][most][name]['to_fewest_threads']:.2f}" for kind in kinds)
        for name in ("loader", "core")
    }
    return (
        f"With {_threads(most)} `Loader` makes {ratios['loader']} times as many images as with "
        f"{fewest} ({' and '.join(kinds)}), the core alone {ratios['core']}."
    )


def region_figures() -> str:
    """Draw what a part of a large photo costs."""
    content = load("regions")
    result, settings = content["result"], content["settings"]
    fastest = result["fastest_other"].partition(":")[0]
    ways = {
        result["fastest_other"]: f"full decode by {fastest}, and slice",
        "native: full": "full decode by the core, and slice",
        "native: region": "`decode(data, region=...)`",
        "native: region, reindexed": "the same with restart markers",
    }
    rows = [
        [title, f"{one['images_per_s']:.1f}", f"{one['to_fastest_other']:.2f}"]
        for name, title in ways.items()
        for one in (result["ways"][name],)
    ]
    files = result["reindex"].values()
    changes = [100 * one["bytes_after"] / one["bytes"] - 100 for one in files]
    megapixels = sum(one["width"] * one["height"] for one in files) / len(files) / 1e6
    side = settings["side"]
    return (
        f"{table([f'{side} x {side} pixels', 'images/s', f'to {fastest}'], rows)}\n\n"
        f"One thread, from memory, {len(files)} photos of {megapixels:.0f} megapixels on average; "
        f"{fastest} is the fastest of the other backends here. `add_restart_markers` took "
        f"{1000 * result['reindex_s']:.0f} ms a photo, and changed their bytes by "
        f"{min(changes):+.1f} % to {max(changes):+.1f} %, together by "
        f"{100 * result['bytes_ratio'] - 100:+.1f} %. Measured {where(content)}, "
        f"{settings['core']} by `bench/regions.py`."
    )


def gil_figures() -> str:
    """Draw what a thread of Python loses beside a Loader."""
    content = load("gil")
    settings = content["settings"]
    rows = []
    for count, found in content["result"].items():
        for name, title in _BESIDE.items():
            one = found[name]
            rows.append(
                [
                    f"{title}, {_threads(count)}",
                    f"{one['to_alone']:.3f}",
                    f"{100 * one['waits']:.1f} %",
                    f"{one['images_per_s']:.0f}",
                    f"{one['to_no_counter']:.3f}",
                ]
            )
    head = ["beside", "speed, to alone", "waits for the GIL", "images/s there", "to undisturbed"]
    count, found = next(iter(content["result"].items()))
    lost = max(0.0, found["lost_to_gil"])
    return (
        f"{table(head, rows)}\n\n"
        f"Beside a `Loader` of {_threads(count)} it counts {100 * lost:.1f} % less than beside "
        f"the core; {100 * found['lost_waiting']:.1f} % of the time it waits for the lock. "
        f"A thread that counts in pure Python on a core of its own, for "
        f"{settings['seconds']:.0f} s in each situation, medians of {settings['rounds']} rounds, "
        f"on {content['machine']['cores']} cores. "
        f"Measured {where(content)} by `bench/gil.py`."
    )


def _threads(count: str) -> str:
    return f"{count} thread{'s' * (count != '1')}"
