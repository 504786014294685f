"""What one install command asks for, the releases of the ledger as an installer sees them, and why it refuses."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from envdoctor.matrix.ledger import Ledger, Release, Released
from envdoctor.matrix.released_wheels import files_for, listed_releases
from envdoctor.versions.marker import NotAMarker, holds
from envdoctor.versions.pep440 import NotASpecifier, order, satisfies
from envdoctor.versions.requirement import Requirement
from envdoctor.versions.wheel_tags import WheelTarget

#: Higher than the release of any package: specifiers that allow it allow releases that the ledger does not know yet.
_FUTURE = "99999"
#: A specifier that names a pre-release allows others, which the ledger does not list.
_PRE_RELEASE = r"\d\.?(?:a|b|rc|dev)\d*\s*(?:,|\Z)"
#: A row of a table of the matrix.
Row = Mapping[str, str]


class AskedRequirement(NamedTuple):
    """One requirement, and who asks: a line (``requirements.txt:3``) or a release (``vllm 0.6.3``). A line may have a
    ``marker``, and a ``url`` where it is taken from an address."""

    name: str
    extras: tuple[str, ...]
    specifiers: str
    by: str
    marker: str = ""
    url: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.specifiers} ({self.by})"

    @property
    def pin(self) -> str | None:
        """Return the one version that is allowed; None for a range."""
        return exact(self.specifiers)


class LedgerStep(NamedTuple):
    """What one command installs. ``limits`` are constraints; ``deps``: what the packages require comes along;
    ``upgrade``: named packages are taken new; ``elsewhere``: an index beside PyPI is named, or a folder of files, and
    ``given`` are packages that come from elsewhere even so. ``overrides`` replace what others ask of the same packages;
    ``unseen``: any package may be there before, in a version that nobody tells; ``loose`` are those that are there in
    such a version and are moved where it does not fit, with the specifiers that it certainly meets; ``checkouts`` are
    those that come from a repository or a folder, with the tag that is named. ``newest``: of these it is the
    default branch of their maintainers; ``kept`` are installed packages whose requirements count where they stay."""

    asked: tuple[AskedRequirement, ...]
    limits: tuple[AskedRequirement, ...] = ()
    deps: bool = True
    upgrade: bool = False
    elsewhere: bool = False
    overrides: tuple[AskedRequirement, ...] = ()
    given: frozenset[str] = frozenset()
    unseen: bool = False
    loose: Mapping[str, str] = {}
    checkouts: Mapping[str, str] = {}
    newest: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    def other(self, name: str) -> bool:
        """Return whether a package may come from elsewhere than PyPI."""
        return self.elsewhere or name in self.given


class TakingSituation(NamedTuple):
    """Where it is installed: the variables of markers, the whole Python, its wheels, and the day (``2024-05-01``)
    after which nothing is taken."""

    markers: Mapping[str, str | None]
    python: str
    target: WheelTarget
    until: str = ""


class TakingRefusal(NamedTuple):
    """Why an installer refuses. ``kind``: conflict, python, file, release, index, lacking, folder, name, build,
    source;
    ``asked`` is who asks for what, ``lacks`` for what there is no file, ``next`` the next release that has one."""

    kind: str
    package: str
    version: str
    asked: str
    lacks: str = ""
    next: str = ""


class Candidate(NamedTuple):
    """A release that may be taken; the version is "" for a package that the ledger does not know."""

    name: str
    extras: tuple[str, ...]
    version: str


class Solution(NamedTuple):
    """The version of every package after a step ("" where the ledger does not know it), and the ``clauses`` of
    specifiers that it meets."""

    versions: Mapping[str, str]
    clauses: Mapping[str, frozenset[str]]


class PackageReleases:
    """The releases of the ledger as an installer sees them in a situation.

    A release whose requirements were not read is taken to require what the nearest one that was read before it does,
    or the nearest one behind it (``behind``); of those before the first that was read, floors do not count, for they
    rise. A checkout may be the newest release, or as old as the list (``written``: the day of the newest release that
    it pins). ``guessed`` are the packages of which these two asked differently so far. ``certain``: of such a release
    only what both require counts.
    """

    def __init__(
        self, ledger: Ledger, situation: TakingSituation, behind: bool = False, written: str = "", certain: bool = False
    ) -> None:
        self._ledger, self.situation, self._behind, self._written = ledger, situation, behind, written
        self._certain = certain
        self.guessed: set[str] = set()
        #: The releases of a known package that specifiers allow, whatever the Python, and those that an installer takes
        #: unasked, both the newest first; what a release requires here, without unknown requirements.
        self.allowed, self.fitting, self._known = cache(self._allows), cache(self._fits), cache(self._is_known)
        self.required = cache(lambda one: tuple(self._read(one)))

    def certainly(self) -> "PackageReleases":
        """Return the same releases, of which only what is certain counts."""
        return PackageReleases(self._ledger, self.situation, written=self._written, certain=True)

    def package(self, name: str) -> Released | None:
        """Return the package if the ledger knows its releases."""
        return self._ledger.package(name)

    def known(self, asked: AskedRequirement) -> bool:
        """Return whether the ledger can tell which releases are meant: not for those newer or older than itself."""
        return self._known(asked._replace(extras=(), by="", marker="", url=""))

    def _is_known(self, asked: AskedRequirement) -> bool:
        package = self.package(asked.name)
        if package is None or all(one.yanked for one in package.releases):
            return False  # or there are but pre-releases
        pin, oldest, newest = (order(asked.pin or ""), *(order(package.releases[at].version) for at in (0, -1)))
        if pin is not None:
            return oldest is not None and newest is not None and oldest <= pin <= newest
        is_future = allows(asked.specifiers, _FUTURE) or re.search(_PRE_RELEASE, asked.specifiers) is not None
        return not is_future or bool(self.allowed(asked.name, asked.specifiers))

    def _allows(self, name: str, specifiers: str) -> list[str]:
        releases = reversed(getattr(self.package(name), "releases", ()))
        return [one.version for one in releases if allows(specifiers, one.version)]

    def _fits(self, name: str, elsewhere: bool) -> list[str]:
        releases = reversed(getattr(self.package(name), "releases", ()))
        versions = [one.version for one in releases if not one.yanked]
        return [one for one in versions if self.why_not(name, one, elsewhere) is None]

    def like(self, name: str, tag: str) -> list[str]:
        """Return the releases whose requirements a checkout may have, the likeliest first: that of its tag; else the
        newest, or (``written``) the newest of the day when the list was written, because a fork is as old."""
        fitting = self.fitting(name, True)
        tagged = [one for one in fitting if one == tag.removeprefix("v")]
        dates = {release.version: release.date for release in getattr(self.package(name), "releases", ())}
        return tagged or sorted(fitting, key=lambda one: bool(self._written) and dates[one] > self._written)

    def why_not(self, name: str, version: str, elsewhere: bool) -> tuple[str, str] | None:
        """Return why a listed release is not taken here (``python``, ``file`` or ``date``), and what it lacks."""
        package, situation = self.package(name), self.situation
        release = listed(package, version)
        if package is None or release is None:
            return None
        if situation.until and release.date > situation.until:
            return "date", release.date
        if not allows(release.requires_python, situation.python):
            return "python", release.requires_python
        lacks, source = (not elsewhere and files_for(package, release.version, situation.target)) or (None, True)
        return ("file", lacks) if lacks and not source else None

    def is_built(self, name: str, version: str) -> bool:
        """Return whether a release is built from its source here, because it has no wheel for this target. True for a
        package that the ledger does not know: only packages without wheels are asked for."""
        package = self.package(name)
        release = listed(package, version)
        if package is None or release is None:
            return package is None
        files = files_for(package, release.version, self.situation.target)
        return files is None or files[0] is not None

    def _read(self, one: Candidate) -> Iterator[AskedRequirement]:
        package, (release, _, build) = self.package(one.name), one.version.partition("+")
        near = package.neighbours(release) if package is not None and release else (None, None)
        read = near[1 if self._behind else 0]
        unlike: set[Requirement] = set()
        required = tuple(package.requires(read, one.extras)) if package is not None and read else ()
        if package is not None and near[0] != near[1]:
            before, behind = (set(package.requires(side, one.extras)) if side else set() for side in near)
            unlike = before ^ behind
            self.guessed.update(wanted.name for wanted in unlike)
            if self._certain:
                required = tuple(each for each in required if each not in unlike)
        by = f"{one.name} {one.version}"
        for wanted in required:
            if build and "platform" in wanted.marker:
                continue  # CUDA libraries of PyPI's own build
            if any(self._counts(wanted, extra) for extra in ("", *one.extras)):
                pinned = wanted in unlike and wanted.specifiers.lstrip().startswith("==")
                own = "" if pinned else wanted.specifiers  # each release pins another: that of a neighbour says nothing
                if not near[0]:
                    own = ",".join(clause for clause in own.split(",") if clause.strip().startswith(("<", "!=")))
                yield AskedRequirement(wanted.name, wanted.extras, own, by)

    def _counts(self, wanted: Requirement, extra: str) -> bool:
        try:
            return not wanted.marker or holds(wanted.marker, {**self.situation.markers, "extra": extra}) is True
        except NotAMarker:
            return False


def refusals(
    releases: PackageReleases, step: LedgerStep, build_first: Iterable[Row], *, unsure: bool = False
) -> Iterator[TakingRefusal]:
    """Yield why single lines of a step are refused, whatever the others ask. ``build_first`` are the rows of packages
    whose source is built with another package, which must be there before: ``unsure`` whether it is, if no line
    names it."""
    rows = {row["name"]: row for row in build_first}
    for asked in step.asked:
        version, package = asked.pin, releases.package(asked.name)
        if version is None or package is None or not releases.known(asked) or asked.name in step.loose:
            continue  # what is there in an unknown release may be the one that is asked for
        release, _, build = version.partition("+")
        one, key, other = listed(package, release), order(release), step.other(asked.name)
        if build and not other and not step.unseen:
            yield TakingRefusal("index", asked.name, version, str(asked))
        elif one is None and key is not None and not key.is_pre and not other:
            yield TakingRefusal("release", asked.name, version, str(asked))
        elif one is not None and (why := releases.why_not(asked.name, release, other or bool(build) or step.unseen)):
            later = [one for one in releases.fitting(asked.name, False) if (order(one) or key) > key] if key else []
            pin = f"{asked.name}=={later[-1]}" if later else ""
            yield TakingRefusal(why[0], asked.name, version, str(asked), why[1], pin)
    for asked in step.asked:
        row = None if step.other(asked.name) or step.unseen else rows.get(asked.name)
        version = asked.pin or next((one for one in releases.fitting(asked.name, False) if row), "")
        if row and allows(row["versions"], version or _FUTURE) and releases.is_built(asked.name, version):
            kind = "before" if unsure and all(one.name != row["needs"] for one in step.asked) else "build"
            yield TakingRefusal(kind, asked.name, version, str(asked), row["needs"])


def misnamed(step: LedgerStep, rows: Iterable[Row]) -> Iterator[TakingRefusal]:
    """Yield names that PyPI has only to refuse them, or not at all; a row says what is meant."""
    by_name = {row["name"]: row for row in rows}
    for asked in step.asked:
        row = None if step.other(asked.name) else by_name.get(asked.name)
        if row and allows(row["versions"], asked.pin or _FUTURE):
            yield TakingRefusal("name", asked.name, "", str(asked), row["meant"])


def failing(
    releases: PackageReleases, step: LedgerStep, taken: Mapping[str, str], rows: Iterable[Row]
) -> Iterator[TakingRefusal]:
    """Yield what is taken and has to be built from a source that does not build (a row says with what)."""
    asked = {one.name: str(one) for one in step.asked}
    for row in rows:
        name, python = row["name"], releases.situation.python
        version = taken.get(name, "")
        if order(version) is None or step.other(name) or not allows(row.get("python", ""), python):
            continue
        if allows(row["versions"], version) and releases.is_built(name, version):
            yield TakingRefusal("source", name, version, asked.get(name, f"{name} {version}"), row["fails"])


def listed(package: Released | None, version: str) -> Release | None:
    """Return the ledger's release of this version; None if it does not list one."""
    key = order(version)
    return None if package is None or key is None else listed_releases(package).get(key)


def allows(specifiers: str, version: str) -> bool:
    """Return whether specifiers allow a version; specifiers that cannot be read do."""
    if not specifiers:
        return True
    try:
        return satisfies(version, specifiers)
    except NotASpecifier:
        return True


def exact(specifiers: str) -> str | None:
    """Return the one version that specifiers allow (``==2.4.1``), or None for a range."""
    for clause in specifiers.split(","):
        version = clause.strip().removeprefix("===").removeprefix("==").strip()
        if clause.strip().startswith("==") and version and not version.endswith(".*"):
            return version
    return None
