"""``--target-python``, ``--target-platform``, ``--target-gpu``, ``--target-driver``: the machine that is meant."""

import re
from collections.abc import Mapping

from envdoctor.app.errors import UsageProblem
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Fact
from envdoctor.observe.recipe.assignments import parse_assignments

__all__ = ["target_facts"]

_PYTHON = r"3\.\d{1,2}(\.\d{1,3}(?:(?:a|b|rc)\d{1,2})?)?\Z"
_PLATFORM = r"(?i)(linux|windows|win|macos|darwin)[-_](x86_64|amd64|aarch64|arm64)\Z"
_SYSTEMS = {"win": "windows", "macos": "darwin"}


def target_facts(target: Mapping[str, str], registry: Registry) -> list[Fact]:
    """The facts of what was typed behind ``--target-NAME``, by NAME. Raises :class:`UsageProblem` and
    :class:`~envdoctor.observe.recipe.assignments.AssignmentError`."""
    facts: list[Fact] = []
    for name, text in target.items():
        facts += parse_assignments(_assignments(name, text), registry, f"--target-{name}")
    return facts


def _assignments(name: str, text: str) -> list[str]:
    if name == "gpu":
        return ["gpu=absent" if text.lower() == "none" else f"gpu.name={text}"]
    if name == "driver":
        return [f"driver.version={text}"]
    if name == "python":
        match = re.match(_PYTHON, text)
        if match is None:
            raise UsageProblem(f"--target-python {text}: a release of Python is expected, such as 3.11 or 3.11.9")
        minor = ".".join(text.split(".")[:2])
        whole = [f"python.version={text}"] if match[1] else []
        return [*whole, f"python.minor={minor}", "python.implementation=cpython"]
    match = re.match(_PLATFORM, text)
    if match is None:
        raise UsageProblem(
            f"--target-platform {text}: system and processor are expected: linux-x86_64, linux-aarch64, "
            "windows-x86_64, macos-arm64"
        )
    system, machine = _SYSTEMS.get(match[1].lower(), match[1].lower()), match[2].lower()
    machine = "x86_64" if machine == "amd64" else "aarch64" if machine == "arm64" and system == "linux" else machine
    return [f"os.platform={system}", f"os.arch={machine}"]
