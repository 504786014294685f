"""``envdoctor compare``: do the machines of a job agree with each other?"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envdoctor.app.errors import UsageProblem, told_as
from envdoctor.app.facts import Sources, collect_facts, working_directory
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact
from envdoctor.judge.finding import Policy
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.facts_file import FactsFileError, drift_between, facts_of_document, load_facts_document
from envdoctor.observe.request import Target
from envdoctor.remedy.commands import before
from envdoctor.report.report import Notice, Report
from envdoctor.system.message import Message


def compare(
    files: Sequence[str], *, policy: Policy | None = None, matrix: Matrix | None = None, exit_zero: bool = False
) -> Report:
    """Compare facts files, one a machine, and judge the differences; a machine has the name of its file. Raises
    :class:`UsageProblem` for fewer than two files, and for one that cannot be read."""
    if len(set(files)) < 2:
        raise UsageProblem("at least two facts files are compared; `envdoctor facts --format json` writes one")
    run = Judging(policy, matrix, exit_zero)
    here = working_directory() or Path("/")
    stems = [Path(name).stem for name in files]
    names = stems if len(set(stems)) == len(stems) else list(files)
    with told_as(None, FactsFileError):
        documents = {name: load_facts_document(here / file, file) for name, file in zip(names, files, strict=True)}
        for file, document in zip(files, documents.values(), strict=True):
            facts_of_document(document, file, run.matrix.registry)  # which refuses what is no fact
    shared, drift = drift_between(documents, run.matrix.registry)
    facts = FactSet([*shared, Fact("drift", drift, Message("the facts files"), "derived")])
    judgement = run.judged(facts, run.matrix.of_scopes("drift"))
    more = f", +{len(names) - 2}" if len(names) > 2 else ""
    target = Target("facts", f"{names[0]}, {names[1]}{more}", Message("--facts"))
    alone = _alone(dict(zip(names, files, strict=True)), run.matrix) if len(names) == 2 else ()
    return run.report("compare", target, judgement, [*run.of_rules(judgement), *alone])


def _alone(files: Mapping[str, str], matrix: Matrix) -> Iterator[Notice]:
    """Yield the errors of one of two machines that the other does not have."""
    rules = matrix.of_scopes("environment")
    errors = {
        name: before(collect_facts(Sources(facts=file), matrix).facts, rules).errors for name, file in files.items()
    }
    for name, other in (names := list(files), names[::-1]):
        elsewhere = {problem.rule_id for problem in errors[other]}
        for problem, message in errors[name].items():
            if problem.rule_id not in elsewhere:
                yield Notice("warning", Message("{} alone has {}: {}", name, problem.rule_id, message))
