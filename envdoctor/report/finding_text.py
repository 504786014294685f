"""One finding as text: what is wrong, where to edit, what was found, why, the fix to copy, and the proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from envdoctor.judge.finding import Finding, OfferedFix
from envdoctor.report.color import paint
from envdoctor.report.layout import command_lines, wrap, wrap_items
from envdoctor.report.names import is_answer, is_place, name_fact, say_fact, short_url
from envdoctor.report.phrases import phrase
from envdoctor.text.clean import clean

__all__ = ["finding_lines", "merged"]

_TEXT = " " * 9  # where the text behind the labels begins
_LISTS = ("change", "conflict", "extension", "withdrawn")
_LONG = 20  # characters that nobody wants to read twice


Item = Mapping[str, str]


def merged(findings: Iterable[Finding]) -> list[tuple[Finding, list[Item]]]:
    """Findings that differ in their record alone, as one with all records: eight equal GPUs are told once."""
    groups: dict[object, tuple[Finding, list[Item]]] = {}
    for finding in findings:
        facts = tuple(fact for fact in finding.facts if fact.key.rpartition(".")[2] not in finding.item)
        said = (finding.message, facts, finding.assumed, finding.caveats, finding.locations, str(finding.fixes))
        key = (finding.id, finding.severity, finding.gate, said)
        groups.setdefault(key, (finding, []))[1].append(finding.item)
    return list(groups.values())


def finding_lines(
    finding: Finding,
    *,
    items: Sequence[Item] = (),
    color: bool,
    width: int | None,
    lang: str,
    verbosity: int = 0,
    probe_command: str | None = None,
    windows: bool = False,
) -> list[str]:
    """The block of one finding, in the order of the design, without a blank line around it.

    ``items`` are the records it stands for, when :func:`merged` found several. ``probe_command`` runs the experiment
    that settles it.
    ``windows``: commands stay on one line, because its shells do not continue a line with a backslash.
    """
    level = paint(finding.severity, finding.severity, color)
    times = f" x {len(items)}" if len(items) > 1 else ""
    lines = [f"{level}[{paint(clean(finding.id), 'bold', color)}]{times}"]
    message = clean(finding.message.in_language(lang))
    lines += wrap(message, width, "  ", "  ")
    for location in finding.locations:
        line = f":{location.line}" if location.line is not None else ""
        lines.append(f"  --> {clean(location.path)}{line}")
    record = _record(finding)
    known = [fact for fact in finding.facts if fact.value != "unknown"]
    if verbosity == 0:
        known = [fact for fact in known if not _told(fact.key, fact.value, fact.origin, message, record)]
    found = [_found(fact.key.removeprefix(f"{record}."), fact.value, fact.origin, lang, verbosity) for fact in known]
    item = _item(finding, items or [finding.item], message, lang)
    if found or item:
        lines += wrap_items(item + found, width, _label("found"), _TEXT, phrase(lang, "separator"))
    why = clean(finding.why.in_language(lang), 1000)
    if why:
        lines += wrap(why, width, _label("why"), _TEXT)
    for note in _notes(finding, lang):
        lines += wrap(note, width, _label("note"), _TEXT)
    lines += _fixes(finding.fixes, None if windows else width, width, lang, verbosity)
    lines += _proof(finding, width, verbosity)
    if probe_command:
        lines += command_lines(clean(probe_command, 2000), None if windows else width, _label("try"), _TEXT)
    if verbosity > 0:
        text = ", ".join(clean(word) for word in (finding.status, finding.confidence, finding.effect))
        if finding.origin:
            text = phrase(lang, "bracket", text=text, more=clean(finding.origin))
        lines += wrap(text, width, _label("rule"), _TEXT)
    return lines


def _label(word: str) -> str:
    return f"  {word:<5}  "


def _found(key: str, value: str, origin: str, lang: str, verbosity: int) -> str:
    text = say_fact(key, value, lang)
    if origin and (verbosity > 0 or is_place(origin)):
        text = phrase(lang, "bracket", text=text, more=clean(origin, 200))
    return text


def _record(finding: Finding) -> str:
    """The list whose item the finding is about; none for GPUs, whose columns need the word in front of them.

    Only lists have a name of several words, or one of these."""
    heads = (key.partition(".")[0] for key in finding.subjects)
    return next((head for head in heads if "_" in head or head in _LISTS), "")


def _told(key: str, value: str, origin: str, message: str, record: str) -> bool:
    """Whether a fact needs no words: it is only the answer that the rule is about, or the message has its value."""
    head, _, column = key.partition(".")
    if is_answer(key):
        return True
    if head == record and column in ("area", "kind", "verdict", "in_use"):
        return True
    if head == record and value == "absent":
        return True
    shown = clean(value, 200)
    return shown in message and not is_place(origin) and (head in (record, "environment") or len(shown) > _LONG)


def _item(finding: Finding, items: Sequence[Item], message: str, lang: str) -> list[str]:
    """The records a rule for each GPU (conflict, change) applied to, where message and facts do not name them."""
    said = {fact.key.rpartition(".")[2] for fact in finding.facts} if len(items) == 1 else set()
    names: list[str] = []
    rest: list[str] = []
    for column in finding.item:
        values = [clean(value, 200) for value in dict.fromkeys(item.get(column, "") for item in items)]
        text = ", ".join(values)
        if column in said or column in ("area", "kind") or text in message:
            continue
        if column == "name":
            names.append(text)
        else:
            rest.append(f"{name_fact(column)} {text}")
    if not names and not rest:
        return []
    more = "; ".join(rest)
    text = phrase(lang, "bracket", text=names[0], more=more) if names and more else more or names[0]
    return [phrase(lang, "item", item=text)]


def _notes(finding: Finding, lang: str) -> list[str]:
    notes: list[str] = []
    for taken in finding.assumed:
        fact = say_fact(taken.key, taken.value, lang)
        notes.append(phrase(lang, "assumed", fact=fact, reason=clean(taken.because)))
    for caveat in finding.caveats:
        # the judge's caveat on an assumption repeats its reason
        if not any(taken.key in caveat and taken.because in caveat for taken in finding.assumed):
            notes.append(clean(caveat))
    if finding.status == "preview":
        notes.append(phrase(lang, "preview"))
    return notes


def _fixes(
    fixes: tuple[OfferedFix, ...], command_width: int | None, width: int | None, lang: str, verbosity: int
) -> list[str]:
    offered = [fix for fix in fixes if fix.withheld is None]
    withheld = [fix for fix in fixes if fix.withheld is not None]
    lines: list[str] = []
    for number, fix in enumerate(offered):
        label = _label("fix") if number == 0 else "     or  "
        summary = _summary(fix, lang)
        if not fix.commands:
            lines += wrap(summary, width, label, _TEXT)
            continue
        lines += wrap(summary, width, label, _TEXT)
        label = _TEXT
        for command in fix.commands:
            lines += command_lines(clean(command, 2000), command_width, label, _TEXT)
            label = _TEXT
    if withheld and not offered and verbosity <= 0:
        lines += wrap(phrase(lang, "no_fix", reason=clean(withheld[0].withheld or "")), width, _label("fix"), _TEXT)
    if verbosity > 0:
        for fix in withheld:
            text = phrase(lang, "withheld", fix=_summary(fix, lang), reason=clean(fix.withheld or ""))
            lines += wrap(text, width, _label("note"), _TEXT)
    return lines


def _summary(fix: OfferedFix, lang: str) -> str:
    text = clean(fix.summary.in_language(lang))
    changes = [clean(constraint) for constraint in fix.constraints]
    words = text.replace(",", " ").split()
    changes += [f"{name_fact(key)}: {clean(value)}" for key, value in fix.set.items() if clean(value) not in words]
    changes += [f"{clean(name)}={clean(value)}" for name, value in fix.env.items()]
    changes = [change for change in changes if change not in text]
    more = phrase(lang, "separator").join(changes)
    if not text or not more or fix.commands:
        return text or more
    return phrase(lang, "bracket", text=text, more=more)


def _proof(finding: Finding, width: int | None, verbosity: int) -> list[str]:
    """The first source with the confidence; with -v all of them, with what each shows."""
    lines: list[str] = []
    for number, evidence in enumerate(finding.evidence if verbosity > 0 else finding.evidence[:1]):
        words = [finding.confidence] if number == 0 else []
        if verbosity > 0 and evidence.kind != finding.confidence:
            words.append(clean(evidence.kind))
        lead = ", ".join(words or [clean(evidence.kind)]) + ":"
        checked = f"(checked {clean(evidence.checked)})" if evidence.checked else ""
        shows = clean(evidence.shows) if verbosity > 0 else ""
        items = [lead, short_url(evidence.url), "" if shows else checked]
        label = _TEXT if number else _label("proof")
        lines += wrap_items([item for item in items if item], width, label, _TEXT, " ")
        if shows:
            lines += wrap(f"{shows} {checked}".rstrip(), width, _TEXT + "  ", _TEXT + "  ")
    return lines
