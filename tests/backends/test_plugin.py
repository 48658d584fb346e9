"""Backends of other packages, found by their entry points in the folder ``plugin``."""

from __future__ import annotations

from typing import Any

import pytest
from corpus import TESTS
from processes import answers

from fastdecode import decode
from fastdecode._backends import registry
from fastdecode.testing import drawing, encode

PLUGIN = TESTS / "plugin"


@pytest.fixture(scope="module")
def with_plugin() -> dict[str, Any]:
    """Return the answers of a process in which another package's backends are installed."""
    return answers(
        """
bmp, jpeg, palette = encode(image, "bmp"), encode(image), encode(image.convert("P"), "bmp")
answers["by itself"] = call(decode, bmp)
answers["by name"] = call(decode, bmp, backend="demo")
answers["reduced by name"] = call(decode, bmp, 2, mode="L", backend="demo")
answers["reduced by pillow"] = call(decode, bmp, 2, mode="L", backend="pillow")
answers["jpeg"] = call(decode, jpeg) == call(decode, jpeg, backend="pillow")
answers["jpeg by name"] = call(decode, jpeg, backend="demo")
answers["palette by name"] = call(decode, palette, backend="demo")
for name in ("broken", "explosive", "nobody"):
    answers[name] = call(decode, jpeg, backend=name)
answers["infos"] = {info.name: vars(info) for info in backends()}
""",
        PLUGIN,
    )


def test_plugin_is_listed(with_plugin: dict[str, Any]) -> None:
    """An installed backend is found by its entry point, with everything that it declares."""
    demo = with_plugin["infos"]["demo"]

    assert demo["usable"]
    assert demo["formats"] == ["bmp"]
    assert demo["version"] == "1.0"
    assert demo["install"] == "pip install fastdecode-plugin-demo"
    assert list(with_plugin["infos"])[: len(registry.BUILTIN)] == list(registry.BUILTIN)


def test_plugin_decodes_by_name(with_plugin: dict[str, Any]) -> None:
    """By name, a plugin returns its pixels, from which the package makes mode and reduction."""
    assert with_plugin["by name"] == with_plugin["by itself"]
    assert with_plugin["reduced by name"] == with_plugin["reduced by pillow"]


def test_plugin_is_asked_only_for_what_it_declares(with_plugin: dict[str, Any]) -> None:
    """A plugin gets only the formats and kinds that it declares; other files are an error."""
    for key, why in (("jpeg by name", "does not read jpeg"), ("palette by name", "palette")):
        kind, message = with_plugin[key]
        assert kind == "UnsupportedFormat"
        assert "demo" in message
        assert why in message


@pytest.mark.parametrize(
    ("name", "reason"), [("broken", "fastdecode_plugin_demo.missing"), ("explosive", "machine")]
)
def test_broken_plugin_is_reported_and_breaks_nothing(
    with_plugin: dict[str, Any], name: str, reason: str
) -> None:
    """A broken plugin is listed as unusable with the reason, and affects nothing else."""
    info = with_plugin["infos"][name]
    kind, message = with_plugin[name]

    assert not info["usable"]
    assert reason in info["reason"]
    assert kind == "BackendUnavailable"
    assert reason in message
    assert "pip install fastdecode-plugin-demo" in message
    assert with_plugin["jpeg"] is True


def test_plugin_takes_part_in_the_choice() -> None:
    """If no built-in backend reads a file, an installed one does, even next to broken ones."""
    answered = answers(
        'answers["image"] = call(decode, encode(image, "bmp"))',
        PLUGIN,
        FASTDECODE_DISABLE="pillow",
    )

    assert answered["image"] == decode(encode(drawing(13, 7), "bmp")).tolist()
