"""What an observation is asked to look at, one request for all observations of a run; and what an observer is."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.system.files import Files
from envdoctor.system.message import Message

if TYPE_CHECKING:
    from envdoctor.observe.locate.layout import Layout
    from envdoctor.observe.model.names import ModelSource


class Target(NamedTuple):
    """``kind`` is venv, conda, system, path, root, lock, sbom, facts, report or none (with a ``path``, that
    one was left out); ``because`` says why this one ("the active virtual environment (VIRTUAL_ENV)", "--python")."""

    kind: str
    path: str
    because: Message


class Request(NamedTuple):
    """What to look at.

    ``environ`` and ``cwd`` are the caller's. ``layout`` is the environment on disk, ``model`` the model's files; None
    where there is nothing to look at; ``code`` are the paths of the user's own scripts. ``facts`` are those that
    earlier observations gave. ``rows`` gives the rows of a table of the matrix, ``variables`` are the environment
    variables to be read, each with its privacy. ``cache`` is envdoctor's cache folder (None: neither read nor
    written).

    ``platform`` is ``linux``, ``windows`` or ``darwin``. ``root`` stands for ``/`` in every path of the machine that is
    read. ``gpu`` is False under ``--no-gpu``. ``nvml_library`` replaces the search for NVIDIA's library,
    ``nvml_timeout`` is in seconds.
    """

    environ: Mapping[str, str]
    cwd: str = os.sep
    layout: "Layout | None" = None
    model: "ModelSource | None" = None
    code: tuple[str, ...] = ()
    facts: FactSet = FactSet()
    rows: Callable[..., Sequence[Mapping[str, Any]]] = lambda *table: ()
    variables: Mapping[str, str] = {}
    cache: str | None = None
    platform: str = ""
    root: str = "/"
    gpu: bool = True
    nvml_library: str = ""
    nvml_timeout: float = 10.0

    def path(self, absolute: str) -> str:
        """Return ``/proc/version`` below the request's root."""
        return absolute if self.root == "/" else os.path.join(self.root, absolute.lstrip("/"))

    def text(self, absolute: str, limit: int = 65536) -> str:
        """Return the first ``limit`` bytes of a file of the machine as text; empty when it cannot be read."""
        return Files().text_or_empty(self.path(absolute), limit)

    def names(self, absolute: str) -> list[str]:
        """Sorted names in a folder of the machine, at most 4096; none when it is not there or cannot be listed."""
        return Files().names_or_none(self.path(absolute))[:4096]

    def value(self, key: str) -> Value:
        """Return what an earlier observation says of a fact."""
        return self.facts.value(key)

    def items(self, key: str) -> tuple[Mapping[str, Value], ...]:
        """Return the items of a list that an earlier observation gave; none when it is not known."""
        return self.facts.items(key)

    @property
    def source(self) -> "ModelSource":
        """Return the model's files, for observations that need them."""
        assert self.model is not None
        return self.model

    @property
    def place(self) -> "Layout":
        """Return the environment on disk, for observations that need one."""
        assert self.layout is not None
        return self.layout


#: Key, value and origin of each fact that was found; or why none of them is known.
Found = Iterable[tuple[str, Value, str]] | Unknown


class Observer(NamedTuple):
    """A function that reads what a request names into the facts ``keys``, each of them once, and judges nothing.

    What cannot be read is unknown with its reason, what is known not to exist is ABSENT. ``source`` is that of its
    facts. ``kept``: it rests on nothing but the environment on disk (read through its ``files``), rows of tables, and
    other facts. If it rests on more it says so by ``request.place.files.looks = None``.
    """

    name: str
    source: str
    keys: tuple[str, ...]
    kept: bool
    find: Callable[[Request], Found]

    def observe(self, request: Request) -> list[Fact]:
        """Return the facts of a request."""
        triples = self.find(request)
        if isinstance(triples, Unknown):
            triples = [(key, triples, "") for key in self.keys]
        return [Fact(*triple, self.source) for triple in triples]


def observes(source: str, keys: str, *, kept: bool = False) -> Callable[[Callable[[Request], Found]], Observer]:
    """Make a function an observer under its own name; the keys are parted by blanks."""
    return lambda find: Observer(find.__name__, source, tuple(keys.split()), kept, find)
