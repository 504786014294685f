"""The lengths of the training data as text: how long samples are, how many are cut off, what of a batch is padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.report.page import Page

if TYPE_CHECKING:
    from envdoctor.lengths.section import DataSection, Padding

_FORMATS = {
    "conversations": "conversations",
    "instructions": "instructions",
    "preferences": "preferences",
    "text": "text",
    "other": "columns of other names, their texts together",
}


def data_lines(section: DataSection, page: Page) -> list[str]:
    """The section of the report, without a blank line around it."""
    formats = page.separated([page.say(_FORMATS[name]) for name in section["formats"]])
    rows = page.say("{rows} rows of {path}", rows=f"{section['rows']:,}", path=section["path"])
    texts = [page.bracket(rows, formats)]
    if section["longest"] is not None:
        names = {name: f"{section[name]:,}" for name in ("p50", "p90", "p99", "longest")}
        texts.append(page.say("tokens: half have up to {p50}, 90% {p90}, 99% {p99}, the longest {longest}", **names))
        if section["longest_at_most"] > section["longest"]:
            most = f"{section['longest_at_most']:,}"
            texts.append(page.say("a row that was not counted may have up to {most}", most=most))
    else:
        most = f"{section['longest_at_most']:,}"
        texts.append(page.say("the longest text has {most} bytes, and no more tokens than that", most=most))
    if section["cut"]:
        share = f"{section['cut'] / section['rows']:.2%}"
        limit = f"{section['cutoff']:,}"
        texts.append(page.say("{n} row(s) ({share}) are cut off at {limit}", section["cut"], share=share, limit=limit))
    if section["padding"] is not None:
        texts.append(_padding(section["padding"], section["longest_batch"] or 0, page))
    if section["longest"] is not None and section["template"]:
        texts.append(page.say("with the chat template of {folder}", folder=section["tokenizer"]))
    elif section["longest"] is not None:
        texts.append(page.say("without a chat template: {folder} has none", folder=section["tokenizer"]))
    texts += [page.sentence(note) for note in section["notes"]]
    return page.listed(page.say("Data"), texts)


def _padding(padding: Padding, tokens: int, page: Page) -> str:
    shares = {name: f"{padding[name]:.0%}" for name in ("random", "grouped", "packed")}
    return page.say(
        "{batch} a batch, up to {tokens} tokens: {random} padding, {grouped} if grouped by length, {packed} if packed",
        batch=padding["batch"],
        tokens=f"{tokens:,}",
        **shares,
    )
