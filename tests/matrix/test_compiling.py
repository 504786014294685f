"""The compiled matrix of a wheel answers exactly as the TOML files do."""

import json
from pathlib import Path

import pytest
from compiling import compile_matrix

from envdoctor.facts import FactSet
from envdoctor.judge import Policy, facts_of, judge
from envdoctor.judge.derivations import derive
from envdoctor.matrix import Matrix, MatrixError, load_matrix, with_conditions
from envdoctor.observe import read_facts_file

ROOT = Path(__file__).resolve().parents[2]
MATRICES = ROOT / "matrices"
ENVIRONMENTS = ROOT / "fixtures" / "environments"


@pytest.fixture(scope="module")
def both(matrix, compiled) -> tuple[Matrix, Matrix]:
    """The shipped matrix from its source, and compiled."""
    return matrix, load_matrix()


def test_rules_conditions_texts_and_tables_are_the_same(both):
    source, compiled = both
    assert compiled.version == source.version
    assert [rule.id for rule in compiled.rules] == [rule.id for rule in source.rules]
    for ours, theirs in zip(source.rules, compiled.rules, strict=True):
        assert ours._replace(texts=None) == with_conditions(theirs)._replace(texts=None)
        assert compiled.texts(theirs) == json.loads(json.dumps(source.texts(ours), default=str))
    for name in ("families", *(path.stem for path in MATRICES.glob("tables/*.toml"))):
        assert compiled.table(name) == json.loads(json.dumps(source.table(name), default=str))
    assert [spec.key for spec in compiled.registry] == [spec.key for spec in source.registry]


def test_every_rule_finds_the_same_with_the_same_texts(both):
    source = both[0]
    for rule in source.rules:
        (*_, test) = sorted(source.texts(rule)["test"], key=lambda test: test["expect"] == "match")
        facts = facts_of(test, source)
        one, other = (judged(facts, matrix.only(lambda one, rule=rule: one.id == rule.id)) for matrix in both)
        assert one == other
        assert one[0] or test["expect"] != "match"


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
    found, open_rules = ([one._asdict() for one in told] for told in (result.findings, result.not_checked))
    return found, open_rules, result.rules_checked


def test_private_rules_stand_beside_a_compiled_matrix(compiled, tmp_path, write_rule):
    write_rule(tmp_path / "x-ours.toml")
    matrix = load_matrix([tmp_path])
    rule = matrix.find("x-ours")
    assert rule is not None and matrix.texts(rule)["message"]["en"] == "torch {pkg.torch} fails"


def test_a_rule_that_cannot_be_evaluated_is_never_shipped(home, write_rule, tmp_path):
    write_rule(home / "rules" / "odd.toml", "schema = 1\nsurprise = 1\n")
    with pytest.raises(MatrixError, match=r"rules/odd\.toml: unknown key 'surprise'"):
        compile_matrix(home, tmp_path / "compiled")


def test_compiling_twice_gives_the_same_bytes(compiled, tmp_path):
    compile_matrix(MATRICES, tmp_path)
    for path in compiled.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / path.relative_to(compiled)).read_bytes()
