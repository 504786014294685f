"""The compiled matrix of a wheel answers exactly as the TOML files do."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

import pytest

from envdoctor.judge.judging import judge
from envdoctor.judge.policy import Policy
from envdoctor.judge.selftest import facts_of, run_tests
from envdoctor.knowledge.compiling import compile_matrix
from envdoctor.knowledge.matrix import Matrix, MatrixError, _load_compiled, load_source
from envdoctor.knowledge.rules import with_conditions

MATRICES = Path(__file__).resolve().parents[2] / "matrices"


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Matrix, Matrix]:
    """The shipped matrix from its source, and compiled."""
    target = tmp_path_factory.mktemp("compiled")
    compile_matrix(MATRICES, target)
    return load_source(MATRICES, source="checkout"), _load_compiled(target)


def test_rules_conditions_texts_and_tables_are_the_same(both):
    source, compiled = both
    assert compiled.version == source.version
    assert [rule.id for rule in compiled.rules] == [rule.id for rule in source.rules]
    for ours, theirs in zip(source.rules, compiled.rules, strict=True):
        assert ours._replace(texts=None) == with_conditions(theirs)._replace(texts=None)
        assert compiled.texts(theirs) == json.loads(json.dumps(source.texts(ours), default=str))
    for name in ("families", "torch-builds", "torch-archs", "releases", "packages", "gpus"):
        assert compiled.table(name) == json.loads(json.dumps(source.table(name), default=str))
    assert [spec.key for spec in compiled.registry] == [spec.key for spec in source.registry]


def test_every_embedded_test_has_the_same_answer(both):
    source, compiled = both
    for ours, theirs in zip(source.rules, compiled.rules, strict=True):
        assert run_tests(ours, source) == run_tests(theirs, compiled)


def test_the_facts_of_every_embedded_test_are_judged_the_same(both):
    judged = 0
    for rule in both[0].rules:
        for test in both[0].texts(rule)["test"][:3]:
            results = []
            for matrix in both:
                facts = facts_of(test, matrix)
                result = judge(facts, matrix, Policy(), today=date(2026, 11, 20))
                data = [asdict(finding) for finding in result.findings], [asdict(e) for e in result.not_checked]
                results.append((data, result.rules_checked, list(result.facts)))
            assert results[0] == results[1]
            judged += 1
    assert judged > 100


def test_private_rules_stand_beside_a_compiled_matrix(both, tmp_path, write_rule):
    from envdoctor.knowledge.matrix import _add_private

    write_rule(tmp_path / "x-ours.toml")
    target = tmp_path / "compiled"
    compile_matrix(MATRICES, target)
    matrix = _load_compiled(target)
    _add_private(matrix, tmp_path)
    rule = matrix.find("x-ours")
    assert rule is not None and matrix.texts(rule)["message"]["en"] == "torch {pkg.torch} fails"


def test_a_rule_that_cannot_be_evaluated_is_never_shipped(home, write_rule, tmp_path):
    write_rule(home / "rules" / "odd.toml", "schema = 1\nsurprise = 1\n")
    with pytest.raises(MatrixError, match=r"rules/odd\.toml: unknown key 'surprise'"):
        compile_matrix(home, tmp_path / "compiled")


def test_compiling_twice_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        compile_matrix(MATRICES, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
