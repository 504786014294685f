"""One rule as text for ``envdoctor explain``: its claim, conditions, fixes, evidence, history and tests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envdoctor.facts.registry import Registry
from envdoctor.judge.messages import text_of
from envdoctor.matrix.conditions import Condition, spelled
from envdoctor.matrix.rules import Rule
from envdoctor.report.cleaned import cleaned
from envdoctor.report.page import Page, pad
from envdoctor.system.clean import clean

_WIDTH = 80
_LABEL = 12


def render(
    rule: Rule, texts: Mapping[str, Any], registry: Registry, *, lang: str = "en", renamed_from: str | None = None
) -> str:
    """Return the text, at most 80 columns wide where words allow it. Placeholders stay as ``{pkg.torch}``."""
    page = Page(registry, lang, _WIDTH)
    lines = [f"{rule.severity}[{rule.id}]"]
    if renamed_from:
        lines += page.lines(page.say("(formerly {id})", id=renamed_from))
    lines += _paragraph(text_of(texts["message"]).in_language(lang), page)
    lines += ["", *_paragraph(text_of(texts["why"]).in_language(lang), page)]
    for paragraph in filter(None, text_of(texts["details"]).in_language(lang).split("\n\n")):
        lines += ["", *_paragraph(" ".join(paragraph.split()), page)]
    lines.append("")
    never = page.say("{status}: it never fails a run", status=rule.status) if rule.status != "active" else ""
    for label, word in (
        (page.say("severity"), rule.severity),
        (page.say("confidence"), rule.confidence),
        (page.say("effect"), rule.effect),
        (page.say("status"), never),
        (page.say("probe"), rule.probe),
    ):
        lines += [pad(label, _LABEL) + word] if word else []
    lines += ["", page.say("applies when"), *_clauses(rule.affects, rule.each, page)]
    if rule.unless:
        lines += [page.say("unless"), *_clauses(rule.unless, rule.each, page)]
    for key, value, because, default in rule.assume:
        kind = page.say("default") if default else page.say("guess: lowers the confidence")
        text = page.say("{key} not given: {value} is assumed ({kind})", key=key, value=value, kind=kind)
        reason = text_of(because).in_language(lang)
        lines += page.lines(page.labelled(text, reason))
    lines += ["", page.say("fixes"), *_fixes(texts["fix"], page)]
    lines += ["", page.say("evidence"), *_evidence(texts["evidence"], page)]
    lines += ["", page.say("history"), *_history(rule, texts, page)]
    tests = texts["test"]
    counts = {word: sum(1 for test in tests if test["expect"] == word) for word in ("match", "no", "unknown")}
    spelled = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    command = f"envdoctor matrix test {rule.id}"
    said = page.say("{n} ({which}); run them: {command}", n=len(tests), which=spelled, command=command)
    lines += ["", pad(page.say("tests"), _LABEL) + said]
    lines.append(pad(page.say("rule file"), _LABEL) + ("" if rule.id.startswith("x-") else "matrices/") + rule.origin)
    return "\n".join(cleaned(lines, None))


def _paragraph(text: str, page: Page) -> list[str]:
    return page.lines(text, "  ", "  ")


def _clauses(clauses: Sequence[Sequence[Condition]], each: str | None, page: Page) -> Iterator[str]:
    for number, clause in enumerate(clauses):
        if number:
            yield "  " + page.say("or")
        for position, condition in enumerate(clause):
            lead = "    " + (page.say("and") + " " if position else "")
            key = f"{condition.quantifier}({condition.key})" if condition.quantifier else condition.key
            if each is not None and condition.key.startswith(each + "."):
                key = page.bracket(key, page.say("each {name}", name=each))
            operand = page.say(" or ").join(map(spelled, condition.alternatives))
            yield from page.lines(f"{key}  {operand}", lead, "        ")


def _fixes(fixes: Sequence[Mapping[str, Any]], page: Page) -> Iterator[str]:
    if not fixes:
        yield "  " + page.say("none is known")
    for fix in fixes:
        yield from page.lines(
            page.bracket(text_of(fix["summary"]).in_language(page.lang), fix["safety"]), "  - ", "    "
        )
        parts = [*fix["constraints"], *(f"{key} = {value}" for key, value in {**fix["set"], **fix["env"]}.items())]
        for part in [*parts, fix["command"]] if fix["command"] else parts:
            yield f"      {part}"


def _evidence(evidence: Sequence[Mapping[str, str]], page: Page) -> Iterator[str]:
    for entry in evidence:
        yield f"  {entry['kind']}: {entry['url']}"
        checked = page.say("checked {date}", date=entry["checked"])
        yield from page.lines(page.bracket(entry["shows"], checked), "    ", "    ")


def _history(rule: Rule, texts: Mapping[str, Any], page: Page) -> Iterator[str]:
    added, modified, bound = texts["added"], texts["modified"], texts["bound"]
    said = [page.say("added {added}, last change of its meaning {modified}", added=added, modified=modified)]
    for key, version in (bound.get("fixed_in") or {}).items():
        said.append(page.say("fixed in {name} {version}", name=key.removeprefix("pkg."), version=version))
    for key, version in (bound.get("last_seen") or {}).items():
        name = key.removeprefix("pkg.")
        said.append(
            page.say("last seen in {name} {version}; later releases were not tried", name=name, version=version)
        )
    if bound.get("open_ended"):
        said.append(page.say("no release without it is known"))
    if rule.supersedes:
        said.append(page.say("stands for {ids} when both apply", ids=", ".join(rule.supersedes)))
    if rule.folds_into:
        said.append(page.say("is folded into a finding that says what these packages do to each other"))
    for text in said:
        yield from page.lines(text)


def names_and_titles(rules: Iterable[tuple[Rule, str]]) -> Iterator[str]:
    """Yield two lines a rule: its id with what it is, and its title."""
    for rule, title in rules:
        yield clean(f"{rule.id}  ({rule.severity}, {rule.confidence}, {rule.effect})")
        yield f"    {clean(title)}"
