"""The block to paste into a bug report: versions, torch build, GPUs, driver, system and model, nothing private."""

from collections.abc import Iterable

from envdoctor import __version__
from envdoctor.facts.factset import FactSet
from envdoctor.facts.privacy import public_facts
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Absent, Fact, Unknown, spell
from envdoctor.report.cleaned import CleanFacts
from envdoctor.report.header import gpu_groups, python_words, system_words, torch_words
from envdoctor.report.markdown_report import fenced
from envdoctor.report.page import Page, pad, shortened

_OF_TORCH = ("torch.cxx11_abi", "torch.cudnn")
_OTHERS = ("driver.version", "driver.max_cuda", "cuda.toolkit", "model.repo", "model.revision", "model.type")
#: Shown even when it is not installed or not known; the others only when there is something to say.
_ALWAYS = ("pkg.torch", "pkg.transformers", "driver.version")


def render(facts: FactSet, registry: Registry) -> str:
    """Return a folded Markdown block (``<details>``) with a fence that no value can close; always English."""
    facts, page = CleanFacts(public_facts(facts, registry)), Page(registry)
    rows: list[tuple[str, str]] = []
    for name in registry.first("pkg"):
        text = _value(facts.get(f"pkg.{name}"), "not installed")
        if text:
            rows.append((name, page.bracket(text, torch_words(facts, page) if name == "torch" else "")))
    rows += _named(_OF_TORCH, facts, page)
    rows += [("GPU", group) for group in gpu_groups(facts)] or [("GPU", _no_gpu(facts))]
    rows += _named(_OTHERS, facts, page)
    rows.append(("python", python_words(facts, page).removeprefix("python ") or "not known"))
    rows.append(("system", ", ".join(system_words(facts)) or "not known"))
    column = max(len(label) for label, _ in rows)
    body = [f"{pad(label, column)}  {shortened(text, 200)}".rstrip() for label, text in rows]
    summary = f"<details><summary>Environment (envdoctor {__version__})</summary>"
    return "\n".join([summary, "", fenced(body, "text"), "", "</details>", ""])


def _named(keys: Iterable[str], facts: FactSet, page: Page) -> list[tuple[str, str]]:
    """Return the facts of these keys, by their names, without the ones that there is nothing to say of."""
    values = ((key, _value(facts.get(key), "none")) for key in keys)
    return [(page.name(key), page.value(key, text)) for key, text in values if text]


def _value(fact: Fact, absent: str) -> str:
    match fact.value:
        case Unknown():
            return "not known" if fact.key in _ALWAYS else ""
        case Absent():
            return absent if fact.key in _ALWAYS else ""
    return spell(fact.value)


def _no_gpu(facts: FactSet) -> str:
    value = facts.value("gpu")
    if isinstance(value, Unknown):
        return f"not known ({value.reason})" if value.reason else "not known"
    doubt = getattr(value, "incomplete", None)
    return f"not known ({doubt})" if doubt else "none"
