"""With ``--lang zh`` no English sentence is said: on the stories' pages, by any rule, for what is refused.

Names, options, code, what stands in quotes, and what other programs and their authors said stay as they are.
"""

import json
import re
import shlex
from collections.abc import Iterator
from functools import reduce
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from envdoctor.judge import Policy, judge, try_tests
from envdoctor.matrix import Matrix
from envdoctor.report import Page

ROOT = Path(__file__).parents[2]
STORIES = [
    line.rpartition("  # ")[0]
    for line in (ROOT / "docs" / "stories.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("envdoctor ") and "  # " in line
]
#: What is quoted, options, code and names of files: shown as it is.
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|'[^']*'|--?[\w-]+(?:[= ][\w./=,:+-]+)?|[!-~]*[/\\=_.][!-~]*")
#: Words that make a sentence of the words round them.
_SENTENCE = re.compile(
    "[a-z]{2,},? "
    "(?:is|are|was|has|have|the|of|to|for|not|no|a|an|and|or|which|with|from|it|be|by|does|cannot) [a-z]{2,}"
)
REFUSED = """
    check --set batch=2
    check --set pkg.torch
    check --set gpu=2
    check --set recipe.batch_size=many
    check --set recipe.zero_stage=9
    check --set recipe.precision=fp17
    check --set env.x\\ y=1
    check --set pkg.Torch_=1
    check --set gpu.name=A6001
    check --set gpu.name="A100
    check --target-gpu MI300X
    check --target-gpu A1000000
    check --target-python two
    check --target-platform beos
    check --facts nowhere.json
    check --facts broken.json
    check --facts list.json
    check --facts schema.json
    check --facts keys.json
    check --facts twice.json
    check --facts value.json
    check --facts broken.json --lock none.lock
    check --lock none.lock
    check --lock empty.lock
    check --lock uv.lock
    check --sbom broken.json
    check --report nowhere.txt
    check --report empty.txt
    check --recipe nowhere.yaml
    check --recipe empty.yaml
    check --recipe broken.yaml
    check --recipe binary.yaml
    check --code nowhere.py
    check --code notes.txt
    check --python nowhere
    check --python notes.txt
    check --path nowhere
    check --root nowhere
    check --path . --root .
    check --facts facts.json --model ./nowhere
    check --facts facts.json --model notes.txt
    check --facts facts.json --model a/b/c/d
    check --facts facts.json --model THUDM/x@..
    check --facts facts.json --model ms:x/y
    check --facts facts.json --model folder
    check --facts facts.json --require gpus
    check --facts facts.json --matrix nowhere
    check --facts facts.json --matrix folder
    check --facts facts.json --config nowhere.toml
    check --facts facts.json --config broken.toml
    check --facts facts.json --output x
    check --facts facts.json --as-of today
    compare facts.json
    compare facts.json nowhere.json
    explain no-such-rule
    explain torch-2-5-0-glm4-batch-na
    explain --log nowhere.log
    ignore no-such-rule --reason x
    ignore torch-2-5-0-glm4-batch-nan --reason x --where a
    ignore torch-2-5-0-glm4-batch-nan --reason x --where recipe.batchsize=2
    diff-revision nowhere/x --offline
    diff-revision folder
    diff-revision folder nowhere-else
    diff-revision a/b/c
    memory --facts facts.json --recipe nowhere.yaml
    memory --facts facts.json
    plan torch==2.5.0
    probe --only nothing
    probe --replay nowhere.jsonl
    probe --facts facts.json
    memory --data notes.txt --tokenizer tokenizer
    memory --data broken.json --tokenizer tokenizer
    memory --data rows.jsonl --tokenizer tokenizer
    pin nowhere/x --offline
    lengths
""".strip().splitlines()


#: What other programs say.
_OTHERS = re.compile(r"Invalid value \(at end of document\)|No interpreter found for .*")


def sentences(text: str) -> list[str]:
    """The lines that hold an English sentence."""
    return [line for line in text.splitlines() if _SENTENCE.search(_OTHERS.sub("«»", _QUOTED.sub("«»", line)))]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    texts = {
        "facts.json": '{"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.5.0"}}',
        "broken.json": "not json",
        "list.json": "[]",
        "schema.json": '{"schema": "x/9", "facts": {}}',
        "keys.json": '{"schema": "envdoctor.facts/1", "facts": {"pkg": 1}}',
        "twice.json": '{"schema": "envdoctor.facts/1", "facts": {}, "facts": {}}',
        "value.json": '{"schema": "envdoctor.facts/1", "facts": {"gpu": 3}}',
        "empty.lock": "",
        "uv.lock": "version = [",
        "empty.txt": "",
        "empty.yaml": "",
        "broken.yaml": "a: [1",
        "broken.toml": "a = [",
        "notes.txt": "nothing",
        "rows.jsonl": '{"a": 1}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.yaml").write_bytes(b"\0\1\2")
    (tmp_path / "folder").mkdir()
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("line", [line.strip() for line in REFUSED])
def test_what_is_refused_is_refused_in_chinese(run: Any, inputs: Path, line: str) -> None:
    words = line.split(" ") if '"' in line else shlex.split(line)
    options = ("--lang", "zh") if words[0] != "lengths" else ()
    environ = {"ENVDOCTOR_LANG": "zh", "PATH": "/nowhere", "HOME": str(inputs)}
    done = run(*words, *options, env=environ)
    assert done.code != 0 or "--path" in words, done.out
    assert sentences(done.err + done.out) == []


def texts_of_sarif(found: Any) -> Iterator[str]:
    """Every ``text`` for people, wherever it is."""
    if isinstance(found, dict):
        yield from (value for key, value in found.items() if key == "text")
    if isinstance(found, (dict, list)):
        for value in found.values() if isinstance(found, dict) else found:
            yield from texts_of_sarif(value)


@pytest.mark.parametrize("command", STORIES)
def test_the_pages_of_the_stories_are_chinese(run: Any, tmp_path: Path, command: str) -> None:
    others = ("markdown", "html", "junit", "sarif", "github")
    more = [word for name in others for word in ("--output", f"{name}={tmp_path / name}")]
    done = run(*shlex.split(command)[1:], "--lang", "zh", "--format", "terminal", *more, cwd=ROOT)
    for name, out in [("terminal", done.out)] + [(name, (tmp_path / name).read_text("utf-8")) for name in others]:
        text = "\n".join(texts_of_sarif(json.loads(out))) if name == "sarif" else out
        plain = unescape(re.sub("<[^>]+>", "\n", re.sub("<style>.*?</style>", "", text, flags=re.S)))
        assert plain.strip(), name
        # what a source shows is quoted from the rule, and stays as its author wrote it
        assert sentences("\n".join(line for line in plain.splitlines() if "（核对于 " not in line)) == [], name


def findings(matrix: Matrix) -> Iterator[tuple[str, list[str]]]:
    page = Page(matrix.registry, "zh")
    for rule in matrix.rules:
        for case in try_tests(rule, matrix):
            if case.expected == "match":
                alone = matrix.only(lambda other, rule=rule: other is rule)
                told = judge(case.facts, alone, Policy()).findings
                # a rule's own tests give values as texts, and those of facts files are quoted
                given = [fact.value for one in told for fact in one.facts if " " in fact.value]
                texts = [text for one in told for text in (page.message(one), one.title.in_language("zh"))]
                yield rule.id, [reduce(lambda text, value: text.replace(value, "«»"), given, text) for text in texts]
                break


def test_what_rules_say_is_chinese(matrix: Matrix) -> None:
    said = dict(findings(matrix))
    assert len(said) > 400
    wrong = {name: found for name, texts in said.items() if (found := sentences("\n".join(texts)))}
    assert not wrong, wrong


def test_an_english_sentence_is_seen() -> None:
    assert sentences("torch is not installed") and sentences("错误：the file is broken")
    assert not sentences("torch 2.5.0 与 transformers 5.1.0：`a is b`，“it is the end”，--set a.b=c")
