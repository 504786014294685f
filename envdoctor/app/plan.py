"""``envdoctor plan``: versions to install for a model on a machine, resolved by uv and judged by every rule.

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
from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Sources, collect_facts
from envdoctor.app.whole_file import write_whole
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Absent, Fact, Records
from envdoctor.install.builds import Build, builds_of, no_build
from envdoctor.install.needs import needs_of
from envdoctor.install.remedy import Remedy
from envdoctor.install.resolver import NoResolver, Wanted, resolve
from envdoctor.install.trial import before, try_remedy
from envdoctor.judge.finding import Finding
from envdoctor.knowledge.matrix import Matrix, load_matrix
from envdoctor.observe.sources import SOURCES
from envdoctor.report.report import Report
from envdoctor.text.clean import clean
from envdoctor.versions.pep440 import is_version, satisfies
from envdoctor.versions.requirement import read_requirement

__all__ = ["Planned", "plan"]

#: How often is resolved before envdoctor gives up: each turn ends an error or meets the next one.
_TURNS = 8


class Planned(NamedTuple):
    """``lines`` are what to install; none when there is nothing to change, or no such set was found: ``because`` says
    why not, and is empty otherwise. ``remarks`` are sentences about them, for a person."""

    lines: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    because: str = ""

    @property
    def text(self) -> str:
        """The file: requirements, behind the remarks as comments."""
        return "".join(f"{clean(line, None)}\n" for line in (*(f"# {note}" for note in self.remarks), *self.lines))


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
        return Planned(remarks=("nothing to change: no error is known",))
    if found is None:
        return Planned(because=_told(errors[0]))
    left = [_told(one) for one in errors if one.fingerprint in found.leaves]
    ended = [_told(one) for one in errors if one.fingerprint in found.clears]
    also = [*(f"uninstall {name}" for name in found.uninstall), *_settings(found.set, found.env)]
    remarks = [*ended, *(f"also: {text}" for text in also), *(f"install: {line}" for line in found.commands)]
    return Planned(found.constraints, tuple(remarks), "; ".join(left))


class _New:
    """The turns for a new environment. ``_bounds`` are what the rules added to what is asked, with their reasons."""

    def __init__(self, judged: Sources, asked: Sequence[str], matrix: Matrix, progress: Callable[[str], None]) -> None:
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
        ways: list[dict[str, str]] = [{}]
        because = ""
        for turn in range(1, _TURNS + 1):
            self._progress(f"resolving, turn {turn}")
            for bounds in ways:
                torch = self._torch(facts, [*lines, *bounds])
                if isinstance(torch, str):
                    because = torch
                    continue
                if torch.build.tag is None and not torch.newest:
                    bounds.setdefault(f"torch<={torch.version}", torch.objection)
                found, index = self._resolved([*lines, *bounds], torch, facts)
                if not isinstance(found, str):
                    self._bounds = bounds
                    break
                because = f"uv, asked for {', '.join([*lines, *bounds])}: {found}"
            else:
                return Planned(because=because)
            text = [*([f"--extra-index-url {index}"] if index else []), *found]
            write_whole(path, Planned(tuple(text), ("generated by envdoctor",)).text)
            report = check(self._judged, matrix=self._matrix)
            errors = [finding for finding in report.shown() if finding.gate]
            if not errors:
                return Planned(tuple(text), tuple(self._remarks(report, index, built)))
            because = "; ".join(map(_told, errors))
            ways = self._ways(report, errors)
        return Planned(because=because)

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
            changed = (
                Fact("pkg.torch", version, "the plan", "given"),
                Fact("torch.cuda", build.cuda, "the plan", "given"),
            )
            errors = try_remedy(Remedy(facts=changed), now).errors
            new = next((problem for problem in errors if problem not in now.errors), None)
            if new is None:
                return _Torch(version, build, version == fitting[0], objections[0] if objections else "")
            objections.append(f"{new.rule_id}: {errors[new]}")
        return objections[0] if objections else f"no release of torch for it is known ({', '.join(asked) or 'any'})"

    def _resolved(
        self, lines: Sequence[str], torch: _Torch, facts: FactSet
    ) -> tuple[tuple[str, ...] | str, str | None]:
        """What uv answers, and the index that torch's build comes from where it is not the user's own."""
        python, system, machine, libc = (
            str(facts.value(key)) for key in ("python.minor", "os.platform", "os.arch", "os.libc_version")
        )
        known = libc if isinstance(facts.value("os.libc_version"), str) else None
        wanted = Wanted(lines, python, system, machine, known)
        environ, folder, tag = self._judged.environ, self._judged.folder(), torch.build.tag
        try:
            if tag is None:
                return resolve(wanted, environ, folder), None
            # A mirror of the user's may have this build: then no other index is needed.
            found = resolve(wanted._replace(lines=[*lines, f"torch=={torch.version}+{tag}"]), environ, folder)
            if not isinstance(found, str):
                return found, None
            row = next(row for row in self._matrix.rows("packages", "package") if row["name"] == "torch")
            wanted = wanted._replace(lines=[*lines, f"torch=={torch.version}"], backend=tag)
            return resolve(wanted, environ, folder), str(row["wheel_index"]).replace("{tag}", tag)
        except NoResolver as error:
            raise JobError(str(error)) from None

    def _ways(self, report: Report, errors: Sequence[Finding]) -> list[dict[str, str]]:
        """Bounds that may end the errors, with those that there are: what the first fix of each asks for, and what the
        plan of the check would change, which knows more and stays nearer to what was resolved."""
        found = report.plan
        settings = {**found.set, **{f"env.{name}": value for name, value in found.env.items()}} if found else {}
        fixes = [(fix.constraints, _told(one)) for one in errors for fix in one.fixes if fix.constraints]
        told = "ends " + ", ".join(finding.id for finding in errors)
        ways = [
            self._bounded(fixes, report.facts),
            self._bounded([(found.constraints, told)] if found else [], report.facts),
        ]
        new = [way for way in ways if way != self._bounds]
        if settings.items() <= self._settings.items():
            return new
        self._settings.update(settings)
        given = (*self._judged.assignments, *(f"{key}={value}" for key, value in settings.items()))
        self._judged = self._judged._replace(assignments=given)
        return new or [dict(self._bounds)]

    def _bounded(self, changes: Sequence[tuple[Sequence[str], str]], facts: FactSet) -> dict[str, str]:
        """The bounds with these. A release that is named stands for those on its side of the one that was resolved: the
        resolver may need another one."""
        bounds, reasons = dict(self._bounds), set[str]()
        for lines, why in changes:
            if why in reasons:
                continue
            reasons.add(why)
            for wanted in map(read_requirement, lines):
                version, present = wanted.specifiers.removeprefix("=="), facts.value(f"pkg.{wanted.name}")
                line = wanted.name + wanted.specifiers
                if is_version(version) and isinstance(present, str):
                    older = satisfies(version, f"<{present.partition('+')[0]}")
                    line = f"{wanted.name}{'<=' if older else '>='}{version}"
                bounds.setdefault(line, why)
        return bounds

    def _remarks(self, report: Report, index: str | None, built: Sequence[str]) -> list[str]:
        judged, target = self._judged, self._judged.target
        warnings = [finding.id for finding in report.shown() if finding.severity == "warning"]
        what = f"{judged.model or 'no model'}, " + ", ".join(f"{name} {text}" for name, text in target.items())
        remarks = [f"generated by envdoctor plan, resolved by uv, for {what}"]
        remarks.append(f"{report.rules_checked} rules judged it: no error; warnings: {', '.join(warnings) or 'none'}")
        remarks += [f"{bound}: {why}" for bound, why in self._bounds.items()]
        remarks += [f"also: {text}" for text in _settings(self._settings, {})]
        best = " --index-strategy unsafe-best-match" if index else ""
        remarks.append(f"install: uv pip install{best} -r FILE, or: pip install -r FILE")
        remarks += [f"then, compiled there: pip install --no-build-isolation {name}" for name in built]
        return remarks


def _stated(sources: Sources, matrix: Matrix) -> Sources:
    """The sources with the machine in words: what was typed, else this machine. Python and system that were not typed
    are those of the default environment."""
    here = collect_facts(sources._replace(model=None, recipe=(), code=(), target={}), matrix).facts
    target: dict[str, str] = {}
    for name, keys in {"python": ("python.minor",), "platform": ("os.platform", "os.arch")}.items():
        values = [here.value(key) for key in keys]
        if all(isinstance(value, str) for value in values):
            target[name] = "-".join(map(str, values))
    target |= sources.target
    for name, example in (("python", "3.11"), ("platform", "linux-x86_64")):
        if name not in target:
            raise UsageProblem(f"--target-{name} {example} is needed: no environment was found that says it")
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
    return sources._replace(target=target, assignments=given)


def _told(finding: Finding) -> str:
    return f"{finding.id}: {finding.message.en}"


def _settings(recipe: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in {**recipe, **variables}.items()]
