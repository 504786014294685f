"""A rule's fixes judged by the rule's own tests: each must end the match of one of them."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.install.fixes import offer_fixes
from envdoctor.judge.selftest import facts_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule

__all__ = ["check_fixes"]


def check_fixes(rule: Rule, matrix: Matrix) -> Iterator[str]:
    """A fix, applied to an environment that matches, must end the match. The rule's tests must have been run before."""
    texts = matrix.texts(rule)
    matching = [facts_of(test, matrix) for test in texts["test"] if test["expect"] == "match"]
    if not matching:
        return
    offered = [offer_fixes(rule, facts, matrix, (), alone=True) for facts in matching]
    for number, fix in enumerate(texts["fix"]):
        reasons = [fixes[number].withheld for fixes in offered]
        # A fix may help only some of the environments that a rule covers; one that never helps is wrong.
        if all(reasons):
            yield f"fix {number + 1} ({fix['summary'].get('en', '')}) never helps: {reasons[0]}"
