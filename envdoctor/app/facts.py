"""``envdoctor facts``: gather what is known of one environment, one machine, one model and one recipe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.report.report import Notice, Target

__all__ = ["Gathered", "Sources", "add_assignments", "collect_facts", "find_lock", "working_directory"]


@dataclass(frozen=True)
class Sources:
    """Where the facts come from. At most one of ``python``, ``path``, ``root`` and ``facts_file`` names the environment
    (none: the default environment). ``assignments`` are ``key=value`` texts; the last one wins. ``configured`` are
    those of the configuration file ``configured_in``, which come first."""

    python: str | None = None
    path: str | None = None
    root: str | None = None
    facts_file: str | None = None
    model: str | None = None
    assignments: Sequence[str] = ()
    configured: Sequence[str] = ()
    configured_in: str = "configuration"
    gpu: bool = True
    cache: bool = True
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cwd: Path = field(default_factory=lambda: working_directory() or Path(os.sep))


def working_directory() -> Path | None:
    """The working directory; None when it has been deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


@dataclass(frozen=True)
class Gathered:
    """Facts before derivation, the environment they are of, and what went wrong on the way."""

    facts: FactSet
    target: Target
    notices: tuple[Notice, ...] = ()


def collect_facts(sources: Sources, matrix: Matrix) -> Gathered:
    """Read the sources in order: environment, machine, model, assignments.

    Raises :class:`UsageProblem` for what the user wrote wrong, :class:`JobError` when the environment cannot be read.
    """
    chosen = [name for name in ("python", "path", "root", "facts_file") if getattr(sources, name)]
    if len(chosen) > 1:
        options = ", ".join("--facts" if name == "facts_file" else f"--{name}" for name in chosen)
        raise UsageProblem(f"{options}: give one of them, an environment has one source")
    gathered = (
        _from_facts_file(sources.facts_file, matrix) if sources.facts_file else _from_environment(sources, matrix)
    )
    if sources.model is not None:
        _add_model(gathered.facts, sources, matrix)
    if not sources.facts_file:
        gathered = replace(gathered, notices=(*gathered.notices, *_add_lock(gathered.facts, sources, matrix)))
    add_assignments(gathered.facts, sources, matrix)
    return gathered


def _from_facts_file(name: str, matrix: Matrix) -> Gathered:
    from envdoctor.observe.documents.facts_file import FactsFileError, read_facts_file

    try:
        facts = read_facts_file(Path(name), matrix.registry)
    except FactsFileError as error:
        raise UsageProblem(f"--facts {error}") from None
    return Gathered(facts, Target("facts", name, "--facts"))


def _from_environment(sources: Sources, matrix: Matrix) -> Gathered:
    from envdoctor.observe.binaries import (
        arch_list_fact,
        extension_fact,
        library_shadow_fact,
        libstdcxx_fact,
        loading_facts,
    )
    from envdoctor.observe.cache_home import cache_home
    from envdoctor.observe.environment import EnvironmentNotFound, EnvironmentUnreadable, choose, observe
    from envdoctor.observe.environment.build_parts import build_facts
    from envdoctor.observe.environment.import_shadow import import_shadow_fact
    from envdoctor.observe.machine import observe_machine

    try:
        layout = choose(sources.python, sources.path, sources.root, environ=sources.environ, cwd=str(sources.cwd))
        observed = observe(layout)
    except EnvironmentUnreadable as error:
        raise JobError(str(error)) from None
    except EnvironmentNotFound as error:
        named = sources.python or sources.path or sources.root
        raise (UsageProblem if named else JobError)(str(error)) from None
    facts = observed.fact_set()
    cache = cache_home(sources.environ) if sources.cache else None
    facts.add(extension_fact(observed.facts, layout, matrix.table("torch-extensions"), cache=cache))
    modules = matrix.table("stack-modules")
    facts.add(import_shadow_fact(observed.facts, layout, sources.environ, str(sources.cwd), modules))
    facts.update(loading_facts(observed.facts, layout, sources.environ))
    facts.add(library_shadow_fact(observed.facts, layout, sources.environ))
    if layout.live:
        facts.update(build_facts(layout, facts.value("pkg.deepspeed"), sources.environ))
        facts.update(observe_machine(environ=sources.environ, gpu=sources.gpu))
        facts.add(libstdcxx_fact(facts.value("extension"), layout, sources.environ, cache=cache))
        facts.declare_complete("env", "the environment variables")
    archs = arch_list_fact(observed.facts, facts.value("gpu"), layout)
    if archs is not None:
        facts.add(archs)
    notices = tuple(Notice("warning", note) for note in observed.notes)
    return Gathered(facts, Target(layout.kind, str(layout.prefix), layout.because), notices)


def _add_model(facts: FactSet, sources: Sources, matrix: Matrix) -> None:
    from envdoctor.observe.model import ModelError, observe_model, resolve

    aliases = matrix.table("families").get("organisations", {})
    try:
        source = resolve(str(sources.model), cwd=str(sources.cwd), environ=sources.environ, aliases=aliases)
        observed = observe_model(source)
    except ModelError as error:
        raise UsageProblem(str(error)) from None
    facts.drop("model.")
    facts.update(observed)


def find_lock(start: Path) -> Path | None:
    """The nearest envdoctor.lock from ``start`` up to the project's root (the folder with .git)."""
    for folder in (start, *start.parents):
        if (folder / "envdoctor.lock").is_file():
            return folder / "envdoctor.lock"
        if (folder / ".git").exists():
            return None
    return None


def _add_lock(facts: FactSet, sources: Sources, matrix: Matrix) -> tuple[Notice, ...]:
    """``lock.*``, when the project has an envdoctor.lock and a model is judged; without one they are absent."""
    lock = find_lock(sources.cwd) if sources.model is not None else None
    if lock is None:
        facts.update(Fact(f"lock.{key}", ABSENT, "no envdoctor.lock", "lock") for key in ("revision", "state", "files"))
        return ()
    from envdoctor.app.lock import find_locked, lock_facts
    from envdoctor.hub.folder import open_folder

    name, folder = facts.value("model.repo"), facts.value("model.path")
    names = [name if isinstance(name, str) else None, None if isinstance(folder, str) else sources.model]
    locked = find_locked(lock, names, matrix.table("families").get("organisations", {}))
    if locked is None and isinstance(folder, str):
        locked = find_locked(lock, [sources.model, os.path.basename(folder.rstrip("/"))], {}) or find_locked(
            lock, [], {}
        )
    snapshot = open_folder(folder) if isinstance(folder, str) and locked is not None else None
    facts.update(lock_facts(lock, locked, snapshot))
    if locked is None:
        return (Notice("warning", f"{lock.name} pins other models, not {sources.model}: its files were not compared"),)
    if snapshot is None:
        return (Notice("note", f"{lock.name} pins {locked.repo}, and no files of it are at hand to compare"),)
    return ()


def add_assignments(facts: FactSet, sources: Sources, matrix: Matrix) -> None:
    from envdoctor.observe.recipe.assignments import AssignmentError, parse_assignments

    try:
        given = [
            *parse_assignments(sources.configured, matrix.registry, sources.configured_in),
            *parse_assignments(sources.assignments, matrix.registry),
        ]
    except AssignmentError as error:
        raise UsageProblem(str(error)) from None
    for fact in given:
        if fact.key == "pkg.torch":
            facts.drop("torch.")  # they described the torch that is installed, not the one that was given
            facts.drop("extension")
        if fact.key.startswith("pkg.torch"):
            facts.drop("torch_companion")
        if fact.key == "pkg.torch" or fact.key.startswith("pkg.nvidia-"):
            facts.drop("cuda_library")
        if fact.key == "model.repo":
            facts.drop("model.")
        decides = fact.key.startswith("pkg.") or fact.key in ("python.version", "os.platform")
        if decides and fact.value != facts.value(fact.key):
            _doubt_conflicts(facts, fact.key)
    facts.update(given)


def _doubt_conflicts(facts: FactSet, key: str) -> None:
    """Requirements were compared with what is installed: what depends on a value that was given is not known any
    more."""
    fact = facts.get("conflict")
    if not isinstance(fact.value, Records):
        return
    name = key[4:] if key.startswith("pkg.") else None

    def stands(item: Mapping[str, Value]) -> bool:
        askers = item.get("required_by")
        alone = isinstance(askers, tuple) and len(askers) == 1 and askers[0].partition(" ")[0] == name
        return name is not None and item.get("package") != name and not alone

    kept = tuple(item for item in fact.value if stands(item))
    reason = fact.value.incomplete or f"{key} was given, and requirements were compared with what is installed"
    facts.update([fact._replace(value=Records(kept, reason))])


def is_known(facts: FactSet, name: str) -> bool:
    """Whether the fact is known, or for a prefix (``model``) whether any fact below it is."""
    if not isinstance(facts.value(name), Unknown):
        return True
    return any(fact.key.startswith(name + ".") and not isinstance(fact.value, Unknown) for fact in facts)
