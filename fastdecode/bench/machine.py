"""What the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import fastdecode
from fastdecode.cores import usable_cores

__all__ = ["Machine", "machine"]


@dataclass(frozen=True)
class Machine:
    """The machine and the interpreter.

    Attributes
    ----------
    cpu : str
        Its model name.
    cores : int
        Those that this process may use.
    system : str
    python : str
        Implementation and version.
    numpy : str
    fastdecode : str
    """

    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    fastdecode: str


def machine() -> Machine:
    """Describe this machine."""
    return Machine(
        cpu=_cpu(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy=importlib.metadata.version("numpy"),
        fastdecode=fastdecode.__version__,
    )


def _cpu() -> str:
    """Name the processor's model, which `platform.processor` does on few systems."""
    if platform.system() == "Darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(models), "") or platform.processor() or platform.machine()
