"""The compiled matrix of a wheel answers exactly as the TOML files do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envdoctor.derive import derive
from envdoctor.facts.factset import FactSet
from envdoctor.judge.judging import judge
from envdoctor.judge.policy import Policy
from envdoctor.judge.selftest import try_tests
from envdoctor.knowledge.compiling import compile_matrix
from envdoctor.knowledge.matrix import Matrix, MatrixError, _load_compiled, load_source
from envdoctor.knowledge.rules import with_conditions
from envdoctor.observe.documents.facts_file import read_facts_file

ROOT = Path(__file__).resolve().parents[2]
MATRICES = ROOT / "matrices"
ENVIRONMENTS = ROOT / "fixtures" / "environments"


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


def test_every_embedded_test_has_the_same_answer_and_finding(both):
    for ours, theirs in zip(*(matrix.rules for matrix in both), strict=True):
        pairs = list(zip(try_tests(ours, both[0]), try_tests(theirs, both[1]), strict=True))
        assert all(one._replace(facts=None) == other._replace(facts=None) for one, other in pairs)
        for pair in pairs[:3]:
            one, other = (judged(case.facts, alone(matrix, ours.id)) for case, matrix in zip(pair, both, strict=True))
            assert one == other


def alone(matrix: Matrix, rule_id: str) -> Matrix:
    """The matrix with that one rule."""
    return matrix.only(lambda rule: rule.id == rule_id)


def test_the_whole_matrix_judges_the_same(both):
    for path in sorted(ENVIRONMENTS.glob("*.json")):
        judgements = []
        for matrix in both:
            facts = read_facts_file(path, matrix.registry, path.name)
            derive(facts, matrix)
            judgements.append((judged(facts, matrix), list(facts)))
        assert judgements[0] == judgements[1]
        assert judgements[0][0][0]


def judged(facts: FactSet, matrix: Matrix) -> tuple[object, ...]:
    """Findings and open rules of facts that were derived already, in plain words."""
    result = judge(facts, matrix, Policy())
    return (
        [one._asdict() for one in result.findings],
        [one._asdict() for one in result.not_checked],
        result.rules_checked,
    )


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
    for path in (tmp_path / "one").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
