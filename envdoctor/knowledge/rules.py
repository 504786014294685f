"""Rule files: one TOML document becomes one rule, or a list of what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.registry import FactTypeError, Registry, canonical_key, parse_value
from envdoctor.knowledge.conditions import Condition, ConditionError, parse_condition
from envdoctor.knowledge.vocabulary import CONFIDENCES, EFFECTS, SEVERITIES

__all__ = [
    "SCHEMA",
    "STATUSES",
    "Rule",
    "RuleError",
    "about_environments",
    "about_revisions",
    "digest",
    "parse_rule",
    "placeholders",
    "with_conditions",
]

#: The newest rule schema this engine understands.
SCHEMA = 1
STATUSES = ("preview", "active", "withdrawn")
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_EVIDENCE = ("issue", "release-notes", "source", "artefact", "docs", "reproduced", "article")
_SAFETY = ("safe", "review", "manual")
_EXPECT = ("match", "no", "unknown")
_PLACEHOLDER = re.compile(r"\{([a-z_][\w.-]*)\}")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "document": (
        "schema",
        "rule",
        "affects",
        "unless",
        "assume",
        "message",
        "why",
        "details",
        "fix",
        "evidence",
        "test",
    ),
    "rule": (
        *("status", "severity", "confidence", "effect", "added", "modified", "fixed_in", "last_seen", "open_ended"),
        *("probe", "each", "supersedes", "folds_into", "aliases", "title"),
    ),
    "assume": ("key", "value", "because", "default"),
    "text": ("en", "zh", "zh_of"),
    "fix": ("safety", "constraints", "cuda", "set", "env", "command", "summary"),
    "evidence": ("kind", "url", "shows", "checked"),
    "test": ("expect", "name", "facts", "complete"),
}


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
    ``scope`` is revision for rules about two revisions, probe for those about experiments, watch for those about a
    training run, environment for all others. ``texts`` locates the texts: a mapping, or
    ``[offset, length]`` in the compiled file.
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


def about_environments(rule: Rule) -> bool:
    """Whether the rule judges what is installed, the machine, the model and the recipe: what ``check`` judges."""
    return rule.scope == "environment"


def digest(text: str) -> str:
    """Names an English text, so that its translation can say which wording it translates (``zh_of``)."""
    import hashlib  # brings OpenSSL along; needed only where a translation is checked

    return hashlib.sha256(text.encode()).hexdigest()[:8]


def placeholders(text: str) -> set[str]:
    """The fact keys in braces of a message."""
    return set(_PLACEHOLDER.findall(text))


def parse_rule(rule_id: str, origin: str, data: Mapping[str, Any], registry: Registry) -> Rule:
    """A rule from its parsed TOML document. Raises :class:`RuleError` with everything that is wrong."""
    problems: list[str] = []
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RuleError([f"schema: schema = {SCHEMA} is expected on the first line"])
    if schema > SCHEMA:
        raise RuleError([f"schema {schema} is newer than this engine understands ({SCHEMA}): update envdoctor"])
    _unknown(problems, "document", "", data)
    head = _table(problems, data, "rule")
    _unknown(problems, "rule", "rule: ", head)
    if not _ID.match(rule_id):
        problems.append(f"the file's name {rule_id!r} is not lower-case words joined by dashes")
    for key, allowed in (
        ("status", STATUSES),
        ("severity", SEVERITIES),
        ("confidence", CONFIDENCES),
        ("effect", EFFECTS),
    ):
        if head.get(key) not in allowed:
            problems.append(f"rule: {key}: {head.get(key)!r} is none of {', '.join(allowed)}")
    each = head.get("each")
    if each is not None:
        spec = registry.find(each) if isinstance(each, str) else None
        if spec is None or spec.type != "records":
            problems.append(f"rule: each: {each!r} is not a registered record list")
    affects = _clauses(problems, registry, data, "affects", each)
    unless = _clauses(problems, registry, data, "unless", each)
    if not affects:
        problems.append("affects: at least one clause is needed")
    assume = [_assume(problems, registry, n, entry) for n, entry in _tables(problems, data, "assume")]
    texts = {
        "title": head.get("title"),
        "added": str(head.get("added", "")),
        "modified": str(head.get("modified", "")),
        "bound": _bound(problems, head),
        "aliases": _strings(problems, "rule: aliases", head.get("aliases", [])),
        "message": _text(problems, data, "message", required=True),
        "why": _text(problems, data, "why", required=True),
        "details": _text(problems, data, "details", required=False),
        "fix": [_fix(problems, n, entry) for n, entry in _tables(problems, data, "fix")],
        "evidence": [_evidence(problems, n, entry) for n, entry in _tables(problems, data, "evidence")],
        "test": [_test(problems, n, entry) for n, entry in _tables(problems, data, "test")],
    }
    supersedes = _strings(problems, "rule: supersedes", head.get("supersedes", []))
    folds_into = _strings(problems, "rule: folds_into", head.get("folds_into", []))
    for column in folds_into:
        if not isinstance(each, str) or not column.startswith(each + ".") or registry.find(column) is None:
            problems.append(f"rule: folds_into: {column!r} is not a column of each")
    for key in ("probe", "title"):
        if not isinstance(head.get(key, ""), str):
            problems.append(f"rule: {key}: a text is expected")
    if problems:
        raise RuleError(problems)
    return Rule(
        id=rule_id,
        status=head["status"],
        severity=head["severity"],
        confidence=head["confidence"],
        effect=head["effect"],
        each=each,
        affects=affects,
        unless=unless,
        assume=assume,
        supersedes=supersedes,
        folds_into=folds_into,
        probe=head.get("probe"),
        origin=origin,
        scope=_scope(each, affects, unless),
        texts=texts,
    )


def _scope(each: str | None, affects: Iterable[Sequence[Condition]], unless: Iterable[Sequence[Condition]]) -> str:
    """What a rule is about: facts that only one command has decide. An exception may well rest on an experiment."""
    prefixes = {key.partition(".")[0] for key in _keys(affects)} | {each}
    if prefixes & {"change", "revision"} or {key.partition(".")[0] for key in _keys(unless)} & {"change", "revision"}:
        return "revision"
    return next((scope for scope in ("probe", "watch") if scope in prefixes), "environment")


def _keys(clauses: Iterable[Sequence[Condition]]) -> Iterator[str]:
    return (condition.key for clause in clauses for condition in clause)


def with_conditions(rule: Rule) -> Rule:
    """The rule with :class:`Condition` objects, also when it comes from a compiled matrix."""
    return rule._replace(
        affects=[[Condition(*condition) for condition in clause] for clause in rule.affects],
        unless=[[Condition(*condition) for condition in clause] for clause in rule.unless],
    )


def _unknown(problems: list[str], kind: str, where: str, table: Mapping[str, Any]) -> None:
    for key in table:
        if key not in _KEYS[kind]:
            problems.append(f"{where}unknown key {key!r}")


def _table(problems: list[str], data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key, {})
    if isinstance(value, Mapping):
        return value
    problems.append(f"{key}: a table is expected")
    return {}


def _tables(problems: list[str], data: Mapping[str, Any], key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        problems.append(f"{key}: an array of tables ([[{key}]]) is expected")
        return
    yield from enumerate(value, 1)


def _strings(problems: list[str], where: str, value: object) -> list[str]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return list(value)
    problems.append(f"{where}: a list of text is expected")
    return []


def _clauses(
    problems: list[str], registry: Registry, data: Mapping[str, Any], name: str, each: object
) -> list[list[Condition]]:
    clauses: list[list[Condition]] = []
    for number, table in _tables(problems, data, name):
        clause: list[Condition] = []
        for key, operand in table.items():
            try:
                clause.append(parse_condition(registry, key, operand, each if isinstance(each, str) else None))
            except ConditionError as error:
                problems.append(f"{name} {number}: {key}: {error}")
        if not table:
            problems.append(f"{name} {number}: an empty clause would always match")
        clauses.append(clause)
    return clauses


def _assume(problems: list[str], registry: Registry, number: int, entry: Mapping[str, Any]) -> list[Any]:
    where = f"assume {number}: "
    _unknown(problems, "assume", where, entry)
    key, because, default = entry.get("key"), entry.get("because"), entry.get("default", False)
    spec = registry.find(key) if isinstance(key, str) else None
    if spec is None or key != canonical_key(str(key)) or str(key).endswith("*"):
        problems.append(f"{where}key: {key!r} is not a registered fact")
    elif "value" not in entry:
        problems.append(f"{where}value: missing")
    else:
        try:
            parse_value(spec, entry["value"])
        except FactTypeError as error:
            problems.append(f"{where}value: {error}")
    if not isinstance(because, (str, Mapping)) or not because:
        problems.append(f"{where}because: the reason is missing")
    elif isinstance(because, Mapping):
        because = _text(problems, {f"{where}because": because}, f"{where}because", required=True)
    if not isinstance(default, bool):
        problems.append(f"{where}default: true or false is expected")
    return [key, entry.get("value"), because, default]


def _text(problems: list[str], data: Mapping[str, Any], key: str, *, required: bool) -> dict[str, str] | None:
    table = data.get(key)
    if table is None:
        if required:
            problems.append(f"{key}: missing")
        return None
    if not isinstance(table, Mapping) or not all(isinstance(value, str) for value in table.values()):
        problems.append(f"{key}: a table of texts by language is expected")
        return None
    _unknown(problems, "text", f"{key}: ", table)
    if not table.get("en"):
        problems.append(f"{key}: the English text is missing")
    return dict(table)


def _bound(problems: list[str], head: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: head[key] for key in ("fixed_in", "last_seen", "open_ended") if key in head}
    for key in ("fixed_in", "last_seen"):
        value = given.get(key)
        if value is not None and not (
            isinstance(value, Mapping) and value and all(isinstance(item, str) for item in value.values())
        ):
            problems.append(f'rule: {key}: a table such as {{ "pkg.torch" = "2.5.1" }} is expected')
    if "open_ended" in given and given["open_ended"] is not True:
        problems.append("rule: open_ended: only true makes sense")
    return {key: (dict(value) if isinstance(value, Mapping) else value) for key, value in given.items()}


def _fix(problems: list[str], number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    where = f"fix {number}: "
    _unknown(problems, "fix", where, entry)
    if entry.get("safety") not in _SAFETY:
        problems.append(f"{where}safety: {entry.get('safety')!r} is none of {', '.join(_SAFETY)}")
    kinds = [key for key in ("constraints", "set", "env", "command") if key in entry]
    if len(kinds) > 1:
        problems.append(f"{where}one of constraints, set, env, command is expected, not {', '.join(kinds)}")
    constraints = _strings(problems, f"{where}constraints", entry.get("constraints", []))
    cuda = _strings(problems, f"{where}cuda", entry.get("cuda", []))
    if cuda and not (len(constraints) == 1 and constraints[0].startswith("torch")):
        problems.append(f"{where}cuda: builds are chosen for one constraint on torch")
    for key in ("set", "env"):
        table = entry.get(key, {})
        if not isinstance(table, Mapping) or any(isinstance(value, Mapping) for value in table.values()):
            problems.append(f'{where}{key}: a table such as {{ "recipe.attn" = "sdpa" }} is expected')
    if not isinstance(entry.get("command", ""), str):
        problems.append(f"{where}command: a text is expected")
    summary = entry.get("summary")
    if (
        not isinstance(summary, Mapping)
        or not summary.get("en")
        or not all(isinstance(value, str) for value in summary.values())
    ):
        problems.append(f"{where}summary: summary.en is missing")
        summary = {}
    else:
        _unknown(problems, "text", f"{where}summary: ", summary)
    kind = {"constraints": "constraint"}.get(kinds[0], kinds[0]) if kinds else "advice"
    return {
        "kind": kind,
        "safety": entry.get("safety"),
        "constraints": constraints,
        "cuda": cuda,
        "set": entry.get("set", {}),
        "env": entry.get("env", {}),
        "command": entry.get("command"),
        "summary": dict(summary),
    }


def _evidence(problems: list[str], number: int, entry: Mapping[str, Any]) -> dict[str, str]:
    where = f"evidence {number}: "
    _unknown(problems, "evidence", where, entry)
    if entry.get("kind") not in _EVIDENCE:
        problems.append(f"{where}kind: {entry.get('kind')!r} is none of {', '.join(_EVIDENCE)}")
    for key in ("url", "shows"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            problems.append(f"{where}{key}: missing")
    if not hasattr(entry.get("checked"), "isoformat"):
        problems.append(f"{where}checked: a date such as 2026-11-20 is expected")
    return {key: str(entry.get(key, "")) for key in ("kind", "url", "shows", "checked")}


def _test(problems: list[str], number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    where = f"test {number}: "
    _unknown(problems, "test", where, entry)
    if entry.get("expect") not in _EXPECT:
        problems.append(f"{where}expect: {entry.get('expect')!r} is none of {', '.join(_EXPECT)}")
    if not isinstance(entry.get("facts"), Mapping):
        problems.append(f"{where}facts: a table of facts is expected")
    return {
        "expect": entry.get("expect"),
        "name": entry.get("name"),
        "facts": entry.get("facts", {}),
        "complete": _strings(problems, f"{where}complete", entry.get("complete", [])),
    }
