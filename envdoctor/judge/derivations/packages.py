"""Python and the installed packages: which Python they are for, which releases have no wheel, were withdrawn, …; and
what the matrix does not know: releases newer than it or never read by it, Pythons, drivers, GPUs, model types."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from envdoctor.facts.factset import InstalledSet, View
from envdoctor.facts.values import ABSENT, Records, Unknown, Unlisted, Value
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.matrix.gpu_code import gpu_named
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.released_wheels import no_wheel, tagged_any, transformers_types, wanted_here, with_wheel
from envdoctor.observe.packages.link import required
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import NotASpecifier, base_release, dotted, order, satisfies
from envdoctor.versions.requirement import is_own_build
from envdoctor.versions.wheel_tags import TARGET_KEYS, wheel_target

_TARGET = " ".join(TARGET_KEYS)
#: Compiled for one release of CPython: cp310-cp310-…
_TIED = re.compile(r"cp(3)(\d{1,3})-cp3\d{1,3}t?-")
#: The kinds of metadata on disk; a list has none.
_ON_DISK = ("dist-info", "egg-info", "conda")


@derives("python.minor", of="python.version")
def _python_minor(facts: View, matrix: Matrix) -> Answer:
    """Give what packages are compiled for, of the full version where it was not read from a folder's name."""
    release = base_release(facts.text("python.version") or "")
    if release is None or "." not in release:
        return None
    return Derived(".".join(release.split(".")[:2]), "python.version")


@derives("environment.packages_python_ok", of="environment.packages_python python.version python.implementation")
def _packages_python(facts: View, matrix: Matrix) -> Answer:
    """Tell whether the compiled packages are for this Python; true when none is for one Python only."""
    key = "environment.packages_python"
    packages, version = facts.value(key), facts.value("python.version")
    if packages is ABSENT:
        return Derived(True, Message("no package is compiled for one Python"))
    if reason := facts.unknown(key, "python.version", "python.implementation"):
        return reason
    python, target = dotted(".".join(str(version).split(".")[:2])), dotted(str(packages))
    if facts.value("python.implementation") != "cpython" or python is None or target is None:
        return Unknown(Message("only releases of CPython are compared"))
    return Derived(python == target[:2], Message("compiled packages for {}, Python {}", packages, version))


@derives("environment.installer", of="dist")
def _installer(facts: View, matrix: Matrix) -> Answer:
    """Find for which installer commands are written (conda, uv, pip): the INSTALLER that most distributions name."""
    names = [name for dist in facts.each("dist") if (name := dist.text("installer"))]
    if not names:
        return None
    name, count = Counter(sorted(names)).most_common(1)[0]
    return Derived(name, Message("INSTALLER of {} of {} distributions", count, len(facts.records("dist") or ())))


@derives("foreign_wheel environment.packages_python", of=f"dist {_TARGET}")
def _foreign_wheel(facts: View, matrix: Matrix) -> Mapping[str, Derived]:
    """Find what ``uv pip check`` calls built for a different platform, and the Python for which most of the compiled
    packages are. Only CPython on Linux with glibc is compared."""
    installed = InstalledSet(facts.value)
    if not installed.known:
        return {}
    tagged = [
        (dist, dist.tags, not others)
        for dist, *others in installed
        if isinstance(dist.tags, tuple) and dist.tags and all(tag.count("-") == 2 for tag in dist.tags)
    ]
    tied = {dist.name: match for dist, tags, _ in tagged if (match := _TIED.match(tags[0]))}
    # The Python for which most of them are, torch among them where it is compiled for one.
    releases = {name: f"{match[1]}.{match[2]}" for name, match in tied.items()}
    packages: Value = ABSENT
    for release, count in Counter(releases.values()).most_common(1):
        mixed = 2 * count <= len(releases) or releases.get("torch", release) != release
        packages = Unknown(Message("packages compiled for several releases of Python are mixed")) if mixed else release
    target = wheel_target(facts.value)
    if target is None or target.system not in ("linux", None):
        foreign: Value = Unknown(Message("the tags of installed wheels are compared for CPython 3 on Linux with glibc"))
    else:
        foreign = Records(
            tuple(
                {
                    "package": dist.name,
                    "version": dist.version if isinstance(dist.version, str) else ABSENT,
                    "built_for": reason,
                    "tag": tags[0],
                    "loads": not (single and target.cannot_load(tags)),
                    "listed": dist.kind not in _ON_DISK,
                }
                for dist, tags, single in tagged
                if (reason := target.misses(tags[0])) is not None and all(target.misses(tag) for tag in tags)
            ),
            installed.incomplete
            or (None if target.known else Message("the Python, the system or the C library is not known")),
        )
    return {
        "foreign_wheel": Derived(foreign, Message("WHEEL files")),
        "environment.packages_python": Derived(packages, Message("WHEEL files")),
    }


@derives("no_wheel", of=f"dist pkg.* python.version torch.cuda {_TARGET}")
def _without_wheel(facts: View, matrix: Matrix) -> Answer:
    """List releases that have no wheel for this Python, system, C library or torch, with the nearest that have, of
    packages known by version alone: where a wheel is known, its own tags say what it is for (``foreign_wheel``)."""
    installed, situation = InstalledSet(facts.value), wanted_here(facts.value)
    dists = (dist for several in installed for dist in several)
    tagged = {dist.name for dist in dists if dist.kind in _ON_DISK or not isinstance(dist.tags, Unknown)}
    versions = {name: facts.value(f"pkg.{name}") for name in matrix.ledger.every() if name not in tagged}
    releases = {name: version for name, version in versions.items() if isinstance(version, str)}
    if situation is None:
        reason = Unknown(Message("wheels are compared for CPython 3 on Linux with glibc, Windows and macOS"))
        return reason if releases else Derived(Records(()), "")
    items: list[Mapping[str, Value]] = []
    for name, version in releases.items():
        if isinstance(lacks := no_wheel(matrix, name, version, situation), str):
            older, newer = with_wheel(matrix, name, version, situation)
            near = ", ".join(filter(None, (older, newer))) or ABSENT
            columns: dict[str, Value] = {"package": name, "version": version, "lacks": lacks}
            columns["installs"] = bool(tagged_any(matrix, name, version))
            items.append({**columns, "older": older or ABSENT, "newer": newer or ABSENT, "nearest": near})
    unknown = next((name for name, version in versions.items() if isinstance(version, Unknown)), None)
    incomplete = Message("the version of {} is not known", unknown) if unknown is not None else None
    if releases and not situation.target.known:
        incomplete = Message("the Python, the system or the C library is not known")
    return Derived(Records(tuple(items), incomplete), Message("the ledger, the table torch-wheels"))


def _of_conda(facts: View) -> set[Value]:
    """Return the packages that conda brings, in builds of its own."""
    return {row.value("name") for row in facts.each("dist") if "conda" in (row.value("kind"), row.value("installer"))}


@derives("withdrawn", of="pkg.* dist")
def _withdrawn(facts: View, matrix: Matrix) -> Answer:
    """List installed releases that their makers withdrew; open while the version of one of the table is not known.
    Conda's builds are its own, and were not withdrawn."""
    of_conda = _of_conda(facts)
    releases = {(row["package"], row["version"]): row for row in matrix.rows("withdrawn-releases", "release")}
    items: list[Mapping[str, Value]] = []
    incomplete: Message | None = None
    for package in dict.fromkeys(package for package, _ in releases if package not in of_conda):
        installed = facts.value(f"pkg.{package}")
        if facts.unknown(f"pkg.{package}"):
            incomplete = incomplete or Message("the version of {} is not known", package)
        elif entry := releases.get((package, str(installed).partition("+")[0])):
            columns = {"harm": entry["harm"], "reason": Message(str(entry["reason"])), "instead": entry["instead"]}
            items.append({"package": package, "version": installed, **columns})
    return Derived(Records(tuple(items), incomplete), Message("the table withdrawn-releases"))


@derives("numpy_binary", of="pkg.* dist")
def _numpy_binary(facts: View, matrix: Matrix) -> Answer:
    """List packages whose compiled files are for NumPy 1 only; but not conda's, which are built anew for NumPy 2 under
    the same version."""
    items: list[Mapping[str, Value]] = []
    incomplete: Message | None = None
    of_conda = _of_conda(facts)
    for row in matrix.rows("numpy-2-builds", "package"):
        name, first = row["name"], row["first"]
        installed = facts.value(f"pkg.{name}")
        if installed is ABSENT:
            continue
        try:
            older = not isinstance(installed, Unknown) and satisfies(str(installed), f"<{first}")
        except NotASpecifier:
            installed, older = Unknown(Message("it is no version")), False
        if isinstance(installed, Unknown):
            incomplete = incomplete or Message("the version of {} is not known", name)
        elif older and name not in of_conda:
            items.append({"package": name, "version": installed, "first": first})
    return Derived(Records(tuple(items), incomplete), Message("the table numpy-2-builds"))


_Item = tuple[str, str, str | None]
_CPYTHON = re.compile(r"cp3(\d+)-")


@derives(
    "beyond",
    of="dist pkg.* python.minor driver.max_cuda torch.cuda gpu model.type model.family model.run_by recipe.attn",
)
def _beyond(facts: View, matrix: Matrix) -> Answer:
    """Give ``beyond``: what the tables and the ledger do not reach. Facts that are unknown are left out."""
    items: tuple[Mapping[str, Value], ...] = tuple(
        {"what": kind, "value": version, "known_to": ABSENT if limit is None else limit}
        for part in (_packages, _listed, _machine, _run)
        for kind, version, limit in part(facts, matrix)
    )
    return Derived(Records(items), Message("the ledger and the tables"))


def _packages(facts: View, matrix: Matrix) -> Iterator[_Item]:
    for name in matrix.ledger.packages():
        installed = facts.text(f"pkg.{name}")
        if installed is None:
            continue
        released, place = matrix.ledger.package(name), order(public := installed.partition("+")[0])
        places = {entry.version: order(entry.version) for entry in released.releases} if released is not None else {}
        newest = next(reversed(places), None)
        if place is not None and newest is not None and (last := places[newest]) is not None and place > last:
            yield name, installed, newest
        elif place is None or not is_own_build(installed) or (public not in places and place not in places.values()):
            yield name, installed, None


def _listed(facts: View, matrix: Matrix) -> Iterator[_Item]:
    """Yield packages of an open list whose requirements neither the list nor the ledger has: they may refuse the chosen
    releases. Packages that known ones bring along are left out, like CUDA's libraries."""
    dists = facts.records("dist")
    items = dists.items if dists is not None and dists.incomplete else ()
    brought = {name for item in items for name in required(item)}
    for item in items:
        name, version = str(item.get("name")), View.of(item).text("version")
        unknown = isinstance(item.get("requires"), Unknown) and matrix.ledger.package(name) is None
        if unknown and name not in brought:
            yield name, version or "*", None


def _machine(facts: View, matrix: Matrix) -> Iterator[_Item]:
    torch, rows = matrix.ledger.package("torch"), matrix.rows("cuda-drivers")
    wheels = torch.items("wheels", "*", torch.releases[-1].version) if torch is not None and torch.releases else ()
    minors = map(int, _CPYTHON.findall(" ".join(wheels)) if isinstance(wheels, tuple) else ())
    newest_python = f"3.{max(minors, default=0)}" if torch is not None else None
    newest_cuda = rows[-1]["key"] if rows else None
    for kind, key, limit in (
        ("Python", "python.minor", newest_python),
        ("CUDA of the driver", "driver.max_cuda", newest_cuda),
        ("CUDA of torch", "torch.cuda", newest_cuda),
    ):
        version = facts.text(key)
        if version is not None and limit and (dotted(version) or ()) > (dotted(limit) or ()):
            yield kind, version, limit
    codes = {row["cc"] for table in ("gpus", "gpu-series") for row in matrix.rows(table)}
    for gpu in facts.each("gpu") if codes else ():
        name, cc = gpu.text("name"), gpu.text("cc")
        if cc is not None and cc not in codes:
            yield "GPU", f"{name} (compute capability {cc})" if name is not None else cc, None
        elif name is not None and cc is None and not gpu_named(name, matrix):
            yield "GPU", name, None


def _run(facts: View, matrix: Matrix) -> Iterator[_Item]:
    kind, types = facts.text("model.type"), transformers_types(matrix)
    by_name = facts.text("model.family") is not None or facts.value("model.run_by") in ("engine", "trainer")
    if kind is not None and not by_name and types.since(kind) is None and not types.is_never(kind):
        yield "model type", kind, None
    attn = facts.value("recipe.attn")
    if isinstance(attn, Unlisted):
        yield "attention", attn.word, None
