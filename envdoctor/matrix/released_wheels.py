"""Whether a release has a wheel for an environment, and which other releases have: by the ledger, by the torch that a
release was compiled for, and by the table torch-wheels for packages whose wheels are not on PyPI."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from envdoctor.facts.factset import View
from envdoctor.facts.values import Unknown, Value
from envdoctor.matrix.ledger import Release, Released
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message, said_by
from envdoctor.versions.pep440 import NotASpecifier, Order, base_release, order, same_start, satisfies
from envdoctor.versions.wheel_tags import WheelTarget, wheel_target


class _WantedWheel(NamedTuple):
    """What wheels are wanted for. ``python`` is the whole version, ``torch`` and ``cuda`` are those that are installed;
    None for what is not known or not there."""

    target: WheelTarget
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None


class Gap(NamedTuple):
    """``lacks``: for what a release has no wheel (``Python 3.13 on Linux x86_64``, ``torch 2.6``). ``source``: it has
    an sdist, from which installers would build it."""

    lacks: str
    source: bool


def wanted_here(value: Callable[[str], Value]) -> _WantedWheel | None:
    """Read the wanted wheel from the facts of an environment; None if its wheels are not compared."""
    target = wheel_target(value)
    python, torch, cuda = map(View(value).text, ("python.version", "pkg.torch", "torch.cuda"))
    return None if target is None else _WantedWheel(target, base_release(python) if python else None, torch, cuda)


def release_named(matrix: Matrix, name: str, version: str) -> Release | None:
    """Return a release in the ledger; None for one that it does not list, and for builds with a local tag."""
    package, key = matrix.ledger.package(name), order(version)
    return None if package is None or key is None or "+" in version else listed_releases(package).get(key)


def no_wheel(matrix: Matrix, name: str, version: str, wanted: _WantedWheel) -> Gap | Unknown | None:
    """Return why a release of PyPI has no wheel for what is wanted; None if it has one. Unknown for packages and
    releases that the ledger does not list, builds with a local tag, and packages that never had wheels."""
    package, release = matrix.ledger.package(name), release_named(matrix, name, version)
    if package is None or release is None:
        return Unknown(Message("the ledger does not list it"))
    return _gap(matrix, package, release, wanted)


def with_wheel(matrix: Matrix, name: str, version: str, wanted: _WantedWheel) -> tuple[str | None, str | None]:
    """Return the nearest release before a version and the nearest one after it that have a wheel for what is wanted."""
    package, key = matrix.ledger.package(name), order(version)
    if package is None or key is None:
        return None, None

    def fits(release: Release) -> bool:
        for_python = wanted.python is None or satisfies(wanted.python, release.requires_python)
        return not release.yanked and for_python and _gap(matrix, package, release, wanted) is None

    listed = listed_releases(package).items()
    older = (release.version for place, release in reversed(listed) if place < key and fits(release))
    newer = (release.version for place, release in listed if place > key and fits(release))
    return next(older, None), next(newer, None)


def _gap(matrix: Matrix, package: Released, release: Release, wanted: _WantedWheel) -> Gap | Unknown | None:
    files = files_for(package, release.version, wanted.target)
    if files is None:
        return _elsewhere(matrix, package.name, release.version, wanted)
    lacks, source = files
    if lacks is not None:
        return Gap(lacks, source)
    # It works with the torch that it was compiled against; torch's companions have a comparison of their own.
    extensions, companions = (
        {row["name"] for row in matrix.rows(table, "package")} for table in ("torch-extensions", "torch-companions")
    )
    if wanted.torch is None or package.name not in extensions - companions:
        return None
    made_for = (one for one in package.requires(release.version) if one.name == "torch" and not one.marker)
    specifiers = next((one.specifiers for one in made_for if one.specifiers), None)
    torch = order(wanted.torch)
    if specifiers is None:
        return Unknown(Message("it does not say for which torch it was compiled"))
    if torch is None or torch.is_pre:
        return Unknown(Message("a build of torch between its releases"))
    try:
        # torch keeps its C++ interfaces within a minor release.
        is_pinned = specifiers.startswith("==") and "," not in specifiers and "*" not in specifiers
        pinned = (
            same_start(specifiers.strip("= "), wanted.torch, 2) if is_pinned else satisfies(wanted.torch, specifiers)
        )
        return None if pinned else Gap(f"torch {_minor(wanted.torch)}", source)
    except NotASpecifier as error:
        return Unknown(said_by(error))


# The same is asked again for every change that is tried.


@lru_cache(maxsize=256)
def listed_releases(package: Released) -> dict[Order, Release]:
    """Return the releases by the keys they are ordered by."""
    return {key: release for release in package.releases if (key := order(release.version)) is not None}


@lru_cache(maxsize=256)
def _spans(package: Released) -> tuple[list[tuple[int, int, str]], dict[str, int]]:
    """Return the files of a package with the places of the first and last release that have them; places by release."""
    places = {release.version: place for place, release in enumerate(package.releases)}
    found = package.items_of("wheels", "*")
    return [(places[since], places[until] if until else len(places), file) for _, file, since, until in found], places


@lru_cache(maxsize=1 << 14)
def files_for(package: Released, version: str, target: WheelTarget) -> tuple[str | None, bool] | None:
    """Return what the wheels of a release lack for a target, and whether it has an sdist. None if it has no wheels, or
    on Linux only wheels for other systems beside its source: then the source is what is released for Linux."""
    spans, places = _spans(package)
    files = [file for since, until, file in spans if since <= places[version] <= until]
    tags, source = [file for file in files if file.count("-") == 2 and " " not in file], "sdist" in files
    as_source = source and target.system == "linux" and WheelTarget(system="linux").lacks(tags) is not None
    return (target.lacks(tags), source) if tags and not as_source else None


def _elsewhere(matrix: Matrix, name: str, version: str, wanted: _WantedWheel) -> Gap | Unknown | None:
    """Like :func:`no_wheel`, for a package that has only source on PyPI, by the table torch-wheels."""
    table = matrix.rows("torch-wheels")
    rows = [row for row in table if row["package"] == name and satisfies(version, row["versions"])]
    version_of_torch = order(wanted.torch or "")
    if not rows or wanted.torch is None or version_of_torch is None or version_of_torch.is_pre:
        return Unknown(Message("it is built from source everywhere, or for a torch that is not known"))
    builds: list[Mapping[str, Any]] = rows[0]["builds"]
    target, torch, major = wanted.target, _minor(wanted.torch), (wanted.cuda or "").partition(".")[0]
    if target.system not in (None, "linux"):
        return Gap(target.lacks(["py3-none-linux_x86_64"]) or "", True)
    said = f"torch {torch}"
    builds = [build for build in builds if build["torch"] == torch]
    for words, column, value in (
        (f" for CUDA {major}", "cuda", major),
        (f" on {target.machine}", "machine", target.machine or ""),
        (f" with Python 3.{target.minor}", "python", f"3.{target.minor}" if target.minor else ""),
    ):
        if builds and value:
            builds = [build for build in builds if value in build[column]]
            said += words
    return None if builds else Gap(said, True)


def _minor(version: str) -> str:
    return ".".join(version.partition("+")[0].split(".")[:2])
