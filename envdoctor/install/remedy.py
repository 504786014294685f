"""What a fix changes in an environment, as packages, settings and facts; several changes become one."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import Fact, spell
from envdoctor.install.commands import Pin, Place, install_commands, uninstall_commands

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*\Z"


class Remedy(NamedTuple):
    """``pins`` are installed (``==2.4.1``), ``removed`` are uninstalled, ``variables`` are exported (``absent``:
    unset), ``settings`` go into the recipe. ``cuda_tag`` is the local tag of the builds to take, None for the default
    ones. ``facts`` are those that the change gives."""

    pins: Mapping[str, str] = {}
    removed: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}
    cuda_tag: str | None = None
    facts: tuple[Fact, ...] = ()

    def __add__(self, other: object) -> "Remedy":
        """Both, one after the other: the later one decides about a package that both change."""
        if not isinstance(other, Remedy):
            return NotImplemented
        facts = {fact.key: fact for fact in (*self.facts, *other.facts)}
        removed = [name for name in self.removed if name not in other.pins]
        pins = {name: pin for name, pin in self.pins.items() if name not in other.removed}
        return Remedy(
            {**pins, **other.pins},
            tuple(dict.fromkeys((*removed, *other.removed))),
            {**self.variables, **other.variables},
            {**self.settings, **other.settings},
            other.cuda_tag or self.cuda_tag,
            tuple(facts.values()),
        )

    @property
    def parts(self) -> frozenset[tuple[str, str]]:
        """What tells two changes apart: what each does to which package or setting."""
        settings = {**self.variables, **self.settings}
        return frozenset((*self.pins.items(), *((name, "absent") for name in self.removed), *settings.items()))

    def commands(self, place: Place, packages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
        """Shell commands in the order in which they are run."""
        rows = list(packages)
        pins: list[Pin] = list(self.pins.items())
        from shlex import quote

        exports = [
            f"unset {name}" if value == "absent" else f"export {name}={quote(value)}"
            for name, value in self.variables.items()
            if re.match(_VARIABLE, name)
        ]
        removing = uninstall_commands(self.removed, place, rows)
        return (*removing, *install_commands(pins, place, self.cuda_tag, rows), *exports)


NOTHING = Remedy()


def written(value: Any) -> str:
    """A value of a fix as text: ``absent``, ``true``, ``1``, ``a,b``."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return spell(value) if isinstance(value, (bool, float)) else str(value)
