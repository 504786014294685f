"""A rule's fixes judged by the rule's own tests: each must end the match of one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envdoctor.install.fixes import offer_alone
from envdoctor.judge.selftest import Case
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule

__all__ = ["check_fixes"]


def check_fixes(rule: Rule, cases: Iterable[Case], matrix: Matrix) -> Iterator[str]:
    """A fix, applied to an environment that matches, must end the match. ``cases`` are the rule's tests."""
    matching = [case.facts for case in cases if case.got == "match"]
    offered = [offer_alone(rule, facts, matrix) for facts in matching]
    for number, fix in enumerate(matrix.texts(rule)["fix"] if matching else ()):
        reasons = [fixes[number].withheld for fixes in offered]
        # A fix may help only some of the environments that a rule covers; one that never helps is wrong.
        if all(reasons):
            yield f"fix {number + 1} ({fix['summary'].get('en', '')}) never helps: {reasons[0]}"
