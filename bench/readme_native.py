"""The figures of docs/native.md."""

from __future__ import annotations

from typing import Any

from readme_figures import load, table, where

_LANES = {
    "loader": "`Loader`",
    "core": "the core alone makes the same tensors",
    "regions": "the core alone decodes the same regions",
    "whole": "the core alone decodes whole pictures",
    "simplejpeg": "simplejpeg in threads decodes whole pictures",
}
_BESIDE = {"core": "the core, without Python", "loader": "`Loader`"}


def limit_figures() -> str:
    """Draw how near the Loader comes to the decoder's own rate."""
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
        f"{_scaling(result)} Medians of {settings['rounds']} rounds of "
        f"{settings['images_per_epoch']} images of 500 x 375 pixels, all in turn in one run. "
        f"Measured {where(content)}, {settings['core']} by `bench/limit.py`."
    )


def _scaling(result: dict[str, Any]) -> str:
    """Tell how much more threads make."""
    kinds = list(result)
    fewest, *_, most = sorted(result[kinds[0]], key=int)
    ratios = {
        name: " and ".join(f"{result[kind][most][name]['to_fewest_threads']:.2f}" for kind in kinds)
        for name in ("loader", "regions")
    }
    return (
        f"With {_threads(most)} `Loader` makes {ratios['loader']} times as many images as with "
        f"{fewest} ({' and '.join(kinds)}), decoding alone {ratios['regions']}."
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
        "native: region, reindexed": "the same after `reindex`",
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
        f"{fastest} is the fastest of the other backends here. `reindex` took "
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
