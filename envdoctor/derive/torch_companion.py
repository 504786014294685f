"""Whether torchvision, torchaudio and the like are of the build and of the release of the installed torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.derive.running import Derived
from envdoctor.facts.installed import Installed, InstalledSet
from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.local_tag import is_own_build
from envdoctor.versions.pep440 import NotASpecifier, base_release, satisfies
from envdoctor.versions.requirement import NotARequirement, read_requirement

INPUTS = ("torch_companion", "dist", "pkg.torch", "torch.cuda", "torch.hip", "pkg.*", "environment.kind")
OUTPUTS = ("torch_companion",)

#: The local tags of the wheel index, and what may follow them (``cu128.with.pypi.cudnn``).
_BUILD = re.compile(r"(cpu|xpu|cu\d{2,4}|rocm\d+(?:\.\d+)*)(?=[._-]|\Z)")
_PINNED = r"===?(\d{1,9}\.\d{1,9})(?:[.+ab].*|rc.*)?\Z"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``torch_companion`` with the packages of the table torch-companions; what was given stands."""
    found = value("torch_companion")
    table = {row["name"]: row for row in matrix.rows("torch-companions", "package")}
    if not table or (isinstance(found, Records) and not len(found)):
        return {}
    if isinstance(found, Records):
        chosen = [item for item in found if item.get("package") in table]
        incomplete = found.incomplete
    else:
        chosen, incomplete = _installed(table, value)
    torch = value("pkg.torch")
    build = _torch_build(torch, value("torch.cuda"), value("torch.hip"))
    rows = matrix.rows("torch-builds") if chosen else ()
    items = tuple(_completed(item, table[str(item["package"])], torch, build, rows) for item in chosen)
    return {"torch_companion": Derived(Records(items, incomplete), "installed packages and the table torch-builds")}


def _installed(table: Mapping[str, Any], value: Callable[[str], Value]) -> tuple[list[Mapping[str, Value]], str | None]:
    """The companions that are installed, with the torch that their own metadata asks for, where it is known."""
    installed = InstalledSet(value)
    chosen: list[Mapping[str, Value]] = []
    incomplete: str | None = None
    for name in table:
        version = value(f"pkg.{name}")
        if isinstance(version, str):
            dist = next(iter(installed.get(name)), None)
            pin: dict[str, Value] = {"made_for": _pin(dist)} if dist is not None else {}
            if (value("environment.kind") if dist is None else dist.kind) == "conda":
                pin["same_release"] = Unknown("conda builds one release of it for several releases of torch")
            chosen.append({"package": name, "version": version, **pin})
        elif isinstance(version, Unknown):
            incomplete = incomplete or f"whether {name} is installed is not known"
    return chosen, incomplete


def _pin(dist: Installed) -> Value:
    """The specifiers of the torch that it requires; absent when it asks for none, or for any."""
    if dist.kind == "conda":
        return Unknown("conda's metadata is not read for it")
    if isinstance(dist.requires, Unknown):
        return dist.requires
    for line in dist.requires:
        if not line.startswith("torch"):
            continue
        try:
            wanted = read_requirement(line)
        except NotARequirement as error:
            return Unknown(f"a requirement of {dist.name} cannot be read: {error}")
        if wanted.name == "torch":
            return wanted.specifiers.replace(" ", "") or ABSENT
    return ABSENT


def _completed(
    item: Mapping[str, Value], row: Mapping[str, Any], torch: Value, torch_build: Value, rows: Any
) -> Mapping[str, Value]:
    version = item.get("version", Unknown("not known"))
    release = _release(torch)
    build = item.get("build", _build(version))
    there = item.get("torch_build", torch_build)
    made_for = item.get("made_for", Unknown("its metadata is not known"))
    if not isinstance(made_for, str):
        made_for = _made_for(row, version, rows) or made_for
    same_release = _same_release(made_for, torch, release)
    own = all(is_own_build(one) for one in (version, torch) if isinstance(one, str))
    if not own and not isinstance(item.get("made_for"), str):
        same_release = Unknown("it is a build of somebody else's, who may pair other releases")
    wanted = _release(version) if same_release is True else _listed(row["name"], release, rows)
    computed: dict[str, Value] = {
        "build": build,
        "torch_build": there,
        "apart": _apart(build, there),
        "made_for": made_for,
        "same_release": same_release,
        "wanted": _with_build(wanted, there),
    }
    apart = item.get("apart", computed["apart"])
    computed["same_build"] = apart if isinstance(apart, Unknown) else apart == "same"
    # What was given or observed stands, but for the pin that the table replaced.
    return {**computed, **{key: cell for key, cell in item.items() if key != "made_for"}}


def _build(version: Value) -> Value:
    """``cu130`` of ``0.28.0+cu130``; absent when the version names none."""
    if not isinstance(version, str):
        return version
    match = _BUILD.match(version.partition("+")[2].lower())
    return match[1] if match else ABSENT


def _torch_build(torch: Value, cuda: Value, hip: Value) -> Value:
    if isinstance(torch, Absent):
        return Unknown("torch is not installed")
    named = _build(torch)
    if isinstance(named, str):
        return named
    if isinstance(cuda, str):
        return "cu" + "".join(cuda.split(".")[:2])
    if isinstance(hip, str):
        return f"rocm{hip}"
    if cuda is ABSENT and hip is ABSENT:
        return "cpu"
    return cuda if isinstance(cuda, Unknown) else Unknown("nothing names the build of torch")


def _apart(build: Value, torch_build: Value) -> Value:
    """How two builds differ: same, minor (version of CUDA or ROCm), major, cpu-on-gpu, or other-platform."""
    if isinstance(build, Absent):
        return Unknown("nothing names its build")
    for one in (build, torch_build):
        if not isinstance(one, str):
            return one if isinstance(one, Unknown) else Unknown("nothing names the build of torch")
    (mine, *my_version), (its, *its_version) = _platform(str(build)), _platform(str(torch_build))
    if mine != its:
        return "cpu-on-gpu" if mine == "cpu" else "other-platform"
    if my_version[:1] != its_version[:1]:
        return "major"
    return "same" if my_version[:2] == its_version[:2] else "minor"


def _platform(build: str) -> list[str]:
    """``cu130`` as cu, 13, 0; ``rocm6.4`` as rocm, 6, 4; ``cpu`` as itself."""
    if build.startswith("cu"):
        return ["cu", build[2:4], build[4:]]
    return ["rocm", *build[4:].split(".")] if build.startswith("rocm") else [build]


def _release(version: Value) -> str | None:
    """The release segment: 2.5.0 of 2.5.0a0+872d972e41.nv24.08."""
    return base_release(version) if isinstance(version, str) else None


def _made_for(row: Mapping[str, Any], version: Value, rows: Any) -> str | None:
    """The torch release by the table torch-builds, for metadata that names none; that of the minor release for a patch
    release which the table does not list."""
    release = _release(version)
    if release is None:
        return None
    minor = release.split(".")[:2]
    keys = [entry["key"] for entry in rows if entry.get(row["name"]) == release]
    keys = keys or [entry["key"] for entry in rows if entry.get(row["name"], "").split(".")[:2] == minor]
    if not keys:
        return None
    since = row.get("newer_since")
    return f">={keys[0]}" if since is not None and satisfies(release, f">={since}") else f"=={keys[0]}"


def _same_release(made_for: Value, torch: Value, release: str | None) -> Value:
    """Whether torch is of the release that was asked for. A patch release more or less is the same one: torch keeps
    its C++ interfaces within a minor release."""
    if isinstance(torch, Absent):
        return Unknown("torch is not installed")
    if release is None:
        return torch if isinstance(torch, Unknown) else Unknown("torch's version is no release")
    if not isinstance(made_for, str):
        return made_for if isinstance(made_for, Unknown) else Unknown("nothing says for which torch it was made")
    pinned = re.match(_PINNED, made_for)
    if pinned:
        return pinned[1].split(".") == release.split(".")[:2]
    try:
        return satisfies(release, made_for)
    except NotASpecifier as error:
        return Unknown(str(error))


def _listed(name: str, release: str | None, rows: Any) -> str | None:
    """The release of this package that the table torch-builds has for a release of torch."""
    listed = next((entry.get(name) for entry in rows if entry["key"] == release), None)
    return listed if isinstance(listed, str) else None


def _with_build(release: str | None, torch_build: Value) -> Value:
    if release is None:
        return ABSENT
    return f"{release}+{torch_build}" if isinstance(torch_build, str) else release
