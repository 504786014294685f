"""What a report says of itself: what was not judged, notices, counts, what could not be checked and what would help."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envdoctor.facts.values import NOT_GIVEN, Records, Unknown, Value
from envdoctor.judge.finding import NotChecked
from envdoctor.observe.sources import DOCUMENTS
from envdoctor.report.blocks import Banner, Block, Items, Paragraph, Section, Table
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.system.message import Message

#: How many facts one advice names.
_NAMED_KEYS = 2
#: How findings of a severity are counted.
_COUNTED = {"error": "{n} error(s)", "warning": "{n} warning(s)", "note": "{n} note(s)"}
#: How many reasons why rules could not be checked are told.
_MOST_REASONS = 2
#: How many things that are not known for one reason are named.
_MOST_NAMED = 6
#: How many things that the matrix does not know are named.
_MOST_BEYOND = 6


def unjudged(report: Report, page: Page) -> list[tuple[str, str]]:
    """Return what was not judged although it may seem so, each with its label."""
    return [(page.say("Not judged"), page.sentence(text)) for text in report.unjudged]


def left_open(report: Report, page: Page) -> Iterator[tuple[str, str]]:
    """Yield the same, and what of a comparison was not read and not judged, a line each; for formats without a first
    line."""
    yield from unjudged(report, page)
    if report.revision is not None:
        from envdoctor.report.revision_section import not_judged, not_read

        parts = {page.say("Not read"): not_read, page.say("Not judged"): not_judged}
        for label, lines_of in parts.items():
            if lines := lines_of(report.revision, page):
                yield label, "\n".join(lines)


def beyond(report: Report, page: Page) -> list[tuple[str, str]]:
    """Return what is newer than the matrix, and what it does not know: the packages that a reader asks for first, the
    machine and the run by name, others by their number beside these."""
    known, first = report.registry.find("beyond"), report.registry.first("pkg")
    asked_for = {*first, *(known.columns["what"].values if known is not None else ())}
    day = report.matrix_version.replace(".", "-")
    labels = {
        page.say("Newer than this matrix ({day})", day=day): True,
        page.say("Not known to this matrix ({day})", day=day): False,
    }
    said = []
    for label, newer in labels.items():
        items = [item for item in beyond_of(report) if isinstance(item["known_to"], str) is newer]
        named = [item for item in items if item["what"] in asked_for][:_MOST_BEYOND]
        texts = [_thing(item, page) for item in named]
        texts += [page.say("{n} more", len(items) - len(named))] if len(named) < len(items) else []
        said += [(label, page.separated(texts))] if named else []
    return said


def _thing(item: Mapping[str, Value], page: Page) -> str:
    """Return the name and version of a thing, as ``torch 2.15.0 (it knows up to 2.14)``."""
    name = page.value("beyond.what", str(item["what"]))
    text = page.say("{name} {value}", name=name, value=item["value"])
    if isinstance(item["known_to"], str):
        text = page.say("{thing} (it knows up to {version})", thing=text, version=item["known_to"])
    return text


def banners(said: Iterable[tuple[str, str]], page: Page) -> Section:
    """Return a section of the texts that are read before anything else."""
    return Section("", [Banner(label, page.labelled(label, text)) for label, text in said])


def beyond_of(report: Report) -> list[Mapping[str, Value]]:
    """Return what the matrix does not know of this run, first the packages that a reader asks for first."""
    items, first = report.facts.items("beyond"), report.registry.first("pkg")
    return sorted(items, key=lambda item: first.index(item["what"]) if item["what"] in first else len(first))


def notices(report: Report, page: Page) -> list[Banner]:
    """Return the notices about the run itself; an incomplete run always has one."""
    undecided = page.say("Incomplete: no rule could be decided.")
    unfinished = page.say("Incomplete: the check could not be finished.")
    said = [] if report.status == "complete" else [Banner("", unfinished if report.rules_checked else undecided)]
    shown = [notice for notice in report.notices if page.verbosity >= 0 or notice.level == "error"]
    return said + [Banner(level, f"{level}: {page.sentence(text)}", level) for level, text in shown]


def closing(report: Report, page: Page) -> list[Block]:
    """Return counts of findings and rules, help for the rules that could not be checked, and the next commands."""
    shown = report.shown()
    blocks: list[Block] = [Items(_counts(report, page), _gap(page)), *map(Paragraph, advices(report, page))]
    if not shown or page.verbosity > 0:
        blocks.append(Paragraph(matrix_words(report, page), ""))
    if report.exit_code == 0 and any(f.severity == "error" for f in shown) and not any(f.gate for f in shown):
        text = page.say("Exit code 0: no error is at the gate (--fail-on, --fail-confidence).")
        blocks.append(Paragraph(text, ""))
    if shown:
        ids = {finding.id for finding in shown}
        name = shown[0].id if len(ids) == 1 else "ID"
        again = page.say("the same command with {option}", option="--format markdown")
        wrong = "envdoctor facts --for-issue" if report.revision is None else again
        steps = [
            page.say("Details: {command}", command=f"envdoctor explain {name}"),
            page.say("Accept: {command}", command=f"envdoctor ignore {name} --reason ..."),
            page.say("Wrong? {command}", command=wrong),
        ]
        blocks.append(Items(steps, "    "))
    return blocks


def matrix_words(report: Report, page: Page) -> str:
    """Return which matrix judged."""
    return page.say("Matrix {version} ({source}).", version=report.matrix_version, source=report.matrix_source)


def help_steps(not_checked: tuple[NotChecked, ...]) -> list[tuple[tuple[str, ...], int]]:
    """Return which help makes how many more rules decidable: ``[(("model",), 12), (("recipe",), 20)]``.

    Each step counts what is gained on top of the steps before it, so that the counts never overlap; the cheapest step
    (fewest kinds of help, then most rules) comes first. Rules that no help would decide are not counted.
    """
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
    others = [(f, f.ignored, f.superseded_by) for f in report.findings]
    ignored = [(f.severity, f.id, page.message(f), reason) for f, reason, _ in others if reason is not None]
    twins = [(f.severity, f.id, page.message(f), twin) for f, reason, twin in others if twin and reason is None]
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
    from envdoctor.report.revision_verdict import verdict

    return [verdict(report.revision, report.shown(), page)]


def counts_line(report: Report, page: Page) -> str:
    """Return the findings by severity, and how many rules were and could not be checked."""
    return _gap(page).join(_counts(report, page))


def _gap(page: Page) -> str:
    return " " if page.lang == "en" else ""


def _counts(report: Report, page: Page) -> list[str]:
    counts = Counter(finding.severity for finding in report.shown())
    parts = [page.say(_COUNTED[level], counts[level]) for level in _COUNTED if counts[level]] or [
        page.say("No findings")
    ]
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
        page.say("{findings}.", findings=page.separated(parts)),
        page.say("{rules} checked{time}; {missed} could not be checked.", rules=rules, time=seconds, missed=missed),
    ]


def advices(report: Report, page: Page) -> list[str]:
    """Return which help would make how many unchecked rules decidable, the most helpful first."""
    texts: list[str] = []
    helped = 0
    taken = _taken(report)
    for names, count in help_steps(tuple(entry for entry in report.not_checked if not taken.intersection(entry.help))):
        helped += count
        advice = page.say("; and ").join(_advice(report, name, page) for name in names)
        texts.append(page.say("then {n} more: {help}" if texts else "{n} more rule(s): {help}", count, help=advice))
    rest = len(report.not_checked) - helped
    others = [entry for entry in report.not_checked if entry.reason or not entry.help or taken.intersection(entry.help)]
    if report.revision is not None and report.revision.unread:  # the cause is said above
        others = [
            other._replace(
                missing={
                    key: Message("") if key.partition(".")[0] == "change" else why for key, why in other.missing.items()
                }
            )
            for other in others
        ]
    reasons = _why_not(others, page) if rest else []
    more = len(reasons) - _MOST_REASONS
    reasons[_MOST_REASONS:] = [page.say("{n} more: -v lists them", n=more)] if more > 0 else []
    said = page.say("; ").join(reasons)
    text = "{n} rule(s) for other reasons: {reasons}" if texts else "{n} rule(s): {reasons}"
    return [*texts, page.say(text, rest, reasons=said)] if said else texts


def _taken(report: Report) -> set[str]:
    """Return the help that was taken already: advising it again would send the reader in a circle."""
    taken = {"environment"} if report.target.kind not in (*DOCUMENTS, "none") else set()
    for name, entry in report.registry.help_texts.items():
        if report.command in entry.get("part_of", ()) or report.facts.known(entry.get("given_with", "")):
            taken.add(name)
    return taken


def _advice(report: Report, name: str, page: Page) -> str:
    """Return what would help, with the facts that are not given yet."""
    texts = report.registry.help_texts.get(name, {})
    beside = texts.get("beside", {"fact": ""})
    if report.facts.known(beside["fact"]):
        texts = {**texts, **beside}
    text = str(texts.get(page.lang) or texts.get("en") or name)
    known = [spec for key in texts.get("keys", ()) if (spec := report.registry.find(key)) is not None]
    open_ = [spec for spec in known if not is_given(report, spec.key)]
    named = [f"--set {spec.key}={spec.example}" for spec in open_][:_NAMED_KEYS]
    return page.labelled(text, " ".join(named)) if named else text


def is_given(report: Report, key: str) -> bool:
    """Return whether a fact is known; of a column of a list, whether it is known for each item."""
    records = report.registry.records_of(key)
    value = report.facts.value(records.key if records is not None else key)
    if isinstance(value, Records):
        return all(not isinstance(item.get(key.partition(".")[2], NOT_GIVEN), Unknown) for item in value)
    return not isinstance(value, Unknown)


def _why_not(entries: Sequence[NotChecked], page: Page) -> list[str]:
    """Return why rules could not be checked, the commonest first: what is not known, by reason. A list of things stands
    for its columns, and what depends on another fact that is not known needs no words."""
    counts: Counter[str] = Counter()
    names: dict[str, dict[str, None]] = {}
    for entry in entries:
        missing = {} if entry.reason is not None else dict(entry.missing)
        specs = {key: page.registry.find(key) for key in missing}
        first = [key for key, spec in specs.items() if spec is None or not missing.keys() & {*spec.depends_on}]
        for key in first or missing:
            records = page.registry.records_of(key)
            names.setdefault(missing[key], {})[page.name(records.key if records is not None else key)] = None
        counts.update(
            dict.fromkeys(missing[key] for key in first or missing).keys() if missing else [entry.reason or ""]
        )
    ordered = [reason for reason, _ in counts.most_common()]
    return [
        page.not_known(_some(list(names[reason]), page), reason) if reason in names else page.sentence(reason)
        for reason in ordered
    ]


def _some(names: Sequence[str], page: Page) -> str:
    more = len(names) - _MOST_NAMED
    return page.separated([*names[:_MOST_NAMED], *([page.say("{n} more", more)] if more > 0 else [])])
