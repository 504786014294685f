"""Reading an installed Python environment into facts, from its files only.

The contract, for callers::

    layout = choose(python, path, root, environ=os.environ, cwd=os.getcwd())      # EnvironmentNotFound
    observed = observe(layout)                                                    # EnvironmentUnreadable

:func:`choose` (in ``target``) decides which environment is judged and lays it out; :func:`observe` reads it. Nothing of
the environment is imported or run, with one exception: an interpreter whose files do not give its version or prefix is
started once by ``choose``, bounded. Nothing is written. What files say is data: names, versions and texts may hold any
character, and are cleaned by whoever prints them.

Values that files do not give are unknown, with the reason: a derivation may still know them (``torch.cuda`` from the
local tag, ``torch.arch_list`` from a table).

There is no cache. Reading the 313 distributions of the benchmark environment takes 7 ms, 5 of them for their metadata;
a cache that noticed an edited METADATA would still have to list the folder and to look at each file, and saved 3 ms
when it was tried.
"""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.environment.companions import companion_fact
from envdoctor.observe.environment.conflicts import conflicts
from envdoctor.observe.environment.cuda_libraries import cuda_library_fact
from envdoctor.observe.environment.distributions import scan_folder
from envdoctor.observe.environment.files import because_of
from envdoctor.observe.environment.layout import EnvironmentNotFound, EnvironmentUnreadable, Layout
from envdoctor.observe.environment.metadata_directory import Distribution, Problem
from envdoctor.observe.environment.package_versions import decide_versions
from envdoctor.observe.environment.target import choose
from envdoctor.observe.environment.torch_build import torch_facts
from envdoctor.observe.environment.wheel_tags import read_wheels

__all__ = ["EnvironmentNotFound", "EnvironmentUnreadable", "Layout", "Observed", "choose", "observe"]


class Observed(NamedTuple):
    """What an environment's files say.

    ``facts`` are ``environment.*``, ``python.*``, ``pkg.*``, ``dist``, ``metadata_problem``, ``foreign_wheel``,
    ``conflict``, ``torch.*`` and what belongs to torch, each with the source ``environment``. When ``incomplete`` is
    None every distribution was seen, and a
    package that is not listed is absent; otherwise it is the reason why some may be missing. ``notes`` are sentences
    for the user.
    """

    facts: list[Fact]
    incomplete: str | None
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether a package that is not listed is known to be absent."""
        return self.incomplete is None

    def fact_set(self) -> FactSet:
        """The facts as a set, with ``pkg`` declared complete where that is known."""
        facts = FactSet(self.facts)
        if self.incomplete is None:
            facts.declare_complete("pkg", "the environment's metadata")
        return facts


def observe(layout: Layout) -> Observed:
    """Read the environment. Raises :class:`EnvironmentUnreadable` when none of its folders could be listed."""
    in_folders: dict[str, list[Distribution]] = {}
    problems: list[Problem] = []
    linked: list[str] = []
    trouble: list[str] = []
    for folder in layout.site_packages:
        try:
            scan = scan_folder(folder, layout.files)
        except OSError as error:
            trouble.append(f"{folder} cannot be read: {because_of(error)}")
            continue
        in_folders[folder] = scan.distributions
        problems += scan.problems
        linked += scan.linked
    if not in_folders:
        raise EnvironmentUnreadable(_nothing_read(layout, trouble))
    for folder in set(linked) & set(in_folders):
        in_folders[folder] = [item._replace(editable=True) for item in in_folders[folder]]
    if layout.kind == "conda":
        from envdoctor.observe.environment.conda_packages import conda_packages

        try:
            known = {item.name for items in in_folders.values() for item in items}
            in_folders["conda-meta"] = conda_packages(layout.prefix, known, layout.files)
        except OSError as error:
            trouble.append(f"conda-meta cannot be listed: {because_of(error)}")
    incomplete = trouble[0] if trouble else layout.incomplete
    versions = decide_versions(in_folders, layout.site_packages, layout.files)
    problems += versions.problems
    wheels = read_wheels(versions.distributions, layout, incomplete)
    problems += wheels.problems
    facts = _own_facts(layout)
    facts += versions.facts
    facts += wheels.facts
    facts.append(_records("dist", [_dist(item) for item in versions.distributions], incomplete))
    facts.append(_records("metadata_problem", [item._asdict() for item in problems], incomplete))
    unmet = conflicts(in_folders, versions.facts, layout, incomplete)
    facts.append(Fact("conflict", unmet, "requirements of installed packages", "environment"))
    facts.append(companion_fact(versions.distributions, versions.facts, incomplete))
    facts.append(cuda_library_fact(versions.distributions, versions.torch_file, layout, incomplete))
    facts += torch_facts(versions.torch_file, versions.torch_record, layout.files)
    return Observed(facts, incomplete, (*layout.notes, *trouble))


def _own_facts(layout: Layout) -> list[Fact]:
    executable: Value = layout.executable or ABSENT
    if layout.executable is None and layout.kind in ("path", "root"):
        executable = Unknown("a folder of packages names no interpreter, and that of an image is not started")
    because = layout.because.partition(";")[0]
    origin = layout.version_origin
    return [
        Fact("environment.path", layout.prefix, because, "environment"),
        Fact("environment.kind", layout.kind, because, "environment"),
        Fact("python.version", layout.python_version, origin, "environment"),
        Fact("python.implementation", layout.implementation, origin, "environment"),
        Fact("python.executable", executable, because, "environment"),
    ]


def _dist(item: Distribution) -> dict[str, Value]:
    return {
        "name": item.name,
        "version": item.version,
        "kind": item.kind,
        "installer": item.installer,
        "editable": item.editable,
        "path": item.path,
    }


def _records(key: str, items: list[dict[str, Value]], incomplete: str | None) -> Fact:
    return Fact(key, Records(tuple(items), incomplete), "installed packages", "environment")


def _nothing_read(layout: Layout, trouble: list[str]) -> str:
    if trouble:
        return f"nothing of the environment {layout.prefix} could be read: {'; '.join(trouble)}"
    why = "; ".join(layout.notes)
    return (
        f"the environment {layout.prefix} has no folder of packages"
        f"{f' ({why})' if why else ''}; point at another one with --python PATH, or at the folder with --path DIR"
    )
