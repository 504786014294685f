"""What a report says of itself: what was not judged, notices, counts, what could not be checked and what would help."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envdoctor.facts.values import ABSENT, NOT_GIVEN, Records, Unknown, Value
from envdoctor.judge.finding import NotChecked
from envdoctor.observe.sources import DOCUMENTS
from envdoctor.report.blocks import Banner, Block, Commands, Field, Items, Paragraph, Section, Table
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.system.message import Message

#: Environments that may be another one than is meant.
_ON_DISK = ("venv", "conda", "system")
#: How findings of a severity are counted.
_COUNTED = {"error": "{n} error(s)", "warning": "{n} warning(s)", "note": "{n} note(s)"}
#: How many are told: facts that an advice names, reasons why rules could not be checked, things that are not known for
#: one reason, and things that the matrix does not know.
_NAMED_KEYS, _MOST_REASONS, _MOST_NAMED, _MOST_BEYOND = 2, 2, 6, 6


def unjudged(report: Report, page: Page) -> list[tuple[str, str]]:
    """Return what was not judged although it may seem so, each with its label."""
    return [(page.say("Not judged"), page.sentence(text)) for text in report.unjudged]


def left_open(report: Report, page: Page) -> Iterator[tuple[str, str]]:
    """Yield the same, and what of a comparison was not read and not judged, a line each; for formats without a first
    line."""
    yield from unjudged(report, page)
    if report.revision is not None:
        from envdoctor.report.revision_section import not_judged, not_read

        for label, of in ((page.say("Not read"), not_read), (page.say("Not judged"), not_judged)):
            if lines := of(report.revision, page):
                yield label, "\n".join(lines)


def beyond(report: Report, page: Page) -> list[tuple[str, str]]:
    """Return what is newer than the matrix, and what it does not know: the packages that a reader asks for first, the
    machine and the run by name, others by their number beside these."""
    known = report.registry.find("beyond")
    asked_for = {*report.registry.first("pkg"), *(known.columns["what"].values if known is not None else ())}
    day = report.matrix_version.replace(".", "-")
    said = []
    for newer in (True, False):
        label = page.say("Newer than this matrix ({day})" if newer else "Not known to this matrix ({day})", day=day)
        items = [item for item in beyond_of(report) if isinstance(item["known_to"], str) is newer]
        named = [item for item in items if item["what"] in asked_for][:_MOST_BEYOND]
        texts = []
        for item in named:  # as ``torch 2.15.0 (it knows up to 2.14)``
            name = page.value("beyond.what", str(item["what"]))
            text = page.say("{name} {value}", name=name, value=item["value"])
            if newer:
                text = page.say("{thing} (it knows up to {version})", thing=text, version=item["known_to"])
            texts.append(text)
        texts += [page.say("{n} more", len(items) - len(named))] if len(named) < len(items) else []
        said += [(label, page.separated(texts))] if named else []
    return said


def banners(said: Iterable[tuple[str, str]], page: Page) -> Section:
    """Return a section of the texts that are read before anything else."""
    return Section("", [Banner(label, page.labelled(label, text)) for label, text in said])


def beyond_of(report: Report) -> list[Mapping[str, Value]]:
    """Return what the matrix does not know of this run, first the packages that a reader asks for first."""
    items, first = report.facts.items("beyond"), report.registry.first("pkg")
    return sorted(items, key=lambda item: first.index(item["what"]) if item["what"] in first else len(first))


def notices(report: Report, page: Page) -> list[Banner]:
    """Return the notices about the run itself; an incomplete run always has one."""
    unfinished, undecided = "Incomplete: the check could not be finished.", "Incomplete: no rule could be decided."
    told = report.status == "complete" or _told(report)
    said = [] if told else [Banner("", page.say(unfinished if report.rules_checked else undecided))]
    shown = [notice for notice in report.notices if page.verbosity >= 0 or notice.level == "error"]
    return said + [Banner(level, f"{level}: {page.sentence(text)}", level) for level, text in shown]


def _told(report: Report) -> bool:
    """Return whether a section has the answer where no rule was decided, and a notice says what is missing for one."""
    return report.command == "memory" and report.memory is not None and not report.rules_checked


def closing(report: Report, page: Page, again: str = "") -> list[Block]:
    """Return counts of findings and rules, what is missing for the rules that could not be checked, and what to type
    next. ``again`` is the command that lists the changes which end the errors."""
    shown = report.shown()
    blocks: list[Block] = [Items(_counts(report, page), _gap(page))]
    if page.verbosity > 0:
        blocks += [*map(Paragraph, advices(report, page)), Paragraph(matrix_words(report, page), "")]
    elif not _told(report) and (missing := _missing(report, page)):
        blocks.append(Paragraph(missing))
    if report.exit_code == 0 and any(f.severity == "error" for f in shown) and not any(f.gate for f in shown):
        text = page.say("Exit code 0: no error is at the gate (--fail-on, --fail-confidence).")
        blocks.append(Paragraph(text, ""))
    if shown:
        ids = {finding.id for finding in shown}
        explain = f"envdoctor explain {shown[0].id if len(ids) == 1 else 'ID'}"
        open_ = report.plan is not None or report.facts.absent("pkg.torch")  # where there is no torch, a whole set
        cure = [Commands([again])] if again and open_ else []
        why = page.say("{command} (why, and how to accept it or to say that it is wrong)", command=explain)
        blocks.append(Field(page.say("Next"), [*cure, why]))
    elif report.facts.value("pkg.torch") is ABSENT and (report.command == "probe" or report.target.kind in _ON_DISK):
        blocks.append(Field(page.say("Next"), [page.say("name the Python that has torch: --python PATH")]))
    elif any(notice.level == "error" for notice in report.notices):
        pass  # which says what to give
    elif (steps := _steps(report)[0]) and page.verbosity == 0:
        # What nobody has looked at of a model with code of its own is that code.
        unread = report.facts.value("model.remote_code") is True and ("model_files",) in [names for names, _ in steps]
        names = ("model_files",) if unread else steps[0][0]
        advice = page.say("; and ").join(_advice(report, name, page) for name in names)
        asks = report.registry.help_texts.get(names[0], {}).get("asks")
        if report.target.kind == "report" and asks:  # who reads it has not got the environment
            advice = page.say("ask for {what}", what=asks.get(page.lang, asks["en"]))
        blocks.append(Field(page.say("Next"), [advice]))
    return blocks


def matrix_words(report: Report, page: Page) -> str:
    """Return which matrix judged."""
    return page.say("Matrix {version} ({source}).", version=report.matrix_version, source=report.matrix_source)


def help_steps(not_checked: tuple[NotChecked, ...]) -> list[tuple[tuple[str, ...], int]]:
    """Return which help makes how many more rules decidable: ``[(("model",), 12), (("recipe",), 20)]``. Each step
    counts what is gained on top of the steps before it, so that the counts never overlap; the cheapest step (fewest
    kinds of help, then most rules) comes first. Rules that no help would decide are not counted."""
    open_needs = Counter(frozenset(entry.help) for entry in not_checked if entry.help and entry.reason is None)
    steps: list[tuple[tuple[str, ...], int]] = []
    given: set[str] = set()
    while open_needs:
        gains: Counter[frozenset[str]] = Counter()
        for step in {needs - given for needs in open_needs}:
            gains[step] = sum(count for needs, count in open_needs.items() if needs <= given | step)
        best = min(gains, key=lambda step: (len(step), -gains[step], sorted(step)))
        given |= best
        open_needs = Counter({needs: count for needs, count in open_needs.items() if not needs <= given})
        steps.append((tuple(sorted(best)), gains[best]))
    return steps


def not_shown(report: Report, page: Page) -> list[Section]:
    """Return the rules that could not be checked with the reason of each, the ignored and the superseded findings."""
    missed = [(entry.severity, entry.id, page.say("; ").join(_why_not([entry], page))) for entry in report.not_checked]
    ignored, twins = [], []
    for one in report.findings:
        if one.ignored is not None:
            ignored.append((one.severity, one.id, page.message(one), one.ignored))
        elif one.superseded_by:
            twins.append((one.severity, one.id, page.message(one), one.superseded_by))
    titled: dict[str, Sequence[Sequence[str]]]
    titled = {"Not checked": missed, "Ignored": ignored, "Same cause as another finding": twins}
    head = (page.say("severity"), page.say("rule"), "", "")
    sections = []
    for title, rows in titled.items():
        lines = [f"{severity}[{name}]: {words[-1]}" for severity, name, *words in rows]
        sections += [Section(page.say(title), [Table(head[: len(rows[0])], rows, lines)])] if rows else []
    return sections


def first_line(report: Report, page: Page) -> list[str]:
    """Return the verdict of a comparison of two revisions, which stands before counts; nothing of other commands."""
    if report.revision is None:
        return []
    from envdoctor.report.revision_section import verdict

    return [verdict(report.revision, report.shown(), page)]


def counts_line(report: Report, page: Page) -> str:
    """Return the findings by severity, and how many rules were and could not be checked."""
    return _gap(page).join(_counts(report, page))


def _gap(page: Page) -> str:
    return " " if page.lang == "en" else ""


def _counts(report: Report, page: Page) -> list[str]:
    counts = Counter(finding.severity for finding in report.shown())
    parts = [page.say(_COUNTED[level], counts[level]) for level in _COUNTED if counts[level]]
    parts = parts or ([] if _told(report) else [page.say("No findings")])
    open_ = len(report.revision.unjudged) if report.revision is not None else 0
    parts += [page.say("{n} change(s) not judged", open_)] if open_ else []
    ignored = sum(finding.ignored is not None for finding in report.findings)
    parts += [page.say("{n} ignored", ignored)] if ignored else []
    known = sum(finding.baseline == "unchanged" for finding in report.shown())
    parts += [page.say("{n} in the baseline", known)] if known else []
    elapsed = report.elapsed_seconds
    seconds = page.say(" in {t} s", t=f"{elapsed:.{1 if elapsed >= 0.1 else 2}f}") if elapsed else ""
    rules = page.say("{n} rule(s)", report.rules_checked)
    missed = len(report.not_checked)
    return [
        *([page.say("{findings}.", findings=page.separated(parts))] if parts else []),
        page.say("{rules} checked{time}; {missed} could not be checked.", rules=rules, time=seconds, missed=missed),
    ]


def _steps(report: Report) -> tuple[list[tuple[tuple[str, ...], int]], list[NotChecked]]:
    """Return the help that would make unchecked rules decidable, and the rules that none would; help that was taken
    already would send the reader in a circle."""
    taken = {"environment"} if report.target.kind not in (*DOCUMENTS, "none") else set()
    for name, entry in report.registry.help_texts.items():
        if report.command in entry.get("part_of", ()) or report.facts.known(entry.get("given_with", "")):
            taken.add(name)
    steps = help_steps(tuple(entry for entry in report.not_checked if not taken.intersection(entry.help)))
    return steps, [one for one in report.not_checked if one.reason or not one.help or taken.intersection(one.help)]


def _missing(report: Report, page: Page) -> str:
    """Return in a sentence what would make how many unchecked rules decidable and how many others there are; where
    nothing would, why."""
    steps, _ = _steps(report)
    helps = [" + ".join(_needs(report, names, page)) for names, _ in steps]
    texts = ["{n} more with {help}", *["{n} with {help}"] * len(steps)]
    parts = [page.say(text, n, help=one) for text, one, (_, n) in zip(texts, helps, steps, strict=False)]
    rest = len(report.not_checked) - sum(count for _, count in steps)
    parts += [page.say("{n} for other reasons: -v", rest)] if rest and parts else []
    return page.separated(parts) or "".join(advices(report, page))


def _needs(report: Report, names: Sequence[str], page: Page) -> Iterator[str]:
    for name in names:
        texts = _texts_of(report, name)["needs"]
        yield texts.get(page.lang) or texts["en"]


def advices(report: Report, page: Page) -> list[str]:
    """Return which help would make how many unchecked rules decidable, the most helpful first, and why others could not
    be checked."""
    steps, others = _steps(report)
    texts: list[str] = []
    for names, count in steps:
        advice = page.say("; and ").join(_advice(report, name, page) for name in names)
        texts.append(page.say("then {n} more: {help}" if texts else "{n} more rule(s): {help}", count, help=advice))
    rest = len(report.not_checked) - sum(count for _, count in steps)
    reasons = _reasons(report, others, page) if rest else []
    more = len(reasons) - _MOST_REASONS
    reasons[_MOST_REASONS:] = [page.say("{n} more: -v lists them", n=more)] if more > 0 else []
    text = "{n} rule(s) for other reasons: {reasons}" if texts else "{n} rule(s): {reasons}"
    told = page.say("; ").join(reasons)
    return [*texts, page.say(text, rest, reasons=told)] if told else texts


def _reasons(report: Report, others: list[NotChecked], page: Page) -> list[str]:
    """Return why these rules could not be checked; what a comparison could not read is said above."""
    if report.revision is not None and report.revision.unread:
        for place, other in enumerate(others):
            said = {
                key: Message("") if key.partition(".")[0] == "change" else why for key, why in other.missing.items()
            }
            others[place] = other._replace(missing=said)
    return _why_not(others, page)


def _texts_of(report: Report, name: str) -> Mapping[str, Any]:
    """Return what is said of a kind of help, where a fact is known beside it other words."""
    texts = report.registry.help_texts.get(name, {"needs": {"en": name}})
    beside = texts.get("beside", {"fact": ""})
    return {**texts, **beside} if report.facts.known(beside["fact"]) else texts


def _advice(report: Report, name: str, page: Page) -> str:
    """Return what would help, with the facts that are not given yet."""
    texts = _texts_of(report, name)
    text = str(texts.get(page.lang) or texts.get("en") or name)
    known = [spec for key in texts.get("keys", ()) if (spec := report.registry.find(key)) is not None]
    open_ = [spec for spec in known if not is_given(report, spec.key)]
    # A release of a driver that is an example reads like one that is recommended.
    given = ((spec.key, spec.example) for spec in open_[:_NAMED_KEYS])
    words = (f"--set {key}={one}" if key != "driver.version" else "--target-driver VERSION" for key, one in given)
    return page.labelled(text, " ".join(words))


def is_given(report: Report, key: str) -> bool:
    """Return whether a fact is known; of a column of a list, whether it is known for each item."""
    records = report.registry.records_of(key)
    value = report.facts.value(records.key if records is not None else key)
    if isinstance(value, Records):
        return all(not isinstance(item.get(key.partition(".")[2], NOT_GIVEN), Unknown) for item in value)
    return not isinstance(value, Unknown)


def _why_not(entries: Sequence[NotChecked], page: Page) -> list[str]:
    """Return why rules could not be checked, the commonest first, and last what was not given: what is not known, by
    reason. A list stands for its columns; what depends on another fact that is not known needs no words."""
    counts: Counter[str] = Counter()
    names: dict[str, dict[str, None]] = {}
    for entry in entries:
        missing = {} if entry.reason is not None else dict(entry.missing)
        specs = {key: page.registry.find(key) for key in missing}
        first = [key for key, spec in specs.items() if spec is None or not missing.keys() & {*spec.depends_on}]
        for key in first or missing:
            records = page.registry.records_of(key)
            names.setdefault(missing[key], {})[page.name(records.key if records is not None else key)] = None
        counts.update({missing[key]: 1 for key in first or missing} if missing else [entry.reason or ""])
    texts = []
    for reason in sorted((reason for reason, _ in counts.most_common()), key=lambda text: text == NOT_GIVEN.reason):
        things = list(names.get(reason, ()))
        more = [page.say("{n} more", len(things) - _MOST_NAMED)] if len(things) > _MOST_NAMED else []
        told = page.separated([*things[:_MOST_NAMED], *more])
        texts.append(page.not_known(told, reason) if things else page.sentence(reason))
    return texts
