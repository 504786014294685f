"""Evaluate one rule over a set of facts: yes, no, or could not tell; of a condition on a version tell also whether only
the base release says yes. Fill the messages of a rule with the facts that made it apply."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry, parse_value
from envdoctor.facts.values import ABSENT, NOT_GIVEN, NOT_KNOWN, Absent, Fact, Range, Records, Unknown, Value, spell
from envdoctor.judge.finding import Text
from envdoctor.matrix.rules import PLACEHOLDER, Condition, Rule, glob_fits, placeholders
from envdoctor.system.message import Message, without_gaps
from envdoctor.versions.pep440 import (
    NO,
    OPEN,
    YES,
    VersionAnswer,
    compare,
    dotted,
    holds,
    is_in_branch,
    is_version,
    satisfies,
)

#: Characters of one value: some are lists of hundreds of files.
_LONGEST = 300
#: Words that a version must follow: after a name it may be missing.
_AWAITS = re.compile(r"(?:\b(?:for|has|have|hides|is|needs|no|of|than|to|wants|with)|[为是有])\Z")
#: The wording for an environment, and for a list or lock that is not installed yet.
_PLANNED = (
    ("installed is ", "and it would get "),
    ("are installed", "would be installed"),
    ("is not installed", "would not be installed"),
    ("is installed", "would be installed"),
    ("the installed ", "the "),
    ("没有安装", "不会安装"),
    ("未安装", "不会安装"),
    ("已安装的", "会安装的"),
    ("安装的是", "将安装"),
    ("装有", "会装有"),
)


def text_of(table: Mapping[str, str] | str | None) -> Text:
    """Return the texts of one message, which may be in English alone."""
    if isinstance(table, str):
        return Text(table)
    return Text(table["en"], table.get("zh")) if table else Text("")


def title_of(texts: Mapping[str, Any], values: Mapping[str, str] = {}) -> Text:
    """Return what a rule says of any versions: its message if ``values`` has all that it names, else its title, or the
    message with ``...`` in place of the missing values."""
    message = text_of(texts["message"])
    if texts["title"] and not all(map(values.get, placeholders(message.en) or [""])):
        return text_of(texts["title"])
    return without_values(message, values)


def without_values(text: Text, values: Mapping[str, str] = {}) -> Text:
    """Return the text with these ``values``, by the keys of their facts. Where one is missing, a version is left out
    after a name, a model is "the model", and anything else is ``...``."""

    def replaced(wording: str, model: str) -> str:
        def value(match: re.Match[str]) -> str:
            blank, key = match.groups()
            if values.get(key):
                return blank + values[key]
            if (key.startswith("pkg.") or key.endswith("version")) and not _AWAITS.search(wording, 0, match.start()):
                return ""
            return blank + (model if key in ("model.name", "model.repo") else "...")

        return re.sub(f"( ?){PLACEHOLDER}", value, wording)

    return Text(replaced(text.en, "the model"), text.zh and without_gaps(replaced(text.zh, "该模型")))


def fill(text: Text, read: Callable[[str], Fact], registry: Registry) -> Text:
    """Replace ``{pkg.torch}`` and the like by the value as spelled for a person, by its name if the registry has one.
    Say "would be installed" of a list that is not installed yet."""
    is_planned = isinstance(read("refused").value, Records)

    def filled(wording: str, nameless: str, suffix: str = "") -> str:
        def replace(match: re.Match[str]) -> str:
            own = read(match[1] + suffix).value  # a column may have a text in both languages
            value = own if isinstance(own, str) else read(match[1]).value
            # A rule may apply to a model that is known by a property only.
            if match[1] == "model.name" and isinstance(value, Unknown):
                return nameless
            spec, text = registry.find(match[1]), spell(value)
            text = spec.values.get(text, {}).get("zh" if suffix else "en", text) if spec is not None else text
            return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."

        for present, planned in _PLANNED if is_planned else ():
            wording = wording.replace(present, planned)
        return re.sub(PLACEHOLDER, replace, wording)

    return Text(filled(text.en, Message("this model")), filled(text.zh, "该模型", "_zh") if text.zh else None)


Read = Callable[[str], Fact]


class Match(NamedTuple):
    """One way in which a rule applies.

    ``keys`` are the fact keys of the clause that matched, ``assumed`` the entries of ``assume`` that were needed,
    ``open_exceptions`` the missing keys of ``unless`` clauses that could not be decided, ``from_base`` the keys whose
    version matched only as its base release, ``item`` the record that a rule with ``each`` applied to.
    """

    keys: tuple[str, ...]
    assumed: tuple[tuple[str, object, str, bool], ...] = ()
    open_exceptions: tuple[str, ...] = ()
    from_base: tuple[str, ...] = ()
    item: Mapping[str, Value] | None = None


class RuleOutcome(NamedTuple):
    """``holds`` is True, False or None. ``missing`` maps the keys that kept it open to the reason of each."""

    holds: bool | None
    matches: tuple[Match, ...] = ()
    missing: Mapping[str, Message] = {}


class _Clause(NamedTuple):
    holds: bool | None
    missing: dict[str, Message]
    from_base: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()


_NO = _Clause(False, {})
#: Why a condition on a fact that was assumed is open.
_GUESSED = Message("it is assumed, not known")
_NOT_PLAIN = Message("not a plain release")
#: The outcome of most rules.
_PASSED = RuleOutcome(False)


def evaluate(rule: Rule, facts: FactSet, registry: Registry) -> RuleOutcome:
    """Return whether the rule applies, with its matches, or the facts that are missing to tell."""
    if rule.each is None:
        return _judge(rule, facts.get, registry, None)
    records = facts.value(rule.each)
    if records is ABSENT:
        return _PASSED
    if not isinstance(records, Records):
        # The list is unknown, but a condition on something else may already say no.
        outcome = _judge(rule, of_item(facts, rule.each, {}, _reason(records)), registry, None)
        if outcome.holds is False:
            return _PASSED
        return RuleOutcome(None, (), outcome.missing or {rule.each: _reason(records)})
    matches: list[Match] = []
    missing: dict[str, Message] = {}
    for item in records:
        outcome = _judge(rule, of_item(facts, rule.each, item), registry, item)
        matches += outcome.matches
        missing.update(outcome.missing)
    if matches:
        return RuleOutcome(True, tuple(matches))
    if missing:
        return RuleOutcome(None, (), missing)
    if records.incomplete is not None:
        # Would an item that was not seen matter? Only when nothing else says no already.
        outcome = _judge(rule, of_item(facts, rule.each, {}), registry, None)
        if outcome.holds is not False:
            return RuleOutcome(None, (), {rule.each: records.incomplete})
    return _PASSED


def of_item(facts: FactSet, name: str, item: Mapping[str, Value], reason: Message | None = None) -> Read:
    """Return a reader of one item of the list ``name``; ``reason`` says why columns that it lacks are unknown."""
    prefix, origin = name + ".", facts.get(name).origin

    def read(key: str) -> Fact:
        if key.startswith(prefix):
            column = key[len(prefix) :]
            if column in item:
                return Fact(key, item[column], origin, "")
            if key not in facts:  # gpu.count is a fact of its own, not a column
                return Fact(key, Unknown(reason or Message("not known of this {}", name)), "", "")
        return facts.get(key)

    return read


def _judge(rule: Rule, read: Read, registry: Registry, item: Mapping[str, Value] | None) -> RuleOutcome:
    outcome = _attempt(rule, read, read, (), item, registry)
    if not rule.assume:  # as most rules
        return outcome
    # A value that was stated, and envdoctor could not read, need not be the default: it is a guess.
    needed = [
        entry if value == NOT_GIVEN else [*entry[:3], False]
        for entry in rule.assume
        if isinstance(value := read(entry[0]).value, Unknown)
    ]
    # Documented defaults first, then guesses: a guess may raise a finding, with a mark; it never clears one.
    for entries in ([entry for entry in needed if entry[3]], needed):
        keys = {entry[0] for entry in entries}
        if not keys or outcome.holds is False:
            continue
        if outcome.holds and all(keys.isdisjoint(match.open_exceptions) for match in outcome.matches):
            continue  # nothing is open that the assumed values could decide
        with_assumed = assuming(read, entries, registry)
        second = _attempt(rule, with_assumed, read, entries, item, registry)
        if second.holds is not False or all(default for _, _, _, default in entries):
            outcome = second
    return outcome


def assuming(read: Read, entries: Sequence[Sequence[Any]], registry: Registry) -> Read:
    """Return a reader of the assumed values where nothing is known."""
    assumed: dict[str, Fact] = {}
    for key, raw, _, default in entries:
        spec = registry.find(key)
        assert spec is not None, "parse_rule checks the keys of assume"
        assumed[key] = Fact(key, parse_value(spec, raw), "assumed", "default" if default else "assumed")

    def with_assumed(key: str) -> Fact:
        fact = read(key)
        return assumed[key] if key in assumed and isinstance(fact.value, Unknown) else fact

    return with_assumed


def _attempt(  # noqa: PLR0917 (one pass of one page)
    rule: Rule,
    read: Read,
    read_known: Read,
    assumed: Sequence[Sequence[Any]],
    item: Mapping[str, Value] | None,
    registry: Registry,
) -> RuleOutcome:
    """Evaluate once. ``read`` answers with the assumed values, ``read_known`` without them."""
    verdicts = [(clause, verdict) for clause in rule.affects if (verdict := _clause(clause, read)) is not _NO]
    if not verdicts:
        return _PASSED
    open_exceptions: dict[str, Message] = {}
    exception_keys: set[str] = set()
    for exception in rule.unless:
        verdict = _clause(exception, read)
        if verdict.missing and any(_only_said(condition, verdict.missing, registry) for condition in exception):
            continue
        if verdict.holds is True and not verdict.from_base and not verdict.guessed:
            return _PASSED  # whatever else is unknown: the exception holds
        if verdict.holds is not False:
            guesses = dict.fromkeys(verdict.guessed, _GUESSED)
            open_exceptions.update(verdict.missing or guesses or dict.fromkeys(verdict.from_base, _NOT_PLAIN))
        if assumed and _clause(exception, read_known).holds is None:
            exception_keys.update(condition[0] for condition in exception)
    holding = [(clause, verdict) for clause, verdict in verdicts if verdict.holds is True]
    if not holding:
        return RuleOutcome(None, (), {key: text for _, verdict in verdicts for key, text in verdict.missing.items()})
    clause, verdict = min(holding, key=lambda pair: len(pair[1].from_base))
    keys = tuple(dict.fromkeys(condition[0] for condition in clause))
    used = tuple(
        (key, raw, because, bool(default))
        for key, raw, because, default in assumed
        if key in exception_keys or (key in keys and isinstance(read_known(key).value, Unknown))
    )
    return RuleOutcome(True, (Match(keys, used, tuple(open_exceptions), verdict.from_base, item),))


def _only_said(condition: Condition, missing: Mapping[str, Message], registry: Registry) -> bool:
    """Return whether the condition asks for a value that holds only where it is stated, and it was not stated."""
    spec = registry.find(condition[0]) if condition[0] in missing else None
    return spec is not None and bool(spec.only_said) and set(condition[3]) <= set(spec.only_said)


def _clause(clause: Sequence[Condition], read: Read) -> _Clause:
    """Evaluate one clause. A guess never clears: a condition that an assumed fact does not fulfil is open."""
    missing: dict[str, Message] = {}
    from_base: list[str] = []
    guessed: list[str] = []
    for condition in clause:
        key, quantifier, kind, alternatives = condition
        if quantifier:
            holds = _quantified(condition, read, missing, from_base)
            if holds is False:
                return _NO
            continue
        fact = read(key)
        result = answer(kind, alternatives, fact.value)
        if result.holds is False and not fact.is_guess:
            return _NO
        if result.holds is not True:
            missing[key] = _reason(fact.value) if result.holds is None else _GUESSED
            continue
        if result.from_base:
            from_base.append(key)
        if fact.is_guess:
            guessed.append(key)
    return _Clause(None, missing) if missing else _Clause(True, {}, tuple(from_base), tuple(guessed))


def _quantified(condition: Condition, read: Read, missing: dict[str, Message], from_base: list[str]) -> bool | None:
    key, quantifier, kind, alternatives = condition
    name, _, column = key.partition(".")
    records = read(name).value
    if records is ABSENT:
        return False
    if not isinstance(records, Records):
        missing[name] = _reason(records)
        return None
    results = [answer(kind, alternatives, item.get(column, NOT_KNOWN)) for item in records]
    answers = [result.holds for result in results]
    decisive = quantifier == "any"
    if decisive in answers:
        if decisive and all(result.from_base for result in results if result.holds):
            from_base.append(key)
        return decisive
    if None in answers or records.incomplete is not None:
        missing[key] = records.incomplete or Message("not known of every {}", name)
        return None
    if any(result.from_base for result in results):
        from_base.append(key)
    # A statement about all GPUs says nothing of a machine without one.
    return not decisive and bool(answers)


def _reason(value: Value) -> Message:
    match value:
        case Unknown(reason=reason) | Records(incomplete=str() as reason):
            return reason
    return Message("its value cannot be compared")


def answer(kind: str, alternatives: list[Any], value: Value) -> VersionAnswer:
    """Return whether any of the alternatives of a condition of type ``kind`` holds for ``value``; for a range, whether
    it does so for every release in it."""
    match value:
        case Range() if "present" in alternatives:
            return YES
        case Range() if all(alternative == "absent" for alternative in alternatives):
            return NO
        case Range(releases=releases, specifiers=specifiers):
            if not releases and kind == "version":
                # Between two bounds every condition has one answer: try the bounds, and a release beside each.
                operands = [operand for bound in alternatives if isinstance(bound, list) for _, operand in bound]
                bounds = [part.lstrip("<>=!~").removesuffix(".*") for part in (*operands, *specifiers.split(","))]
                texts = ("0", *bounds, *(f"{bound}.0.0.1" for bound in bounds if bound), "99999")
                releases = tuple(text for text in texts if is_version(text) and satisfies(text, specifiers) is True)
            answers = {answer(kind, alternatives, release) for release in releases}
            return answers.pop() if len(answers) == 1 else OPEN
        case Unknown():
            return OPEN
    verdict = NO
    for alternative in alternatives:
        result = _answer_alternative(kind, alternative, value)
        if result in (OPEN, YES):
            return result
        verdict = result if result.holds else verdict
    return verdict


def _answer_alternative(kind: str, alternative: Any, value: Value) -> VersionAnswer:
    """Compare with one alternative; open when the value cannot be compared at all."""
    if alternative in ("absent", "present"):
        if isinstance(value, Records) and not value.items and value.incomplete is not None:
            return OPEN  # there may be items that were not seen
        is_absent = value is ABSENT or (isinstance(value, Records) and not value.items)
        return YES if is_absent is (alternative == "absent") else NO
    match kind, value:
        case _, Absent():
            return NO
        case "boolean", _:
            return YES if value is alternative else NO
        case "text", str(text):
            return YES if glob_fits(text.lower(), alternative) else NO
        case "texts", tuple(texts):
            return YES if any(glob_fits(item.lower(), alternative) for item in texts) else NO
        case "number", int() | float() as number:
            return YES if all(compare(number, operator, float(operand)) for operator, operand in alternative) else NO
        case "text" | "texts" | "number", _:
            return NO
        case "dotted", _:
            left = dotted(str(value))
            bounds = [(operator, dotted(operand) or ()) for operator, operand in alternative]
            if left is None or any(bound != left and is_in_branch(bound, str(value)) for _, bound in bounds):
                return OPEN
            return YES if all(compare(left, operator, bound) for operator, bound in bounds) else NO
    return holds(str(value), alternative)
