"""``envdoctor explain ID``: everything the matrix holds about one rule."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.app.rule_names import rule_named
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule, with_conditions


class Explanation(NamedTuple):
    """A rule with its texts, fixes, evidence and tests; ``renamed_from`` when the id asked for was retired."""

    rule: Rule
    texts: Mapping[str, Any]
    renamed_from: str | None = None


def explain(rule_id: str, matrix: Matrix) -> Explanation:
    """The explanation of a rule, also under a former id. Raises :class:`UsageProblem`."""
    named = rule_named(rule_id, matrix)
    return Explanation(with_conditions(named.rule), matrix.texts(named.rule), named.former)
