"""What to install: releases as pins or ranges, each judged on the facts of the environment before it is offered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from envdoctor.answers.answer import Way
from envdoctor.answers.situation import Situation
from envdoctor.install.candidates import Candidates
from envdoctor.install.commands import install_commands, place_of
from envdoctor.install.trial import Before, Objection, before, try_remedy

_TRIES = 6


class Ways:
    """Makes the ways of one answer: what the environment is like is judged once."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._place = place_of(situation.facts)

    @cached_property
    def _now(self) -> Before:
        return before(self._situation.facts, self._situation.matrix)

    def install(self, package: str, releases: Sequence[str], specifier: str = "") -> Way | None:
        """The first of the releases that brings no error and breaks no requirement here; None when there is none. Of a
        package that is not installed, or of no known version: the whole range, of several the newest."""
        if not self._situation.version(package):
            return self._way(package, specifier.rpartition(" or ")[2])
        objection: Objection | None = None
        candidates = Candidates(self._situation.facts, self._situation.matrix)
        for candidate in candidates.of_range(package, releases[:_TRIES]):
            if isinstance(candidate, str):
                objection = objection or Objection(candidate)
                continue
            reason = try_remedy(candidate, self._now).objection(self._now)
            if reason is None:
                pins = tuple(name + pin for name, pin in candidate.pins.items())
                commands = candidate.commands(self._place, self._situation.matrix.rows("packages", "package"))
                return Way("install", pins, commands)
            objection = objection or reason
        if not releases:
            return None
        said, quotes = objection or (None, None)
        return Way("install", (f"{package}=={releases[0]}",), withheld=said, quotes=quotes)

    def again(self, package: str) -> Way:
        """Install the same release of a package once more."""
        version = self._situation.version(package)
        way = self._way(package, f"=={version.partition('+')[0]}" if version else "")
        commands = tuple(
            command.replace(" install ", " install --force-reinstall --no-deps ", 1) for command in way.commands
        )
        return Way("reinstall", way.pins, commands if self._place.installer != "conda" else ())

    def _way(self, package: str, specifier: str) -> Way:
        rows = self._situation.matrix.rows("packages", "package")
        return Way("install", (package + specifier,), install_commands([(package, specifier)], self._place, None, rows))
