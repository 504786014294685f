"""The build of torch, its GPU architectures and CUDA libraries, and the packages that must be of the same build."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from envdoctor.facts.factset import Installed, InstalledSet, View, marker_values
from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.matrix.gpu_code import arch_lists
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message, said_by
from envdoctor.versions.pep440 import NotASpecifier, base_release, dotted, satisfies
from envdoctor.versions.requirement import (
    NotAMarker,
    NotARequirement,
    component_of,
    holds,
    is_own_build,
    read_requirement,
)

# The tags of the wheel index: cu118 is CUDA 11.8, cu1210 would be 12.10 (one digit of major is never used).
_CUDA = re.compile(r"cu(\d\d)(\d{1,2})(?:\.|_|-|\Z)")
#: NVIDIA's containers: 2.5.0a0+872d972e41.nv24.08 (year and month of the container).
_NVIDIA = re.compile(r"(?:\A|\.)nv\d\d\.\d\d")
_ROCM = re.compile(r"rocm(\d+(?:\.\d+)*)")
#: The local tags of the wheel index, and what may follow them (``cu128.with.pypi.cudnn``).
_BUILD = re.compile(r"(cpu|xpu|cu\d{2,4}|rocm\d+(?:\.\d+)*)(?=[._-]|\Z)")
_PINNED = r"===?(\d{1,9}\.\d{1,9})(?:[.+ab].*|rc.*)?\Z"
#: Packages whose version begins with the CUDA major, for wheels whose name does not tell it.
_TELLING = ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cuda-nvrtc")
_MAJOR = r"(\d{1,3})\."
_PIN = r"==([^*,\s]{1,80})\Z"


@derives("torch.cuda torch.hip torch.vendor", of="pkg.torch pkg.* dist os.platform os.arch machine.accelerators")
def torch_build(facts: View, matrix: Matrix) -> Mapping[str, Derived]:
    """Tell CUDA or HIP version and vendor of the build from its version, when no file told it. A release without a
    local tag is taken for the build that PyPI has of it, which is an assumption."""
    if facts.unknown("pkg.torch"):
        return {}
    if facts.absent("pkg.torch"):
        return _build_of(Unknown(Message("torch is not installed")))
    text = str(facts.value("pkg.torch"))
    origin = Message("the local tag of torch {}", text)
    tag = text.partition("+")[2].lower()
    vendor = Derived("nvidia" if _NVIDIA.search(tag) else ABSENT, origin)
    if match := _CUDA.match(tag):
        builds = _build_of(f"{match[1]}.{match[2]}", ABSENT, origin)
    elif match := _ROCM.match(tag):
        builds = _build_of(ABSENT, match[1], origin)
    elif tag.startswith(("cpu", "xpu")):
        builds = _build_of(ABSENT, ABSENT, origin)
    else:
        unnamed = _build_of(Unknown(Message("torch {} has no local tag that names its CUDA", text)))
        builds = unnamed if tag else _of_pypi(text, facts, matrix) or unnamed
    return {**builds, "torch.vendor": vendor}


@derives("machine.accelerators", of="pkg.*")
def _plugged_in(facts: View, matrix: Matrix) -> Answer:
    """Name the accelerators, which are not NVIDIA's, that a package of the environment brings torch to."""
    rows = [row for row in matrix.rows("torch-companions", "plugin") if facts.text(f"pkg.{row['name']}")]
    kinds = tuple(dict.fromkeys(row["accelerator"] for row in rows))
    return Derived(kinds, Message("package {}", rows[0]["name"])) if rows else None


def _build_of(cuda: Value, hip: Value | None = None, *more: str) -> dict[str, Derived]:
    return {"torch.cuda": Derived(cuda, *(more or ("",))), "torch.hip": Derived(hip or cuda, *(more or ("",)))}


def _of_pypi(text: str, facts: View, matrix: Matrix) -> dict[str, Derived] | None:
    """Return the build of PyPI, for Linux on x86_64 if nothing else is known. Not so in conda, whose versions never
    have tags, nor if a companion has one: then the packages came from another index. If PyPI has no build for CUDA, a
    version that a user wrote down may lack its tag: only a list of distributions tells that it has none."""
    row = next((row for row in matrix.rows("torch-builds") if row["key"] == text), None)
    tagged = any("+" in (facts.text(f"pkg.{row['name']}") or "") for row in matrix.rows("torch-companions", "package"))
    installed, platform = InstalledSet(facts.value), facts.value("os.platform")
    kinds = facts.words("machine.accelerators") or ()
    plugged = any(row["accelerator"] in kinds for row in matrix.rows("torch-companions", "plugin"))
    if row is None or tagged or plugged or any(dist.kind == "conda" for dist in installed.get("torch")):
        return None
    cuda: Value = row["pypi_cuda_aarch64" if facts.value("os.arch") == "aarch64" else "pypi_cuda"]
    if cuda == "absent" or platform in ("windows", "darwin"):
        cuda = ABSENT
        if platform != "darwin" and not installed.known:
            return None
    return _build_of(cuda, ABSENT, Message("torch {} names no build, it is taken for PyPI's", text), "assumed")


@derives("torch.cudnn", of="torch.cuda pkg.*")
def _torch_cudnn(facts: View, matrix: Matrix) -> Answer:
    """Find the cuDNN that torch loads, the wheel of torch's CUDA major; unknown when it comes from elsewhere."""
    if facts.unknown("torch.cuda"):
        return None
    if facts.absent("torch.cuda"):
        return Derived(ABSENT, Message("torch is not a CUDA build"))
    name = f"nvidia-cudnn-cu{str(facts.value('torch.cuda')).partition('.')[0]}"
    wheel = facts.text(f"pkg.{name}")
    return Unknown(Message("{} is not installed as a wheel", name)) if wheel is None else Derived(wheel, name)


@derives("torch.arch_list", of="pkg.torch torch.cuda torch.hip os.platform os.arch")
def _torch_archs(facts: View, matrix: Matrix) -> Answer:
    """List the GPU architectures compiled into torch by its release and CUDA, where its libraries were not read and the
    tables have one list for this build; an empty one for a CPU build."""
    if facts.absent("torch.cuda") and facts.absent("torch.hip"):
        return Derived((), Message("torch is a build without CUDA"))
    torch, cuda, platform = facts.text("pkg.torch"), facts.text("torch.cuda"), facts.text("os.platform")
    if torch is None or cuda is None or not facts.unknown("torch.arch_list"):
        return None
    lists = arch_lists(torch, cuda, platform, facts.text("os.arch"), matrix)
    if len(lists) != 1:
        return Unknown(Message("no table has the build of torch {} for CUDA {}", torch, cuda))
    table = "torch-archs-windows" if platform == "windows" else "torch-archs"
    return Derived(
        tuple(lists[0]["archs"]), Message("table {} ({})", table, Message(lists[0].get("level", "declared")))
    )


@derives("torch_companion", of="torch_companion dist pkg.torch torch.cuda torch.hip pkg.* environment.kind")
def _torch_companion(facts: View, matrix: Matrix) -> Answer:
    """Tell whether torchvision, torchaudio and the like are of the build and of the release of the installed torch;
    what was given stands."""
    observed = facts.records("torch_companion")
    table = {row["name"]: row for row in matrix.rows("torch-companions", "package")}
    if not table or (observed is not None and not len(observed)):
        return None
    if observed is not None:
        chosen, incomplete = [item for item in observed if item.get("package") in table], observed.incomplete
    else:
        chosen, incomplete = _installed(table, facts)
    rows = matrix.rows("torch-builds") if chosen else ()
    items = tuple(_completed(item, table[str(item["package"])], facts, rows) for item in chosen)
    return Derived(Records(items, incomplete), Message("installed packages and the table torch-builds"))


def _installed(table: Mapping[str, Any], facts: View) -> tuple[list[Mapping[str, Value]], Message | None]:
    """Return the companions that are installed, with the torch that their own metadata asks for, where it is known."""
    installed = InstalledSet(facts.value)
    chosen: list[Mapping[str, Value]] = []
    incomplete: Message | None = None
    for name in table:
        version = facts.text(f"pkg.{name}")
        if version is not None:
            dist = next(iter(installed.get(name)), None)
            pin: dict[str, Value] = {"made_for": _required_torch(dist)} if dist is not None else {}
            if (facts.value("environment.kind") if dist is None else dist.kind) == "conda":
                pin["same_release"] = Unknown(Message("conda builds one release of it for several releases of torch"))
            chosen.append({"package": name, "version": version, **pin})
        elif facts.unknown(f"pkg.{name}"):
            incomplete = incomplete or Message("whether {} is installed is not known", name)
    return chosen, incomplete


def _required_torch(dist: Installed) -> Value:
    """Return the specifiers of the torch that it requires; absent when it asks for none, or for any."""
    if dist.kind == "conda":
        return Unknown(Message("conda's metadata is not read for it"))
    if isinstance(dist.requires, Unknown):
        return dist.requires
    try:
        requirements = (read_requirement(line) for line in dist.requires if line.startswith("torch"))
        specifiers = next((requirement.specifiers for requirement in requirements if requirement.name == "torch"), "")
    except NotARequirement as error:
        return Unknown(Message("a requirement of {} cannot be read: {}", dist.name, error))
    return specifiers.replace(" ", "") or ABSENT


def _completed(item: Mapping[str, Value], companion: Mapping[str, Any], facts: View, rows: Any) -> Mapping[str, Value]:
    row, torch = View.of(item), facts.value("pkg.torch")
    version, release = row.value("version"), _release(torch)
    build = item.get("build", _build(version))
    tag = item.get("torch_build", _torch_build(facts))
    pinned = item.get("made_for", Unknown(Message("its metadata is not known")))
    made_for = row.text("made_for") or _made_for(companion, version, rows) or pinned
    same_release = _same_release(made_for, torch, release)
    own = all(is_own_build(text) for text in (version, torch) if isinstance(text, str))
    if not own and row.text("made_for") is None:
        same_release = Unknown(Message("it is a build of somebody else's, who may pair other releases"))
    listed = next((entry.get(companion["name"]) for entry in rows if entry["key"] == release), None)
    # A patch release of torch more imports; what is installed in its place would move torch.
    is_pinned = isinstance(made_for, str) and made_for.startswith("==") and made_for != f"=={release}"
    target = _release(version) if same_release is True and not (listed and is_pinned) else listed
    suffix = f"+{tag}" if isinstance(tag, str) and target is not None else ""
    if target is None and release is not None:
        target = next((key for key, asked in companion.get("releases", {}).items() if satisfies(release, asked)), None)
    apart = item.get("apart", _apart(build, tag))
    # What was given or observed stands, but for the pin that the table replaced.
    return {
        **{"build": build, "torch_build": tag, "apart": apart, "made_for": made_for, "same_release": same_release},
        "wanted": ABSENT if target is None else target + suffix,
        **item,
        "made_for": made_for,
    }


def _build(version: Value) -> Value:
    """Return ``cu130`` of ``0.28.0+cu130``; absent when the version names none."""
    if not isinstance(version, str):
        return version
    match = _BUILD.match(version.partition("+")[2].lower())
    return match[1] if match else ABSENT


def _torch_build(facts: View) -> Value:
    if facts.absent("pkg.torch"):
        return Unknown(Message("torch is not installed"))
    tag = _build(facts.value("pkg.torch"))
    if isinstance(tag, str):
        return tag
    if cuda := facts.text("torch.cuda"):
        return "cu" + "".join(cuda.split(".")[:2])
    if hip := facts.text("torch.hip"):
        return f"rocm{hip}"
    if facts.absent("torch.cuda") and facts.absent("torch.hip"):
        return "cpu"
    return facts.unknown("torch.cuda") or Unknown(Message("nothing names the build of torch"))


def _apart(build: Value, torch_build: Value) -> Value:
    """Return how two builds differ: same, minor (version of CUDA or ROCm), major, cpu-on-gpu, or other-platform."""
    if build is ABSENT:
        return Unknown(Message("nothing names its build"))
    for tag in (build, torch_build):
        if not isinstance(tag, str):
            return tag if isinstance(tag, Unknown) else Unknown(Message("nothing names the build of torch"))
    (kind, *my_version), (torch_kind, *its_version) = _platform(str(build)), _platform(str(torch_build))
    if kind != torch_kind:
        return "cpu-on-gpu" if kind == "cpu" else "other-platform"
    if my_version[:1] != its_version[:1]:
        return "major"
    return "same" if my_version[:2] == its_version[:2] else "minor"


def _platform(build: str) -> list[str]:
    """Return ``cu130`` as cu, 13, 0; ``rocm6.4`` as rocm, 6, 4; ``cpu`` as itself."""
    if build.startswith("cu"):
        return ["cu", build[2:4], build[4:]]
    return ["rocm", *build[4:].split(".")] if build.startswith("rocm") else [build]


def _release(version: Value) -> str | None:
    """Return the release segment: 2.5.0 of 2.5.0a0+872d972e41.nv24.08."""
    return base_release(version) if isinstance(version, str) else None


def _made_for(row: Mapping[str, Any], version: Value, rows: Any) -> str | None:
    """Return the torch release by the table torch-builds, for metadata that names none; for a patch release that the
    table does not list, the one of its minor release."""
    release = _release(version)
    if release is None:
        return None
    minor = release.split(".")[:2]
    for key, asked in row.get("releases", {}).items():
        if key.split(".")[:2] == minor:
            return str(asked)
    keys = [entry["key"] for entry in rows if entry.get(row["name"]) == release]
    keys = keys or [entry["key"] for entry in rows if entry.get(row["name"], "").split(".")[:2] == minor]
    if not keys:
        return None
    since = row.get("newer_since")
    return f">={keys[0]}" if since is not None and satisfies(release, f">={since}") else f"=={keys[0]}"


def _same_release(made_for: Value, torch: Value, release: str | None) -> Value:
    """Return whether torch is of the release that was asked for. A patch release more or less is the same one: torch
    keeps its C++ interfaces within a minor release."""
    if torch is ABSENT:
        return Unknown(Message("torch is not installed"))
    if release is None:
        return torch if isinstance(torch, Unknown) else Unknown(Message("torch's version is no release"))
    if not isinstance(made_for, str):
        untold = Unknown(Message("nothing says for which torch it was made"))
        return made_for if isinstance(made_for, Unknown) else untold
    pinned = re.match(_PINNED, made_for)
    if pinned:
        return pinned[1].split(".") == release.split(".")[:2]
    try:
        return satisfies(release, made_for)
    except NotASpecifier as error:
        return Unknown(said_by(error))


@derives(
    "cuda_library",
    of="cuda_library dist pkg.* torch.cuda shared_file python.minor python.version os.platform os.arch",
)
def _cuda_library(facts: View, matrix: Matrix) -> Answer:
    """List NVIDIA's wheels with the components of the table cuda-wheels: which are there for which CUDA major, and in
    the column ``order`` how they stand to what torch pins; what was given stands."""
    observed = facts.records("cuda_library")
    components = {row["name"] for row in matrix.rows("cuda-wheels", "component")}
    if observed is not None:
        chosen, incomplete = list(observed), observed.incomplete
    else:
        installed = InstalledSet(facts.value)
        if not installed.known:
            return None
        chosen, incomplete = list(_of_dists(installed, facts)), installed.incomplete
    items = tuple({"order": _order(View.of(item)), **item} for item in chosen if item.get("component") in components)
    return Derived(Records(items, incomplete), Message("installed packages"))


def _of_dists(installed: InstalledSet, facts: View) -> Iterable[Mapping[str, Value]]:
    components: dict[str, dict[str | None, Installed]] = {}
    for items in installed:
        if (part := component_of(items[0].name)) is not None:
            components.setdefault(part[0], {}).setdefault(part[1], items[0])
    if not components:
        return
    # The CUDA major of the wheels that carry none in their name.
    telling = (next((dist.version for dist in installed.get(name)), None) for name in _TELLING)
    majors_told = (re.match(_MAJOR, version) for version in telling if isinstance(version, str))
    plain = next((match[1] for match in majors_told if match), None)
    cuda_major = (facts.text("torch.cuda") or "").partition(".")[0]
    pins = _pins(installed, facts)
    files = {str(record.value("component")): record.value("file") for record in facts.each("shared_file")}
    for component, wheels in components.items():
        by_major = {major or plain: item for major, item in wheels.items()}
        majors = sorted((major for major in by_major if major is not None), key=int)
        pinned = next((item for item in wheels.values() if pins and item.name in pins), None)
        last = by_major[majors[-1]] if majors else next(iter(wheels.values()))
        own = pinned or by_major.get(cuda_major) or last
        unknown = Unknown(Message("no wheel names the CUDA major of this one"))
        file = files.get(component, Unknown(Message("the files of its wheels are not known")))
        unpinned = Unknown(Message("what torch requires is not known"))
        yield {
            **{"component": component, "package": own.name},
            "packages": ", ".join(sorted(item.name for item in wheels.values())),
            "majors": unknown if None in by_major else ", ".join(majors),
            "installed": own.version,
            "pinned": unpinned if pins is None else pins.get(own.name, ABSENT),
            "same_files": ABSENT if len(wheels) < 2 else file,
        }


def _pins(installed: InstalledSet, facts: View) -> dict[str, str] | None:
    """Return the single versions that torch's metadata asks for, by name; None when its metadata is not known."""
    torch = next(iter(installed.get("torch")), None)
    if torch is None or isinstance(torch.requires, Unknown):
        return {} if facts.absent("pkg.torch") else None
    lines = [line for line in torch.requires if line.startswith("nvidia-")]
    values = marker_values(facts.value) if lines else {}
    counts = cache(lambda marker: not marker or holds(marker, values) is not False)
    pins: dict[str, str] = {}
    for line in lines:
        with suppress(NotARequirement, NotAMarker):
            requirement = read_requirement(line)
            pin = re.match(_PIN, requirement.specifiers.replace(" ", ""))
            if counts(requirement.marker) and pin:
                pins[requirement.name] = pin[1]
    return pins


def _order(wheel: View) -> Value:
    if wheel.absent("pinned"):
        return ABSENT
    version, pin = (dotted(wheel.text(column) or "") for column in ("installed", "pinned"))
    if version is None or pin is None:
        return Unknown(Message("the versions cannot be compared"))
    if version == pin:
        return "same"
    if version[:1] != pin[:1]:
        return "other-major"
    if version < pin:
        return "older"
    return "newer-patch" if version[:2] == pin[:2] else "newer"
