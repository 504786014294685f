"""Real probes with planted faults, many in one process, judged as ``envdoctor probe`` judges them."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from known import given, judged
from observing import shipped

from envdoctor.experiments import (
    PAYLOAD,
    Job,
    JudgedCase,
    Outcome,
    Results,
    Wishes,
    cases_of,
    find_probes,
    groups_of,
    outcome_of,
    results_of,
    run_session,
    session_of,
)
from envdoctor.facts import Records
from envdoctor.judge import Finding
from envdoctor.system import Place, run_in_target

INSIDE = Path(__file__).parent / "inside"
PROBES = find_probes()
Name = TypeVar("Name")


class Seen(NamedTuple):
    """What jobs gave, where training uses the CPU."""

    outcomes: Sequence[Outcome]
    findings: Sequence[Finding]

    @property
    def cases(self) -> list[JudgedCase]:
        return cases_of(self.outcomes)

    @property
    def groups(self) -> list[Any]:
        return groups_of(self.outcomes)

    @property
    def wrong(self) -> list[Any]:
        return [group for group in self.groups if group.wrong]

    @property
    def told(self) -> list[Finding]:
        """Findings that are folded into no other."""
        return [finding for finding in self.findings if finding.superseded_by is None]

    @property
    def roots(self) -> set[str]:
        """Their rules."""
        return {finding.id for finding in self.told}


def jobs(name: str, suite: str = "quick", **more: Any) -> list[Job]:
    """The jobs of a probe on the CPU."""
    return PROBES[name].jobs(suite, "cpu", by_name=True, **more)


def few(name: str) -> list[Job]:
    """The jobs of a probe on the CPU with two of the rows that it draws: without a fault all of them run."""
    return [replace(job, options={**job.options, "drawn": 2}) for job in jobs(name)]


def batch(*models: str, dtype: str = "bf16", **options: Any) -> Job:
    """One job of the padded batch with these tiny models."""
    usual = PROBES["padded-batch"].usual
    return replace(usual, dtype=dtype, options={"models": list(models), **options}, seconds=240)


def pure(name: str) -> Any:
    """A module of the payload that needs no torch."""
    spec = importlib.util.spec_from_file_location(name, PAYLOAD / "probing" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checks_of(script: str) -> list[str]:
    """The checks of this script of ``inside/``: its public functions that take nothing and give something."""
    return re.findall(r"(?m)^def ([a-z]\w*)\(\) -> Any:", (INSIDE / script).read_text(encoding="utf-8"))


def inside(python: str, script: str, *arguments: str, read: str | None = None) -> str:
    """What this script of ``inside/`` prints in an interpreter with torch; ``read`` is its standard input."""
    command = [python, "-B", INSIDE / script, PAYLOAD, *arguments]
    done = subprocess.run(command, input=read, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


#: What to run in one process, by a name of its own: the fault (None: none) and the jobs.
Wanted = Mapping[Name, tuple[str | None, Sequence[Job]]]


def planted(python: str, scratch: Path, wanted: Wanted[Name], *, reached: bool = False) -> dict[Name, list[Outcome]]:
    """Run jobs with planted faults, one after another in one process; the outcomes by the same names.

    With ``reached`` the experiment ``arithmetic`` leaves out what a fault cannot reach: most of its time.
    """
    each = [(name, fault, job) for name, (fault, jobs) in wanted.items() for job in jobs]
    each.sort(key=lambda one: one[2].seed or 0)  # what is kept is kept for one seed
    tasks = []
    for _, fault, job in each:
        task = job.task()
        job_of = {**task.job, "script": task.script, "fault": fault, "reached": reached}
        # What a case of attention must give is kept for all faults: two gigabytes.
        tasks.append(task._replace(script="faulty.py", job=job_of, memory_mib=task.memory_mib + 3000))
    place = Place(python, os.environ, str(scratch), str(scratch), "", INSIDE)
    found: dict[Name, list[Outcome]] = {}
    for (name, _, job), answer in zip(each, run_in_target(tasks, place), strict=True):
        assert answer.ending == "ok", (name, job.label, answer.ending, answer.detail)
        found.setdefault(name, []).append(outcome_of(job, answer))
    return found


def planted_session(
    python: str, folder: Path, fault: str, *names: str, suite: str = "quick", reached: bool = False
) -> list[Outcome]:
    """What a session with these experiments gives where every child has the fault; it repeats what fails."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(INSIDE),
        "ENVDOCTOR_TEST_FAULT": fault,
        "ENVDOCTOR_TEST_REACHED": "1" * reached,
    }
    place = Place(python, environ, str(folder), str(folder), "", PAYLOAD)
    wishes = Wishes([PROBES[name] for name in names], True, suite, "cpu")
    return list(run_session(PROBES["context"], wishes, place, cpu_for_sure=True, workers=1).outcomes)


def results(*outcomes: Outcome) -> Results:
    """The outcomes as facts and as the report's section, on a device that training uses."""
    return results_of(session_of(outcomes), PROBES, suite="quick", names=(), using=True)


def seen(outcomes: Sequence[Outcome], packages: Mapping[str, str] | None = None) -> Seen:
    """The outcomes judged, beside these versions of packages."""
    matrix = shipped()
    facts = given({f"pkg.{name}": version for name, version in (packages or {}).items()}, matrix.registry)
    facts.update(results(*outcomes).facts)
    assert isinstance(facts.value("probe"), Records)
    return Seen(outcomes, judged(facts, matrix.of_scopes("probe")).findings)
