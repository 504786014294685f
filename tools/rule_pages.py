"""Writes the rules as Markdown for people who search: one page a subject, and an index by package, model and log.

    python tools/rule_pages.py DIR

The pages are not kept in the repository: they say what the rules say, and every change of a rule would be made twice.
``examples/ci/rule-pages.yml`` makes a site of them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from envdoctor.judge.messages import title_of  # noqa: E402
from envdoctor.knowledge.matrix import Matrix, load_matrix  # noqa: E402
from envdoctor.knowledge.rules import Rule  # noqa: E402

_TITLES = ("By package", "By model", "By what the log says")


def pages(matrix: Matrix) -> dict[str, str]:
    """The text of every page by its file's name."""
    told: dict[str, list[str]] = defaultdict(list)
    index: dict[str, dict[str, list[str]]] = {title: defaultdict(list) for title in _TITLES}
    for rule in sorted(matrix.rules, key=lambda rule: rule.id):
        texts, subject = matrix.texts(rule), rule.origin.split("/")[-2]
        told[subject].append("\n".join(_section(rule, texts)))
        link = f"[{rule.id}]({subject}.md#{rule.id})"
        for title, words in zip(_TITLES, _words(rule, texts), strict=True):
            for word in dict.fromkeys(words):
                index[title][word].append(link)
    found = {f"{subject}.md": "\n\n".join((f"# {subject}", *sections)) + "\n" for subject, sections in told.items()}
    lines = ["# Rules", " · ".join(f"[{subject}]({subject}.md)" for subject in sorted(told))]
    for title, words in index.items():
        rows = (f"- {word}: {', '.join(links)}" for word, links in sorted(words.items()))
        lines += [f"## {title}", "\n".join(rows)]
    return {**found, "index.md": "\n\n".join(lines) + "\n"}


def _section(rule: Rule, texts: Mapping[str, Any]) -> Iterator[str]:
    title = title_of(texts)
    yield f"## {rule.id}\n\n**{rule.severity}**, {rule.confidence}, {rule.effect}: {title.en}\n"
    yield from (f"{text}\n" for text in (title.zh, texts["why"]["en"]) if text)
    yield from (f"    {one['seen']}\n" for one in texts.get("symptom", ()))
    yield from (f"- fix: {one['summary']['en']}" for one in texts["fix"])
    yield from (
        f"- {one['kind']}: {one['url']} ({one['shows']}; checked {one['checked']})" for one in texts["evidence"]
    )


def _words(rule: Rule, texts: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """The packages and the models that its conditions name, and what a log of it says."""
    conditions = [condition for clause in rule.affects for condition in clause]
    models = {"model.family", "model.type", "model.repo", "model.architectures"}
    return (
        [key[4:] for key, *_ in conditions if key.startswith("pkg.")],
        [str(one) for key, _, _, values in conditions if key in models for one in values],
        [f"`{one['seen'][:160]}`" for one in texts.get("symptom", ())],
    )


def main(folder: Path) -> int:
    """Write them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(load_matrix()).items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
