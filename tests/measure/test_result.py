"""The JSON of a result reads back, and other files are refused in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
import results

from fastdecode.measure.result import SCHEMA, from_json, to_json


def test_a_result_reads_back_as_it_was() -> None:
    """Writing and reading gives an equal result."""
    result = results.full()

    assert from_json(to_json(result)) == result


def test_the_schema_stands_first() -> None:
    """The version of the schema is the first key of the file."""
    assert to_json(results.result()).split()[1:3] == ['"schema":', f"{SCHEMA},"]


def test_unknown_keys_are_passed_over() -> None:
    """Unknown fields of a later version, at any depth, are ignored."""
    content = json.loads(to_json(results.result(results.measurement())))
    for place in (
        content,
        content["machine"],
        content["measurements"][0],
        content["measurements"][0]["ratio"],
    ):
        place["invented"] = [1]

    assert from_json(json.dumps(content)) == results.result(results.measurement())


def test_fields_with_a_default_may_be_missing() -> None:
    """A file of an earlier version, without newer fields, is read with their defaults."""
    content = json.loads(to_json(results.result(results.measurement())))
    del content["measurements"][0]["peak_mb"], content["interrupted"]

    assert from_json(json.dumps(content)) == results.result(results.measurement(peak_mb=0.0))


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", "not JSON", '{"machine": 1}', "[" * 10**5])
def test_what_is_no_result_is_refused(text: str) -> None:
    """A file that is not a result is refused."""
    with pytest.raises(ValueError, match="result"):
        from_json(text)


def test_another_schema_is_refused() -> None:
    """A result of another schema is refused, and both versions are named."""
    text = to_json(results.result()).replace(f'"schema": {SCHEMA}', '"schema": 99')

    with pytest.raises(ValueError, match=f"99.*{SCHEMA}"):
        from_json(text)


def spoil(content: Any, place: tuple[Any, ...], value: Any) -> None:
    """Replace or remove one value, and write the whole result."""
    *path, last = place
    for step in path:
        content = content[step]
    if value is None:
        del content[last]
    else:
        content[last] = value


@pytest.mark.parametrize(
    ("place", "value", "datum"),
    [
        (("machine",), None, "machine"),
        (("machine",), [], "machine is list"),
        (("machine", "cores"), "4", "machine.cores is str"),
        (("machine", "load"), "low", "machine.load is str"),
        (("measurements",), {}, "measurements is dict"),
        (("measurements", 0, "reduce"), True, r"measurements\[0\].reduce is bool"),
        (
            ("measurements", 0, "protocol"),
            "guess",
            "protocol.*guess",
        ),
        (("measurements", 0, "protocol"), [], "protocol"),
        (("measurements", 0, "ratio", "low"), None, r"measurements\[0\].ratio.*low"),
        (("measurements", 0, "refused"), {"a": 1}, "refused.a is int"),
        (("measurements", 0, "latency_ms"), [1, "2"], r"latency_ms\[1\] is str"),
    ],
)
def test_a_damaged_result_is_refused(place: tuple[Any, ...], value: Any, datum: str) -> None:
    """A missing value, or one of a wrong type, is an error that names its path."""
    content = json.loads(to_json(results.result(results.measurement())))
    spoil(content, place, value)

    with pytest.raises(ValueError, match=datum):
        from_json(json.dumps(content))


def test_the_key_tells_configurations_apart() -> None:
    """The key of a measurement contains its settings and none of its figures."""
    one = results.measurement()
    others = [
        results.measurement(**{name: value})
        for name, value in {
            "protocol": "train", "format": "png", "reduce": 2, "backend": "opencv", "workers": 2,
            "batch": 8,
        }.items()
    ]  # fmt: skip

    assert len({one.key, *(other.key for other in others)}) == 7
    assert results.measurement(speed=3.0).key == one.key
