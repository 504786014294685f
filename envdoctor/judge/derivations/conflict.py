"""Requirements that installed packages have and the environment does not meet: one record a package to be changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from envdoctor.facts.factset import Installed, InstalledSet, View, marker_values
from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.judge.derivations import Answer, Derived, begun, derives
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message, as_message, said_by
from envdoctor.versions.pep440 import NotASpecifier, base_release, join_specifiers, satisfies
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import NotAMarker, NotARequirement, Requirement, holds, read_requirement

#: The kind of a package that is known by its version alone: an installer adds its missing requirements.
_SUPPOSED = "version"
#: How many askers a message can name; ``required_by`` has them all.
_NAMED = 3
#: More than a person would mend one by one; every record becomes a finding.
_MOST_RECORDS = 300
#: How many lines are looked through for the requirements of extras: for every asker again.
_MOST_LINES = 50_000


@derives("conflict", of="dist pkg.* python.minor python.version python.implementation os.platform os.arch os.kernel")
def _conflict(facts: View, matrix: Matrix) -> Answer:
    """Give ``conflict``: what ``uv pip check`` calls missing, incompatible, or of another Python, by cause.

    It compares the versions in the metadata, as installers do. Of a package that is installed twice in one folder it
    says only what holds for both. A requirement on something that conda installed is met by it. When a requirement
    cannot be decided, the list is incomplete, and names it. Who requires ``fsspec[http]`` requires what that extra
    does.
    """
    value = facts.value
    installed = InstalledSet(value)
    by_version = list(_by_version(installed, value, matrix.ledger))
    if not installed.known and not by_version:
        return None
    conflicts = _Conflicts(installed, marker_values(value), matrix)
    for items in (*installed, *([asker] for asker in by_version)):
        conflicts.add(items)
    return Derived(conflicts.records(), Message("requirements of the packages"))


def _by_version(installed: InstalledSet, value: Callable[[str], Value], ledger: Ledger) -> Iterator[Installed]:
    """Yield packages that are known by their versions alone, with what these releases require by the ledger. What they
    require on one platform is left out: the CUDA libraries of PyPI's own build."""
    for name in ledger.every():
        version = ABSENT if installed.get(name) else value(f"pkg.{name}")
        released = ledger.package(name) if isinstance(version, str) else None
        lines = released.items("requires", "*", str(version).partition("+")[0]) if released is not None else ()
        if isinstance(lines, tuple) and lines:
            yield Installed(
                name,
                version,
                _SUPPOSED,
                tuple(line for line in lines if "platform" not in line.partition(";")[2]),
                ABSENT,
                Unknown(Message("its wheel is not known")),
            )


class _Cause:
    """One package that must change, and the requirements on it."""

    def __init__(self, package: str, kind: str, installed: str | Absent) -> None:
        self.package, self.kind, self.installed = package, kind, installed
        self.asked: list[tuple[str, str]] = []
        self.fail: dict[str, str] = {}

    def record(self, everybody_wants: Iterable[str], instead: str | None) -> dict[str, Value]:
        """Return the record; ``everybody_wants`` are the specifiers of all who require the package, met or not."""
        askers = [f"{name} ({specifiers})" if specifiers else name for name, specifiers in self.asked]
        distinct = tuple(dict.fromkeys(specifiers for _, specifiers in self.asked if specifiers))
        another = [f"!={self.installed}"] if self.kind == "python" and isinstance(self.installed, str) else []
        try:
            joined = join_specifiers((*everybody_wants, *another))
            fitting: Value = ABSENT if joined is None else self.package + joined
        except NotASpecifier as error:
            fitting = Unknown(said_by(error))
        return {
            "package": self.package,
            "kind": self.kind,
            "installed": self.installed,
            "requires": " / ".join(distinct[:_NAMED]) or "*",
            "asked_by": begun(askers, _NAMED),
            "required_by": tuple(askers),
            "wanted": fitting,
            "fails": ", ".join(f"{name} {version}".rstrip() for name, version in self.fail.items()) or ABSENT,
            "instead": instead or ABSENT,
        }


class _Conflicts:
    """The causes that were found, and why others may not have been."""

    def __init__(self, installed: InstalledSet, values: Mapping[str, str | None], matrix: Matrix) -> None:
        self._installed, self._values = installed, values
        full, minor = base_release(values["python_full_version"] or ""), values["python_version"]
        self._pythons = [full] if full else [f"{minor}.0", f"{minor}.99"] if minor else []
        self._ledger = matrix.ledger
        self._needs: dict[str, list[Mapping[str, Any]]] = {}
        for row in matrix.rows("import-needs"):
            self._needs.setdefault(row["name"], []).append(row)
        self._specifiers: dict[str, list[str]] = {}
        self._causes: dict[tuple[str, str], _Cause] = {}
        self._open_reasons = [installed.incomplete] if installed.incomplete else []
        self._lines = _MOST_LINES
        self._counts, self._is_met = cache(self._marker_counts), cache(self._meets)

    def add(self, items: list[Installed]) -> None:
        """Compare the requirements of a package, those of the extras that it requires, and the needs of its imports."""
        asker = items[0]
        if len({item.requires for item in items}) > 1:
            self._open_reasons.append(Message("{} is installed twice, with different requirements", asker.name))
            return
        if isinstance(asker.requires_python, str):
            self._python(asker.name, asker.version, asker.requires_python)
        if isinstance(asker.requires, Unknown):
            self._open_reasons.append(asker.requires.reason)
        elif asker.requires:
            pairs = [(asker.name, "")]
            extras = set(pairs)
            for name, extra in pairs:  # it grows
                lines = self._of_package(name) if extra else asker.requires
                for need in self._compare(asker, lines, name, extra):
                    new = [(need.name, extra) for extra in need.extras if (need.name, extra) not in extras]
                    extras.update(new)
                    pairs += new
        self._undeclared(asker)

    def _of_package(self, name: str) -> tuple[str, ...]:
        """Return the requirements of a package whose extra is asked for; none where they are not known, or where too
        many were looked through."""
        variants = {item.requires for item in self._installed.get(name)}
        lines = variants.pop() if len(variants) == 1 else ()
        self._lines -= 1 + len(lines) if isinstance(lines, tuple) else 1
        if self._lines < 0:
            self._open_reasons.append(Message("the extras of packages require more than is looked through"))
        return lines if isinstance(lines, tuple) and self._lines >= 0 else ()

    def _compare(self, asker: Installed, lines: tuple[str, ...], name: str, extra: str) -> Iterator[Requirement]:
        """Yield the requirements that count; those of the ``extra`` of a package ``name`` only where they count because
        of it alone."""
        through = f" -> {name}[{extra}]" if extra else ""
        for need in _read(lines):
            try:
                if isinstance(need, str):
                    raise NotARequirement(as_message(need))
                counts = self._counts(need.marker, extra)
                met = counts is not False and self._is_met(need.name, need.specifiers)
            except (NotARequirement, NotAMarker, NotASpecifier) as error:
                self._open_reasons.append(Message("a requirement of {} cannot be read: {}", asker.name, error))
                continue
            if counts is False:
                continue
            self._specifiers.setdefault(need.name, []).append(need.specifiers)
            if met is None or counts is None:
                unknown = Message("it is not known whether {} has the {} that it requires", asker.name, need.name)
                self._open_reasons.append(unknown)
            elif not met and (asker.kind != _SUPPOSED or self._installed.versions(need.name) is not None):
                cause = self._cause(need.name)
                cause.asked.append((asker.name + through, _as_named(need.specifiers)))
                column = "missing" if cause.kind == "missing" else "refuses"
                if any(cause.package in row.get(column, ()) for row in self._rows(asker.name, asker.version)):
                    cause.fail[asker.name] = str(asker.version)
            if counts:
                yield need

    def _undeclared(self, asker: Installed) -> None:
        """Compare with the releases below which the table import-needs knows the asker to fail, where its metadata asks
        for no more."""
        for row in self._rows(asker.name, asker.version):
            for name, lowest in row.get("below", {}).items():
                specifiers = f">={lowest}"
                self._specifiers.setdefault(name, []).append(specifiers)
                if self._installed.versions(name) is None or self._is_met(name, specifiers) is not False:
                    continue
                cause = self._cause(name)
                if asker.name not in (asker_name for asker_name, _ in cause.asked):
                    cause.asked.append((asker.name, specifiers))
                cause.fail[asker.name] = str(asker.version)

    def _rows(self, name: str, version: Value) -> list[Mapping[str, Any]]:
        """Return the rows of the table import-needs about this release."""
        try:
            return [row for row in self._needs.get(name, ()) if satisfies(str(version), row["versions"])]
        except NotASpecifier:
            return []  # its version is invalid

    def _instead(self, cause: _Cause) -> str | None:
        """Return the releases that work with what is there of the one package that fails, or else of the one that
        asks: ``pyarrow<26``. Its older releases may only lack an upper bound that was found out later."""
        names = list(cause.fail or dict.fromkeys(name.partition(" ")[0] for name, _ in cause.asked))
        released = self._ledger.package(names[0]) if len(names) == 1 and cause.kind == "conflict" else None
        present = self._installed.versions(names[0]) if released is not None else None
        if released is None or not isinstance(present, list) or present[0] is None:
            return None
        name, version = released.name, present[0]
        versions = self._ledger.published(name)
        fits = [self._fits(released, candidate, cause.package) for candidate in versions]
        others = self._ledger.published(cause.package)
        newer = others[Releases(others, 0).place_of(str(cause.installed)) :]
        if not cause.fail and not any(satisfies(other, cause.asked[0][1]) for other in newer):
            older = Releases(versions, 0).place_of(version)
            fits[:older] = [False] * older
        nearest = Releases.of(versions, fits).nearest(version).specifier
        return nearest and name + nearest

    def _fits(self, released: Released, version: str, package: str) -> bool:
        """Return whether a release allows the version of a package that is there, and is not known to fail with it."""
        ranges = [requirement.specifiers for requirement in released.requires(version) if requirement.name == package]
        lowest = [row.get("below", {}).get(package) for row in self._rows(released.name, version)]
        try:
            return all(self._is_met(package, spec) for spec in (*ranges, *(f">={spec}" for spec in lowest if spec)))
        except NotASpecifier:
            return False

    def _python(self, name: str, version: Value, specifiers: str) -> None:
        """Compare Requires-Python with the interpreter: a release candidate counts as its release, as for pip."""
        try:
            answers = {satisfies(python, specifiers) for python in self._pythons}
        except NotASpecifier as error:
            self._open_reasons.append(Message("Requires-Python of {} cannot be read: {}", name, error))
            return
        if len(answers) != 1:
            self._open_reasons.append(Message("it is not known whether {} is for this Python", name))
        elif False in answers:
            cause = _Cause(name, "python", version if isinstance(version, str) else ABSENT)
            self._causes.setdefault((name, "python"), cause).asked.append(("Python", _as_named(specifiers)))

    def records(self) -> Records:
        keys = sorted(self._causes)[:_MOST_RECORDS]
        causes = [self._causes[key] for key in keys]
        items = tuple(cause.record(self._specifiers.get(cause.package, ()), self._instead(cause)) for cause in causes)
        if more := len(self._causes) - len(keys):
            return Records(items, Message("{} more packages are missing or do not fit; {} are told", more, len(keys)))
        return Records(items, next(iter(self._open_reasons), None))

    def _marker_counts(self, marker: str, extra: str) -> bool | None:
        counts = holds(marker, {**self._values, "extra": extra}) if marker else True
        return counts if not extra or self._counts(marker, "") is False else False

    def _meets(self, name: str, specifiers: str) -> bool | None:
        """Return whether all versions are in the set; None when some are, or one is not known."""
        versions = self._installed.versions(name)
        if versions is None or isinstance(versions, Unknown):
            return False if versions is None else None
        if not specifiers:
            return True
        answers = {None if version is None else satisfies(version, specifiers) for version in versions}
        return answers.pop() if len(answers) == 1 else None

    def _cause(self, name: str) -> _Cause:
        versions = self._installed.versions(name)
        kind = "missing" if versions is None else "conflict"
        label: str | Absent = ABSENT
        if bounds := self._installed.range(name):
            label = bounds.specifiers
        elif versions is not None and not isinstance(versions, Unknown):
            label = ", ".join(version for version in versions if version)
        return self._causes.setdefault((name, kind), _Cause(name, kind, label))


@lru_cache(maxsize=2048)
def _read(lines: tuple[str, ...]) -> tuple[Requirement | str, ...]:
    """Return the requirements; a text says why a line is invalid."""
    requirements: list[Requirement | str] = []
    for line in lines:
        try:
            requirements.append(read_requirement(line))
        except NotARequirement as error:
            requirements.append(said_by(error))
    return tuple(requirements)


def _as_named(specifiers: str) -> str:
    """Return specifiers without blanks; nothing when they hold characters that no report would print."""
    text = "".join(specifiers.split())
    return text if text.isascii() and text.isprintable() else ""
