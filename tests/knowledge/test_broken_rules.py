"""Every file of fixtures/broken-rules is broken in one way, and the lint says which."""

from __future__ import annotations

import re
import shutil
from datetime import date
from pathlib import Path

import pytest
from known import given

from envdoctor.app.matrix import lint
from envdoctor.judge.judging import judge
from envdoctor.judge.policy import Policy
from envdoctor.knowledge.matrix import load_source, read_source

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "broken-rules"
MATRICES = FOLDER.parents[1] / "matrices"
FILES = sorted(FOLDER.glob("*.toml"))
TODAY = date(2026, 11, 20)
RETIRED = 'schema = 1\n[retired.retired-id-reused]\ndate = 2026-11-01\nbecause = "wrong"\n'


def complaints(home: Path) -> dict[str, list[str]]:
    """The complaints by the rules' names."""
    found: dict[str, list[str]] = {}
    for complaint in lint(read_source(home, source="test"), today=TODAY):
        found.setdefault(Path(complaint.origin).stem, []).append(complaint.text)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, list[str]]:
    """What the lint says of all of them."""
    home = tmp_path_factory.mktemp("matrices")
    shutil.copytree(FOLDER, home / "rules")
    shutil.copy(MATRICES / "facts.toml", home)
    found = complaints(home)
    (home / "retired.toml").write_text(RETIRED)  # a fault of that file keeps the tests of rules from being run
    return {**found, "retired-id-reused": complaints(home)["retired"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_rule_is_named_with_its_fault(found, path):
    expected = re.match(rb"# expect: (.*)", path.read_bytes())
    assert expected is not None, "the first line says what to expect"
    assert any(expected[1].decode().strip() in text for text in found[path.stem]), found[path.stem]


def test_nearly_all_of_them_have_that_one_fault_only(found):
    several = {name: texts for name, texts in found.items() if len(texts) > 1}
    assert len(several) <= 0.2 * len(FILES), several


def test_the_rule_that_they_were_made_from_has_no_fault(home):
    text = (FOLDER / "retired-id-reused.toml").read_text(encoding="utf-8")
    (home / "rules" / "sound.toml").write_text(text, encoding="utf-8")
    assert complaints(home) == {}


def test_a_broken_rule_never_stops_the_others(home, facts_of_torch):
    for path in FILES:
        shutil.copy(path, home / "rules")
    for name in ("not-toml", "not-utf-8"):
        (home / "rules" / f"{name}.toml").unlink()
    matrix = load_source(home, source="test")
    judgement = judge(facts_of_torch, matrix, Policy())
    assert {broken.id for broken in matrix.broken} <= {entry.id for entry in judgement.not_checked}
    assert all(entry.reason for entry in judgement.not_checked if entry.id in {b.id for b in matrix.broken})
    assert judgement.rules_checked == len(matrix.rules)


@pytest.fixture
def facts_of_torch(matrix):
    values = {"pkg.torch": "2.5.0", "model.family": "llama", "recipe.batch_size": 2, "recipe.attn": "sdpa"}
    return given(values, matrix.registry)
