"""The five stories in every dialect that can say them, and the table of them in docs/stories.md and docs/zh/stories.md.

    PYTHONPATH=tests/support:tests/metamorphic python tests/metamorphic/stories.py

writes the tables.
"""

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dialects import DIALECTS, other_kind, written
from frameworks import openrlhf_attention
from observing import shipped
from saying import CannotSay

from envdoctor.app import Sources, collect_facts
from envdoctor.judge import Policy, judge
from envdoctor.matrix import load_toml

ROOT = Path(__file__).resolve().parents[2]


class Story(NamedTuple):
    """What a story's recipe says, the name and the folder of its model, the rule that names its cause, from which
    severity on a finding fails the run, and whether one does."""

    says: Mapping[str, Any]
    repo: str
    folder: str
    rule: str
    fail_on: str
    fails: bool


STORIES = {number: Story(**said) for number, said in load_toml(Path(__file__).with_name("stories.toml")).items()}
#: Cells that are said and not read: a story, and a dialect. Lengths that a tokenizer is told, loops, verl.
NOT_READ: set[tuple[str, str]] = set()


def environment(story: str) -> dict[str, Any]:
    """Return the facts of the story's environment; story 1 is on one card."""
    path = ROOT / "fixtures" / "environments" / "stories" / f"{story}.json"
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["facts"]
    return {**facts, "gpu": facts["gpu"][:1]} if story == "1" else facts


def said(story: str, dialect: str) -> dict[str, Any]:
    """Return the facts of a story where its recipe is written in the dialect."""
    one, way = STORIES[story], DIALECTS[dialect]
    implied = {key: value for key, value in way.implied.items() if key not in one.says}
    known = shipped().registry.find("recipe.framework")
    assert known is not None
    framework = {"recipe.framework": way.framework} if way.framework in known.values else {}
    facts = {**environment(story), **implied, **one.says, **framework, "model.repo": one.repo}
    return {"recipe.attn": openrlhf_attention(facts), **facts} if way.framework == "openrlhf" else facts


def environment_file(story: str, folder: Path) -> str:
    """Write the story's environment; return the path of the file."""
    path = folder / "environment.json"
    path.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": environment(story)}))
    return str(path)


def judged(folder: Path, fail_on: str = "error", **sources: Any) -> dict[str, bool]:
    """Return what is found by rule, and whether it fails the run."""
    facts = collect_facts(Sources(**sources, cwd=folder, environ={}, gpu=False, cache=False), shipped()).facts
    judgement = judge(facts, shipped().of_scopes("environment"), Policy(fail_on))
    return {finding.id: finding.gate for finding in judgement.findings}


def told(story: str, folder: Path, **sources: Any) -> dict[str, bool]:
    """Return what is found in the story's environment, with its model."""
    one = STORIES[story]
    given = {"facts": environment_file(story, folder), "model": str(ROOT / one.folder)}
    return judged(folder, one.fail_on, **given, **sources)


def cells(story: str, folder: Path) -> dict[str, str]:
    """Return the mark of each dialect: ✓ where the cause is named, – where an argument that the story needs is missing,
    nothing where the rule does not hold, and ✗ where what is said is not read."""
    one, found = STORIES[story], {}
    for dialect in DIALECTS:
        facts = said(story, dialect)
        typed = [f"{key}={_typed(value)}" for key, value in facts.items() if key.startswith("recipe.")]
        named = told(story, folder, assignments=typed)
        # Where the run fails of something else besides, it is another story.
        other = not one.fails and any(named.values())
        if one.rule not in named or other or other_kind(dialect, facts):
            found[dialect] = ""
            continue
        try:
            written(dialect, facts)
            found[dialect] = "✗" if (story, dialect) in NOT_READ else "✓"
        except CannotSay:
            found[dialect] = "–"
    return found


def _typed(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def marks(folder: Path) -> dict[str, dict[str, str]]:
    """Return the marks of each story."""
    return {story: cells(story, folder) for story in STORIES}


def table(marked: Mapping[str, Mapping[str, str]], head: str) -> str:
    """Return the table of dialects and stories below its head."""
    rows = [f"| {dialect} | {' | '.join(marked[story][dialect] for story in STORIES)} |" for dialect in DIALECTS]
    return "\n".join([f"| {head} | {' | '.join(STORIES)} |", f"|---|{'---|' * len(STORIES)}", *rows])


#: The files with the table, and the head of its first column.
PAGES = {"docs/stories.md": "dialect", "docs/zh/stories.md": "写法"}
BLOCK = re.compile(r"(<!-- dialects -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write the tables."""
    with tempfile.TemporaryDirectory() as folder:
        marked = marks(Path(folder))
    for name, head in PAGES.items():
        before, after = BLOCK.split((ROOT / name).read_text(encoding="utf-8"))[::4]
        block = f"<!-- dialects -->\n{table(marked, head)}\n<!-- end -->"
        (ROOT / name).write_text(f"{before}{block}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
