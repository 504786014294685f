"""Reading an environment in a test: the observations of its packages, with what follows from them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rooms import observer

from envdoctor.facts import Fact, FactSet, Records, Unknown, Value, parse_value, plain
from envdoctor.judge.derivations import derive
from envdoctor.matrix import Matrix, load_source
from envdoctor.observe import Environment, Layout, Request, Target, notes_of, observe_environment, platform_name
from envdoctor.observe import choose as _choose
from envdoctor.observe.gather import gather
from envdoctor.system import Files

MATRICES = Path(__file__).resolve().parents[2] / "matrices"


@lru_cache(maxsize=1)
def shipped() -> Matrix:
    """The shipped matrix."""
    return load_source(MATRICES, source="checkout")


class Observed:
    """What the files of an environment say, each part read when it is first asked for."""

    def __init__(self, layout: Layout, rooms: Sequence[str]) -> None:
        self.layout, self._rooms = layout, rooms

    @cached_property
    def seen(self) -> FactSet:
        """The facts as they were observed. Raises what reading raises."""
        return gather(ask(self.layout), self._rooms)

    @cached_property
    def known(self) -> FactSet:
        """The same with this machine's facts and what was derived. Raises what reading raises."""
        layout = self.layout
        environment = Environment(Target(layout.kind, layout.prefix, ""), layout.live, FactSet(), layout)
        known = observe_environment(environment, ask(layout, environ={"PATH": os.defpath}))
        derive(known, shipped())
        return known

    @property
    def facts(self) -> list[Fact]:
        """The observed facts, and those that follow from the installed set."""
        derived = ("conflict", "torch_companion", "cuda_library", "foreign_wheel", "environment.packages_python")
        return [*self.seen, *(self.known.get(key) for key in derived)]

    @property
    def incomplete(self) -> str | None:
        """Why distributions may be missing; None when every one was seen."""
        dists = self.known.value("dist")
        assert isinstance(dists, Records)
        return dists.incomplete

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user."""
        environment = Environment(Target("", "", ""), self.layout.live, FactSet(), self.layout, self.layout.notes)
        return notes_of(environment, self.known)


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder, which is returned; folders are made as they are needed."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def program(path: Path, script: str) -> Path:
    """Write a program that sh runs; its folder is made."""
    write(path.parent, {path.name: f"#!/bin/sh\n{script}\n"})
    path.chmod(0o755)
    return path


def values(facts: Iterable[Fact]) -> dict[str, Value]:
    """Return the facts' values by key."""
    return {fact.key: fact.value for fact in facts}


def choose(
    python: object = None,
    *,
    path: object = None,
    root: object = None,
    environ: Mapping[str, str] | None = None,
    cwd: object = os.sep,
    **more: Any,
) -> Layout:
    """Choose an environment. Without ``environ`` there are no variables."""
    given = [None if option is None else str(option) for option in (python, path, root)]
    layout: Layout = _choose(*given, environ=environ or {}, cwd=str(cwd), **more)
    return layout


def a_layout(prefix: Path, *folders: Path, **changes: Any) -> Layout:
    """Lay out a virtual environment of Python 3.11 with these folders of packages; without any: ``prefix`` itself."""
    site = tuple(map(str, folders or (prefix,)))
    return Layout(str(prefix), None, site, "3.11.9", "cpython", "venv", "", True, Files())._replace(**changes)


def ask(layout: Layout | None = None, **more: Any) -> Request:
    """A request for this environment, with the shipped tables and no variables."""
    given = {"environ": {}, "rows": shipped().rows, "variables": shipped().registry.names("env"), **more}
    return Request(layout=layout, platform=platform_name(), gpu=False, **given)


def observe(layout: Layout, rooms: Sequence[str] = ("packages",)) -> Observed:
    """Read an environment."""
    return Observed(layout, rooms)


def one(module: Any, layout: Layout | None, facts: Mapping[str, Value] | FactSet | None = None, **more: Any) -> Fact:
    """The first fact of one observer; ``facts`` are what it needs."""
    given = facts if isinstance(facts, FactSet) else FactSet(Fact(key, facts[key], "", "") for key in facts or ())
    found = module.observe(ask(layout, facts=given, **more))
    return found[0] if found else Fact(module.keys[0], Unknown("nothing was observed"), "", "")


def installed(*folders: Path) -> FactSet:
    """What the metadata in these folders says."""
    layout = a_layout(*folders[:1], *folders)
    return FactSet(observer("installed").observe(ask(layout)))


def assert_registered(facts: Iterable[Fact], source: str) -> None:
    """Assert that each fact is of that source, is registered, and is of its type where it is known."""
    for fact in facts:
        spec = shipped().registry.find(fact.key)
        assert spec is not None and fact.source == source, fact
        assert isinstance(fact.value, Unknown) or parse_value(spec, plain(fact.value)) == fact.value, fact
