"""Judge a set of facts by the whole matrix: findings in order, one for each cause, and what could not be checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.factset import FactSet, View
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import NOT_KNOWN, Absent, Fact, Origin, Range, Records, Unknown, Value, spell
from envdoctor.judge.evaluate import (
    Match,
    Read,
    RuleOutcome,
    answer,
    assuming,
    evaluate,
    fill,
    of_item,
    text_of,
    title_of,
)
from envdoctor.judge.finding import (
    CONFIDENCES,
    EFFECTS,
    SEVERITIES,
    Assumption,
    Evidence,
    Finding,
    FoundFact,
    Ignore,
    NotChecked,
    Plan,
    Policy,
    Text,
    baseline_state,
    fails_gate,
    fingerprint_of,
    ignore_reason,
)
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule
from envdoctor.system.message import Message, as_message, joined, listed


class _Applied(NamedTuple):
    """A rule that applies, with the identity of its record. An ``accepted`` one hides nothing that is more severe."""

    rule: Rule
    match: Match
    item: Mapping[str, str]
    severity: str
    accepted: bool = False


class Problem(NamedTuple):
    """The problem of one finding: a rule, and the identity of the record that it applies to, if it applies to one."""

    rule_id: str
    item: tuple[tuple[str, str], ...] = ()


class Judgement(NamedTuple):
    """``facts`` are the judged ones. ``rules_checked`` counts the rules that got a yes or a no.
    ``expired`` are ignores that no longer hold; ``dead`` are ignores without a finding, although their rule was
    evaluated. ``passed`` are the ids of the rules that do not apply. ``plan`` is added by install, as the fixes are."""

    facts: FactSet
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    rules_checked: int
    expired: tuple[Ignore, ...] = ()
    dead: tuple[Ignore, ...] = ()
    plan: Plan | None = None
    passed: tuple[str, ...] = ()


def judge(facts: FactSet, matrix: Matrix, policy: Policy) -> Judgement:
    """Evaluate every rule on derived facts; what to do about the findings is added by install."""
    applied: list[tuple[Rule, Match]] = []
    open_rules = [NotChecked(broken.id, "", {}, reason=joined(broken.problems)) for broken in matrix.broken]
    decided: set[str] = set()
    passed: list[str] = []
    newer = _newer_than_known(facts)
    for rule in matrix.rules:
        if rule.status == "withdrawn" or policy.severities.get(rule.id) == "off":
            continue
        outcome = evaluate(rule, facts, matrix.registry)
        if outcome.holds is False and newer and (newer_keys := newer.intersection(rule.keys())):
            outcome = _of_newer(rule, newer_keys, facts, matrix)
        if outcome.holds is None:
            specs = map(matrix.registry.find, outcome.missing)
            helps = dict.fromkeys(spec.help for spec in specs if spec is not None and spec.help)
            open_rules.append(NotChecked(rule.id, rule.severity, dict(outcome.missing), tuple(helps)))
            continue
        decided.add(rule.id)
        applied += [(rule, match) for match in outcome.matches]
        passed += [] if outcome.holds else [rule.id]
    findings = _unsettled([_finding(rule, match, facts, matrix, policy) for rule, match in applied], facts, matrix)
    findings, used, expired = _ignore(findings, policy, matrix)
    if policy.baseline is not None:
        findings = [finding._replace(baseline=baseline_state(finding, policy.baseline)) for finding in findings]
    cases = [
        _Applied(rule, match, finding.item, finding.severity, finding.ignored is not None)
        for finding, (rule, match) in zip(findings, applied, strict=True)
    ]
    stands_for = _fold(cases)
    for number, root in stands_for.items():
        findings[number] = findings[number]._replace(superseded_by=findings[root].id)
    for root, facts_elsewhere in _elsewhere(cases, stands_for).items():
        findings[root] = findings[root]._replace(facts=(*findings[root].facts, *facts_elsewhere))
    dead = tuple(entry for entry in policy.ignores if entry.id in decided and entry not in used + expired)
    # A finding answers for those it stands for too: standing in never makes the gate weaker.
    gating = {number for number, finding in enumerate(findings) if fails_gate(finding, policy)}
    for other, root in stands_for.items():
        if fails_gate(findings[other]._replace(superseded_by=None, ignored=findings[root].ignored), policy):
            gating.add(root)
    findings = [finding._replace(gate=number in gating) for number, finding in enumerate(findings)]
    findings.sort(key=_order)
    return Judgement(
        facts, tuple(findings), tuple(open_rules), len(decided), tuple(expired), dead, passed=tuple(passed)
    )


def _newer_than_known(facts: FactSet) -> set[str]:
    """Return the keys of packages whose release is newer than the matrix."""
    return {f"pkg.{record.text('what')}" for record in facts.each("beyond") if record.text("known_to") is not None}


def _of_newer(rule: Rule, newer: Iterable[str], facts: FactSet, matrix: Matrix) -> RuleOutcome:
    """Return the outcome of a rule that says no, for packages newer than the matrix. It is open if the last release
    that the rule knows still had the problem, and no release without it is known."""
    ends = matrix.texts(rule)["bound"].get("last_seen", {})
    gaps = [
        Fact(key, Unknown(Message("newer than this matrix")), facts.get(key).origin, "") for key in newer if key in ends
    ]
    open_ = facts.copy()
    open_.update(gaps)
    outcome = evaluate(rule, open_, matrix.registry) if gaps else RuleOutcome(False)  # nearly all have no such bound
    return outcome if outcome.holds is None else RuleOutcome(False)


def _order(finding: Finding) -> tuple[int, bool, int, int, str]:
    """Sort the worst first, errors of the install before later errors, then the surest; findings of one rule stay in
    the order of their records."""
    severity, confidence = SEVERITIES.index(finding.severity), CONFIDENCES.index(finding.confidence)
    is_later = finding.effect != "install" or finding.severity != SEVERITIES[-1]
    return -severity, is_later, -confidence, EFFECTS.index(finding.effect), finding.id


def _finding(rule: Rule, match: Match, facts: FactSet, matrix: Matrix, policy: Policy) -> Finding:
    texts = matrix.texts(rule)
    read = _reader(rule, match, facts, matrix.registry)
    confidence, caveats = _confidence(rule, match, read)
    for key in _newer_than_known(facts).intersection(match.keys):
        release = spell(read(key).value)
        caveats += (Message("{} {} is newer than this matrix", key.removeprefix("pkg."), release),)
        level, gate = CONFIDENCES.index(confidence), CONFIDENCES.index(policy.fail_confidence)
        confidence = CONFIDENCES[max(level - 1, min(level, gate))]  # as it was at the gate
    own = _severity(rule, match, confidence, policy)
    if own != rule.severity and rule.id not in policy.severities:
        caveats += (Message("a warning because of what is not known for sure, an error where it is so"),)
    assumed_keys = {entry[0] for entry in match.assumed}
    own_facts = tuple(
        FoundFact(key, spell(read(key).value), read(key).origin) for key in match.keys if key not in assumed_keys
    )
    item = _identity(rule, match, matrix.registry)
    return Finding(
        id=rule.id,
        status=rule.status,
        severity=policy.severities.get(rule.id, own),
        confidence=confidence,
        effect=rule.effect,
        title=title_of(texts),
        message=fill(text_of(texts["message"]), read, matrix.registry),
        why=fill(text_of(texts["why"]), read, matrix.registry),
        subjects=match.keys,
        facts=own_facts,
        fingerprint=fingerprint_of(rule.id, item),
        assumed=tuple(
            Assumption(key, spell(read(key).value), text_of(because), default)
            for key, _, because, default in match.assumed
        ),
        caveats=caveats,
        settled_by=_settled_by(match, read, matrix.registry),
        item=item,
        locations=_locations(rule, match, own_facts, facts, matrix.registry),
        evidence=tuple(Evidence(**entry) for entry in texts["evidence"]),
        probe=rule.probe,
        origin=rule.origin,
    )


def _settled_by(match: Match, read: Read, registry: Registry) -> tuple[str, ...]:
    """Return what to give so that nothing is guessed: each value that was taken for granted, and what exceptions ask
    for."""
    guessed = {key: spell(read(key).value) for key, _, _, default in match.assumed if not default}
    for key in match.open_exceptions:
        spec = registry.find(key)
        if spec is not None and spec.type != "records" and key not in guessed:
            guessed[key] = spec.example or next(iter(spec.values), "...")
    return tuple(f"{key}={value}" for key, value in guessed.items())


def _locations(
    rule: Rule, match: Match, own: Iterable[FoundFact], facts: FactSet, registry: Registry
) -> tuple[Origin, ...]:
    """Return the lines of the facts that were found, of the places that the record names for editing, and of the
    packages that it is about; without one, the lines of what those facts follow from (torch's, for its CUDA)."""
    places = [fact.origin for fact in own]
    spec = registry.find(rule.each) if rule.each is not None else None
    if spec is not None and match.item is not None:
        record = View.of(match.item)
        packages = (record.value(column) for column in spec.concerns.get("pkg.*", ()))
        places += (*(record.words(spec.edit) or ()), *(facts.get(f"pkg.{name}").origin for name in packages))
    specs = (registry.find(key) for key in match.keys)
    behind = (key for spec in specs if spec is not None for key in spec.depends_on if "*" not in key)
    return _lines(places) or _lines(facts.get(key).origin for key in behind)


def _reader(rule: Rule, match: Match, facts: FactSet, registry: Registry) -> Read:
    """Return a reader of the facts of a finding: of its record, with the assumed values."""
    item = match.item if rule.each is not None and match.item is not None else {}
    read = assuming(of_item(facts, rule.each, item) if rule.each and item else facts.get, match.assumed, registry)

    def with_columns(key: str) -> Fact:
        head, _, column = key.partition(".")
        if registry.records_of(key) is None or (head == rule.each and column in item):
            return read(key)
        return _column(rule, key, facts)

    return with_columns


def _column(rule: Rule, key: str, facts: FactSet) -> Fact:
    """Return a record column of a condition with any() or all(): the values that fit it. For a column without a
    condition of its own, return the values of the items that fit a condition on another column."""
    records, _, column = key.partition(".")
    fact = facts.get(records)
    if not isinstance(fact.value, Records):
        return fact._replace(key=key)
    conditions = [condition for clause in (*rule.affects, *rule.unless) for condition in clause]
    own = [condition for condition in conditions if condition[0] == key]
    others = [condition for condition in conditions if condition[0].startswith(records + ".") and condition[1]]
    fitting = [
        spell(item.get(column, NOT_KNOWN))
        for item in fact.value
        for name, _, kind, alternatives in own or others
        if answer(kind, alternatives, item.get(name.partition(".")[2], NOT_KNOWN)).holds
    ]
    return fact._replace(key=key, value=tuple(dict.fromkeys(fitting)) or NOT_KNOWN)


def _severity(rule: Rule, match: Match, confidence: str, policy: Policy) -> str:
    """Return the rule's severity; a guess, or less than the gate asks for, makes an error a warning."""
    guessed = any(not default for _, _, _, default in match.assumed)
    unsure = guessed or CONFIDENCES.index(confidence) < CONFIDENCES.index(policy.fail_confidence)
    return "warning" if unsure and rule.severity == "error" else rule.severity


def _confidence(rule: Rule, match: Match, read: Read) -> tuple[str, tuple[Message, ...]]:
    """Return the rule's confidence, one step lower for each guess and each caveat, with the caveats."""
    guesses = sum(not default for _, _, _, default in match.assumed)
    own = {key for key, _, _, _ in match.assumed}
    caveats = sorted(
        {as_message(read(key).origin) for key in match.keys if key not in own and read(key).source == "assumed"}
    )
    if hearsay := [key for key in match.keys if read(key).source == "told"]:
        caveats.append(Message("it is said in a sentence only: {}", ", ".join(hearsay)))
    for key in match.from_base:
        release = spell(read(key).value)
        caveats.append(Message("{} is no plain release: it and its base release answer differently", release))
    if match.open_exceptions:
        keys = ", ".join(match.open_exceptions)
        caveats.append(Message("the rule has an exception, and whether it holds here is not known without {}", keys))
    level = max(0, CONFIDENCES.index(rule.confidence) - guesses - len(caveats))
    return CONFIDENCES[level], tuple(caveats)


def _identity(rule: Rule, match: Match, registry: Registry) -> dict[str, str]:
    if rule.each is None or match.item is None:
        return {}
    spec, record = registry.find(rule.each), View.of(match.item)
    return {column: spell(record.value(column)) for column in (spec.identity if spec else ()) if record.known(column)}


def _lines(places: Iterable[str]) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(place for place in places if isinstance(place, Origin)))


def _ignore(
    findings: Iterable[Finding], policy: Policy, matrix: Matrix
) -> tuple[list[Finding], list[Ignore], list[Ignore]]:
    used: list[Ignore] = []
    expired: list[Ignore] = []
    result: list[Finding] = []
    for finding in findings:
        accepted = ignore_reason(finding, policy, lambda rule_id: bool(matrix.fixed_in(rule_id)))
        if accepted is not None:
            entry, in_force = accepted
            entries = used if in_force else expired
            entries += [] if entry in entries else [entry]
            finding = finding._replace(ignored=entry.reason) if in_force else finding
        result.append(finding)
    return result, used, expired


def _unsettled(findings: list[Finding], facts: FactSet, matrix: Matrix) -> list[Finding]:
    """Return the findings with a warning for each error that may be gone with an older release where an installer may
    take one (the fact ``unsure``)."""
    unsure = [record for record in facts.each("unsure") if record.text("asks") is not None]
    if not unsure or not any(finding.severity == "error" for finding in findings):
        return findings
    from envdoctor.judge.derivations import with_facts

    ranges = [(f"pkg.{record.text('package')}", Range(record.text("asks") or "")) for record in unsure]
    older = with_facts(facts, [facts.get(key)._replace(value=value) for key, value in ranges], matrix)
    certain = errors_of(older, matrix)[1]
    names = dict.fromkeys(name for record in unsure for name in record.words("beside") or ())
    text = "a warning, because these may ask for an older release, and what they require is not known: {}"
    caveat = Message(text, listed(names, 6))
    return [
        finding
        if finding.severity != "error" or finding.effect in ("oom", "install") or problem_of(finding) in certain
        else finding._replace(severity="warning", caveats=(*finding.caveats, caveat), settled=False)
        for finding in findings
    ]


def errors_of(facts: FactSet, matrix: Matrix) -> tuple[dict[Problem, Text], dict[Problem, Text]]:
    """Return the messages of the active rules that find an error in the facts, by problem: first one for each cause,
    then all, also of problems that are folded into others."""
    active = [rule for rule in matrix.rules if rule.status == "active" and rule.severity == "error"]
    applied = [
        _Applied(rule, match, _identity(rule, match, matrix.registry), rule.severity)
        for rule in active
        for match in evaluate(rule, facts, matrix.registry).matches
        for read in [_reader(rule, match, facts, matrix.registry)]
        if _severity(rule, match, _confidence(rule, match, read)[0], Policy()) == "error"
    ]
    messages = _problems(applied, facts, matrix)
    folded = _fold(applied)
    causes = (
        Problem(case.rule.id, tuple(case.item.items())) for number, case in enumerate(applied) if number not in folded
    )
    return {problem: messages[problem] for problem in causes}, messages


def problems_of(rule: Rule, facts: FactSet, matrix: Matrix) -> dict[Problem, Text]:
    """Return everything that the rule applies to, with the message about it."""
    matches = evaluate(rule, facts, matrix.registry).matches
    applied = [_Applied(rule, match, _identity(rule, match, matrix.registry), rule.severity) for match in matches]
    return _problems(applied, facts, matrix)


def _problems(applied: Iterable[_Applied], facts: FactSet, matrix: Matrix) -> dict[Problem, Text]:
    problems: dict[Problem, Text] = {}
    for case in applied:
        read = _reader(case.rule, case.match, facts, matrix.registry)
        message = text_of(matrix.texts(case.rule)["message"])
        problems.setdefault(Problem(case.rule.id, tuple(case.item.items())), fill(message, read, matrix.registry))
    return problems


def problem_of(finding: Finding) -> Problem:
    """Return the problem that a finding is about."""
    return Problem(finding.id, tuple(finding.item.items()))


# One cause, one finding: which findings are folded into which.


def _fold(applied: Sequence[_Applied]) -> dict[int, int]:
    """Return which case (by its number) is folded into which, by ``supersedes``, ``folds_into`` and ``explained_by`` of
    the rules: into the last one of a chain, and into the first one of a circle."""
    places: dict[str, list[int]] = {}
    for number, case in enumerate(applied):
        places.setdefault(case.rule.id, []).append(number)
    by: dict[int, int] = {}
    for number, case in enumerate(applied):
        for folded in case.rule.supersedes:
            for other in places.get(folded, ()):
                lesser = not case.accepted or _rank(applied[other]) <= _rank(case)
                record = applied[other].item  # where both are of records, these agree in what they have in common
                if lesser and all(case.item[key] == value for key, value in record.items() if key in case.item):
                    by.setdefault(other, number)
    for candidates in (_on_its_packages(applied), _explaining(by, places, applied)):
        for number, other in candidates:
            if number not in by and _rank(applied[other]) >= _rank(applied[number]):
                by[number] = other
    ends: dict[int, int] = {}
    for number in by:
        chain = [number]
        while (following := by.get(chain[-1])) is not None and following not in chain:
            chain.append(following)
        ends[number] = chain[-1] if following is None else min(chain[chain.index(following) :])
    return {number: end for number, end in ends.items() if end != number}


def _elsewhere(applied: Sequence[_Applied], stands_for: Mapping[int, int]) -> dict[int, list[FoundFact]]:
    """Return, by the number of a finding that stands for others, the other records in which its cause showed."""
    shown: dict[int, dict[str, FoundFact]] = {}
    for number, root in stands_for.items():
        each, item = applied[number].rule.each, applied[number].item
        if each is not None and each == applied[root].rule.each and item != applied[root].item:
            text = " ".join(item.values())
            shown.setdefault(root, {}).setdefault(text, FoundFact(each, text, ""))
    return {root: list(facts.values()) for root, facts in shown.items()}


def _rank(case: _Applied) -> int:
    return SEVERITIES.index(case.severity)


def _explaining(
    by: Mapping[int, int], places: Mapping[str, Sequence[int]], applied: Sequence[_Applied]
) -> Iterator[tuple[int, int]]:
    """Yield each case with the cases of other records that explain it, until it is in ``by``."""
    for number, (rule, match, *_) in enumerate(applied):
        item, explainers = match.item or {}, rule.explained_by.items()
        for other, columns in ((other, columns) for name, columns in explainers for other in places.get(name, ())):
            if number in by:
                break
            record = applied[other].match.item or {}
            earlier = other < number or other in by or applied[other].rule.id != rule.id
            cells = [(item.get(column, NOT_KNOWN), record.get(column)) for column in columns]
            if earlier and all(cell == source and not isinstance(cell, (Unknown, Absent)) for cell, source in cells):
                yield number, other


def _on_its_packages(applied: Sequence[_Applied]) -> Iterator[tuple[int, int]]:
    """Yield each case with the cases that rest on a package of each column that ``folds_into`` names. A case that is
    folded itself counts only if it is about other records (two that are alike would hide each other). A case that is
    accepted covers nothing."""
    cases = [(place, case.rule, case.match.item or {}) for place, case in enumerate(applied)]
    folding = [case for case in cases if case[1].folds_into or case[1].covers]
    rests: dict[str, set[int]] = {}
    for number, case in enumerate(applied if folding else ()):
        packages = {key[4:] for key in case.match.keys if key.startswith("pkg.")}
        for package in packages | _packages((case.match.item or {}).get("package")):
            rests.setdefault(package, set()).add(number)
    for number, rule, item in folding:
        for column in () if applied[number].accepted else rule.covers:
            covered = (rests.get(name, set()) for name in _packages(item.get(column.partition(".")[2])))
            yield from ((other, number) for other in sorted(set[int]().union(*covered)) if other != number)
        by_column = [_packages(item.get(column.partition(".")[2])) for column in rule.folds_into]
        resting = [set[int]().union(*(rests.get(name, ()) for name in names)) for names in by_column]
        for other in sorted(set.intersection(*resting)) if resting else ():
            cause = applied[other].rule
            explains = rule.effect in (cause.effect, "install")  # wrong numbers are no cause of a crash
            if explains and (not cause.folds_into or cause.each != rule.each):
                yield number, other


def _packages(cell: Value | None) -> set[str]:
    """Return the package names that begin a text or each of a list of texts ("torch (>=2.5)")."""
    texts = cell if isinstance(cell, tuple) else (cell,)
    return {text.partition(" ")[0] for text in texts if isinstance(text, str)}
