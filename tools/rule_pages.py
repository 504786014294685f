"""The rules as Markdown for people who search: a page for each rule, and an index by package, model and log.

`tools/guide.py` makes them a part of the guide. People search for the line of a log, and find the page by it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.judge import title_of
from envdoctor.matrix import Matrix, Rule, spelled

INDEX = "README.md"
HEAD = """# What envdoctor knows

{count} rules, a page each; `envdoctor explain ID` prints one. Find one [by subject](#by-subject),
[by package](#by-package), [by model](#by-model) or [by what a log says](#by-what-a-log-says)."""
_TITLES = ("By subject", "By package", "By model", "By what a log says")


def pages(matrix: Matrix) -> dict[str, str]:
    """Return the text of every page by its file's name."""
    found: dict[str, str] = {}
    index: dict[str, dict[str, list[str]]] = {title: defaultdict(list) for title in _TITLES}
    for rule in sorted(matrix.rules, key=lambda rule: rule.id):
        texts = matrix.texts(rule)
        found[f"{rule.id}.md"] = "\n\n".join(_page(rule, texts)) + "\n"
        for title, words in zip(_TITLES, _words(rule, texts), strict=True):
            for word in dict.fromkeys(words):
                index[title][word].append(f"[{rule.id}]({rule.id}.md)")
    lines = [HEAD.format(count=len(found))]
    for title, told in index.items():
        rows = (f"- {word}: {', '.join(links)}" for word, links in sorted(told.items()))
        lines += [f"## {title}", "\n".join(rows)]
    return {**found, INDEX: "\n\n".join(lines) + "\n"}


def _page(rule: Rule, texts: Mapping[str, Any]) -> Iterator[str]:
    title, told = title_of(texts), [texts["why"], *(one["summary"] for one in texts["fix"])]
    yield f"# {_plain(title.en)}"
    yield f"**{rule.severity}** · {rule.effect} · {rule.confidence} · `{rule.id}`"
    yield from (f"    {line}" for one in texts.get("symptom", ()) for line in one["seen"].splitlines())
    yield _plain(texts["why"]["en"])
    for heading, lines in (
        ("It holds for", [f"`{line}`" for line in _conditions(rule)]),
        ("What to do", [_plain(one["summary"]["en"]) for one in texts["fix"]]),
        ("Evidence", [_evidence(one) for one in texts["evidence"]]),
        ("中文", [_plain(text) for text in (title.zh, *(one.get("zh") for one in told)) if text]),
    ):
        if lines:
            yield f"## {heading}"
            yield "\n".join(f"- {line}" for line in lines)
    yield f"[All rules]({INDEX})"


def _conditions(rule: Rule) -> Iterator[str]:
    """Yield a line a clause: any of the first kind holds, and none of the second."""
    for head, clauses in (("", rule.affects), ("unless ", rule.unless)):
        for clause in clauses:
            yield head + "; ".join(f"{key} {' or '.join(map(spelled, values))}" for key, _, _, values in clause)


def _plain(text: str) -> str:
    """Return prose in which nothing is markup."""
    return re.sub(r"([\\`*<\[|])", r"\\\1", " ".join(text.split()))


def _evidence(one: Mapping[str, Any]) -> str:
    url = f"<{one['url']}>" if one["url"].startswith("https://") else f"`{one['url']}`"
    return f"{one['kind']}: {url}: {_plain(one['shows'])} ({one['checked']})"


def _words(rule: Rule, texts: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield its subject, the packages and the models that its conditions name, and what a log of it says."""
    named = [condition for clause in rule.affects for condition in clause]
    models = {"model.family", "model.type", "model.repo", "model.architectures"}
    yield [rule.origin.split("/")[-2]]
    yield [key[4:] for key, *_ in named if key.startswith("pkg.")]
    yield [_plain(str(one)) for key, _, _, values in named if key in models for one in values]
    yield [f"`{one['seen'][:160].splitlines()[0]}`" for one in texts.get("symptom", ())]
