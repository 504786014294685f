"""What a rule is, as the judge reads it."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from envdoctor.matrix.conditions import Condition

#: In rising order: the gate compares positions.
SEVERITIES = ("note", "warning", "error")
CONFIDENCES = ("inferred", "reported", "upstream", "reproduced")
EFFECTS = ("crash", "wrong-numbers", "oom", "slow", "install", "security")
STATUSES = ("preview", "active", "withdrawn")
#: What a fix may hold to be applied, and what such a fix is called. One without any of them is advice.
FIX_KINDS = {"constraints": "constraint", "uninstall": "uninstall", "set": "set", "env": "env", "command": "command"}
#: Kinds of evidence; a rule writes the kind before the address (``issue = "https://..."``).
PROOFS = ("issue", "release-notes", "source", "artefact", "docs", "reproduced", "article")
#: What a test of a rule expects.
ANSWERS = ("match", "no", "unknown")


_PLACEHOLDER = r"\{([a-z_][\w.-]*)\}"


class Rule(NamedTuple):
    """One rule, without its texts (they are read only for findings).

    ``affects`` and ``unless`` are lists of clauses, a clause is a list of conditions. In a compiled matrix conditions
    are plain lists in the order of their fields, because thousands of objects would cost more than evaluating them:
    read them by unpacking, or ask for :func:`with_conditions`. ``assume`` holds ``[key, value, because, is_default]``;
    ``because`` is a text, or texts by language.
    ``supersedes`` are rules whose findings this one stands for (of the same record, where both are of records).
    ``folds_into`` are columns of ``each`` that name packages: a finding is folded into one, at least as severe, that
    rests on a package of each of these columns, because that one says what the packages do to each other.
    ``explained_by`` maps rules with the same ``each`` to columns: a finding of such a rule (or an earlier one of this
    rule, where it names itself) about another record, at least as severe, stands for this one when the two records are
    known to agree in these columns.
    ``scope`` is drift for rules about several machines, revision for rules about two revisions, probe for those about
    experiments, memory for those about a prediction, watch for those about a training run, environment for all others.
    ``texts`` locates the texts: a mapping, or ``[offset, length]`` in the compiled file.
    """

    id: str
    status: str
    severity: str
    confidence: str
    effect: str
    each: str | None
    affects: list[list[Condition]]
    unless: list[list[Condition]]
    assume: list[list[Any]]
    supersedes: list[str]
    folds_into: list[str]
    explained_by: dict[str, list[str]]
    probe: str | None
    origin: str
    scope: str
    texts: Any

    def keys(self) -> Iterator[str]:
        """Yield every fact key that a condition of the rule reads."""
        for clause in (*self.affects, *self.unless):
            for condition in clause:
                yield condition[0]


def digest(text: str) -> str:
    """Return a name for an English text, so that its translation can say which wording it translates (``zh_of``)."""
    import hashlib  # brings OpenSSL along; needed only where a translation is checked

    return hashlib.sha256(text.encode()).hexdigest()[:8]


def placeholders(text: str) -> set[str]:
    """Return the fact keys in braces of a message."""
    return set(re.findall(_PLACEHOLDER, text))


def with_conditions(rule: Rule) -> Rule:
    """Return the rule with :class:`Condition` objects, also if it comes from a compiled matrix."""
    return rule._replace(
        affects=[[Condition(*condition) for condition in clause] for clause in rule.affects],
        unless=[[Condition(*condition) for condition in clause] for clause in rule.unless],
    )
