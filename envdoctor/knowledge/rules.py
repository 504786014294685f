"""Rule files: one TOML document becomes one rule, or a list of what is wrong with it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.knowledge.conditions import Condition, parse_condition
from envdoctor.knowledge.vocabulary import FIX_KINDS

__all__ = [
    "SCHEMA",
    "Rule",
    "RuleError",
    "about_revisions",
    "digest",
    "parse_rule",
    "placeholders",
    "with_conditions",
]

#: The newest rule schema this engine understands.
SCHEMA = 1
_ID = r"[a-z0-9]+(-[a-z0-9]+)*\Z"
_PLACEHOLDER = r"\{([a-z_][\w.-]*)\}"
_FIX: Mapping[str, Any] = {"constraints": [], "cuda": [], "uninstall": [], "set": {}, "env": {}, "command": None}


class RuleError(ValueError):
    """A rule file is wrong; ``problems`` are clauses that name the key ("fix 2: safety: …")."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


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
        """Every fact key that a condition of the rule reads."""
        for clause in (*self.affects, *self.unless):
            for condition in clause:
                yield condition[0]


def about_revisions(rule: Rule) -> bool:
    """Whether the rule judges a comparison of two revisions: it means nothing for an environment alone."""
    return rule.scope == "revision"


def digest(text: str) -> str:
    """Names an English text, so that its translation can say which wording it translates (``zh_of``)."""
    import hashlib  # brings OpenSSL along; needed only where a translation is checked

    return hashlib.sha256(text.encode()).hexdigest()[:8]


def placeholders(text: str) -> set[str]:
    """The fact keys in braces of a message."""
    return set(re.findall(_PLACEHOLDER, text))


def parse_rule(rule_id: str, origin: str, data: Mapping[str, Any], registry: Registry) -> Rule:
    """A rule from its parsed TOML document. Raises :class:`RuleError` with everything that is wrong."""
    from envdoctor.knowledge.rule_schema import rule_schema  # a compiled matrix holds no documents

    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RuleError([f"schema: schema = {SCHEMA} is expected on the first line"])
    if schema > SCHEMA:
        raise RuleError([f"schema {schema} is newer than this engine understands ({SCHEMA}): update envdoctor"])
    head = data.get("rule")
    each = head.get("each") if isinstance(head, Mapping) else None
    problems = list(rule_schema(registry, each if isinstance(each, str) else None)(data))
    if not re.match(_ID, rule_id):
        problems.append(f"the file's name {rule_id!r} is not lower-case words joined by dashes")
    if problems:
        raise RuleError(problems)
    head = data["rule"]
    affects, unless = (
        [
            [parse_condition(registry, key, operand, each) for key, operand in clause.items()]
            for clause in data.get(name, ())
        ]
        for name in ("affects", "unless")
    )
    texts = {
        "title": head.get("title"),
        "added": str(head["added"]),
        "modified": str(head["modified"]),
        "engines": head.get("engines", False),
        "bound": {key: head[key] for key in ("fixed_in", "last_seen", "open_ended") if key in head},
        **{name: data.get(name) for name in ("message", "why", "details")},
        "fix": [{**_FIX, **fix, "kind": _kind(fix)} for fix in data.get("fix", ())],
        "evidence": [{**entry, "checked": str(entry["checked"])} for entry in data.get("evidence", ())],
        "symptom": data.get("symptom", []),
        "test": [{"name": None, "complete": [], **test} for test in data.get("test", ())],
    }
    return Rule(
        id=rule_id,
        **{key: head[key] for key in ("status", "severity", "confidence", "effect")},
        each=each,
        affects=affects,
        unless=unless,
        assume=[[e["key"], e["value"], e["because"], e.get("default", False)] for e in data.get("assume", ())],
        supersedes=head.get("supersedes", []),
        folds_into=head.get("folds_into", []),
        explained_by=head.get("explained_by", {}),
        probe=head.get("probe"),
        origin=origin,
        scope=_scope(each, affects, unless),
        texts=texts,
    )


def _kind(fix: Mapping[str, Any]) -> str:
    return next((kind for key, kind in FIX_KINDS.items() if key in fix), "advice")


def _scope(each: str | None, affects: Iterable[Sequence[Condition]], unless: Iterable[Sequence[Condition]]) -> str:
    """What a rule is about: facts that only one command has decide. An exception may well rest on an experiment."""
    prefixes = {key.partition(".")[0] for key in _keys(affects)} | {each}
    if prefixes & {"change", "revision"} or {key.partition(".")[0] for key in _keys(unless)} & {"change", "revision"}:
        return "revision"
    if prefixes & {"probe", "import_run"}:
        return "probe"
    if "drift" in prefixes:
        return "drift"
    if "memory" in prefixes:
        return "memory"
    return "watch" if "watch" in prefixes else "environment"


def _keys(clauses: Iterable[Sequence[Condition]]) -> Iterator[str]:
    return (condition.key for clause in clauses for condition in clause)


def with_conditions(rule: Rule) -> Rule:
    """The rule with :class:`Condition` objects, also when it comes from a compiled matrix."""
    return rule._replace(
        affects=[[Condition(*condition) for condition in clause] for clause in rule.affects],
        unless=[[Condition(*condition) for condition in clause] for clause in rule.unless],
    )
