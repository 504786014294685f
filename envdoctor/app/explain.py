"""``envdoctor explain ID``: everything the matrix holds about one rule."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from envdoctor.app.errors import UsageProblem
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule, with_conditions

__all__ = ["Explanation", "explain"]


class Explanation(NamedTuple):
    """A rule with its texts, fixes, evidence and tests; ``renamed_from`` when the id asked for was retired."""

    rule: Rule
    texts: Mapping[str, Any]
    renamed_from: str | None = None


def explain(rule_id: str, matrix: Matrix) -> Explanation:
    """The explanation of a rule, also under a former id. Raises :class:`UsageProblem`."""
    rule = matrix.find(rule_id)
    if rule is not None:
        return Explanation(with_conditions(rule), matrix.texts(rule))
    retired = matrix.retired().get(rule_id)
    if retired is not None:
        successor = matrix.find(str(retired.get("now", "")))
        if successor is not None:
            return Explanation(with_conditions(successor), matrix.texts(successor), rule_id)
        raise UsageProblem(f"{rule_id} was withdrawn on {retired.get('date')}: {retired.get('because')}")
    for other in matrix.rules:
        if rule_id in matrix.texts(other)["aliases"]:
            return Explanation(with_conditions(other), matrix.texts(other))
    near = get_close_matches(rule_id, [rule.id for rule in matrix.rules], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "`envdoctor matrix list` names them"
    raise UsageProblem(f"there is no rule {rule_id}; {hint}")
