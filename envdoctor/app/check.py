"""``envdoctor check``: does what is installed agree with what is known to work, for this model and recipe?"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Gathered, Sources, collect_facts, is_there
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Records
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.finding import Policy
from envdoctor.judge.judging import Judgement
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.sources import DOCUMENTS
from envdoctor.report.report import Notice, Report
from envdoctor.system.files import Budget, Files, Spent
from envdoctor.system.message import NOTHING, Message, alike, did_you_mean, joined, listed, said_by
from envdoctor.versions.requirement import valid_name

if TYPE_CHECKING:
    from envdoctor.app.ranks import Others
    from envdoctor.peak.section import MemorySection
_FOLDERS = ("", "scripts", "src", "notebooks")
_ENDINGS = (".py", ".ipynb")
_MOST_FILES = 20
_LIMIT = 1 << 16
_TRAINS = re.compile(r"Trainer\b|TrainingArguments|\.backward\(")


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
    for_code: bool = False,
) -> Report:
    """Judge one environment and return the report; nothing is printed, imported from the target, or written.

    ``require`` names facts (or prefixes such as ``gpu``) that must be known and not empty; without them the run counts
    as not done (exit code 3). So does a run whose question could not be answered (:mod:`~envdoctor.app.reporting`).
    ``probe`` runs the experiments that the findings name, in children of the target's interpreter, and judges again
    with their results; ``progress`` is called with their progress. ``others`` returns the facts of the job's other
    machines, which are compared; a missing machine makes the run incomplete. The plan is ``for_code`` too: releases
    that have what the user's own code uses.
    Raises :class:`~envdoctor.app.errors.UsageProblem` and :class:`~envdoctor.app.errors.JobError`.
    """
    run = Judging(policy, matrix, exit_zero)
    matrix, sources = run.matrix, sources or Sources()
    gathered = _gathered(sources, matrix)
    scopes = ["environment"]
    more: list[Notice] = []
    if others is not None:
        more += _compared(gathered, others(gathered), matrix)
        scopes.append("drift")
    peak: MemorySection | None = None
    predict: Callable[[FactSet], FactSet] | None = None
    hint: list[Notice] = []
    if any(not fact.is_guess for fact in gathered.facts.below("recipe.")):
        from envdoctor.app.memory import known_memory, predictor

        facts, peak, reason = known_memory(gathered.facts, sources, matrix)
        gathered = gathered._replace(facts=facts)
        predict = predictor(facts, sources, matrix) if peak is not None else None
        scopes += ["memory"] if peak is not None else []
        hint = _not_predicted(sources, reason, peak)
    scopes += ["watch"] if any(True for _ in gathered.facts.below("watch.")) else []
    rules = matrix.of_scopes(*scopes)
    judgement = run.judged(gathered.facts, rules, predict)
    section: dict[str, Any] | None = None
    commands: Mapping[str, str] = {}
    probes = list(dict.fromkeys(case.probe for case in judgement.findings if case.probe and case.ignored is None))
    if probes:
        from envdoctor.experiments.probe.catalogue import has_probe

        probes = list(filter(has_probe, probes))  # a matrix that is newer than envdoctor may name others
    if probe:
        facts, section, notes = _settle(gathered, sources, probes, matrix, progress)
        more = [*notes, *more]
        if section is not None:
            rules = matrix.of_scopes(*scopes, "probe")
            judgement = run.judged(facts, rules, predict)
    elif gathered.facts.text("python.executable") is not None and not (probes and _supposed(sources)):
        commands = {name: command_about("probe", sources, "--only", name) for name in probes}
    if any(finding.severity == "error" for finding in judgement.findings):
        from envdoctor.remedy.plan import with_plan

        judgement = with_plan(judgement, rules, predict, for_code=for_code)
    needs: Message | None = None
    if any(judgement.facts.text(key) is not None for key in ("model.type", "model.family")):
        from envdoctor.judge.derivations.model import asked_by_model

        needs = asked_by_model(judgement.facts, matrix)
    here, lists = _not_given(gathered, sources)
    notices = [
        *gathered.notices,
        *([Notice("note", needs)] if needs else []),
        *here,
        *run.of_rules(judgement),
        *more,
        *hint,
        *_contradictions(judgement, peak),
        *_absent(judgement, require, matrix),
    ]
    if gathered.text:
        from envdoctor.app.explaining import error_in

        ids = {finding.id for finding in judgement.findings if finding.severity != "note"}
        error = error_in(gathered.text, judgement.facts, matrix, ids, str(sources.report))
        notices += [error] if error is not None else []
    return run.report(
        "check",
        gathered.target,
        judgement,
        notices,
        incomplete=any(notice.level == "error" for notice in notices) or any(gap.asked for gap in gathered.unjudged),
        probe=section,
        memory=peak,
        probe_commands=commands,
        unjudged=(*lists, *(gap.text for gap in gathered.unjudged)),
    )


def _gathered(sources: Sources, matrix: Matrix) -> Gathered:
    """Collect the facts; if a pasted text has none, the :class:`JobError` at least names the error in it."""
    try:
        gathered = collect_facts(sources, matrix, links=True)
    except JobError as error:
        from envdoctor.app.explaining import error_in

        text = getattr(error.__context__, "text", "")
        notice = error_in(text, FactSet(), matrix, set(), str(sources.report)) if text else None
        raise error if notice is None else JobError("{}; {}", said_by(error), notice.text) from None
    here = gathered.layout.python_version if gathered.layout is not None else None
    python = gathered.facts.text("python.minor")
    if "python" in sources.target and isinstance(here, str) and not f"{here}.".startswith(f"{python}."):
        text = "--target-python {}: {} is installed for Python {}; --lock FILE judges a list for another Python"
        raise UsageProblem(text, sources.target["python"], gathered.target.path, here)
    return gathered


def _absent(judgement: Judgement, require: Iterable[str], matrix: Matrix) -> Iterator[Notice]:
    """Yield the reasons why the run is incomplete: facts of ``require`` are missing, or no rule was checked."""
    facts = judgement.facts
    missing = [name for name in require if not _required(facts, name, matrix)]
    if missing == ["known"]:
        beyond = facts.records("beyond")
        reason = Message("it is unknown whether the matrix covers this run")
        if beyond is not None:
            names = listed([f"{item['what']} {item['value']}" for item in beyond], 5)
            reason = Message("newer than this matrix, or not known to it: {}", names)
        yield Notice("error", Message("--require known: {}, so the run does not count", reason))
    elif missing:
        text = "--require {}: not known, or not there, so the run does not count"
        keys = [fact.key for fact in facts.below("pkg.") if facts.text(fact.key) is not None]
        near = {name: alike(name, keys) for name in missing if name[4:] not in matrix.ledger.every()}
        hints = {
            name: Message("{} ({})", name, did_you_mean(name, [key], NOTHING)) for name, key in near.items() if key
        }
        words = [hints.get(name, name) for name in missing]
        yield Notice("error", Message(text, joined(words, ", ")))
    if judgement.rules_checked == 0:
        yield Notice("error", Message("no rule could be checked: nothing is known of this environment"))


def _required(facts: FactSet, name: str, matrix: Matrix) -> bool:
    if name == "known":  # nothing that the matrix does not know
        return facts.value("beyond") == Records(())
    keys = [spec.key for spec in matrix.registry]
    is_key = matrix.registry.find(name) is not None and (name[:4] != "pkg." or valid_name(name[4:]) is not None)
    if not is_key and not any(key.startswith(name + ".") for key in keys):
        names = [*keys, *(key.partition(".")[0] for key in keys), *(fact.key for fact in facts.below("pkg."))]
        hint = did_you_mean(name, names, Message("`envdoctor matrix facts` lists them"))
        raise UsageProblem("--require {}: not a known fact; {}", name, hint)
    return is_there(facts, name)


def _compared(gathered: Gathered, others: "Others", matrix: Matrix) -> list[Notice]:
    """Add the differences between the machines to the facts; return a notice for each missing machine."""
    from envdoctor.observe.documents.facts_file import drift_between

    drift = Records((), Message("only one came"))
    if len(others.documents) > 1 or not others.problems:
        _, drift = drift_between(others.documents, matrix.registry, others.ranks)
    gathered.facts.add(Fact("drift", drift, Message("the facts of all machines"), "machine"))
    return [Notice("error", text) for text in others.problems]


def _not_given(gathered: Gathered, sources: Sources) -> tuple[list[Notice], tuple[Message, ...]]:
    """Return notices on unjudged training code that lies here, and what to say first of a list that lies here if
    nobody named the environment."""
    given = sources.recipe or "code.files" in gathered.facts
    if given or gathered.target.kind in (*DOCUMENTS, "none", "root"):
        return [], ()
    from shlex import quote

    folder = sources.folder()
    scripts = _training_code(folder)
    text = "{} was not judged: --code {} checks what your own code uses"
    notices = [Notice("note", Message(text, name, quote(name if len(scripts) == 1 else "."))) for name in scripts[:1]]
    if sources.named or gathered.target.path.startswith(os.path.join(folder, "")):
        return notices, ()
    from envdoctor.app.words import list_in

    text = "{}, a list that lies here: nobody named the environment below; --lock {} judges an install of the list"
    return notices, tuple(Message(text, name, quote(name)) for name in list_in(folder))


def _contradictions(judgement: Judgement, peak: "MemorySection | None") -> Iterator[Notice]:
    """Yield a warning if such runs ran out of memory elsewhere although the prediction says that this one fits."""
    verdict = peak["verdict"] if peak is not None else None
    unlike = {"fits": ("error", "warning"), "tight": ("error",)}.get(str(verdict), ())
    for case in judgement.findings:
        if case.effect == "oom" and case.severity in unlike and case.ignored is None and case.superseded_by is None:
            text = "{} and the prediction differ: such runs ran out of memory, and this one may fit by the prediction"
            yield Notice("warning", Message(text, case.id))


def _not_predicted(sources: Sources, reason: Notice | None, peak: "MemorySection | None") -> list[Notice]:
    """Return a notice why the peak of the run is unknown, with the command that predicts it, or why it was not judged
    against its GPU: an error if ``--target-gpu`` asked for that, else milder."""
    if peak is None:
        more = [] if sources.recipe or sources.assignments else ["--recipe", "FILE"]
        command = command_about("memory", sources, *more, *([] if sources.model else ["--model", "DIR"]))
        text = "whether this run fits into memory was not judged ({}): {}"
        return [Notice("note", Message(text, reason and reason.text, command))]
    if reason is None or (reason.level == "error" and sources.target.get("gpu")):
        return [reason] if reason is not None else []
    return [reason._replace(level="warning" if reason.level == "error" else "note")]


def command_about(command: str, sources: Sources, *more: str) -> str:
    """Return another command about the same environment, model and recipe."""
    from shlex import quote

    from envdoctor.observe.documents.facts_file import key_of, typed

    words = ["envdoctor", command]
    for option in ("python", "lock", "facts") if command == "memory" else ("python",):
        words += [f"--{option}", path] if (path := getattr(sources, option)) else []
    words += ["--model", sources.model] if sources.model else []
    for recipe in sources.recipe:
        words += ["--recipe", recipe]
    for assignment in (*sources.configured, *sources.assignments):
        if key_of(assignment).startswith("recipe."):
            words += ["--set", typed(assignment)]
    words += ["--gpu", gpu] if command == "memory" and (gpu := sources.target.get("gpu")) else []
    return " ".join(map(quote, [*words, *more]))


def _supposed(sources: Sources) -> bool:
    """Return whether the judged packages may differ from those that an experiment would run with."""
    from envdoctor.observe.documents.facts_file import key_of

    keys = map(key_of, (*sources.configured, *sources.assignments))
    return sources.facts is not None or any(key.startswith(("pkg.", "torch.", "python.")) for key in keys)


def _settle(
    gathered: Gathered, sources: Sources, names: Sequence[str], matrix: Matrix, progress: Callable[[str], None] | None
) -> "tuple[FactSet, dict[str, Any] | None, list[Notice]]":
    """Run the experiments that findings name; return the facts with their results, the section and the notices."""
    from envdoctor.app.probe import ProbeRequest, catalogue, run_probes

    if not names:
        return gathered.facts, None, [Notice("note", Message("no finding names an experiment: none was run"))]
    if _supposed(sources):
        text = Message("no experiment was run: what was judged is not what is installed")
        return gathered.facts, None, [Notice("warning", text)]
    try:
        results, notes = run_probes(gathered, ProbeRequest(only=names, sources=sources), matrix, catalogue(), progress)
    except JobError as error:
        return gathered.facts, None, [Notice("error", Message("the experiments did not run: {}", error))]
    notices = [*notes, *([Notice("error", results.failed)] if results.failed else [])]
    return with_facts(gathered.facts, results.facts, matrix), results.section, notices


def _training_code(cwd: str) -> list[str]:
    """Return scripts and notebooks of the folder that train, as one would type them. Only the heads of a few files are
    read; unreadable files are left out."""
    from envdoctor.observe.model.names import printable

    files = Files(budget=Budget(seconds=0.5, size=_MOST_FILES * _LIMIT, steps=20_000))
    try:
        listed = ((folder, name) for folder in _FOLDERS for name in files.names_or_none(os.path.join(cwd, folder)))
        code = (os.path.join(folder, name) for folder, name in listed if name.endswith(_ENDINGS))
        plain = (path for path in islice(code, _MOST_FILES) if printable(path, 4096) == path)
        return [path for path in plain if _TRAINS.search(files.text_or_empty(os.path.join(cwd, path), _LIMIT))]
    except Spent:
        return []


def finished(report: Report) -> None:
    """Raise :class:`~envdoctor.app.errors.JobError` with the reason if the check of a report was not finished."""
    if report.exit_code == 3:
        reasons = (notice.text for notice in report.notices if notice.level == "error")
        raise JobError("whether there is an error is not known: {}", next(reasons, Message("envdoctor check says why")))
