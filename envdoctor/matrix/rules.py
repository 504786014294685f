"""A rule, as the judge reads it, and its conditions: the text of a rule file, parsed against the registry into a form
that is quick to evaluate."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.facts.registry import FactSpec, Registry, canonical_key
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted

# Patterns are compiled when a rule is read from TOML: a compiled matrix needs none of them.
_QUANTIFIED = r"(any|all)\(([^()]+)\)\Z"
#: Comparison operators of specifiers: ``~=`` and ``===`` have no place in a rule.
_PART = r"(<=|>=|==|!=|<|>)\s*(\S+)\Z"
_VERSION_OPERAND = r"(?a)\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?\Z|\d+(\.\d+)*\.\*\Z"
_LONGEST_OPERAND = 64
_NUMBER = r"-?[0-9]+(\.[0-9]+)?\Z"


class ConditionError(ValueError):
    """A condition of a rule is wrong; the message says what was expected."""


class Condition(NamedTuple):
    """One key of a clause.

    ``quantifier`` is ``""``, ``"any"`` or ``"all"``. ``alternatives`` are ORed; each is ``"absent"``, ``"present"``, a
    boolean, a lower-case text pattern, or a list of ``[operator, operand]`` pairs that are ANDed.
    """

    key: str
    quantifier: str
    type: str
    alternatives: list[Any]


def parse_condition(registry: Registry, written_key: str, operand: object, each: str | None = None) -> Condition:
    """Parse one ``key = operand`` line of a clause. Raises :class:`ConditionError`."""
    match = re.match(_QUANTIFIED, written_key)
    quantifier, key = (match[1], match[2]) if match else ("", written_key)
    spec = registry.find(key)
    if spec is None or key.endswith("*"):
        raise ConditionError(f"{key} is not a registered fact")
    if key != canonical_key(key):
        raise ConditionError(f"packages go by their normalised name: {canonical_key(key)}")
    head = key.partition(".")[0]
    is_column = registry.records_of(key) is not None
    if quantifier and not is_column:
        raise ConditionError(f"{quantifier}() needs a record column, and {key} is none")
    if is_column and not quantifier and head != each:
        raise ConditionError(f'{key} is a record column: write any({key}), all({key}), or each = "{head}"')
    operands = operand if isinstance(operand, list) else [operand]
    if not operands:
        raise ConditionError("an empty list can never match")
    return Condition(key, quantifier, spec.type, [_alternative(spec, item) for item in operands])


def _alternative(spec: FactSpec, operand: object) -> object:
    if operand in ("absent", "present"):
        return operand
    if spec.type == "records":
        raise ConditionError('a record list can only be "present" (at least one item) or "absent" (none)')
    if spec.type == "boolean":
        if isinstance(operand, bool):
            return operand
        raise ConditionError(Message("true or false is expected, not {}", repr(operand)))
    if spec.type in ("text", "texts"):
        if isinstance(operand, str) and operand:
            return operand.lower()
        raise ConditionError(f"a text or a glob is expected, not {operand!r}")
    if spec.type == "number" and isinstance(operand, (int, float)) and not isinstance(operand, bool):
        return _comparisons(spec.type, f"=={operand}")
    if not isinstance(operand, str):
        raise ConditionError(f'comparisons such as ">=2,<3" are expected, not {operand!r}')
    return _comparisons(spec.type, operand)


def _comparisons(kind: str, text: str) -> list[list[str]]:
    parts: list[list[str]] = []
    for piece in text.split(","):
        match = re.match(_PART, piece.strip())
        if match is None:
            raise ConditionError(f'comparisons such as ">=2,<3" are expected, not {text!r}')
        operator, operand = match[1], match[2]
        if kind == "version":
            is_good = re.match(_VERSION_OPERAND, operand) and (operator in ("==", "!=") or not operand.endswith(".*"))
        else:
            is_good = (dotted(operand) if kind == "dotted" else re.match(_NUMBER, operand)) is not None
        if not is_good or len(operand) > _LONGEST_OPERAND:
            raise ConditionError(f"{operator}{operand} in {text!r} is not a comparison of type {kind}")
        parts.append([operator, operand])
    return parts


def glob_fits(text: str, pattern: str) -> bool:
    """Return whether a text is the pattern, or fits it as a glob of ``*`` and ``?``; brackets stand for themselves."""
    if "*" not in pattern and "?" not in pattern:
        return text == pattern
    start = pattern.partition("*")[0].partition("?")[0]  # most globs end here, and are never compiled
    return text.startswith(start) and fnmatchcase(text, pattern.replace("[", "[[]"))


def spelled(alternative: object) -> str:
    """Write one alternative of a condition as a rule file has it."""
    if isinstance(alternative, list):
        return ",".join(operator + operand for operator, operand in alternative)
    return str(alternative).lower() if isinstance(alternative, bool) else str(alternative)


#: In rising order: the gate compares positions.
SEVERITIES = ("note", "warning", "error")
CONFIDENCES = ("inferred", "reported", "upstream", "reproduced")
EFFECTS = ("crash", "wrong-numbers", "oom", "slow", "install", "security")
STATUSES = ("preview", "active", "withdrawn")
#: The parts of a fix that can be applied, and the kind of fix with each. A fix without any of them is advice.
FIX_KINDS = {"constraints": "constraint", "uninstall": "uninstall", "set": "set", "env": "env", "command": "command"}
#: Kinds of evidence; a rule writes the kind before the address (``issue = "https://..."``).
PROOFS = ("issue", "release-notes", "source", "artefact", "docs", "reproduced", "article")
#: The answers that a test of a rule may expect.
ANSWERS = ("match", "no", "unknown")
#: The place of a fact's value in a message.
PLACEHOLDER = r"\{([a-z_][\w.-]*)\}"


class Rule(NamedTuple):
    """One rule, without its texts (they are read only for findings).

    ``affects`` and ``unless`` are lists of clauses, a clause is a list of conditions. In a compiled matrix conditions
    are plain lists in the order of their fields, because thousands of objects would cost more than evaluating them:
    read them by unpacking, or ask for :func:`with_conditions`. ``assume`` holds ``[key, value, because, is_default]``;
    ``because`` is a text, or texts by language.
    ``supersedes`` are rules whose findings this one stands for (of the same record, where both are of records).
    ``folds_into`` are columns of ``each`` that name packages: a finding is folded into one, at least as severe, that
    rests on a package of each of these columns, because that one says what the packages do to each other.
    ``covers`` are such columns the other way: findings that rest on one of these packages fold into this one.
    ``explained_by`` maps rules with the same ``each`` to columns: a finding of such a rule (or an earlier one of this
    rule, where it names itself) about another record, at least as severe, stands for this one when the two records are
    known to agree in these columns.
    ``scope`` is drift for rules about several machines, revision for rules about two revisions, probe for experiments,
    memory for a prediction, watch for a training run, environment for all others.
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
    covers: list[str]
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


def placeholders(text: str) -> set[str]:
    """Return the fact keys in braces of a message."""
    return set(re.findall(PLACEHOLDER, text))


def with_conditions(rule: Rule) -> Rule:
    """Return the rule with :class:`Condition` objects, also if it comes from a compiled matrix."""
    return rule._replace(
        affects=[[Condition(*condition) for condition in clause] for clause in rule.affects],
        unless=[[Condition(*condition) for condition in clause] for clause in rule.unless],
    )
