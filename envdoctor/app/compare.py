"""``envdoctor compare``: do the machines of a job agree with each other?"""

from collections.abc import Sequence
from pathlib import Path

from envdoctor.app.errors import UsageProblem, told_as
from envdoctor.app.facts import working_directory
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact
from envdoctor.judge.finding import Policy
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.facts_file import FactsFileError, drift_between, load_facts_document
from envdoctor.observe.request import Target
from envdoctor.report.report import Report
from envdoctor.system.message import Message


def compare(
    files: Sequence[str], *, policy: Policy | None = None, matrix: Matrix | None = None, exit_zero: bool = False
) -> Report:
    """Compare facts files, one a machine, and judge what differs; a machine is called by the name of its file. Raises
    :class:`UsageProblem` for fewer than two files, and for one that cannot be read."""
    if len(set(files)) < 2:
        raise UsageProblem("at least two facts files are compared; `envdoctor facts --format json` writes one")
    run = Judging(policy, matrix, exit_zero)
    here = working_directory() or Path("/")
    stems = [Path(name).stem for name in files]
    names = stems if len(set(stems)) == len(stems) else list(files)
    with told_as(None, FactsFileError):
        documents = {name: load_facts_document(here / file, file) for name, file in zip(names, files, strict=True)}
    shared, drift = drift_between(documents, run.matrix.registry)
    facts = FactSet([*shared, Fact("drift", drift, Message("the facts files"), "derived")])
    judgement = run.judged(facts, run.matrix.of_scopes("drift"))
    more = f", +{len(names) - 2}" if len(names) > 2 else ""
    target = Target("facts", f"{names[0]}, {names[1]}{more}", Message("--facts"))
    return run.report("compare", target, judgement, run.of_rules(judgement))
