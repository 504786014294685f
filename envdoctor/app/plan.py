"""``envdoctor plan``: versions to install for a model on a machine, resolved by uv or pip and judged by every rule.

The resolver knows what packages require of each other, the rules what breaks all the same. They take turns: what was
resolved is judged as ``check --lock`` judges it, what ends its errors becomes a bound, and it is resolved again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from envdoctor.app.check import check
from envdoctor.app.errors import JobError
from envdoctor.app.facts import Sources, collect_facts
from envdoctor.app.whole_file import write_whole
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Absent, Fact, Records
from envdoctor.install.builds import Build, builds_of, no_build
from envdoctor.install.needs import needs_of
from envdoctor.install.remedy import Remedy
from envdoctor.install.resolver import NoResolver, Resolved, Wanted, resolve
from envdoctor.install.trial import before, try_remedy
from envdoctor.judge.finding import Finding
from envdoctor.knowledge.matrix import Matrix, load_matrix
from envdoctor.observe.sources import SOURCES
from envdoctor.report.report import Report
from envdoctor.text.clean import clean
from envdoctor.versions.pep440 import satisfies
from envdoctor.versions.requirement import read_requirement

__all__ = ["Planned", "plan"]

#: How often is resolved before envdoctor gives up: each turn ends an error or meets the next one.
_TURNS = 8


class Planned(NamedTuple):
    """``lines`` are what to install; none when there is nothing to change, or no such set was found: ``because`` says why
    not, and is empty otherwise. ``notes`` are sentences about them, for a person."""

    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    because: str = ""

    @property
    def text(self) -> str:
        """The file: requirements, behind the notes as comments."""
        return "".join(f"{clean(line, None)}\n" for line in (*(f"# {note}" for note in self.notes), *self.lines))


class _Torch(NamedTuple):
    version: str
    build: Build
    newest: bool
    objection: str


def plan(
    sources: Sources,
    asked: Sequence[str] = (),
    *,
    matrix: Matrix | None = None,
    progress: Callable[[str], None] | None = None,
) -> Planned:
    """What to change in the environment that the sources name; where they name none, a whole set for a new one, with
    the requirements ``asked`` in it. Nothing is installed or written.

    Raises :class:`~envdoctor.app.errors.UsageProblem` and :class:`~envdoctor.app.errors.JobError`, the latter too where
    no resolver can be asked.
    """
    matrix = matrix or load_matrix()
    if any(getattr(sources, name, None) for name in SOURCES):
        return _changes(check(sources, matrix=matrix))
    stated = _stated(sources, matrix)
    with tempfile.TemporaryDirectory(prefix="envdoctor-plan-") as folder:
        judged = stated._replace(lock=os.path.join(folder, "requirements.txt"))
        return _New(judged, asked, matrix, progress or (lambda text: None)).found()


def _changes(report: Report) -> Planned:
    """The plan of a check as a list, with its commands."""
    errors = [finding for finding in report.shown() if finding.gate]
    found = report.plan
    if not errors:
        return Planned(notes=("nothing to change: no error is known",))
    if found is None:
        return Planned(because=_told(errors[0]))
    left = [_told(one) for one in errors if one.fingerprint in found.leaves]
    ended = [_told(one) for one in errors if one.fingerprint in found.clears]
    also = [*(f"uninstall {name}" for name in found.uninstall), *_settings(found.set, found.env)]
    notes = [*ended, *(f"also: {text}" for text in also), *(f"install: {line}" for line in found.commands)]
    return Planned(found.constraints, tuple(notes), "; ".join(left))


class _New:
    """The turns for a new environment. ``bounds`` are what the rules added to what is asked, with the reason of each."""

    def __init__(
        self, judged: Sources, asked: Sequence[str], matrix: Matrix, progress: Callable[[str], None]
    ) -> None:
        self._judged, self._asked, self._matrix, self._progress = judged, asked, matrix, progress
        self._bounds: dict[str, str] = {}
        self._settings: dict[str, str] = {}

    def found(self) -> Planned:
        """The set that has no error, or why there is none."""
        path = Path(str(self._judged.lock))
        write_whole(path, "torch\n")
        facts = collect_facts(self._judged, self._matrix).facts
        needs = list(needs_of(facts, self._matrix))
        built = [name for row in needs if row.get("built") for name in row["asks"]]
        lines = [name for row in needs if not row.get("built") for name in row["asks"]] + list(self._asked)
        torch = self._torch(facts, lines)
        if isinstance(torch, str):
            return Planned(because=torch)
        if torch.build.tag is None and not torch.newest:
            self._bounds[f"torch<={torch.version}"] = torch.objection
        for turn in range(1, _TURNS + 1):
            self._progress(f"resolving, turn {turn}")
            found, index = self._resolved([*lines, *self._bounds], torch, facts)
            if not found.lines:
                return Planned(because=f"{found.by} finds none with {', '.join(self._bounds) or 'these'}: {found.because}")
            text = [*([f"--extra-index-url {index}"] if index else []), *found.lines]
            write_whole(path, Planned(tuple(text), ("generated by envdoctor",)).text)
            report = check(self._judged, matrix=self._matrix)
            errors = [finding for finding in report.shown() if finding.gate]
            if not errors:
                return Planned(tuple(text), tuple(self._notes(report, found, index, built)))
            if not self._learnt(report, errors):
                return Planned(because="; ".join(map(_told, errors)))
            torch = self._torch(facts, [*lines, *self._bounds])
            if isinstance(torch, str):
                return Planned(because=torch)
        return Planned(because=f"none was found in {_TURNS} turns: {_told(errors[0])}")

    def _torch(self, facts: FactSet, lines: Sequence[str]) -> _Torch | str:
        """The newest torch that is asked for and that no rule objects to on this machine: PyPI's build, where one is
        fit, else one of the wheel index. Else why there is none."""
        matrix, now = self._matrix, before(facts, self._matrix)
        asked = [one.specifiers for one in map(read_requirement, lines) if one.name == "torch" and one.specifiers]
        rows = [str(row["key"]) for row in matrix.rows("torch-builds")]
        fitting = [one for one in reversed(rows) if all(satisfies(one, specifier) for specifier in asked)]
        fitting = [one for one in fitting if no_build("torch", one, facts, matrix) is None]
        objections: list[str] = []
        builds = [(version, list(builds_of(version, facts, matrix))) for version in fitting]
        for version, build in [(v, b[0]) for v, b in builds] + [(v, one) for v, b in builds for one in b[1:]]:
            if build.forbidden is not None or build.cuda is None:
                continue
            changed = (Fact("pkg.torch", version, "the plan", "given"), Fact("torch.cuda", build.cuda, "the plan", "given"))
            errors = try_remedy(Remedy(facts=changed), now).errors
            new = next((problem for problem in errors if problem not in now.errors), None)
            if new is None:
                return _Torch(version, build, version == fitting[0], objections[0] if objections else "")
            objections.append(f"{new.rule_id}: {errors[new]}")
        return objections[0] if objections else f"no release of torch for it is known ({', '.join(asked) or 'any'})"

    def _resolved(self, lines: Sequence[str], torch: _Torch, facts: FactSet) -> tuple[Resolved, str | None]:
        """What the resolver answers, and the index that torch's build comes from where it is not the user's own."""
        machine, libc = facts.value("os.arch"), facts.value("os.libc_version")
        wanted = Wanted(
            lines,
            str(facts.value("python.minor")),
            str(facts.value("os.platform")),
            str(machine),
            libc if isinstance(libc, str) else None,
        )
        tag = torch.build.tag
        index = None
        try:
            if tag is not None:
                # A mirror of the user's may have this build: then no other index is needed.
                pinned = wanted._replace(lines=[*lines, f"torch=={torch.version}+{tag}"])
                found = resolve(pinned, self._judged.environ, self._judged.folder())
                if found.lines:
                    return found, None
                row = next(row for row in self._matrix.rows("packages", "package") if row["name"] == "torch")
                index = str(row["wheel_index"]).replace("{tag}", tag)
                wanted = wanted._replace(lines=[*lines, f"torch=={torch.version}"], backend=tag, wheel_index=index)
            return resolve(wanted, self._judged.environ, self._judged.folder()), index
        except NoResolver as error:
            raise JobError(str(error)) from None

    def _learnt(self, report: Report, errors: Sequence[Finding]) -> bool:
        """Take what ends the errors as bounds and settings; whether anything is new in it."""
        found = report.plan
        if found is None:
            return False
        known = len(self._bounds) + len(self._settings)
        why = "; ".join(_told(one) for one in errors if one.fingerprint in found.clears)
        for line in found.constraints:
            wanted = read_requirement(line)
            present, version = report.facts.value(f"pkg.{wanted.name}"), wanted.specifiers.removeprefix("==")
            older = isinstance(present, str) and satisfies(version, f"<{present.partition('+')[0]}")
            self._bounds.setdefault(f"{wanted.name}{'<=' if older else '>='}{version}", why)
        settings = {**found.set, **{f"env.{name}": value for name, value in found.env.items()}}
        self._settings.update(settings)
        given = (*self._judged.assignments, *(f"{key}={value}" for key, value in settings.items()))
        self._judged = self._judged._replace(assignments=given)
        return len(self._bounds) + len(self._settings) > known

    def _notes(self, report: Report, found: Resolved, index: str | None, built: Sequence[str]) -> list[str]:
        judged, target = self._judged, self._judged.target
        warnings = [finding.id for finding in report.shown() if finding.severity == "warning"]
        what = f"{judged.model or 'no model'}, " + ", ".join(f"{name} {text}" for name, text in target.items())
        notes = [f"generated by envdoctor plan, resolved by {found.by}, for {what}"]
        notes.append(f"{report.rules_checked} rules judged it: no error; warnings: {', '.join(warnings) or 'none'}")
        notes += [f"{bound}: {why}" for bound, why in self._bounds.items()]
        notes += [f"also: {text}" for text in _settings(self._settings, {})]
        best = " --index-strategy unsafe-best-match" if index else ""
        notes.append(f"install: uv pip install{best} -r FILE, or: pip install -r FILE")
        notes += [f"then, compiled there: pip install --no-build-isolation {name}" for name in built]
        return notes


def _stated(sources: Sources, matrix: Matrix) -> Sources:
    """The sources with the machine in words: what was typed, else this machine. Python and system that were not typed
    are those of the default environment."""
    here = collect_facts(sources._replace(model=None, recipe=(), code=(), target={}), matrix).facts
    target: dict[str, str] = {}
    for name, keys in {"python": ("python.minor",), "platform": ("os.platform", "os.arch")}.items():
        values = [here.value(key) for key in keys]
        if all(isinstance(value, str) for value in values):
            target[name] = "-".join(map(str, values))
    given = list(sources.assignments)
    if not sources.target:
        gpus, driver, libc = here.value("gpu"), here.value("driver.version"), here.value("os.libc_version")
        if isinstance(driver, str):
            target["driver"] = driver
        if isinstance(libc, str):
            given.insert(0, f"os.libc_version={libc}")
        items = gpus.items if isinstance(gpus, Records) else ()
        if isinstance(gpus, Absent) or (isinstance(gpus, Records) and not items):
            target["gpu"] = "none"
        for column in ("name", "cc") if items else ():
            given.insert(0, f"gpu.{column}=" + ",".join(str(item.get(column)) for item in items))
    return sources._replace(target={**target, **sources.target}, assignments=given)


def _told(finding: Finding) -> str:
    return f"{finding.id}: {finding.message.en}"


def _settings(recipe: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in {**recipe, **variables}.items()]
