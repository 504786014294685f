"""The commands as functions with keyword arguments: ``envdoctor.check(lock="uv.lock", model="Qwen/Qwen2.5-7B")``.

A path is relative to the working directory; where several may be given, one text stands for a list of one. ``settings``
are facts by their keys, as ``--set`` takes them: ``{"recipe.batch_size": 2}``; ``target`` is the machine that is meant:
``{"python": "3.11", "platform": "linux-x86_64", "gpu": "A100", "driver": "535"}``; ``gpu`` alone is a keyword, too.
``sources`` can say more than the keywords; keywords win. Further keywords (``policy``, ``matrix``, ``exit_zero``,
``progress``) are those of the function of the same name in :mod:`envdoctor.app`. Nothing is printed. Each function
raises :class:`~envdoctor.app.errors.UsageProblem` for a wrong argument, and :class:`~envdoctor.app.errors.JobError`
when the job cannot be done. Findings raise nothing: see ``report.exit_code`` and ``report.shown()``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.app.configuration import listed
from envdoctor.app.facts import Sources
from envdoctor.matrix.matrix import load_matrix
from envdoctor.report.report import Report

if TYPE_CHECKING:
    from envdoctor.app.plan import Planned

#: One path, or several.
Paths = str | Sequence[str]


class Explanation(NamedTuple):
    """The text about a rule or an error message. ``known``: anything is known. ``json`` is empty for a rule."""

    text: str
    known: bool = True
    json: str = ""

    def __repr__(self) -> str:
        return self.text

    def to_json(self) -> str:
        """Return the answer to an error message as ``explain --format json`` writes it."""
        return self.json


def check(
    sources: Sources | None = None,
    *,
    python: str | None = None,
    path: str | None = None,
    root: str | None = None,
    lock: str | None = None,
    sbom: str | None = None,
    facts: str | None = None,
    report: str | None = None,
    model: str | None = None,
    recipe: Paths = (),
    code: Paths = (),
    settings: Mapping[str, object] | None = None,
    target: Mapping[str, str] | None = None,
    gpu: str | None = None,
    **judging: Any,
) -> Report:
    """Judge an environment for a model, a recipe and code, as ``envdoctor check`` does. At most one of ``python``,
    ``path``, ``root``, ``lock``, ``sbom``, ``facts`` and ``report`` names the environment; without one it is that of
    this interpreter."""
    from envdoctor.app.check import check as judge

    place = {"python": python, "path": path, "root": root, "lock": lock, "sbom": sbom, "facts": facts, "report": report}
    merged = _sources(sources, model, recipe, settings, target=_machine(target, gpu), code=listed(code), **place)
    return judge(merged, **judging)


def memory(
    sources: Sources | None = None,
    *,
    model: str | None = None,
    recipe: Paths = (),
    python: str | None = None,
    lock: str | None = None,
    facts: str | None = None,
    gpu: str | None = None,
    gpu_memory: float | None = None,
    method: str | None = None,
    data: str | None = None,
    settings: Mapping[str, object] | None = None,
    **judging: Any,
) -> Report:
    """Predict the peak of GPU memory of a run, as ``envdoctor memory`` does; ``report.memory`` has the number. At most
    one of ``python``, ``lock`` and ``facts`` names the environment. ``gpu`` is a name such as ``A100-80GB``,
    ``gpu_memory`` its free memory in GiB, ``method`` full, lora, qlora, peft, infer or serve, ``data`` a file whose
    longest sample is the length."""
    from envdoctor.app.memory import memory as predict

    machine = {"gpu.name": gpu, "gpu.memory_gib": gpu_memory, "recipe.method": method}
    assignments = {**{key: value for key, value in machine.items() if value is not None}, **(settings or {})}
    environment = {"python": python, "lock": lock, "facts": facts}
    return predict(_sources(sources, model, recipe, assignments, **environment), data=data, **judging)


def plan(
    *requirements: str,
    model: str | None = None,
    recipe: Paths = (),
    code: Paths = (),
    python: str | None = None,
    settings: Mapping[str, object] | None = None,
    target: Mapping[str, str] | None = None,
    gpu: str | None = None,
    **more: Any,
) -> "Planned":
    """Return versions to install for a run and code, or the changes for ``python``, as ``envdoctor plan`` does.
    uv is asked, which uses the network; nothing is installed."""
    from envdoctor.app.plan import plan as planned

    names: dict[str, Any] = {"code": listed(code), "python": python, "target": _machine(target, gpu)}
    return planned(_sources(None, model, recipe, settings, **names), requirements, **more)


def probe(
    *only: str,
    python: str | None = None,
    model: str | None = None,
    recipe: Paths = (),
    settings: Mapping[str, object] | None = None,
    suite: str = "quick",
    device: str = "auto",
    **judging: Any,
) -> Report:
    """Run tiny numeric experiments, all of the ``suite`` or ``only`` some, as ``envdoctor probe`` does. The torch of
    ``python`` is imported, in bounded children."""
    from envdoctor.app.probe import ProbeRequest
    from envdoctor.app.probe import probe as run

    merged = _sources(None, model, recipe, settings, python=python)
    return run(ProbeRequest(suite=suite, only=only, device=device, sources=merged), **judging)


def diff_revision(
    repo: Any, old: str | None = None, new: str | None = None, *, offline: bool = False, **judging: Any
) -> Report:
    """Compare two revisions of a model, as ``envdoctor diff-revision`` does: ``report.revision`` has the changes.
    ``repo`` is ORG/NAME or a folder, or a :class:`~envdoctor.app.diff_revision.RevisionRequest`, which has more to
    choose."""
    from envdoctor.app.diff_revision import RevisionRequest
    from envdoctor.app.diff_revision import diff_revision as compared

    request = repo if isinstance(repo, RevisionRequest) else RevisionRequest(repo, old, new, offline=offline)
    return compared(request, **judging)


def compare(*files: str, **judging: Any) -> Report:
    """Compare the machines of a job by the facts files that each of them wrote, as ``envdoctor compare`` does."""
    from envdoctor.app.ranks import compare as compared

    return compared(files, **judging)


def explain(text: str, *, lang: str = "en", **environment: Any) -> Explanation:
    """Explain a rule by its id, or an error message or traceback for an environment that is named as in :func:`check`;
    without one, for no versions in particular."""
    from envdoctor.app.explaining import explain_error, rule_named
    from envdoctor.report.explanation import answer_json, answer_text, rule_text
    from envdoctor.report.page import Page

    matrix = load_matrix()
    if matrix.find(text) is not None or matrix.retired(text) is not None:
        rule, texts, renamed_from = rule_named(text, matrix)
        return Explanation(rule_text(rule, texts, matrix.registry, lang=lang, renamed_from=renamed_from))

    explained = explain_error(text, matrix, _sources(None, None, (), None, **environment) if environment else None)
    answer, gathered = explained.answer, explained.gathered
    target = gathered.target if gathered is not None else None
    page_text = answer_text(answer, Page(matrix.registry, lang), explained.facts, target)
    return Explanation(page_text, answer.known, answer_json(answer, target))


def _machine(target: Mapping[str, str] | None, gpu: str | None) -> dict[str, str]:
    """Return the target with the GPU, as ``--gpu`` of the command line is one of its words."""
    return {**(target or {}), **({"gpu": gpu} if gpu else {})}


def _sources(
    sources: Sources | None, model: str | None, recipe: Paths, settings: Mapping[str, object] | None, **fields: Any
) -> Sources:
    """Return ``sources`` with the values of the keywords."""
    values = {"model": model, "recipe": listed(recipe), "assignments": list((settings or {}).items()), **fields}
    return (sources or Sources())._replace(**{name: value for name, value in values.items() if value})
