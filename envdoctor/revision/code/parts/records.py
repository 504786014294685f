"""What is known of one Python file after it was parsed: the records that the child writes and the comparison reads."""

import re
from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

from envdoctor.source.uses import Use

#: The scope of what belongs to no class and no function.
MODULE_LEVEL = "module level"
#: Kinds of places that ask for a version: its second number alone, or anything else of it.
MINOR_ONLY, VERSION_GATE = "minor-only-gate", "version-gate"
#: How the name of a property's second function ends.
ACCESSOR = re.compile(r"\.(setter|deleter|getter)$")


class Parameter(NamedTuple):
    """``kind`` is ``positional``, ``normal``, ``*``, ``keyword`` or ``**``; ``default`` its text, None without one."""

    name: str
    kind: str
    default: str | None


class Call(NamedTuple):
    """A call in a function's body: dotted name as written, and its keywords as ``name=value``."""

    name: str
    keywords: tuple[str, ...]


class Definition(NamedTuple):
    """A class, a function, or a name that is assigned to at module or class level.

    ``name`` is qualified by its classes; that of a property's setter ends in ``.setter``. ``text`` is the bases, the
    signature without annotations, or the value. ``meaning`` is a digest of what counts of the body (``canonical.py``),
    ``annotations`` one of the annotations. ``weight`` grows with the size. ``mentions`` are the names that it speaks
    of, ``lines`` its statements one by one, ``first`` and ``last`` its lines in the file. ``is_idle`` marks a function
    about gradient checkpointing whose body cannot change anything.
    """

    name: str
    kind: str
    text: str
    meaning: str
    annotations: str
    weight: int
    first: int
    last: int
    is_idle: bool = False
    decorators: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    calls: tuple[Call, ...] = ()
    mentions: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def sense(self) -> str:
        """Equal for definitions that do the same, whatever they are called and wherever they stand."""
        return f"{self.kind} {self.text} {self.meaning} {' '.join(self.decorators)}"

    @property
    def leaf(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The class that it is in, empty outside of classes."""
        return ACCESSOR.sub("", self.name).rpartition(".")[0]


class Import(NamedTuple):
    """``name`` is dotted, with leading dots when relative. ``required``: loading the file always runs it; ``demanded``:
    transformers refuses to load the file when its package is not installed."""

    name: str
    required: bool
    demanded: bool


class Site(NamedTuple):
    """A place that can do something beyond computing, or that asks for a version.

    ``kind`` as in changes without ``-added``; ``key`` is equal for places that do the same; ``at_load``: it runs as
    soon as the file is loaded.
    """

    kind: str
    scope: str
    key: str
    text: str
    at_load: bool

    @property
    def is_gate(self) -> bool:
        """Whether it asks for a version."""
        return self.kind in (MINOR_ONLY, VERSION_GATE)


class Statement(NamedTuple):
    """A statement of a module or class body that is none of the above."""

    scope: str
    meaning: str
    text: str


class FileCode(NamedTuple):
    """One parsed file. ``meaning`` is the digest of all of it, annotations included; ``uses`` is what it takes of other
    packages; ``bound`` are the names that it gives a value anywhere, ``*`` for those of another module."""

    meaning: str
    definitions: tuple[Definition, ...]
    imports: tuple[Import, ...]
    sites: tuple[Site, ...]
    statements: tuple[Statement, ...]
    uses: tuple[Use, ...] = ()
    bound: tuple[str, ...] = ()


#: Of a file that is not there.
NO_CODE = FileCode("", (), (), (), ())


def from_json(document: Sequence[Any]) -> FileCode:
    """The records again, after they went through JSON as lists."""
    meaning, definitions, imports, sites, statements, uses, bound = document
    return FileCode(
        meaning,
        tuple(map(_definition, definitions)),
        tuple(starmap(Import, imports)),
        tuple(starmap(Site, sites)),
        tuple(starmap(Statement, statements)),
        tuple(starmap(Use, uses)),
        tuple(bound),
    )


def _definition(row: Sequence[Any]) -> Definition:
    *plain, decorators, parameters, calls, mentions, lines = row
    named = [Parameter(*parameter) for parameter in parameters]
    called = [Call(name, tuple(keywords)) for name, keywords in calls]
    return Definition._make([*plain, *map(tuple, (decorators, named, called, mentions, lines))])
