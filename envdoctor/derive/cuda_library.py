"""NVIDIA's wheels with CUDA libraries: which are there for which CUDA major, beside the versions that torch pins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.installed import Installed, InstalledSet, marker_values
from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.knowledge.cuda_wheels import component_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted
from envdoctor.versions.marker import NotAMarker, holds
from envdoctor.versions.requirement import NotARequirement, read_requirement

INPUTS = (
    "cuda_library",
    "dist",
    "pkg.*",
    "torch.cuda",
    "shared_file",
    "python.minor",
    "python.version",
    "os.platform",
    "os.arch",
)
OUTPUTS = ("cuda_library",)

#: Whose version begins with the CUDA major, for wheels whose name does not tell it.
_TELLING = ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cuda-nvrtc")
_MAJOR = r"(\d{1,3})\."
_PIN = r"==([^*,\s]{1,80})\Z"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``cuda_library`` with the components of the table cuda-wheels and the column ``order``; what was given stands."""
    given = value("cuda_library")
    components = {row["name"] for row in matrix.rows("cuda-wheels", "component")}
    if isinstance(given, Records):
        chosen, incomplete = list(given), given.incomplete
    else:
        installed = InstalledSet(value)
        if not installed.known:
            return {}
        chosen, incomplete = list(_of_dists(installed, value)), installed.incomplete
    items = tuple(
        {"order": _order(item.get("installed"), item.get("pinned")), **item}
        for item in chosen
        if item.get("component") in components
    )
    return {"cuda_library": Derived(Records(items, incomplete), "installed packages")}


def _of_dists(installed: InstalledSet, value: Callable[[str], Value]) -> Iterable[Mapping[str, Value]]:
    found: dict[str, dict[str | None, Installed]] = {}
    for items in installed:
        if (named := component_of(items[0].name)) is not None:
            found.setdefault(named[0], {}).setdefault(named[1], items[0])
    if not found:
        return
    plain, cuda = _plain_major(installed), value("torch.cuda")
    wanted = cuda.partition(".")[0] if isinstance(cuda, str) else None
    pins = _pins(installed, value)
    shared = value("shared_file")
    files = {str(item.get("component")): item.get("file") for item in shared} if isinstance(shared, Records) else None
    for component, wheels in found.items():
        by_major = {major or plain: item for major, item in wheels.items()}
        majors = sorted((major for major in by_major if major is not None), key=int)
        pinned = next((item for item in wheels.values() if pins and item.name in pins), None)
        last = by_major[majors[-1]] if majors else next(iter(wheels.values()))
        own = pinned or by_major.get(wanted) or last
        unknown = Unknown("no wheel names the CUDA major of this one")
        yield {
            "component": component,
            "package": own.name,
            "packages": ", ".join(sorted(item.name for item in wheels.values())),
            "majors": unknown if None in by_major else ", ".join(majors),
            "installed": own.version,
            "pinned": Unknown("what torch requires is not known") if pins is None else pins.get(own.name, ABSENT),
            "same_files": ABSENT if len(wheels) < 2 else _file(files, component),
        }


def _file(files: Mapping[str, Value | None] | None, component: str) -> Value:
    found = None if files is None else files.get(component)
    return Unknown("the files of its wheels are not known") if found is None else found


def _plain_major(installed: InstalledSet) -> str | None:
    """The CUDA major of the wheels that carry none in their name."""
    for name in _TELLING:
        version = next((one.version for one in installed.get(name)), None)
        match = re.match(_MAJOR, version) if isinstance(version, str) else None
        if match:
            return match[1]
    return None


def _pins(installed: InstalledSet, value: Callable[[str], Value]) -> dict[str, str] | None:
    """The single versions that torch's metadata asks for, by name; None when its metadata is not known."""
    torch = next(iter(installed.get("torch")), None)
    if torch is None or isinstance(torch.requires, Unknown):
        return {} if isinstance(value("pkg.torch"), Absent) else None
    lines = [line for line in torch.requires if line.startswith("nvidia-")]
    values = marker_values(value) if lines else {}
    decided: dict[str, bool | None] = {"": True}
    pins: dict[str, str] = {}
    for line in lines:
        try:
            wanted = read_requirement(line)
            if wanted.marker not in decided:
                decided[wanted.marker] = holds(wanted.marker, values)
        except (NotARequirement, NotAMarker):
            continue
        pin = re.match(_PIN, wanted.specifiers.replace(" ", ""))
        if pin and decided[wanted.marker] is not False:
            pins[wanted.name] = pin[1]
    return pins


def _order(installed: Value | None, pinned: Value | None) -> Value:
    if isinstance(pinned, Absent):
        return ABSENT
    one, other = (dotted(version) if isinstance(version, str) else None for version in (installed, pinned))
    if one is None or other is None:
        return Unknown("the versions cannot be compared")
    if one == other:
        return "same"
    if one[:1] != other[:1]:
        return "other-major"
    if one < other:
        return "older"
    return "newer-patch" if one[:2] == other[:2] else "newer"
