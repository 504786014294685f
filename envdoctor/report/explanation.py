"""One rule as text for ``envdoctor explain``: its claim, conditions, fixes, evidence, history and tests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envdoctor.facts.registry import Registry
from envdoctor.judge.evaluate import text_of, without_values
from envdoctor.matrix.rules import Condition, Rule, spelled
from envdoctor.report.page import Page, pad
from envdoctor.report.report import cleaned
from envdoctor.system.clean import clean

_WIDTH = 80
_LABEL = 12


def render(
    rule: Rule, texts: Mapping[str, Any], registry: Registry, *, lang: str = "en", renamed_from: str | None = None
) -> str:
    """Return the text, at most 80 columns wide where words allow it, without the values of a run."""
    page = Page(registry, lang, _WIDTH)
    lines = [f"{rule.severity}[{rule.id}]"]
    lines += page.lines(page.say("(formerly {id})", id=renamed_from)) if renamed_from else []
    message, why, details = (
        without_values(text_of(texts[part])).in_language(lang) for part in ("message", "why", "details")
    )
    paragraphs = [" ".join(text.split()) for text in details.split("\n\n") if text]
    lines += page.lines(message, "  ", "  ")
    lines += [line for text in (why, *paragraphs) for line in ("", *page.lines(text, "  ", "  "))]
    never = page.say("{status}: it never fails a run", status=rule.status) if rule.status != "active" else ""
    words = {
        page.say("severity"): rule.severity,
        page.say("confidence"): rule.confidence,
        page.say("effect"): rule.effect,
        page.say("status"): never,
        page.say("probe"): rule.probe,
    }
    lines += ["", *(pad(label, _LABEL) + word for label, word in words.items() if word)]
    lines += ["", page.say("applies when"), *_clauses(rule.affects, rule.each, page)]
    if rule.unless:
        lines += [page.say("unless"), *_clauses(rule.unless, rule.each, page)]
    for key, value, because, default in rule.assume:
        kind = page.say("default") if default else page.say("guess: lowers the confidence")
        text = page.say("{key} not given: {value} is assumed ({kind})", key=key, value=value, kind=kind)
        lines += page.lines(page.labelled(text, text_of(because).in_language(lang)))
    lines += ["", page.say("fixes"), *([] if texts["fix"] else ["  " + page.say("none is known")])]
    for fix in texts["fix"]:
        lines += page.lines(page.bracket(text_of(fix["summary"]).in_language(lang), fix["safety"]), "  - ", "    ")
        parts = [*fix["constraints"], *(f"{key} = {value}" for key, value in {**fix["set"], **fix["env"]}.items())]
        lines += [f"      {part}" for part in ([*parts, fix["command"]] if fix["command"] else parts)]
    lines += ["", page.say("evidence")]
    for entry in texts["evidence"]:
        checked = page.say("checked {date}", date=entry["checked"])
        lines += [
            f"  {entry['kind']}: {entry['url']}",
            *page.lines(page.bracket(entry["shows"], checked), "    ", "    "),
        ]
    lines += ["", page.say("history"), *_history(rule, texts, page)]
    counts = Counter(test["expect"] for test in texts["test"])
    spelled = ", ".join(f"{counts[word]} {word}" for word in ("match", "no", "unknown") if counts[word])
    command = f"envdoctor matrix test {rule.id}"
    summary = page.say("{n} ({which}); run them: {command}", n=len(texts["test"]), which=spelled, command=command)
    file = ("" if rule.id.startswith("x-") else "matrices/") + rule.origin
    lines += ["", pad(page.say("tests"), _LABEL) + summary, pad(page.say("rule file"), _LABEL) + file, ""]
    lines += [page.say("Accept: {command}", command=f"envdoctor ignore {rule.id} --reason ...")]
    lines += [page.say("Wrong? {command}", command="envdoctor facts --for-issue")]
    return "\n".join(cleaned(lines, None))


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


def _history(rule: Rule, texts: Mapping[str, Any], page: Page) -> Iterator[str]:
    added, modified, bound = texts["added"], texts["modified"], texts["bound"]
    lines = [page.say("added {added}, last change of its meaning {modified}", added=added, modified=modified)]
    seen = "last seen in {name} {version}; later releases were not tried"
    for kind, text in (("fixed_in", "fixed in {name} {version}"), ("last_seen", seen)):
        for key, version in bound.get(kind, {}).items():
            lines.append(page.say(text, name=key.removeprefix("pkg."), version=version))
    if bound.get("open_ended"):
        lines.append(page.say("no release without it is known"))
    if rule.supersedes:
        lines.append(page.say("stands for {ids} when both apply", ids=", ".join(rule.supersedes)))
    if rule.folds_into:
        lines.append(page.say("is folded into a finding that says what these packages do to each other"))
    for text in lines:
        yield from page.lines(text)


def names_and_titles(rules: Iterable[tuple[Rule, str]]) -> Iterator[str]:
    """Yield two lines a rule: its id with severity, confidence and effect, and its title."""
    for rule, title in rules:
        yield clean(f"{rule.id}  ({rule.severity}, {rule.confidence}, {rule.effect})")
        yield f"    {clean(title)}"
