"""NVIDIA's wheels with CUDA libraries: which are there for which CUDA major, and which version torch pins."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import combinations

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.environment.files import Files, because_of
from envdoctor.observe.environment.layout import Layout
from envdoctor.observe.environment.metadata_directory import Distribution
from envdoctor.observe.environment.version_files import VersionFile

__all__ = ["cuda_library_fact"]

#: ``nvidia-cudnn-cu12``; from CUDA 13 on some carry no major: ``nvidia-cublas``.
_NAME = re.compile(r"nvidia-([a-z0-9-]{1,60}?)(?:-cu(\d{2}))?\Z")
#: Whose version begins with the CUDA major, for wheels whose name does not tell it.
_TELLING = ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cuda-nvrtc")
_MAJOR = re.compile(r"(\d{1,3})\.")
_PIN = re.compile(r"==([^*,\s]{1,80})\Z")
_RECORD_LIMIT = 4 << 20
_LIBRARY = re.compile(rb"^([^\",\r\n]{1,400}\.(?:so(?:\.[\d.]{1,20})?|dll)),", re.MULTILINE)


def cuda_library_fact(
    distributions: Sequence[Distribution], torch: VersionFile | Unknown, layout: Layout, incomplete: str | None
) -> Fact:
    """The fact ``cuda_library``: one item a component, whatever it is called; which components belong to CUDA is for
    the table cuda-wheels to say."""
    found: dict[str, dict[str | None, Distribution]] = {}
    for item in distributions:
        if item.name.startswith("nvidia-") and (match := _NAME.match(item.name)) is not None:
            found.setdefault(match[1], {}).setdefault(match[2], item)
    if not found:
        return Fact("cuda_library", Records((), incomplete), "installed packages", "environment")
    plain = _plain_major(distributions)
    cuda = None if isinstance(torch, Unknown) else torch.get("cuda")
    wanted = cuda.partition(".")[0] if isinstance(cuda, str) else None
    pins = _pins(distributions, layout)
    items = tuple(
        _component(name, {major or plain: item for major, item in wheels.items()}, wanted, pins, layout.files)
        for name, wheels in found.items()
    )
    return Fact("cuda_library", Records(items, incomplete), "installed packages", "environment")


def _component(
    name: str,
    wheels: dict[str | None, Distribution],
    wanted: str | None,
    pins: dict[str, str],
    files: Files,
) -> dict[str, Value]:
    majors = sorted((major for major in wheels if major is not None), key=int)
    pinned = next((item for item in wheels.values() if item.name in pins), None)
    own = pinned or wheels.get(wanted) or (wheels[majors[-1]] if majors else next(iter(wheels.values())))
    return {
        "component": name,
        "package": own.name,
        "packages": ", ".join(sorted(item.name for item in wheels.values())),
        "majors": Unknown("no wheel names the CUDA major of this one") if None in wheels else ", ".join(majors),
        "installed": own.version,
        "pinned": pins.get(own.name, ABSENT),
        "same_files": _same_files(list(wheels.values()), files),
    }


def _plain_major(distributions: Sequence[Distribution]) -> str | None:
    """The CUDA major of the wheels that carry none in their name."""
    versions = {item.name: item.version for item in distributions if item.name in _TELLING}
    for name in _TELLING:
        version = versions.get(name)
        match = _MAJOR.match(version) if isinstance(version, str) else None
        if match:
            return match[1]
    return None


def _pins(distributions: Sequence[Distribution], layout: Layout) -> dict[str, str]:
    """The single versions that torch's metadata asks for, by name."""
    torch = next((item for item in distributions if item.name == "torch"), None)
    if torch is None or not any(line.startswith("nvidia-") for line in torch.requires):
        return {}
    from envdoctor.observe.environment.conflicts import marker_values
    from envdoctor.observe.environment.marker import NotAMarker, holds
    from envdoctor.observe.environment.requirement import NotARequirement, read_requirement

    values = marker_values(layout)
    decided: dict[str, bool | None] = {"": True}
    pins: dict[str, str] = {}
    for line in torch.requires:
        if not line.startswith("nvidia-"):
            continue
        try:
            wanted = read_requirement(line)
            if wanted.marker not in decided:
                decided[wanted.marker] = holds(wanted.marker, values)
        except (NotARequirement, NotAMarker):
            continue
        pin = _PIN.match(wanted.specifiers.replace(" ", ""))
        if pin and decided[wanted.marker] is not False:
            pins[wanted.name] = pin[1]
    return pins


def _same_files(wheels: list[Distribution], files: Files) -> Value:
    """A library that two of the wheels list as theirs; absent when there is none."""
    if len(wheels) < 2:
        return ABSENT
    listed: list[frozenset[str]] = []
    for item in wheels:
        try:
            record = files.head(os.path.join(item.path, "RECORD"), _RECORD_LIMIT)
        except OSError as error:
            return Unknown(f"RECORD of {item.name} cannot be read: {because_of(error)}")
        names = frozenset(match.decode("utf-8", "replace") for match in _LIBRARY.findall(record))
        if not names:
            return Unknown(f"RECORD of {item.name} lists no library")
        listed.append(names)
    shared = sorted({name for one, other in combinations(listed, 2) for name in one & other})
    return shared[0] if shared else ABSENT
