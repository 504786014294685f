"""The last lines of the terminal report: notices, counts, what could not be checked and what would help, next steps."""

from __future__ import annotations

from collections import Counter

from envdoctor.judge.finding import SEVERITIES, Finding, NotChecked
from envdoctor.report.color import paint
from envdoctor.report.layout import wrap, wrap_items
from envdoctor.report.names import name_fact, say_reason
from envdoctor.report.phrases import phrase
from envdoctor.report.report import Report
from envdoctor.text.clean import clean

__all__ = ["closing_lines", "help_steps", "notice_lines", "verbose_lines"]


def notice_lines(report: Report, color: bool, width: int | None, lang: str, *, errors_only: bool = False) -> list[str]:
    """What is to be said of the run itself; an incomplete run says so even when nothing else does."""
    lines: list[str] = []
    if report.status != "complete":
        lines += wrap(phrase(lang, "incomplete" if report.rules_checked else "incomplete_no_rule"), width)
    for notice in report.notices:
        if errors_only and notice.level != "error":
            continue
        level = clean(notice.level)
        # painted after wrapping: colour codes take no columns
        notice_text = wrap(f"{level}: {clean(notice.text, 1000)}", width, "", "  ")
        painted = paint(level, level if level in SEVERITIES else "bold", color)
        lines += [painted + notice_text[0][len(level) :], *notice_text[1:]]
    return lines


def closing_lines(report: Report, width: int | None, lang: str, verbosity: int) -> list[str]:
    """Counts of findings and rules, then help for the rules that could not be checked, then the next commands."""
    shown = report.shown()
    lines = wrap_items(_counts(report, shown, lang), width, "", "", " " if lang == "en" else "")
    for text in _help(report, lang):
        lines += wrap(text, width, "  ", "    ")
    if not shown or verbosity > 0:
        version, source = clean(report.matrix_version), clean(report.matrix_source)
        lines += wrap(phrase(lang, "matrix", version=version, source=source), width, "", "  ")
    if report.exit_code == 0 and any(f.severity == "error" for f in shown) and not any(f.gate for f in shown):
        lines += wrap(phrase(lang, "not_at_gate"), width, "", "  ")
    if shown:
        ids = {finding.id for finding in shown}
        name = clean(shown[0].id) if len(ids) == 1 else "ID"
        steps = [
            phrase(lang, "details", command=f"envdoctor explain {name}"),
            phrase(lang, "accept", command=f"envdoctor ignore {name} --reason ..."),
            phrase(lang, "wrong", command="envdoctor facts --for-issue"),
        ]
        lines += wrap_items(steps, width, "", "", "    ")
    return lines


def help_steps(not_checked: tuple[NotChecked, ...]) -> list[tuple[tuple[str, ...], int]]:
    """Which help makes how many more rules decidable: ``[(("model",), 12), (("recipe",), 20)]``.

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


def verbose_lines(report: Report, width: int | None, lang: str) -> list[str]:
    """With -v: the rules that could not be checked with the reason of each, the ignored and the superseded findings."""
    lines: list[str] = []
    missed = [(entry.severity, entry.id, _reason(entry, lang)) for entry in report.not_checked]
    ignored = [(f.severity, f.id, f.ignored) for f in report.findings if f.ignored is not None]
    twins = [(f.severity, f.id, f.superseded_by) for f in report.findings if f.superseded_by and f.ignored is None]
    for title, entries in (("not_checked_title", missed), ("ignored_title", ignored), ("superseded_title", twins)):
        if entries:
            lines += ["", phrase(lang, title)]
        for severity, name, text in entries:
            lines += wrap(f"{severity}[{clean(name)}]: {clean(text or '', 1000)}", width, "  ", "      ")
    return lines


def _counts(report: Report, shown: tuple[Finding, ...], lang: str) -> list[str]:
    by_severity = Counter(finding.severity for finding in shown)
    parts = [phrase(lang, level, by_severity[level]) for level in reversed(SEVERITIES) if by_severity[level]]
    if not parts:
        parts = [phrase(lang, "no_findings")]
    ignored = sum(finding.ignored is not None for finding in report.findings)
    if ignored:
        parts.append(phrase(lang, "ignored", ignored))
    elapsed = report.elapsed_seconds
    seconds = phrase(lang, "seconds", t=f"{elapsed:.{1 if elapsed >= 0.1 else 2}f}") if elapsed else ""
    rules = phrase(lang, "rules", report.rules_checked)
    return [
        phrase(lang, "found", findings=phrase(lang, "separator").join(parts)),
        phrase(lang, "counted", rules=rules, time=seconds, missed=len(report.not_checked)),
    ]


def _help(report: Report, lang: str) -> list[str]:
    texts: list[str] = []
    helped = 0
    taken = _taken(report)
    for names, count in help_steps(tuple(entry for entry in report.not_checked if not taken.intersection(entry.help))):
        helped += count
        advice = phrase(lang, "and_help").join(_advice(report, name, lang) for name in names)
        texts.append(phrase(lang, "then_more" if texts else "more_rules", count, help=advice))
    rest = len(report.not_checked) - helped
    if rest:
        texts.append(phrase(lang, "other_reasons", rest))
    return texts


def _taken(report: Report) -> set[str]:
    """Help that was taken already: advising it again would send somebody in a circle."""
    taken = set()
    if report.target.kind not in ("facts", "none"):
        taken.add("environment")
    if report.command == "diff-revision":
        taken.update(("revision", "model", "model_files", "pin"))
    if "probe" in report.sections:
        taken.add("probe")
    if isinstance(report.facts.value("model.path"), str):
        taken.add("model_files")
    if isinstance(report.facts.value("pin.revision"), str):
        taken.add("pin")
    return taken


def _advice(report: Report, name: str, lang: str) -> str:
    texts = report.registry.help_texts.get(name, {})
    return clean(texts.get(lang) or texts.get("en") or name)


def _reason(entry: NotChecked, lang: str) -> str:
    if entry.reason is not None:
        return entry.reason
    missing = [
        phrase(lang, "not_known_because", name=name_fact(key, lang), reason=say_reason(reason, lang))
        for key, reason in entry.missing.items()
    ]
    return phrase(lang, "separator").join(missing)
