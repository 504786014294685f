"""What an answer is looked up in: the matrix, and the facts of an environment, of which little may be known."""

from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.matrix import Matrix
from envdoctor.versions.pep440 import NotASpecifier, is_version, satisfies
from envdoctor.versions.requirement import NotARequirement, read_requirement


class Situation(NamedTuple):
    """``facts`` are derived ones, empty when no environment is judged."""

    matrix: Matrix
    facts: FactSet

    @property
    def ledger(self) -> Ledger:
        """What is known of released packages."""
        return self.matrix.ledger

    @property
    def python(self) -> str:
        """The version of Python, "" when it is not known."""
        version = self.facts.value("python.version")
        return version if isinstance(version, str) and is_version(version) else ""

    def by_names(self, package: str | None) -> Released | None:
        """A package whose names the ledger has read, of one release at least; None for any other."""
        released = self.ledger.package(package) if package else None
        return released if released is not None and released.by_names and released.read else None

    def all_by_names(self) -> Iterator[Released]:
        """Every package whose names the ledger has read."""
        return filter(None, map(self.by_names, self.ledger.packages()))

    def all_changes(self) -> Iterator[Released]:
        """Every package of which it is known what changed."""
        return filter(None, map(self.ledger.changes, self.ledger.packages()))

    def version(self, package: str) -> str:
        """The installed version of a package, "" when it is not known or there is none."""
        version = self.facts.value(f"pkg.{package}")
        return version if isinstance(version, str) and is_version(version) else ""

    def meets(self, requirement: str) -> bool | None:
        """Whether the installed package of a requirement meets it; None when that cannot be told."""
        try:
            wanted = read_requirement(requirement)
            version = self.version(wanted.name)
            return satisfies(version, wanted.specifiers) if version else None
        except (NotARequirement, NotASpecifier):
            return None

    def required_by(self, package: str, name: str) -> str | None:
        """What a package requires of another one, as a specifier: its installed release, or the newest that is known.
        None when it does not require it."""
        released = self.ledger.package(package)
        if released is None:
            return None
        newest = next((one.version for one in reversed(released.releases) if one.metadata), "")
        version = self.version(package) or newest
        asked = (wanted for wanted in (released.requires(version) if version else ()) if wanted.name == name)
        return next((wanted.specifiers.replace(" ", "") for wanted in asked), None)
