"""Sections of the HTML page: the memory of a run, two revisions side by side, what the experiments measured."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

from envdoctor.report.html_parts import Html, bar, chips, table, tag
from envdoctor.report.layout import shortened
from envdoctor.report.memory_text import change_words, free_words, gib, peak_words, term_name
from envdoctor.report.page import Page
from envdoctor.report.probe_text import group_lines, row_words, where_words
from envdoctor.report.revision_text import amount_words, verdict

if TYPE_CHECKING:
    from envdoctor.memory.section import MemorySection
    from envdoctor.probe.section import ProbeSection
    from envdoctor.report.report import Report
    from envdoctor.report.revision_section import RevisionSection

#: Parts of the peak, changes and groups that are drawn.
_MOST_TERMS, _MOST_CHANGES, _MOST_GROUPS = 6, 200, 50
#: Where the bars of measured errors end: a thousand times what rounding must cost.
_FULL = 3.0


def memory_section(section: MemorySection, page: Page) -> Html:
    """What is needed beside what is free, what holds it, and what each change would make of it."""
    low, high = section["process_gib"]
    total, free = section["total_gib"] or 0.0, section["free_gib"] or 0.0
    whole = max(high, total)
    parts = [
        tag("h2", page.say("Memory")),
        tag("p", tag("b", page.say("{low} to {high} GiB on the GPU", low=gib(low), high=gib(high)), class_="figure")),
    ]
    if section["verdict"] is not None:
        needed = f"{page.say('needed')} {gib(low)} - {gib(high)} GiB"
        parts += [
            tag("p", free_words(section, page)),
            _labelled(needed, [(low, section["verdict"]), (high - low, "more")], whole),
        ]
        parts.append(_labelled(f"{page.say('free')} {gib(free)} GiB", [(free, "free"), (total - free, "taken")], whole))
    parts.append(tag("p", peak_words(section, page)))
    terms = [(term_name(term["name"], page), term["gib"]) for term in section["terms"]]
    listed = terms[:_MOST_TERMS]
    names = [f"{name} {gib(size)} GiB" for name, size in listed]
    segments = [(size, f"part{number}") for number, (_, size) in enumerate(listed)]
    parts.append(bar(segments, max(sum(size for _, size in terms), 1e-9), page.separated(names)))
    keys = [tag("li", name, class_=f"part{number}") for number, name in enumerate(names)]
    parts.append(tag("ul", *keys, class_="chips key"))
    if section["changes"]:
        parts.append(tag("h3", page.say("Changes")))
        most = max(whole, *(change["gib"] for change in section["changes"]))
        parts += [
            _labelled(change_words(change, page), [(change["gib"], change["verdict"])], most)
            for change in section["changes"]
        ]
    assumed = [tag("li", page.sentence(text)) for text in section["assumed"]]
    parts += [tag("h3", page.say("Assumed")), tag("ul", *assumed)] if assumed else []
    return tag("section", *parts, class_="card")


def revision_section(report: Report, section: RevisionSection, page: Page) -> Html:
    """The verdict, the two sides, bytes by dtype before and after, and the changes one by one."""
    sides = [(page.say("Old"), section.old), (page.say("New"), section.new)]
    parts = [tag("h2", verdict(report, section, page))]
    parts += [chips(f"{label}: {side.label} {side.revision or ''}".rstrip() for label, side in sides)]
    if {"old", "new"} <= section.amounts.keys():
        held = {side: section.amounts[side]["dtype"] for side in ("old", "new")}
        dtypes = list(dict.fromkeys(name for amounts in held.values() for name in amounts))
        whole = max((sum(size for _, _, size in amounts.values()) for amounts in held.values()), default=0)
        for (label, _), amounts in zip(sides, held.values(), strict=True):
            segments = [
                (float(size), f"part{dtypes.index(name) % _MOST_TERMS}") for name, (_, _, size) in amounts.items()
            ]
            parts.append(_labelled(f"{label}: {amount_words(amounts)}", segments, whole))
    rows = [
        (
            page.value("change.area", change.area),
            page.value("change.kind", change.kind),
            shortened(change.path, 200),
            "" if change.symbol == change.path else shortened(change.symbol, 200),
            shortened(change.before or "", 200),
            shortened(change.after or "", 200),
        )
        for change in section.changes[:_MOST_CHANGES]
    ]
    head = [page.name(f"change.{column}") for column in ("area", "kind", "path", "symbol", "before", "after")]
    parts += [table(head, rows)] if rows else []
    if len(section.changes) > _MOST_CHANGES:
        parts.append(tag("p", page.say("{n} more", n=len(section.changes) - _MOST_CHANGES)))
    unread = [tag("li", f"{part.path}: {page.sentence(part.reason)}") for part in section.unread]
    parts += [tag("h3", page.say("Not read")), tag("ul", *unread)] if unread else []
    return tag("section", *parts, class_="card")


def probe_section(section: ProbeSection, page: Page) -> Html:
    """What ran where, a row an experiment, and for what is not right the error beside unavoidable rounding."""
    parts = [tag("h2", page.say("Experiments")), chips(where_words(section, page))]
    rows = row_words(section["probes"], page)
    parts += [table((page.say("Experiments"), "", ""), rows)] if rows else []
    for group in section["groups"][:_MOST_GROUPS]:
        first, *rest = group_lines(group, page)
        ratio = group["ratio"]
        drawn: list[Html] = []
        if ratio is not None and 0 < ratio < float("inf"):
            label = f"{page.name('probe.ratio')} {ratio:.3g}"
            drawn = [_labelled(label, [(min(max(log10(ratio), 0.0), _FULL), group["verdict"])], _FULL)]
        parts.append(
            tag("div", tag("h3", first.strip()), *drawn, *(tag("p", line.strip()) for line in rest), class_="group")
        )
    return tag("section", *parts, class_="card")


def _labelled(text: str, segments: list[tuple[float, str]], whole: float) -> Html:
    return tag("div", tag("span", text), bar(segments, whole, text), class_="measure")
