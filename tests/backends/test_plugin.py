"""Backends of other packages, found by their entry points in the folder ``plugin``."""

from __future__ import annotations

from corpus import TESTS
from processes import answers

from fastdecode import decode
from fastdecode._backends import registry
from fastdecode.testing import drawing, encode

PLUGIN = TESTS / "plugin"


def test_backends_of_another_package() -> None:
    """They are listed with what they declare, decode by name, and are asked for nothing else.

    A broken one is unusable with the reason, and affects nothing else.
    """
    found = answers(
        """
# To load all libraries would take seconds.
sys.modules.update(dict.fromkeys(("cv2", "imagecodecs", "nvidia", "pillow_heif", "torch")))
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
    infos = found["infos"]
    install = "pip install fastdecode-plugin-demo"

    told = {key: infos["demo"][key] for key in ("usable", "formats", "version", "install")}
    assert [*told.values()] == [True, ["bmp"], "1.0", install]
    assert [*infos][: len(registry.BUILTIN)] == [*registry.BUILTIN]
    assert found["by name"] == found["by itself"]
    assert found["reduced by name"] == found["reduced by pillow"]
    for key, why in (("jpeg by name", "demo does not read jpeg"), ("palette by name", "palette")):
        kind, message = found[key]
        assert kind == "UnsupportedFormat"
        assert why in message
    for name, reason in (("broken", "fastdecode_plugin_demo.missing"), ("explosive", "machine")):
        kind, message = found[name]
        assert (kind, infos[name]["usable"]) == ("BackendUnavailable", False)
        assert reason in infos[name]["reason"]
        assert reason in message
        assert install in message
    assert found["jpeg"] is True


def test_plugin_takes_part_in_the_choice() -> None:
    """If no built-in backend reads a file, an installed one does, even next to broken ones."""
    answered = answers(
        'answers["image"] = call(decode, encode(image, "bmp"))',
        PLUGIN,
        FASTDECODE_DISABLE=",".join(registry.BUILTIN),
    )

    assert answered["image"] == decode(encode(drawing(13, 7), "bmp")).tolist()
