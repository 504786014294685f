"""``envdoctor check``: does what is installed agree with what is known to work, for this model and recipe?"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from envdoctor.app.errors import UsageProblem
from envdoctor.app.facts import Gathered, Sources, collect_facts, is_there
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Records
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.judging import Judgement
from envdoctor.judge.policy import Policy
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.model.names import printable
from envdoctor.observe.sources import DOCUMENTS
from envdoctor.report.report import Notice, Report
from envdoctor.system.files import Budget, Files, Spent
from envdoctor.system.message import Message, listed
from envdoctor.system.nearest import did_you_mean

if TYPE_CHECKING:
    from envdoctor.app.ranks import Others
    from envdoctor.peak.section import MemorySection
_FOLDERS = ("", "scripts", "src", "notebooks")
_ENDINGS = (".py", ".ipynb")
_MOST_FILES = 20
_LIMIT = 1 << 16
_TRAINS = re.compile(
    r"""(?m)^[ \t"]*(?:from|import)[ \t]+(?:transformers|trl|peft|accelerate|diffusers|deepspeed|unsloth"""
    r"""|sentence_transformers|lightning|pytorch_lightning)\b"""
)


def check(
    sources: Sources | None = None,
    *,
    policy: Policy | None = None,
    matrix: Matrix | None = None,
    require: Iterable[str] = (),
    exit_zero: bool = False,
    probe: bool = False,
    progress: Callable[[str], None] | None = None,
    others: "Callable[[Gathered], Others] | None" = None,
) -> Report:
    """Judge one environment and return the report; nothing is printed, imported from the target, or written.

    ``require`` names facts (or prefixes such as ``gpu``) without which the run counts as not done (exit code 3): known,
    and something there. So does a run whose question could not be answered (:mod:`~envdoctor.app.unjudged`).
    ``probe`` runs the experiments that the findings name, in children of the target's interpreter, and judges again
    with what they saw; ``progress`` hears how far they are. ``others`` brings the facts of the job's other machines,
    which are compared; one that did not come makes the run incomplete.
    Raises :class:`~envdoctor.app.errors.UsageProblem` and :class:`~envdoctor.app.errors.JobError`.
    """
    run = Judging(policy, matrix, exit_zero)
    matrix, sources = run.matrix, sources or Sources()
    gathered = collect_facts(sources, matrix, links=True)
    scopes = ["environment"]
    absent: list[Notice] = []
    if others is not None:
        absent = _compared(gathered, others(gathered), matrix)
        scopes.append("drift")
    peak: MemorySection | None = None
    predict: Callable[[FactSet], FactSet] | None = None
    hint: list[Notice] = []
    if any(not fact.is_guess for fact in gathered.facts.below("recipe.")):
        from envdoctor.app.memory import known_memory, predictor

        facts, peak, why = known_memory(gathered.facts, sources, matrix)
        gathered = gathered._replace(facts=facts)
        predict = predictor(facts, sources, matrix) if peak is not None else None
        scopes += ["memory"] if peak is not None else []
        hint = [_not_predicted(sources, why)] if peak is None else _unjudged(why, sources)
    scopes += ["watch"] if any(True for _ in gathered.facts.below("watch.")) else []
    rules = matrix.of_scopes(*scopes)
    judgement = run.judged(gathered.facts, rules, predict)
    section: dict[str, Any] | None = None
    commands: Mapping[str, str] = {}
    tried: list[Notice] = []
    if probe:
        facts, section, tried = _settle(gathered, sources, judgement, matrix, progress)
        if section is not None:
            rules = matrix.of_scopes(*scopes, "probe")
            judgement = run.judged(facts, rules, predict)
    else:
        commands = _probe_commands(gathered, sources, judgement)
    if any(finding.severity == "error" for finding in judgement.findings):
        from envdoctor.remedy.plan import with_plan

        judgement = with_plan(judgement, rules, predict)
    notices = [
        *gathered.notices,
        *_asked_by_model(judgement.facts, matrix),
        *_code_not_given(gathered, sources),
        *run.of_rules(judgement),
        *tried,
        *absent,
        *hint,
        *_seen_otherwise(judgement, peak),
    ]
    missing = [name for name in require if not _required(judgement, name, matrix)]
    if missing:
        text = Message("--require {}: not known, or not there, so the run does not count", ", ".join(missing))
        if missing == ["known"]:
            text = Message("--require known: {}, so the run does not count", _strange(judgement.facts))
        notices.append(Notice("error", text))
    if judgement.rules_checked == 0:
        notices.append(Notice("error", Message("no rule could be checked: nothing is known of this environment")))
    failed = any(notice.level == "error" for notice in notices)
    return run.report(
        "check",
        gathered.target,
        judgement,
        notices,
        incomplete=failed or any(missed.asked for missed in gathered.unjudged),
        probe=section,
        memory=peak,
        probe_commands=commands,
        unjudged=tuple(missed.text for missed in gathered.unjudged),
    )


def _asked_by_model(facts: FactSet, matrix: Matrix) -> list[Notice]:
    """Return a notice of what the given model asks for, and whether it is there."""
    if not any(facts.text(key) is not None for key in ("model.type", "model.family")):
        return []
    from envdoctor.remedy.needs import asked_by_model

    text = asked_by_model(facts, matrix)
    return [Notice("note", text)] if text else []


def _compared(gathered: Gathered, others: "Others", matrix: Matrix) -> list[Notice]:
    """Add what differs between the machines to the facts; return a notice for each machine that did not come."""
    from envdoctor.observe.documents.facts_file import drift_between

    drift = Records((), Message("only one came"))
    if len(others.documents) > 1 or not others.problems:
        _, drift = drift_between(others.documents, matrix.registry, others.ranks)
    gathered.facts.add(Fact("drift", drift, Message("the facts of all machines"), "machine"))
    return [Notice("error", text) for text in others.problems]


def _code_not_given(gathered: Gathered, sources: Sources) -> list[Notice]:
    """Return a notice if unjudged training code lies here and may run in the environment that was judged."""
    if sources.code or gathered.target.kind in (*DOCUMENTS, "none", "root"):
        return []
    from shlex import quote

    scripts = _training_code(sources.folder())
    if not scripts:
        return []
    shown = scripts[0] if len(scripts) == 1 else "."
    return [
        Notice("note", Message("{} was not judged: --code {} checks what your own code uses", scripts[0], quote(shown)))
    ]


def _named_probes(judgement: Judgement) -> list[str]:
    """Return the existing experiments that would settle a finding."""
    names = dict.fromkeys(f.probe for f in judgement.findings if f.probe and f.ignored is None)
    if not names:
        return []
    from envdoctor.experiments.probe.catalogue import has_probe

    return [name for name in names if has_probe(name)]


def _probe_commands(gathered: Gathered, sources: Sources, judgement: Judgement) -> Mapping[str, str]:
    """Return the command of each experiment that a finding names; none unless its environment was judged."""
    names = _named_probes(judgement)
    if not names or gathered.facts.text("python.executable") is None or _supposed(sources):
        return {}
    return {name: _command("probe", sources, "--only", name) for name in names}


def _seen_otherwise(judgement: Judgement, peak: "MemorySection | None") -> Iterator[Notice]:
    """Yield a warning if such runs ran out of memory elsewhere although the prediction says that this one fits."""
    verdict = peak["verdict"] if peak is not None else None
    unlike = {"fits": ("error", "warning"), "tight": ("error",)}.get(str(verdict), ())
    for one in judgement.findings:
        if one.effect == "oom" and one.severity in unlike and one.ignored is None and one.superseded_by is None:
            text = "{} and the prediction differ: such runs ran out of memory, and this one may fit by the prediction"
            yield Notice("warning", Message(text, one.id))


def _unjudged(why: Notice | None, sources: Sources) -> list[Notice]:
    """Return why the run was not judged against its GPU: an error if ``--target-gpu`` asked for that, else milder."""
    if why is None or why.level != "error":
        return [why._replace(level="note")] if why is not None else []
    return [why if sources.target.get("gpu") else why._replace(level="warning")]


def _not_predicted(sources: Sources, why: Notice | None) -> Notice:
    """Return a notice that the peak of this recipe is unknown, why, and what would predict it."""
    more = [] if sources.recipe or sources.assignments else ["--recipe", "FILE"]
    command = _command("memory", sources, *more, *([] if sources.model else ["--model", "DIR"]))
    reason = why and why.text
    return Notice("note", Message("whether this run fits into memory was not judged ({}): {}", reason, command))


def _command(command: str, sources: Sources, *more: str) -> str:
    """Return another command about the same environment, model and recipe."""
    from shlex import quote

    from envdoctor.observe.recipe.assignments import key_of, typed

    words = ["envdoctor", command]
    words += ["--python", sources.python] if sources.python else []
    words += ["--model", sources.model] if sources.model else []
    for recipe in sources.recipe:
        words += ["--recipe", recipe]
    for given in (*sources.configured, *sources.assignments):
        if key_of(given).startswith("recipe."):
            words += ["--set", typed(given)]
    return " ".join(map(quote, [*words, *more]))


def _supposed(sources: Sources) -> bool:
    """Return whether the packages that were judged differ from the ones that an experiment would run with."""
    from envdoctor.observe.recipe.assignments import key_of

    keys = map(key_of, (*sources.configured, *sources.assignments))
    return sources.facts is not None or any(key.startswith(("pkg.", "torch.", "python.")) for key in keys)


def _settle(
    gathered: Gathered,
    sources: Sources,
    judgement: Judgement,
    matrix: Matrix,
    progress: Callable[[str], None] | None,
) -> "tuple[FactSet, dict[str, Any] | None, list[Notice]]":
    """Run the experiments that findings name; return the facts with their results, the section and the notices."""
    from envdoctor.app.errors import JobError
    from envdoctor.app.probe import ProbeRequest, catalogue, run_probes

    names = _named_probes(judgement)
    if not names:
        return gathered.facts, None, [Notice("note", Message("no finding names an experiment: none was run"))]
    if _supposed(sources):
        text = Message("no experiment was run: what was judged is not what is installed")
        return gathered.facts, None, [Notice("warning", text)]
    try:
        results, said = run_probes(gathered, ProbeRequest(only=names, sources=sources), matrix, catalogue(), progress)
    except JobError as error:
        return gathered.facts, None, [Notice("error", Message("the experiments did not run: {}", error))]
    notices = [*said, *([Notice("error", results.failed)] if results.failed else [])]
    return with_facts(gathered.facts, results.facts, matrix), results.section, notices


def _strange(facts: FactSet) -> str:
    """Say what the matrix does not know, or that this is not known."""
    beyond = facts.records("beyond")
    if beyond is None:
        return Message("it is unknown whether the matrix covers this run")
    things = listed([f"{item['what']} {item['value']}" for item in beyond], 5)
    return Message("newer than this matrix, or not known to it: {}", things)


def _required(judgement: Judgement, name: str, matrix: Matrix) -> bool:
    if name == "known":  # nothing that the matrix does not know
        return judgement.facts.value("beyond") == Records(())
    if matrix.registry.find(name) is None and not any(spec.key.startswith(name + ".") for spec in matrix.registry):
        known = [spec.key for spec in matrix.registry]
        hint = did_you_mean(
            name, [*known, *(key.partition(".")[0] for key in known)], Message("`envdoctor matrix facts` lists them")
        )
        raise UsageProblem("--require {}: not a known fact; {}", name, hint)
    return is_there(judgement.facts, name)


def _training_code(cwd: str) -> list[str]:
    """Return scripts and notebooks of the folder that import a training library, as one would type them. Only the heads
    of a few files are read; unreadable files are left out."""
    files = Files(budget=Budget(seconds=0.5, size=_MOST_FILES * _LIMIT, steps=20_000))
    try:
        return [
            name for name in islice(_candidates(cwd, files), _MOST_FILES) if _trains(os.path.join(cwd, name), files)
        ]
    except Spent:
        return []


def _candidates(cwd: str, files: Files) -> Iterator[str]:
    for folder in _FOLDERS:
        names = files.names_or_none(os.path.join(cwd, folder))
        yield from (os.path.join(folder, name) for name in names if name.endswith(_ENDINGS))


def _trains(path: str, files: Files) -> bool:
    try:
        return printable(path, 4096) == path and _TRAINS.search(files.text(path, _LIMIT)) is not None
    except OSError:
        return False
