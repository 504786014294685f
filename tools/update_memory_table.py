"""Write the table of the memory stories into docs/memory.md and docs/zh/memory.md.

It has what `check` says of each story, whatever it is written in, with the model by its name alone and by its folder.

    python tools/update_memory_table.py
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.app.check import check
from envdoctor.app.facts import Sources
from envdoctor.app.memory import memory
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.report.report import Report

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"
BLOCK = re.compile(r"(?<=<!-- memory stories -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


class Story(NamedTuple):
    """The recipes of a story by what they are written in, and its model: the folder, and the name where a recipe (of
    GLM's own scripts) has none. ``cards`` are left of its environment's GPUs."""

    recipes: Mapping[str, str]
    folder: str
    name: str
    cards: int


STORIES = {
    "1": Story(
        {"script": "one-card/train.py", "YAML": "one-card/train.yaml", "command": "one-card/run.sh"},
        "memory/glm-4-9b-chat",
        "THUDM/glm-4-9b-chat",
        1,
    ),
    "2": Story(
        {"script": "train.py", "YAML": "lora.yaml", "command": "run.sh"},
        "stories/2/chatglm3-6b",
        "THUDM/chatglm3-6b",
        1,
    ),
    "3": Story(
        {"script": "train.py", "YAML": "train.yaml", "command": "train_dpo.sh"},
        "memory/glm-4-9b-chat",
        "THUDM/glm-4-9b-chat",
        8,
    ),
    "5": Story(
        {"script": "serve.py", "YAML": "settings.jsonc", "command": "run.sh"},
        "memory/qwen2.5-7b-instruct",
        "Qwen/Qwen2.5-7B-Instruct",
        1,
    ),
}


class Answer(NamedTuple):
    """What `check` says of a story: the rules that name the cause, the report's section on memory, the exit code."""

    causes: tuple[str, ...]
    memory: Mapping[str, Any]
    code: int

    @property
    def cure(self) -> Mapping[str, Any] | None:
        """Return the first change that fits by the prediction."""
        return next((change for change in self.memory["changes"] if change["verdict"] == "fits"), None)


#: Findings that say the number; the cause is another, where one is known.
_NUMBERS = {"does-not-fit", "tight-fit"}


@lru_cache
def answer(story: str, way: str, *, folder: bool) -> Answer:
    """Return what `check` says of a story."""
    report = asked("check", story, way, folder=folder)
    shown = [one for one in report.findings if one.superseded_by is None and one.severity != "note"]
    of_memory = [one.id for one in shown if one.effect == "oom" or "gradient-checkpointing" in one.id]
    causes = sorted(set(of_memory) - _NUMBERS) or of_memory
    assert report.memory is not None, (story, way)
    return Answer(tuple(causes), report.memory, report.exit_code)


def asked(
    command: str,
    story: str,
    way: str,
    *,
    folder: bool,
    settings: Mapping[str, object] | None = None,
) -> Report:
    """Return the report of `check` or `memory` on a story's recipe in the story's environment, with these facts
    (``recipe.attn``: ``sdpa``) set besides."""
    one = STORIES[story]
    environment = json.loads((FIXTURES / "environments" / "stories" / f"{story}.json").read_text(encoding="utf-8"))
    environment["facts"]["gpu"] = environment["facts"]["gpu"][: one.cards]
    recipe = FIXTURES / "stories" / story / one.recipes[way]
    named = one.name in recipe.read_text(encoding="utf-8")
    model = str(FIXTURES / one.folder) if folder else None if named else one.name
    typed = [f"{key}={str(value).lower()}" for key, value in (settings or {}).items()]
    with tempfile.TemporaryDirectory() as place:
        facts = Path(place) / "facts.json"
        facts.write_text(json.dumps(environment), encoding="utf-8")
        sources = Sources(
            facts=str(facts), recipe=[str(recipe)], model=model, assignments=typed, environ={}, gpu=False, cache=False
        )
        return (check if command == "check" else memory)(sources, matrix=_matrix())


@lru_cache
def _matrix() -> Matrix:
    return load_matrix()


#: The words of the table by language: its head, ways, verdicts, sentences.
WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "head": "| story | written as | cause | number | cure that fits | exit code |",
        "number": "{size} GiB of tensors, {low} to {high} on the GPU, {free} free: {verdict}",
        "engine": "{size} GiB for the engine, up to {high}, {free} free: {verdict}",
        "folder": "{name}; with the folder {folder}",
        "none": "none is needed",
        "set": "`{keys}` ({size} GiB)",
    },
    "zh": {
        "head": "| 故事 | 写法 | 原因 | 数字 | 放得下的改法 | 退出码 |",
        "number": "张量 {size} GiB，GPU 上 {low} 到 {high}，空闲 {free}：{verdict}",
        "engine": "引擎 {size} GiB，最多 {high}，空闲 {free}：{verdict}",
        "folder": "{name}；给出目录时 {folder}",
        "none": "不需要",
        "set": "`{keys}`（{size} GiB）",
        "script": "脚本",
        "YAML": "YAML",
        "command": "命令",
        "fits": "放得下",
        "tight": "紧张",
        "does-not-fit": "放不下",
    },
}


def table(lang: str) -> str:
    """Return the table in a language."""
    words = WORDS[lang]
    return "\n".join([words["head"], "|---" * 6 + "|", *(_row(story, way, words) for story, way in ways())])


def ways() -> Iterator[tuple[str, str]]:
    """Yield each story with each way in which it is written."""
    return ((story, way) for story, one in STORIES.items() for way in one.recipes)


def _row(story: str, way: str, words: Mapping[str, str]) -> str:
    both = [answer(story, way, folder=folder) for folder in (False, True)]
    cells = [[_cause(one), _number(one, words), _cure(one, words), str(one.code)] for one in both]
    told = [
        one if one == other else words["folder"].format(name=one, folder=other)
        for one, other in zip(*cells, strict=True)
    ]
    return f"| {' | '.join([story, words.get(way, way), *told])} |"


def _cause(one: Answer) -> str:
    return ", ".join(f"`{rule}`" for rule in one.causes) or "–"


def _number(one: Answer, words: Mapping[str, str]) -> str:
    memory = one.memory
    low, high = memory["process_gib"]
    sizes = {"size": memory["allocated_gib"], "low": low, "high": high, "free": memory["free_gib"]}
    shown = {name: f"{size:.1f}" for name, size in sizes.items()}
    verdict = words.get(memory["verdict"], memory["verdict"].replace("-", " "))
    return words["engine" if memory["serving"] else "number"].format(**shown, verdict=verdict)


def _cure(one: Answer, words: Mapping[str, str]) -> str:
    cure = one.cure
    if cure is None:
        return words["none"] if one.memory["verdict"] == "fits" else "–"
    keys = dict.fromkeys(cure["keys"].get(key) or f"{key}={value}" for key, value in cure["set"].items())
    return words["set"].format(keys=", ".join(keys), size=f"{cure['gib']:.1f}")


def main() -> None:
    """Write the tables."""
    for name, lang in (("docs/memory.md", "en"), ("docs/zh/memory.md", "zh")):
        path = ROOT / name
        path.write_text(BLOCK.sub(lambda _, lang=lang: table(lang), path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
