"""Read a rule file: one TOML document becomes one rule, or a list of faults; and the shape of TOML that a person wrote,
with a clause for each fault. (JSON Schema holds the tables and the registry, ``matrices/schema``.)"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import groupby
from typing import Any, NamedTuple

from envdoctor.facts.registry import FactTypeError, Registry, canonical_key, parse_value, shown
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.rules import (
    ANSWERS,
    CONFIDENCES,
    EFFECTS,
    FIX_KINDS,
    PROOFS,
    SEVERITIES,
    STATUSES,
    Condition,
    ConditionError,
    Rule,
    parse_condition,
)
from envdoctor.system.message import Message, did_you_mean
from envdoctor.versions.pep440 import satisfies


class Kind(NamedTuple):
    """A kind of value: what is expected, in words, the test that a value must pass, and the message if it fails."""

    expected: str
    test: Callable[[Any], object]
    refusal: str = "{expected} is expected, not {given}"

    def faults(self, value: Any) -> Iterator[str]:
        """Yield the fault of a value, if it has one."""
        if not self.test(value):
            yield self.refusal.format(expected=self.expected, given=shown(value))


def one_of(*words: str) -> Kind:
    """Return the kind of values that are one of these words."""
    return Kind(", ".join(words), lambda value: value in words, "{given} is none of {expected}")


def faults(table: Any, required: Mapping[str, Kind], optional: Mapping[str, Kind], place: str = "") -> Iterator[str]:
    """Yield the faults of a table that must have the ``required`` keys and may have the ``optional`` ones; each clause
    begins with ``place``."""
    if not isinstance(table, Mapping):
        yield f"{place}a table is expected, not {shown(table)}"
        return
    kinds = {**required, **optional}
    for key, value in table.items():
        if key in kinds:
            yield from (f"{place}{key}: {fault}" for fault in kinds[key].faults(value))
        else:
            hint = did_you_mean(str(key), kinds, Message("known are {}", ", ".join(kinds)))
            yield f"{place}unknown key {key!r}; {hint}"
    yield from (f"{place}{key}: missing" for key in required if key not in table)


def rows(data: Mapping[str, Any], name: str, problems: list[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tables of an array (``[[fix]]``), each with its place ("fix 2: "). Append faults to ``problems``."""
    tables = data.get(name, [])
    if isinstance(tables, list) and all(isinstance(entry, Mapping) for entry in tables):
        return [(f"{name} {number}: ", entry) for number, entry in enumerate(tables, 1)]
    problems.append(f"{name}: an array of tables ([[…]]) is expected")
    return []


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_words(value: Any) -> bool:
    is_table = isinstance(value, dict) and "en" in value and value.keys() <= {"en", "zh"}
    return is_table and all(map(TEXT.test, value.values()))


ANY = Kind("a value", lambda value: True)
TEXT = Kind("a text", lambda value: isinstance(value, str) and value)
TEXTS = Kind("a list of text", _is_texts)
TEXT_OR_TEXTS = Kind("a text or a list of text", lambda value: TEXT.test(value) or _is_texts(value))
FLAG = Kind(Message("true or false"), lambda value: isinstance(value, bool))
TRUE = Kind("true", lambda value: value is True)
DATE = Kind("a date such as 2026-11-20", lambda value: isinstance(value, date) and not isinstance(value, datetime))
TABLE = Kind(Message("a table"), lambda value: isinstance(value, dict))
VALUES = Kind(
    'a table such as { "recipe.batch_size" = 2 }',
    lambda value: isinstance(value, dict) and not any(isinstance(item, dict) for item in value.values()),
)
VERSIONS = Kind(
    'a table such as { "pkg.torch" = "2.5.1" }',
    lambda value: isinstance(value, dict) and value and all(isinstance(item, str) for item in value.values()),
)
#: A text by language.
WORDS = Kind('texts such as { en = "…", zh = "…" }', _is_words)


#: The newest rule schema this engine understands.
SCHEMA = 1
_ID = r"[a-z0-9]+(-[a-z0-9]+)*\Z"
#: The operand of a condition: the release does not meet the requirement of the clause's other package.
_OUTSIDE = "outside-requirement"
_OPPOSITE = {">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "=="}
_REASON = Kind("a text, or texts by language,", lambda value: TEXT.test(value) or WORDS.test(value))
_FIX: Mapping[str, Any] = {"constraints": [], "cuda": [], "uninstall": [], "set": {}, "env": {}, "command": None}

_DOCUMENT = dict.fromkeys(("rule", "affects", "message", "why"), ANY)
_PARTS = dict.fromkeys(("schema", "unless", "assume", "details", "fix", "evidence", "symptom", "tests"), ANY)
_HEAD = {
    "severity": one_of(*SEVERITIES),
    "confidence": one_of(*CONFIDENCES),
    "effect": one_of(*EFFECTS),
    "added": DATE,
}
_HEAD_OPTIONS = {
    "status": one_of(*STATUSES),
    "modified": DATE,
    **dict.fromkeys(("fixed_in", "last_seen"), VERSIONS),
    **dict.fromkeys(("open_ended", "engines"), TRUE),
    "title": _REASON,
    **dict.fromkeys(("probe", "each"), TEXT),
    **dict.fromkeys(("supersedes", "folds_into", "covers"), TEXTS),
    "explained_by": TABLE,
}
_ASSUME = {"key": TEXT, "value": ANY, "because": _REASON}
_FIX_OPTIONS = {
    "safety": one_of("safe", "review", "manual"),
    **dict.fromkeys(("constraints", "cuda", "uninstall"), TEXTS),
    **dict.fromkeys(("set", "env"), VALUES),
    "command": TEXT,
}
_SYMPTOM = {"lines": TEXTS, "seen": TEXT, "source": TEXT, "raised_in": TEXT}


class RuleError(ValueError):
    """A rule file is wrong; ``problems`` are clauses that name the key ("fix 2: safety: …")."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def parse_rule(
    rule_id: str, origin: str, data: Mapping[str, Any], registry: Registry, ledger: Ledger | None = None
) -> Rule:
    """Return the rule of a parsed TOML document. Raises :class:`RuleError` with all faults.

    ``ledger`` knows what releases require, for clauses with ``"outside-requirement"``.
    """
    schema = data.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise RuleError([f"schema {schema} is newer than this engine understands ({SCHEMA}): update envdoctor"])
    return _Document(rule_id, data, registry, ledger).rule(origin)


class _Document:
    """One rule file while it is read: its usable parts, and the faults of the others."""

    def __init__(self, rule_id: str, data: Mapping[str, Any], registry: Registry, ledger: Ledger | None) -> None:
        self._id, self._data, self._registry, self._ledger = rule_id, data, registry, ledger
        self._problems = list(faults(data, _DOCUMENT, _PARTS))
        head = data.get("rule")
        self._head: Mapping[str, Any] = head if isinstance(head, Mapping) else {}
        each = self._head.get("each")
        self._each = each if isinstance(each, str) else None

    def rule(self, origin: str) -> Rule:
        """Return the rule. Raises :class:`RuleError`."""
        self._check_head()
        affects, from_ledger = self._clauses("affects")
        unless, _ = self._clauses("unless")
        assume = [self._assumption(place, entry) for place, entry in rows(self._data, "assume", self._problems)]
        texts = self._texts()
        if self._problems:
            raise RuleError(self._problems)
        return Rule(
            id=self._id,
            status=self._head.get("status", "active"),
            **{key: self._head[key] for key in ("severity", "confidence", "effect")},
            each=self._each,
            affects=affects,
            unless=unless,
            assume=assume,
            supersedes=self._head.get("supersedes", []),
            folds_into=self._head.get("folds_into", []),
            covers=self._head.get("covers", []),
            explained_by=self._head.get("explained_by", {}),
            probe=self._head.get("probe"),
            origin=origin,
            scope=_scope(self._each, affects, unless),
            texts={**texts, "from_ledger": from_ledger},
        )

    def _check_head(self) -> None:
        if not re.match(_ID, self._id):
            self._wrong(f"the file's name {self._id!r} is not lower-case words joined by dashes")
        if self._data.get("schema", SCHEMA) is not SCHEMA:
            self._wrong("schema: schema = 1 is expected")
        if "rule" in self._data:
            self._problems += faults(self._data["rule"], _HEAD, _HEAD_OPTIONS, "rule: ")
        spec = self._registry.find(self._each) if self._each is not None else None
        if self._each is not None and (spec is None or spec.type != "records"):
            self._wrong(f"rule: each: a registered record list is expected, not {self._each!r}")
        columns = spec.columns if spec is not None else {}
        keys = [f"{self._each}.{column}" for column in columns]  # `probe.device` is a column and a fact of its own
        for key in ("folds_into", "covers"):
            names = self._head.get(key)
            for name in names if isinstance(names, list) else ():
                if name not in keys:
                    self._wrong(f"rule: {key}: {name!r} is no column of each")
        explained = self._head.get("explained_by")
        for other, agree in explained.items() if isinstance(explained, Mapping) else ():
            if not agree or not isinstance(agree, list) or not all(name in columns for name in agree):
                self._wrong(f"rule: explained_by: {other}: columns of each that must agree are expected")

    def _clauses(self, name: str) -> tuple[list[list[Condition]], list[int]]:
        """Return the clauses of a part, and the places of the clauses from the ledger."""
        clauses: list[list[Condition]] = []
        from_ledger: list[int] = []
        entries = rows(self._data, name, self._problems)
        if name == "affects" and self._data.get(name) == []:
            self._wrong("affects: at least one clause is expected")
        for place, clause in entries:
            if not clause:
                self._wrong(f"{place}an empty clause would always match")
            try:
                expanded = _outside_windows(clause, self._ledger) if _OUTSIDE in clause.values() else [clause]
            except ConditionError as error:
                self._wrong(f"{place}{error}")
                continue
            if expanded != [clause]:
                from_ledger += range(len(clauses), len(clauses) + len(expanded))
            for conditions in expanded:
                clauses.append([])
                for key, operand in conditions.items():
                    try:
                        clauses[-1].append(parse_condition(self._registry, key, operand, self._each))
                    except ConditionError as error:
                        self._wrong(f"{place}{key}: {error}")
        return clauses, from_ledger

    def _assumption(self, place: str, entry: Mapping[str, Any]) -> list[Any]:
        if not self._sound(place, entry, _ASSUME, {"default": FLAG}):
            return []
        key = entry["key"]
        spec = self._registry.find(key)
        if spec is None or key != canonical_key(key) or key.endswith("*"):
            self._wrong(f"{place}key: a registered fact is expected, not {key!r}")
        else:
            try:
                parse_value(spec, entry["value"])
            except FactTypeError as error:
                self._wrong(f"{place}value: {error}")
        return [key, entry["value"], entry["because"], entry.get("default", False)]

    def _texts(self) -> dict[str, Any]:
        """Return the parts that only findings and the lint read."""
        for name in ("message", "why", "details"):
            if name in self._data:
                self._problems += (f"{name}: {fault}" for fault in WORDS.faults(self._data[name]))
        added = str(self._head.get("added"))
        return {
            "title": self._head.get("title"),
            "added": added,
            "modified": str(self._head.get("modified", added)),
            "engines": self._head.get("engines", False),
            "bound": {key: self._head[key] for key in ("fixed_in", "last_seen", "open_ended") if key in self._head},
            **{name: self._data.get(name) for name in ("message", "why", "details")},
            "fix": [*self._fixes()],
            "evidence": [*self._evidence(added)],
            "symptom": [
                {"source": "not opened", **entry}
                for place, entry in rows(self._data, "symptom", self._problems)
                if self._sound(place, entry, {}, _SYMPTOM)
            ],
            "test": [*self._tests()],
        }

    def _fixes(self) -> Iterator[dict[str, Any]]:
        for place, fix in rows(self._data, "fix", self._problems):
            if not self._sound(place, fix, {"summary": WORDS}, _FIX_OPTIONS):
                continue
            kinds = [key for key in FIX_KINDS if key in fix]
            if len(kinds) > 1:
                self._wrong(f"{place}one of {', '.join(FIX_KINDS)} is expected, not {', '.join(kinds)}")
            constraints = fix.get("constraints", [])
            if fix.get("cuda") and not (len(constraints) == 1 and constraints[0].startswith("torch")):
                self._wrong(f"{place}cuda: builds are chosen for one constraint on torch")
            kind = FIX_KINDS[kinds[0]] if kinds else "advice"
            yield {**_FIX, "safety": "review", **fix, "kind": kind}

    def _evidence(self, added: str) -> Iterator[dict[str, Any]]:
        for place, entry in rows(self._data, "evidence", self._problems):
            kind = self._one_of(place, entry, PROOFS)
            if kind and self._sound(place, entry, {kind: TEXT, "shows": TEXT}, {"checked": DATE}):
                checked = str(entry.get("checked", added))
                yield {"kind": kind, "url": entry[kind], "shows": entry["shows"], "checked": checked}

    def _tests(self) -> Iterator[dict[str, Any]]:
        """Yield the tests as expectation and facts."""
        for place, entry in rows(self._data, "tests", self._problems):
            expected = self._one_of(place, entry, ANSWERS)
            if expected and self._sound(place, entry, {expected: TABLE}, {"name": TEXT, "complete": TEXTS}):
                others = {"name": entry.get("name"), "complete": entry.get("complete", [])}
                yield {"expect": expected, "facts": entry[expected], **others}

    def _one_of(self, place: str, entry: Mapping[str, Any], words: Sequence[str]) -> str | None:
        """Return the one key of an entry that is among these words."""
        keys = [word for word in words if word in entry]
        if len(keys) != 1:
            self._wrong(f"{place}one of {', '.join(words)} is expected")
        return keys[0] if len(keys) == 1 else None

    def _sound(
        self, place: str, entry: Mapping[str, Any], required: Mapping[str, Kind], optional: Mapping[str, Kind]
    ) -> bool:
        problems = list(faults(entry, required, optional, place))
        self._problems += problems
        return not problems

    def _wrong(self, problem: str) -> None:
        self._problems.append(problem)


def _scope(each: str | None, affects: Iterable[Sequence[Condition]], unless: Iterable[Sequence[Condition]]) -> str:
    """Return the scope of a rule: facts that only one command has decide. An exception may well rest on an
    experiment."""
    prefixes, excepted = (
        {condition.key.partition(".")[0] for clause in clauses for condition in clause} for clauses in (affects, unless)
    )
    prefixes |= {str(each)}
    if (prefixes | excepted) & {"change", "revision"}:
        return "revision"
    if prefixes & {"probe", "import_run"}:
        return "probe"
    return next((scope for scope in ("drift", "memory", "watch") if scope in prefixes), "environment")


def _outside_windows(clause: Mapping[str, Any], ledger: Ledger | None) -> list[dict[str, Any]]:
    """Return a clause for each row of releases that require the same of the package whose condition is
    :data:`_OUTSIDE`; the other condition on a package limits these releases. Raises :class:`ConditionError` if the
    ledger lacks such a requirement."""
    required = [key for key, operand in clause.items() if operand == _OUTSIDE]
    askers = [key for key in clause if key.startswith("pkg.") and key not in required]
    if len(required) != 1 or len(askers) != 1 or not required[0].startswith("pkg."):
        raise ConditionError(f'one package that is "{_OUTSIDE}" and one other package, which requires it, are expected')
    name, asker = required[0].removeprefix("pkg."), askers[0].removeprefix("pkg.")
    released = ledger.package(asker) if ledger is not None else None
    windows = _windows(released, name, clause[askers[0]]) if released is not None else ()
    clauses = [{**clause, askers[0]: releases, required[0]: others} for releases, others in windows]
    if not clauses:
        raise ConditionError(f"the ledger has no release of {asker} that requires certain releases of {name}")
    return clauses


def _windows(released: Released, name: str, limits: str) -> Iterator[tuple[str, list[str]]]:
    """Yield releases in a row with the same requirement on ``name``, and the releases of ``name`` that do not meet it.

    Releases that are newer than the ledger require at least what its newest does: a floor hardly ever falls, but a
    ceiling rises.
    """
    versions = [release.version for release in released.releases if release.metadata]

    def required(version: str) -> tuple[str, ...]:
        # The requirements everywhere: markers are for some Pythons, or for extras.
        texts = [need.specifiers for need in released.requires(version) if need.name == name and not need.marker]
        return tuple(sorted(part.strip() for text in texts for part in text.split(",") if part.strip()))

    for specifiers, of_row in groupby((version for version in versions if satisfies(version, limits)), required):
        row = list(of_row)
        behind = versions[versions.index(row[-1]) + 1 :]
        turned = []
        for specifier in specifiers:
            match = re.fullmatch(r"(>=|<=|==|!=|>|<)\s*([^=\s]+)", specifier)
            if match is None:
                raise ConditionError(f"nothing is outside of {specifier!r} that a rule could say")
            turned.append(_OPPOSITE[match[1]] + match[2])
        below = [operand for operand in turned if operand.startswith(("<", "=="))]
        above = [operand for operand in turned if operand not in below]
        if behind and turned:
            yield f">={row[0]},<{behind[0]}", below + above
            continue
        if below:
            yield f">={row[0]}", below
        if above:
            yield f">={row[0]},<={row[-1]}", above
