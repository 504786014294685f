"""An install command's requirements, the releases of the ledger as an installer sees them, and why it refuses."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from envdoctor.matrix.ledger import Ledger, Release, Released
from envdoctor.matrix.released_wheels import files_for
from envdoctor.versions.pep440 import NotASpecifier, order, satisfies
from envdoctor.versions.requirement import NotAMarker, Requirement, holds, is_own_build
from envdoctor.versions.wheel_tags import WheelTarget

#: Higher than the release of any package: specifiers that allow it allow releases that the ledger does not know yet.
_FUTURE = "99999"
#: A specifier that names a pre-release allows others, which the ledger does not list.
_PRE_RELEASE = r"\d\.?(?:a|b|rc|dev)\d*\s*(?:,|\Z)"
#: A row of a table of the matrix.
Row = Mapping[str, str]


class AskedRequirement(NamedTuple):
    """A requirement, and who has it (``by``): a line (``requirements.txt:3``) or a release (``vllm 0.6.3``). A line may
    have a ``marker``, and a ``url`` where it is taken from an address."""

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

    @property
    def is_open(self) -> bool:
        """Return whether releases are allowed that are not known yet."""
        return allows(self.specifiers, _FUTURE)


class LedgerStep(NamedTuple):
    """The install of one command: the lines ``asked``. ``limits`` are constraints; ``deps``: their requirements come
    along; ``upgrade``: named packages are taken new; ``elsewhere``: an index beside PyPI is named, or a folder of
    files; ``given`` are packages that come from elsewhere in any case. ``overrides`` replace what others require of the
    same packages; ``unseen``: any package may be installed before, in an unknown version; ``loose`` are packages with
    such a version, replaced where it does not fit, with the specifiers that it certainly meets; ``checkouts`` come from
    a repository or a folder, with the tag that is named; ``newest`` are checkouts of their maintainers' default branch;
    ``kept`` are installed packages whose requirements count where they stay."""

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
    """The target of an install: the variables of markers, the whole Python, its wheels, and the day (``2024-05-01``)
    after which nothing is taken."""

    markers: Mapping[str, str | None]
    python: str
    target: WheelTarget
    until: str = ""


class TakingRefusal(NamedTuple):
    """Why an installer refuses. ``kind``: conflict, python, file, gone, release, index, lacking, folder, name, build,
    source; ``asked`` is the requirement and who has it, ``lacks`` the target without a file, ``next`` the next release
    that has one."""

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

    A release whose requirements were not read is taken to require what the nearest read release before it does, or the
    nearest one behind it (``behind``); before the first read release, floors do not count, for they rise. A checkout
    may be the newest release, or as old as the list (``written``: the day of the newest release that it pins).
    ``guessed`` are the packages that these two required differently so far. ``certain``: of such a release only what
    both require counts.
    """

    def __init__(
        self, ledger: Ledger, situation: TakingSituation, behind: bool = False, written: str = "", certain: bool = False
    ) -> None:
        self._ledger, self.situation, self._behind, self._written = ledger, situation, behind, written
        self._certain = certain
        self.guessed: set[str] = set()
        #: The releases of a known package that specifiers allow, whatever the Python, and the ones that an installer
        #: takes unasked, both the newest first; the requirements of a release here, without unknown ones.
        self.allowed, self.fitting, self._known = cache(self._allows), cache(self._fits), cache(self._is_known)
        self.required = cache(lambda candidate: tuple(self._read(candidate)))

    def certainly(self) -> "PackageReleases":
        """Return the same releases with only their certain requirements."""
        return PackageReleases(self._ledger, self.situation, written=self._written, certain=True)

    def package(self, name: str) -> Released | None:
        """Return the package if the ledger knows its releases."""
        return self._ledger.package(name)

    def listed(self, name: str, version: str) -> Release | None:
        """Return the ledger's release of this version; None if it does not list one."""
        return self._ledger.release(name, version)

    def known(self, need: AskedRequirement) -> bool:
        """Return whether the ledger has all releases that may meet a need: not if newer or older ones may."""
        return self._known(need._replace(extras=(), by="", marker="", url=""))

    def _is_known(self, need: AskedRequirement) -> bool:
        package = self.package(need.name)
        if package is None or all(release.yanked for release in package.releases):
            return False  # or there are but pre-releases
        pin, oldest, newest = (order(need.pin or ""), *(order(package.releases[at].version) for at in (0, -1)))
        if pin is not None:
            return oldest is not None and newest is not None and oldest <= pin <= newest
        is_future = need.is_open or re.search(_PRE_RELEASE, need.specifiers) is not None
        return not is_future or bool(self.allowed(need.name, need.specifiers))

    def _allows(self, name: str, specifiers: str) -> list[str]:
        releases = reversed(getattr(self.package(name), "releases", ()))
        return [release.version for release in releases if allows(specifiers, release.version)]

    def _fits(self, name: str, elsewhere: bool) -> list[str]:
        versions = reversed(self._ledger.published(name))
        return [version for version in versions if self.why_not(name, version, elsewhere) is None]

    def like(self, name: str, tag: str) -> list[str]:
        """Return the releases whose requirements a checkout may have, the likeliest first: the release of its tag; else
        the newest, or (``written``) the newest of the day when the list was written, because a fork is as old."""
        fitting = self.fitting(name, True)
        tagged = [version for version in fitting if version == tag.removeprefix("v")]
        dates = {release.version: release.date for release in getattr(self.package(name), "releases", ())}
        return tagged or sorted(fitting, key=lambda version: bool(self._written) and dates[version] > self._written)

    def why_not(self, name: str, version: str, elsewhere: bool) -> tuple[str, str] | None:
        """Return why a listed release is not taken here (python, file, date or gone), and what it lacks."""
        package, situation, release = self.package(name), self.situation, self.listed(name, version)
        if package is None or release is None:
            return None
        if situation.until and release.date > situation.until:
            return "date", release.date
        if not allows(release.requires_python, situation.python):
            return "python", release.requires_python
        if release.yanked and not elsewhere and (lost := self.gone(name, version)):
            return "gone", lost
        lacks, source = (not elsewhere and files_for(package, release.version, situation.target)) or (None, True)
        return ("file", lacks) if lacks and not source else None

    def gone(self, name: str, version: str) -> str | None:
        """Return a requirement of a release that is met by no release that the ledger lists, and by none that it cannot
        know: a newer one, a pre-release, or a build of another index."""
        for need in self.required(Candidate(name, (), version)):
            pin = order(need.pin) if need.pin else None
            is_listed = pin is None or not (pin.is_pre or "+" in str(need.pin))
            if is_listed and self.known(need) and not self.allowed(need.name, need.specifiers):
                return need.name + need.specifiers
        return None

    def is_built(self, name: str, version: str) -> bool:
        """Return whether a release is built from its source here, because it has no wheel for this target. True for a
        package that the ledger does not know: callers ask only for packages without wheels."""
        package, release = self.package(name), self.listed(name, version)
        if package is None or release is None:
            return package is None
        files = files_for(package, release.version, self.situation.target)
        return files is None or files[0] is not None

    def _read(self, candidate: Candidate) -> Iterator[AskedRequirement]:
        package, (release, _, build) = self.package(candidate.name), candidate.version.partition("+")
        is_read = package is not None and release and is_own_build(candidate.version)
        near = package.neighbours(release) if package is not None and is_read else (None, None)
        neighbour = near[1 if self._behind else 0]
        unlike: set[Requirement] = set()
        required = tuple(package.requires(neighbour, candidate.extras)) if package is not None and neighbour else ()
        if package is not None and near[0] != near[1]:
            before, behind = (set(package.requires(side, candidate.extras)) if side else set() for side in near)
            unlike = before ^ behind
            self.guessed.update(need.name for need in unlike)
            if self._certain:
                required = tuple(need_of for need_of in required if need_of not in unlike)
        by = f"{candidate.name} {candidate.version}"
        for need in required:
            if build and "platform" in need.marker:
                continue  # CUDA libraries of PyPI's own build
            if any(self._counts(need, extra) for extra in ("", *candidate.extras)):
                pinned = need in unlike and need.specifiers.lstrip().startswith("==")
                own = "" if pinned else need.specifiers  # each release pins another: a neighbour's pin says nothing
                if not near[0]:
                    own = ",".join(clause for clause in own.split(",") if clause.strip().startswith(("<", "!=")))
                yield AskedRequirement(need.name, need.extras, own, by)

    def _counts(self, need: Requirement, extra: str) -> bool:
        try:
            return not need.marker or holds(need.marker, {**self.situation.markers, "extra": extra}) is True
        except NotAMarker:
            return False


def refusals(
    releases: PackageReleases, step: LedgerStep, build_first: Iterable[Row], *, unsure: bool = False
) -> Iterator[TakingRefusal]:
    """Yield why single lines of a step are refused, whatever the others ask. ``build_first`` are the rows of packages
    whose source is built with another package, which must be there before: ``unsure`` whether it is, if no line
    names it."""
    rows = {row["name"]: row for row in build_first}
    for need in step.asked:
        version, package = need.pin, releases.package(need.name)
        if version is None or package is None or not releases.known(need) or need.name in step.loose:
            continue  # an installed package of unknown release may meet it
        release, _, build = version.partition("+")
        entry, key, other = releases.listed(need.name, release), order(release), step.other(need.name)
        if build and not other and not step.unseen:
            yield TakingRefusal("index", need.name, version, str(need), build)
        elif entry is None and key is not None and not key.is_pre and not other:
            yield TakingRefusal("release", need.name, version, str(need))
        elif entry is not None and (gap := releases.why_not(need.name, release, other or bool(build) or step.unseen)):
            later = [text for text in releases.fitting(need.name, False) if (order(text) or key) > key] if key else []
            pin = f"{need.name}=={later[-1]}" if later else ""
            yield TakingRefusal(gap[0], need.name, version, str(need), gap[1], pin)
    for need in step.asked:
        row = None if step.other(need.name) or step.unseen else rows.get(need.name)
        version = need.pin or next((newest for newest in releases.fitting(need.name, False) if row), "")
        if row and allows(row["versions"], version or _FUTURE) and releases.is_built(need.name, version):
            kind = "before" if unsure and all(other.name != row["needs"] for other in step.asked) else "build"
            yield TakingRefusal(kind, need.name, version, str(need), row["needs"])


def misnamed(step: LedgerStep, rows: Iterable[Row]) -> Iterator[TakingRefusal]:
    """Yield names that PyPI has only to refuse them, or not at all; a row gives the right name."""
    by_name = {row["name"]: row for row in rows}
    for need in step.asked:
        row = None if step.other(need.name) else by_name.get(need.name)
        if row and allows(row["versions"], need.pin or _FUTURE):
            yield TakingRefusal("name", need.name, "", str(need), row["meant"])


def failing(
    releases: PackageReleases, step: LedgerStep, versions: Mapping[str, str], rows: Iterable[Row]
) -> Iterator[TakingRefusal]:
    """Yield releases that are taken and whose source does not build (a row says with what)."""
    askers = {need.name: str(need) for need in step.asked}
    for row in rows:
        name, python = row["name"], releases.situation.python
        version = versions.get(name, "")
        if order(version) is None or step.other(name) or not allows(row.get("python", ""), python):
            continue
        if allows(row["versions"], version) and releases.is_built(name, version):
            yield TakingRefusal("source", name, version, askers.get(name, f"{name} {version}"), row["fails"])


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
