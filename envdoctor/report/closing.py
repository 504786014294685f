"""A report about itself: what was not judged, notices, counts, what could not be checked and what would help."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envdoctor.facts.values import ABSENT, NOT_GIVEN, Value
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
#: How many are shown: facts that an advice names, reasons why rules could not be checked, facts that are unknown for
#: one reason, and things that the matrix does not know.
_NAMED_KEYS, _MOST_REASONS, _MOST_NAMED, _MOST_BEYOND = 2, 2, 6, 6


def unjudged(report: Report, page: Page) -> list[tuple[str, str]]:
    """Return what seems judged but was not, each with its label."""
    return [(page.say("Not judged"), page.sentence(text)) for text in report.unjudged]


def left_open(report: Report, page: Page) -> Iterator[tuple[str, str]]:
    """Yield what :func:`unjudged` returns, and the parts of a comparison that were not read or not judged, a line each;
    for formats without a first line."""
    yield from unjudged(report, page)
    if report.revision is not None:
        from envdoctor.report.revision_section import not_judged, not_read

        for label, of in ((page.say("Not read"), not_read), (page.say("Not judged"), not_judged)):
            if lines := of(report.revision, page):
                yield label, "\n".join(lines)


def beyond(report: Report, page: Page) -> list[tuple[str, str]]:
    """Return what is newer than the matrix, and what it does not know. Name the packages that a reader asks for first,
    the machine and the run; count the others."""
    spec = report.registry.find("beyond")
    names = {*report.registry.first("pkg"), *(spec.columns["what"].values if spec is not None else ())}
    day = report.matrix_version.replace(".", "-")
    lines = []
    for newer in (True, False):
        label = page.say("Newer than this matrix ({day})" if newer else "Not known to this matrix ({day})", day=day)
        items = [item for item in beyond_of(report) if isinstance(item["known_to"], str) is newer]
        first = [item for item in items if item["what"] in names][:_MOST_BEYOND]
        texts = []
        for item in first:  # as ``torch 2.15.0 (it knows up to 2.14)``
            name = page.value("beyond.what", str(item["what"]))
            text = page.say("{name} {value}", name=name, value=item["value"])
            if newer:
                text = page.say("{thing} (it knows up to {version})", thing=text, version=item["known_to"])
            texts.append(text)
        texts += [page.say("{n} more", len(items) - len(first))] if len(first) < len(items) else []
        lines += [(label, page.separated(texts))] if first else []
    return lines


def banners(texts: Iterable[tuple[str, str]], page: Page) -> Section:
    """Return a section of the texts that come before everything else."""
    return Section("", [Banner(label, page.labelled(label, text)) for label, text in texts])


def beyond_of(report: Report) -> list[Mapping[str, Value]]:
    """Return what the matrix does not know of this run, first the packages that a reader asks for first."""
    items, first = report.facts.items("beyond"), report.registry.first("pkg")
    return sorted(items, key=lambda item: first.index(item["what"]) if item["what"] in first else len(first))


def notices(report: Report, page: Page) -> list[Banner]:
    """Return the notices about the run itself; an incomplete run has one, or says above all what was not judged."""
    unfinished, undecided = "Incomplete: the check could not be finished.", "Incomplete: no rule could be decided."
    is_told = report.rules_checked and report.unjudged and all(notice.level != "error" for notice in report.notices)
    is_answered = report.status == "complete" or _has_answer(report) or is_told
    said = [] if is_answered else [Banner("", page.say(unfinished if report.rules_checked else undecided))]
    shown = [notice for notice in report.notices if page.verbosity >= 0 or notice.level == "error"]
    return said + [Banner(level, f"{level}: {page.sentence(text)}", level) for level, text in shown]


def _has_answer(report: Report) -> bool:
    """Return whether the section of ``memory`` answers although no rule was decided; a notice says what is missing."""
    return report.command == "memory" and report.memory is not None and not report.rules_checked


def closing(report: Report, page: Page, again: str = "") -> list[Block]:
    """Return counts of findings and rules, what is missing for the rules that could not be checked, and what to type
    next. ``again`` is the command that lists the changes which end the errors."""
    shown = report.shown()
    blocks: list[Block] = [Items(_counts(report, page), _gap(page))]
    if page.verbosity > 0:
        blocks += [*map(Paragraph, advices(report, page)), Paragraph(matrix_words(report, page), "")]
    elif not _has_answer(report) and (missing := _missing(report, page)):
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
        # If a model has code of its own, that code is what was not read.
        unread = report.facts.value("model.remote_code") is True and ("model_files",) in [names for names, _ in steps]
        names = ("model_files",) if unread else steps[0][0]
        advice = page.say("; and ").join(_advice(report, name, page) for name in names)
        if report.target.kind == "report" and "asks" in report.registry.help_texts.get(names[0], {}):
            # who reads it has not got the environment
            advice = page.say("ask for {what}", what=_said_of(report, names[0], "asks", page))
        blocks.append(Field(page.say("Next"), [advice]))
    return blocks


def matrix_words(report: Report, page: Page) -> str:
    """Return which matrix judged."""
    return page.say("Matrix {version} ({source}).", version=report.matrix_version, source=report.matrix_source)


def help_steps(not_checked: tuple[NotChecked, ...]) -> list[tuple[tuple[str, ...], int]]:
    """Return which help makes how many more rules decidable: ``[(("model",), 12), (("recipe",), 20)]``. Each step
    counts only rules beyond the steps before it, so that the counts never overlap; the cheapest step (fewest kinds of
    help, then most rules) comes first. Rules that no help would decide are not counted."""
    open_needs = Counter(frozenset(entry.help) for entry in not_checked if entry.help and entry.reason is None)
    steps: list[tuple[tuple[str, ...], int]] = []
    helps: set[str] = set()
    while open_needs:
        gains: Counter[frozenset[str]] = Counter()
        for step in {needs - helps for needs in open_needs}:
            gains[step] = sum(count for needs, count in open_needs.items() if needs <= helps | step)
        best = min(gains, key=lambda step: (len(step), -gains[step], sorted(step)))
        helps |= best
        open_needs = Counter({needs: count for needs, count in open_needs.items() if not needs <= helps})
        steps.append((tuple(sorted(best)), gains[best]))
    return steps


def not_shown(report: Report, page: Page) -> list[Section]:
    """Return the rules that could not be checked, each with its reason, and the ignored and superseded findings."""
    open_ = [(entry.severity, entry.id, page.say("; ").join(_why_not([entry], page))) for entry in report.not_checked]
    ignored, twins = [], []
    for finding in report.findings:
        if finding.ignored is not None:
            ignored.append((finding.severity, finding.id, page.message(finding), finding.ignored))
        elif finding.superseded_by:
            twins.append((finding.severity, finding.id, page.message(finding), finding.superseded_by))
    tables: dict[str, Sequence[Sequence[str]]]
    tables = {"Not checked": open_, "Ignored": ignored, "Same cause as another finding": twins}
    head = (page.say("severity"), page.say("rule"), "", "")
    sections = []
    for title, rows in tables.items():
        lines = [f"{severity}[{name}]: {words[-1]}" for severity, name, *words in rows]
        sections += [Section(page.say(title), [Table(head[: len(rows[0])], rows, lines)])] if rows else []
    return sections


def first_line(report: Report, page: Page) -> list[str]:
    """Return the verdict of a comparison of two revisions, which stands before counts; empty for other commands."""
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
    parts = parts or ([page.say("No findings")] if report.status == "complete" and not _has_answer(report) else [])
    open_ = len(report.revision.unjudged) if report.revision is not None else 0
    parts += [page.say("{n} change(s) not judged", open_)] if open_ else []
    ignored = sum(finding.ignored is not None for finding in report.findings)
    parts += [page.say("{n} ignored", ignored)] if ignored else []
    in_baseline = sum(finding.baseline == "unchanged" for finding in report.shown())
    parts += [page.say("{n} in the baseline", in_baseline)] if in_baseline else []
    elapsed = report.elapsed_seconds
    seconds = page.say(" in {t} s", t=f"{elapsed:.{1 if elapsed >= 0.1 else 2}f}") if elapsed else ""
    rules = page.say("{n} rule(s)", report.rules_checked)
    missed = len(report.not_checked)
    return [
        *([page.say("{findings}.", findings=page.separated(parts))] if parts else []),
        page.say("{rules} checked{time}; {missed} could not be checked.", rules=rules, time=seconds, missed=missed),
    ]


def _steps(report: Report) -> tuple[list[tuple[tuple[str, ...], int]], list[NotChecked]]:
    """Return the help that would make unchecked rules decidable, and the rules that no help would. Help that the user
    has given already is left out: it would send the reader in a circle."""
    helps = {"environment"} if report.target.kind not in (*DOCUMENTS, "none") else set()
    for name, entry in report.registry.help_texts.items():
        if report.command in entry.get("part_of", ()) or report.facts.known(entry.get("given_with", "")):
            helps.add(name)
    steps = help_steps(tuple(entry for entry in report.not_checked if not helps.intersection(entry.help)))
    return steps, [rule for rule in report.not_checked if rule.reason or not rule.help or helps.intersection(rule.help)]


def _missing(report: Report, page: Page) -> str:
    """Return in a sentence which help would make how many unchecked rules decidable, and how many others there are; if
    no help would, the reasons."""
    steps, _ = _steps(report)
    helps = [" + ".join(_said_of(report, name, "needs", page) for name in names) for names, _ in steps]
    texts = ["{n} more with {help}", *["{n} with {help}"] * len(steps)]
    parts = [page.say(text, n, help=words) for text, words, (_, n) in zip(texts, helps, steps, strict=False)]
    rest = len(report.not_checked) - sum(count for _, count in steps)
    parts += [page.say("{n} others (-v says why)", rest)] if rest and parts else []
    return page.separated(parts) or "".join(advices(report, page))


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
    words = page.say("; ").join(reasons)
    return [*texts, page.say(text, rest, reasons=words)] if words else texts


def _reasons(report: Report, others: list[NotChecked], page: Page) -> list[str]:
    """Return why these rules could not be checked, without the parts that a comparison names as not read."""
    if report.revision is not None and report.revision.unread:
        for place, other in enumerate(others):
            missing = {
                key: Message("") if key.partition(".")[0] == "change" else gap for key, gap in other.missing.items()
            }
            others[place] = other._replace(missing=missing)
    return _why_not(others, page)


def _said_of(report: Report, name: str, part: str, page: Page) -> str:
    """Return the text about a kind of help, or a part of it; it differs if the fact that stands ``beside`` is known."""
    texts = report.registry.help_texts.get(name, {})
    beside = texts.get("beside", {"fact": ""})
    texts = {**texts, **beside} if report.facts.known(beside["fact"]) else texts
    texts = texts.get(part, {}) if part else texts
    return str(texts.get(page.lang) or texts.get("en") or name)


def _advice(report: Report, name: str, page: Page) -> str:
    """Return what would help, with the facts that are not given yet."""
    text, keys = _said_of(report, name, "", page), report.registry.help_texts.get(name, {}).get("keys", ())
    specs = [spec for key in keys if (spec := report.registry.find(key)) is not None]
    open_ = [spec for spec in specs if not is_given(report, spec.key)]
    # The release of a driver in an example would read like a recommendation.
    pairs = ((spec.key, spec.example) for spec in open_[:_NAMED_KEYS])
    words = (f"--set {key}={value}" if key != "driver.version" else "--target-driver VERSION" for key, value in pairs)
    return page.labelled(text, " ".join(words))


def is_given(report: Report, key: str) -> bool:
    """Return whether a fact is known; for a column of a list, whether every item has it."""
    records = report.registry.records_of(key)
    name, column = records.key if records is not None else key, key.partition(".")[2]
    return not report.facts.unknown(name) and not any(item.unknown(column) for item in report.facts.each(name))


def _why_not(entries: Sequence[NotChecked], page: Page) -> list[str]:
    """Return why rules could not be checked: the unknown facts by reason, the commonest first, "not given" last. A list
    stands for its columns; a fact that depends on another unknown fact is left out."""
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
        labels = list(names.get(reason, ()))
        words = page.separated(page.some(labels, _MOST_NAMED))
        texts.append(page.not_known(words, reason) if labels else page.sentence(reason))
    return texts
