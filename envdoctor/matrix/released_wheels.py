"""Tell whether a release has a wheel for an environment, and which other releases have: by the ledger, by the torch
that a release was compiled for, and by the table torch-wheels for packages whose wheels are not on PyPI. And find the
releases that know a name, by tables of first and last releases: model types of transformers
(transformers-model-types), families of models of serving engines and trainers (framework-models)."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from envdoctor.facts.factset import View
from envdoctor.facts.values import Unknown, Value
from envdoctor.matrix.ledger import Release, Released
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message, said_by
from envdoctor.versions.pep440 import NotASpecifier, base_release, order, same_start, satisfies
from envdoctor.versions.wheel_tags import WheelTarget, wheel_target


class _WheelSituation(NamedTuple):
    """The environment that wheels must fit. ``python`` is the whole version, ``torch`` and ``cuda`` are the installed
    ones; each None if unknown or missing."""

    target: WheelTarget
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None


def wanted_here(value: Callable[[str], Value]) -> _WheelSituation | None:
    """Read the situation from the facts of an environment; None if its wheels are not compared."""
    target = wheel_target(value)
    python, torch, cuda = map(View(value).text, ("python.version", "pkg.torch", "torch.cuda"))
    return None if target is None else _WheelSituation(target, base_release(python) if python else None, torch, cuda)


def no_wheel(matrix: Matrix, name: str, version: str, situation: _WheelSituation) -> str | Unknown | None:
    """Return what a release of PyPI has no wheel for (``Python 3.13 on Linux x86_64``, ``torch 2.6``); None if it has
    one for the situation. Unknown for packages and releases that the ledger does not list, builds with a local tag, and
    packages that never had wheels."""
    package, release = matrix.ledger.package(name), matrix.ledger.release(name, version)
    if package is None or release is None or "+" in version:
        return Unknown(Message("the ledger does not list it"))
    return _gap(matrix, package, release, situation)


def tagged_any(matrix: Matrix, name: str, version: str) -> list[str]:
    """Return the tag that the compiled files of a wheel for any system are for, by the table any-wheels, in a list;
    empty for other releases."""
    rows = matrix.rows("any-wheels")
    return [row["holds"] for row in rows if row["package"] == name and satisfies(version, row["versions"])]


def with_wheel(matrix: Matrix, name: str, version: str, situation: _WheelSituation) -> tuple[str | None, str | None]:
    """Return the nearest release before a version, and the nearest one after it, with a wheel for the situation; if no
    release is known to be for its torch, and the version lacks the system too, those with a wheel for any torch."""
    package, key = matrix.ledger.package(name), order(version)
    if package is None or key is None:
        return None, None

    def fits(release: Release) -> bool:
        for_python = situation.python is None or satisfies(situation.python, release.requires_python)
        return not release.yanked and for_python and _gap(matrix, package, release, situation) is None

    listed = package.by_order.items()
    older = (release.version for place, release in reversed(listed) if place < key and fits(release))
    newer = (release.version for place, release in listed if place > key and fits(release))
    nearest, anywhere = (next(older, None), next(newer, None)), situation._replace(torch=None)
    if (
        nearest != (None, None)
        or situation.torch is None
        or not isinstance(no_wheel(matrix, name, version, anywhere), str)
    ):
        return nearest
    return with_wheel(matrix, name, version, anywhere)


def _gap(matrix: Matrix, package: Released, release: Release, situation: _WheelSituation) -> str | Unknown | None:
    files = files_for(package, release.version, situation.target)
    if files is None:
        return _elsewhere(matrix, package.name, release.version, situation)
    lacks = files[0] or situation.target.lacks(tagged_any(matrix, package.name, release.version))
    if lacks is not None:
        return lacks
    # It works with the torch that it was compiled against; torch's companions have a comparison of their own.
    extensions, companions = (
        {row["name"] for row in matrix.rows(table, "package")} for table in ("torch-extensions", "torch-companions")
    )
    if situation.torch is None or package.name not in extensions - companions:
        return None
    made_for = (need for need in package.requires(release.version) if need.name == "torch" and not need.marker)
    specifiers = next((need.specifiers for need in made_for if need.specifiers), None)
    torch = order(situation.torch)
    if specifiers is None:
        return Unknown(Message("it does not say for which torch it was compiled"))
    if torch is None or torch.is_pre:
        return Unknown(Message("a build of torch between its releases"))
    try:
        # torch keeps its C++ interfaces within a minor release.
        is_pin = specifiers.startswith("==") and "," not in specifiers and "*" not in specifiers
        pinned = (
            same_start(specifiers.strip("= "), situation.torch, 2) if is_pin else satisfies(situation.torch, specifiers)
        )
        first = None if is_pin else matrix.ledger.release("torch", f"{_minor(situation.torch)}.0")
        if pinned and first is not None and release.date < first.date:
            return Unknown(Message("it is from before this torch, for which it cannot be compiled"))
        return None if pinned else f"torch {_minor(situation.torch)}"
    except NotASpecifier as error:
        return Unknown(said_by(error))


#: A tag that is for no system.
_OTHER = "py3-none-another"


def _is_plain(file: str) -> bool:
    return file.count("-") == 2 and " " not in file


# The same is asked again for every change that is tried.


@lru_cache(maxsize=256)
def _spans(package: Released) -> tuple[list[tuple[int, int, str]], dict[str, int]]:
    """Return the files of a package with the places of the first and last release that have them; places by release."""
    places = {release.version: place for place, release in enumerate(package.releases)}
    items = package.items_of("wheels", "*")
    return [(places[since], places[until] if until else len(places), file) for _, file, since, until in items], places


@lru_cache(maxsize=1 << 14)
def files_for(package: Released, version: str, target: WheelTarget) -> tuple[str | None, bool] | None:
    """Return what a release's wheels lack for a target, and whether it has an sdist. None if it has only source and
    no release has compiled wheels for that system, or only wheels for other systems than Linux beside its source: then
    Linux gets the source."""
    spans, places = _spans(package)
    files = [file for since, until, file in spans if since <= places[version] <= until]
    tags, source = list(filter(_is_plain, files)), "sdist" in files
    compiled = [file for *_, file in spans if _is_plain(file) and not file.endswith("-any")]
    system = WheelTarget(system=target.system, machine=target.machine)
    if files == ["sdist"] and compiled and target.system and system.lacks(compiled) is None:
        return target.lacks([_OTHER]), source
    as_source = source and target.system == "linux" and WheelTarget(system="linux").lacks(tags) is not None
    return (target.lacks(tags), source) if tags and not as_source else None


def _elsewhere(matrix: Matrix, name: str, version: str, situation: _WheelSituation) -> str | Unknown | None:
    """Like :func:`no_wheel`, for a package that has only source on PyPI, by the table torch-wheels."""
    table = matrix.rows("torch-wheels")
    rows = [row for row in table if row["package"] == name and satisfies(version, row["versions"])]
    version_of_torch = order(situation.torch or "")
    if not rows or situation.torch is None or version_of_torch is None or version_of_torch.is_pre:
        return Unknown(Message("it is built from source everywhere, or for a torch that is not known"))
    builds: list[Mapping[str, Any]] = rows[0]["builds"]
    target, torch, major = situation.target, _minor(situation.torch), (situation.cuda or "").partition(".")[0]
    if target.system not in (None, "linux"):
        return target.lacks(["py3-none-linux_x86_64"]) or ""
    text = f"torch {torch}"
    builds = [build for build in builds if build["torch"] == torch]
    for words, column, value in (
        (f" for CUDA {major}", "cuda", major),
        (f" on {target.machine}", "machine", target.machine or ""),
        (f" with Python 3.{target.minor}", "python", f"3.{target.minor}" if target.minor else ""),
    ):
        if builds and value:
            builds = [build for build in builds if value in build[column]]
            text += words
    return None if builds else text


def _minor(version: str) -> str:
    return ".".join(version.partition("+")[0].split(".")[:2])


class KnownNames:
    """The names that releases know. ``table`` has them by the first release that knows them (``since``, oldest first),
    and by the first that does no more (``until``); ``fallback`` is the first release that runs others too."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._since, self._until, self._fallback = table.get("since", {}), table.get("until", {}), table.get("fallback")
        self._never = table.get("never", {}).get("names", ())
        self._oldest = next(iter(self._since), "")

    def is_never(self, name: str) -> bool:
        """Return whether no release knows it, although many models have it."""
        return name in self._never

    def since(self, name: str) -> str | None:
        """Return the first release that knows it; None for a name that the table does not list."""
        return next((str(release) for release, names in self._since.items() if name in names), None)

    def releases(self, name: str) -> str | None:
        """Return the releases that know it as a range, ``>=4.33,<5.6``; an empty text for all of them, None if no
        release does. The oldest release of the table stands for all before it too."""
        since = self.since(name)
        low = [f">={since}"] if since != self._oldest else []
        high = [f"<{release}" for release, names in self._until.items() if name in names]
        return None if since is None else ",".join(low + high)

    def has(self, name: str, installed: str) -> bool | Unknown:
        """Return whether a release knows it. A development version has what its release has."""
        releases, release = self.releases(name), base_release(installed)
        if releases is None or release is None:
            return Unknown(Message("the table has no such name, or no such release"))
        if self.since(name) == self._oldest and satisfies(release, f"<{self._oldest}"):
            return Unknown(Message("the table begins with a later release"))
        return satisfies(release, releases)

    def required(self, name: str, installed: str | None) -> str | None:
        """Return the releases that a name asks for; None if unknown, or if the installed release runs it all the same,
        with transformers' classes."""
        releases, release = self.releases(name), base_release(installed or "")
        runs_others = releases and release and self._fallback and satisfies(release, f">={self._fallback}")
        return None if runs_others and not satisfies(str(release), str(releases)) else releases


def transformers_types(matrix: Matrix) -> KnownNames:
    """Return the model types that releases of transformers register."""
    return KnownNames(matrix.table("transformers-model-types"))
