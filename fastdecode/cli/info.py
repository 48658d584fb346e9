"""``fastdecode info``: the backends that work here, what `decode` chooses, what is missing."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import fastdecode
from fastdecode._backends import registry, selection
from fastdecode._system.processor import cpu_model, usable_cores
from fastdecode.cli.terminal import Column, Parser, count, paragraph, table
from fastdecode.errors import BackendUnavailable, DeviceUnavailable, FastDecodeError, visible
from fastdecode.types import FORMATS, BackendInfo, Format, Header

if TYPE_CHECKING:
    import torch

_DEVICE_NAME = 12
_VARIABLES = ("FASTDECODE_BACKEND", "FASTDECODE_DISABLE")
_COLUMNS = (
    Column("backend", widest=16),
    Column("usable"),
    Column("version", widest=12),
    Column("codec", widest=19),
    Column("reduces"),
    Column("exact"),
    Column("formats"),
)


@dataclass(frozen=True)
class Inventory:
    """The devices, and the batch backends that decode on them."""

    devices: dict[str, str]  # a description of each device, or why it cannot be used
    usable: dict[str, list[str]]  # the devices on which each batch backend works
    reasons: dict[str, str]  # why a batch backend works on no device here, and how to install it


@dataclass(frozen=True)
class Facts:
    """Everything that the command reports about this installation."""

    fastdecode: str
    python: str
    platform: str
    cores: int  # those that this process may use
    environment: dict[str, str]  # those variables that change the choice and are set
    problem: str  # why `decode` cannot choose a backend; empty if it can
    backends: list[BackendInfo]
    choices: dict[Format, list[str]]  # what `decode` tries for a usual file, in order
    devices: Inventory | None = None  # None without PyTorch


def gather() -> Facts:
    """Ask every backend. This imports every installed library."""
    problem = ""
    choices: dict[Format, list[str]] = {}
    try:
        for kind in FORMATS:
            choices[kind] = _choices(kind)
    except FastDecodeError as error:  # FASTDECODE_BACKEND names an unusable backend
        problem = str(error)
    infos = fastdecode.backends()
    return Facts(
        fastdecode=fastdecode.__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.machine()}",
        cores=usable_cores(),
        environment={name: os.environ[name] for name in _VARIABLES if os.environ.get(name)},
        problem=problem,
        backends=infos,
        choices=choices,
        devices=inventory(),
    )


def _choices(kind: Format) -> list[str]:
    """Return the backends that `decode` tries for a usual file of a format, in order."""
    header = Header(kind, 500, 375)
    if kind == "jpeg":
        header = header._replace(color="ycc", coding="baseline", subsampling="4:2:0")
    want = selection.Want("RGB", 1, strict=False, complete=True)
    return [choice.name for choice in selection.candidates(None, header, want)]


def _report(facts: Facts) -> Iterator[str]:
    """Yield the report for the terminal, in paragraphs."""
    yield f"fastdecode {facts.fastdecode}"
    yield paragraph(f"{facts.python}, {facts.platform}, {count(facts.cores, 'usable core')}")
    yield ""
    yield from _table(facts.backends)
    unusable = [info for info in facts.backends if not info.usable]
    if unusable:
        yield from ["", "Not usable here"]
    for info in unusable:
        yield from _explain(info)
    yield from ["", "What decode() chooses, and what it tries after that"]
    yield from _choice_lines(facts)
    yield ""
    yield "On a device, in batches"
    yield from on_devices(facts.devices, facts.backends)
    yield ""
    yield paragraph("To measure it on your images: fastdecode bench FOLDER")


def _table(infos: Sequence[BackendInfo]) -> Iterator[str]:
    rows = [
        (
            info.name,
            "yes" if info.usable else "no",
            info.version or "-",
            info.codec or "-",
            " ".join(map(str, info.reduces)) or "-",
            ("yes" if info.exact else "no") if info.usable else "-",
            " ".join(info.formats),
        )
        for info in infos
    ]
    return table(_COLUMNS, rows)


def _explain(info: BackendInfo) -> Iterator[str]:
    """Explain why a backend cannot be used. Further lines of its reason say what to do."""
    lines = info.reason.splitlines()
    yield paragraph(f"{info.name}: {lines[0]}", indent="    ", first="  ")
    for line in lines[1:]:
        before = " " * (4 + len(line) - len(line.lstrip()))
        yield paragraph(line.strip(), indent=before)
    # If the reason contains a command, that command is more specific than the general one.
    if info.install and not any(word in info.reason for word in ("pip install", "apt-get install")):
        yield paragraph(info.install, indent="    ")


def _choice_lines(facts: Facts) -> Iterator[str]:
    for name, value in facts.environment.items():
        yield paragraph(f"{name}={value} is set.", "  ")
    if facts.problem:
        yield paragraph(facts.problem, "  ")
        return
    for kind, names in facts.choices.items():
        first = f"  {kind:<10}"
        if names:
            yield paragraph(", ".join(names), indent=" " * len(first), first=first)
        else:
            lines = [
                info.install
                for info in facts.backends
                if not info.usable and kind in info.formats and info.install
            ]
            yield f"{first}nothing" + (f": {' or '.join(lines)}" if lines else "")


def inventory() -> Inventory | None:
    """Return what works on devices; None without PyTorch, which alone knows the usable devices."""
    try:
        import torch

        from fastdecode.gpu import check_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    cuda: Any = torch.cuda  # only partly annotated
    found, devices = {"cpu": cpu_model()}, [torch.device("cpu")]
    try:
        check_device("cuda")
    except DeviceUnavailable as error:
        found["cuda"] = str(error).partition(" cannot be used: ")[2]
    else:
        devices += [torch.device("cuda", index) for index in range(cuda.device_count())]
        runtime = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}"
        found |= {str(one): f"{cuda.get_device_name(one)}, {runtime}" for one in devices[1:]}
    usable: dict[str, list[str]] = {}
    reasons = {}
    for name in registry.names():
        if registry.entry(name).batch:
            usable[name], why = _works_on(name, devices)
            if not usable[name]:
                reasons[name] = why
    return Inventory(found, usable, reasons)


def _works_on(name: str, devices: list[torch.device]) -> tuple[list[str], str]:
    """Return the devices on which a batch backend works, and why it does not on the others."""
    from fastdecode import gpu

    found, why = [], "no such device is here"
    for device in devices:
        if name in gpu.names(device.type):
            try:
                gpu.load(name, device)
            except BackendUnavailable as error:
                why = str(error).partition(f" does not decode on {str(device)!r}: ")[2]
            else:
                found.append(str(device))
    return found, why


def on_devices(found: Inventory | None, infos: Sequence[BackendInfo]) -> Iterator[str]:
    """Describe the devices, the backends that decode on them, and what is missing for others."""
    declared = {info.name: info.devices for info in infos if info.devices}
    if found is None:
        yield paragraph(
            f"{', '.join(declared)} need PyTorch, which is not installed: "
            "pip install 'fastdecode[torch]'",
            indent="  ",
        )
        return
    left_out = selection.disabled()
    for device, what in found.devices.items():
        yield _device_line(device, what)
    for name, places in found.usable.items():
        if places:
            off = ", but FASTDECODE_DISABLE excludes it" if name in left_out else ""
            yield _device_line(name, f"decodes on {', '.join(places)}{off}")
        else:
            of = declared.get(name, ())
            yield _device_line(name, f"not on {' or '.join(of)}: {found.reasons[name]}")


def _device_line(name: str, text: str) -> str:
    first = f"  {name:<{_DEVICE_NAME}}"
    return paragraph(". ".join(text.splitlines()), indent=" " * len(first), first=first)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to its parser."""
    parser.description = (
        "Show which decoding libraries decode() chooses here, for which formats, and\n"
        "which do not work."
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(options: argparse.Namespace, _parser: Parser) -> int:
    """Print the report, or its JSON."""
    facts = gather()
    lines = (line for part in _report(facts) for line in part.split("\n"))
    print(json.dumps(asdict(facts), indent=2) if options.json else "\n".join(map(visible, lines)))
    return 0
