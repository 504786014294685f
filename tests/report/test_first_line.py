"""The first line of ``diff-revision`` never calms over a change that nothing excuses: every kind, every fixture, and
pairs that are put together from single changes."""

import json
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from observing import shipped

from envdoctor import diff_revision
from envdoctor.app import RevisionRequest
from envdoctor.judge import Text
from envdoctor.report import Cost, Report, RevisionSection, Side, render
from envdoctor.revision import AREAS, Change, effect_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PAIRS = [
    (FIXTURES / "stories" / "2" / "chatglm3-6b-january", FIXTURES / "stories" / "2" / "chatglm3-6b"),
    *((FIXTURES / "code" / name / "old", FIXTURES / "code" / name / "new") for name in ("attention", "checkpointing")),
]
KINDS = next(spec for spec in shipped().registry if spec.key == "change").columns["kind"].values
CODE = """import torch
from torch import nn
from transformers import PreTrainedModel


class TinyAttention(nn.Module):
    def forward(self, query, key, value, attention_mask=None):
        scores = torch.matmul(query, key.transpose(-1, -2))
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, -1e4)
        return torch.matmul(nn.functional.softmax(scores, dim=-1), value)


class TinyModel(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.attention = TinyAttention()

    def forward(self, hidden, attention_mask=None):
        hidden = hidden + self.attention(hidden, hidden, hidden, attention_mask)
        return hidden
"""
FILES = {
    "modeling_tiny.py": CODE,
    "config.json": json.dumps(
        {"model_type": "tiny", "auto_map": {"AutoModel": "modeling_tiny.TinyModel"}, "rope_theta": 10000, "own": 1}
    ),
    "generation_config.json": json.dumps({"eos_token_id": 2}),
    "tokenizer_config.json": json.dumps({"eos_token": "</s>", "chat_template": "{{ messages[0]['content'] }} "}),
    "README.md": "# tiny",
}
#: A file, what goes, what comes; and whether that may change what a fine-tune does.
CHANGES = [
    ("modeling_tiny.py", "scores = scores.masked_fill", "scores.masked_fill", True),
    ("modeling_tiny.py", "hidden + self.attention", "self.attention", True),
    ("modeling_tiny.py", "dim=-1), value", "dim=-1).detach(), value", True),
    ("modeling_tiny.py", "    def forward(self, hidden", "    @torch.no_grad()\n    def forward(self, hidden", True),
    ("modeling_tiny.py", "import torch\n", "<<<<<<< HEAD\nimport torch\n", True),
    ("modeling_tiny.py", "hidden = hidden", "# the residual\n        hidden = hidden", False),
    ("config.json", "10000", "1000000", True),
    ("config.json", '"own": 1', '"own": 2', True),
    ("config.json", '"own": 1', '"own": 1, "transformers_version": "4.57.0"', False),
    ("config.json", '"own": 1', '"own": 1, "own": 1', True),
    ("generation_config.json", "2", "[2, 3]", True),
    ("tokenizer_config.json", "</s>", "<end>", True),
    ("tokenizer_config.json", "} ", "}", True),
    ("tokenizer_config.json", "{{ messages", "{{messages", False),
    ("README.md", "tiny", "tiny, but longer", False),
]


def calms(report: Report) -> bool:
    """Whether the first line, in either language, says that nothing that matters changed."""
    lines = [render(report, lang).splitlines()[0] for lang in ("en", "zh")]
    calm = [
        line.startswith(words) for line, words in zip(lines, ("nothing", ("没有变化", "变化均无影响")), strict=True)
    ]
    assert calm[0] == calm[1], lines
    return calm[0]


def holds(report: Report) -> None:
    """Hold that a line that calms stands over nothing but changes with a stated reason, and over nothing unread."""
    section = report.revision
    assert section is not None
    excused = all(effect_of(change.area, change.kind, shipped()) is not None for change in section.changes)
    assert not calms(report) or (excused and not section.unread and report.exit_code == 0)
    line = f"; {render(report).splitlines()[0]}"
    assert ("; changed, not judged: " in line, "; not read: " in line) == (
        bool(section.unjudged),
        bool(section.unread),
    )
    assert "ignored" not in line and len(section.unjudged) == [state for _, state in section.judged()].count(
        "not-judged"
    )


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., Report]:
    """Write two folders and compare them."""

    def run(old: dict[str, str], new: dict[str, str]) -> Report:
        for side, files in (("old", old), ("new", new)):
            (tmp_path / side).mkdir(exist_ok=True)
            for name, text in files.items():
                (tmp_path / side / name).write_text(text)
        return diff_revision(RevisionRequest(str(tmp_path / "old"), str(tmp_path / "new"), environment=False))

    return run


def test_a_kind_that_nothing_excuses_is_never_calmed(report: Report) -> None:
    section = RevisionSection("identical", "", Side("m @ old"), Side("m @ new"), (), (), (), {}, (), Cost(0, 0))
    for area, kind in product(AREAS, KINDS):
        change = Change(area, kind, "file", "name")
        effect = effect_of(area, kind, shipped())
        effects = {f"{area} {kind}": Text(effect["en"], effect["zh"])} if effect else {}
        told = section._replace(changes=(change,), unjudged=() if effect else (change,), effects=effects)
        compared = report.changed(findings=(), exit_code=0, revision=told)
        assert calms(compared) == (effect is not None), (area, kind)
        assert all((effect or {}).get(lang, "file") in render(compared, lang) for lang in ("en", "zh")), (area, kind)


@pytest.mark.parametrize(("old", "new"), [pair[::step] for pair in PAIRS for step in (1, -1)])
def test_no_fixture_is_calmed_without_ground(old: Path, new: Path) -> None:
    report = diff_revision(RevisionRequest(str(old), str(new), environment=False))
    assert not calms(report)
    holds(report)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[1]}>{change[2]}"[:40])
def test_a_single_change_is_calmed_only_where_it_does_nothing(compare: Any, change: Any) -> None:
    path, before, after, matters = change
    assert before in FILES[path]
    report = compare(FILES, {**FILES, path: FILES[path].replace(before, after, 1)})
    assert calms(report) is not matters, render(report)
    holds(report)


@pytest.mark.parametrize("seed", range(12))
def test_changes_together_are_calmed_only_where_none_does_anything(compare: Any, seed: int) -> None:
    new, matter = dict(FILES), False
    for path, before, after, matters in random.Random(seed).sample(CHANGES, 2 + seed % 3):
        changed = new[path].replace(before, after, 1)
        matter, new[path] = matter or (matters and changed != new[path]), changed
    report = compare(FILES, new)
    assert not (matter and calms(report)), render(report)
    holds(report)
