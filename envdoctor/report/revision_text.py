"""The comparison of two revisions as text: the verdict, what was compared, and what changed besides the findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envdoctor.report.layout import pad, wrap
from envdoctor.report.phrases import phrase
from envdoctor.report.report import Report
from envdoctor.text.clean import clean

__all__ = ["DETAILS", "revision_header", "revision_summary"]

#: How much of the changes is told: counts, those worth a line, or every single one with all tensors.
DETAILS = ("stat", "usual", "all")
_LABEL = 13
#: Changes of an area that are listed before "and N more", unless all are asked for.
_LISTED = 12
_LONGEST = 160
_IDENTITY = ("area", "kind", "path", "symbol")


def revision_header(report: Report, width: int | None, lang: str) -> list[str]:
    """The verdict first, then the two revisions and the environment they were joined with."""
    section = _section(report)
    lines = wrap(clean(section["verdict"], None), width, "", "  ")
    lines.append("")
    for side in ("old", "new"):
        label = clean(section[side]["label"], 400)
        revision = clean(section[side].get("revision", ""))
        text = phrase(lang, "bracket", text=label, more=revision) if revision and revision not in label else label
        introduced = section[side].get("because")
        lines += wrap(text, width, pad(phrase(lang, f"revision_{side}"), _LABEL), " " * _LABEL)
        if introduced:
            lines += wrap(clean(introduced), width, "  ", "    ")
    if "moved" in section:
        moved = section["moved"]
        lines += wrap(
            phrase(lang, "revision_moved", asked=clean(moved["asked"]), now=clean(moved["now"])), width, "  ", "    "
        )
    return lines


def revision_summary(report: Report, width: int | None, lang: str, detail: str = "usual") -> list[str]:
    """Counts by area, the changes themselves, what could not be read, what is equal, and what it cost."""
    section = _section(report)
    lines: list[str] = []
    commits = {entry["fingerprint"]: entry["commit"] for entry in section["introduced"]}
    for finding in report.shown():
        if finding.fingerprint in commits:
            text = f"{clean(finding.id)}: {clean(commits[finding.fingerprint])}"
            lines += wrap(text, width, pad(phrase(lang, "revision_since"), _LABEL), " " * _LABEL)
    counts = [f"{area['area']} {area['changes']}" for area in section["areas"] if area["changes"]]
    if counts:
        text = phrase(lang, "separator").join(counts)
        lines += wrap(text, width, pad(phrase(lang, "revision_changes"), _LABEL), " " * _LABEL)
    if detail != "stat":
        told = {tuple(finding.item.get(key, "") for key in _IDENTITY) for finding in report.shown()}
        lines += _changes(section, told, width, lang, everything=detail == "all")
    lines += _amounts(section["amounts"], width, lang, by="module" if detail == "all" else "dtype")
    for change in section.get("tensors", ()):
        lines += wrap(_line(change), width, "  ", "      ")
    for part in section["unread"]:
        text = f"{clean(part['path'])}: {clean(part['reason'], 400)}"
        lines += wrap(text, width, pad(phrase(lang, "revision_unread"), _LABEL), " " * _LABEL)
    if section["equal"]:
        text = "; ".join(clean(item) for item in section["equal"])
        lines += wrap(text, width, pad(phrase(lang, "revision_equal"), _LABEL), " " * _LABEL)
    cost = section["cost"]
    if cost["requests"]:
        size = f"{cost['bytes'] / 1000:,.1f} kB" if cost["bytes"] < 1_000_000 else f"{cost['bytes'] / 1e6:,.1f} MB"
        lines += wrap(phrase(lang, "revision_cost", requests=cost["requests"], size=size), width)
    return lines


def _section(report: Report) -> Mapping[str, Any]:
    section: Mapping[str, Any] = report.sections["revision"]
    return section


def _changes(
    section: Mapping[str, Any], told: set[tuple[str, ...]], width: int | None, lang: str, *, everything: bool
) -> list[str]:
    """The changes; those that a finding told already only when all are asked for."""
    lines: list[str] = []
    by_area: dict[str, list[Mapping[str, Any]]] = {}
    for change in section["changes"]:
        if not everything and tuple(change[key] for key in _IDENTITY) in told:
            continue
        by_area.setdefault(change["area"], []).append(change)
    for area, changes in by_area.items():
        listed = changes if everything else changes[:_LISTED]
        for change in listed:
            lines += wrap(_line(change), width, "  ", "      ")
        if len(listed) < len(changes):
            more = phrase(lang, "others", n=len(changes) - len(listed))
            lines += wrap(f"{clean(area)}: {more}", width, "  ", "      ")
    return lines


def _amounts(amounts: Mapping[str, Any], width: int | None, lang: str, *, by: str) -> list[str]:
    """Each side: ``F16 6.24 G (12.5 GB) -> F32 6.24 G (25 GB)``; by module when all is told."""
    if not {"old", "new"} <= amounts.keys():
        return []
    old, new = amounts["old"][by], amounts["new"][by]
    label = pad(phrase(lang, "revision_parameters"), _LABEL)
    if by == "dtype":
        return wrap(f"{_dtypes(old)} -> {_dtypes(new)}", width, label, " " * _LABEL)
    lines: list[str] = []
    for name in dict.fromkeys([*old, *new]):
        before, after = (f"{side[name][1]:,}" if name in side else "none" for side in (old, new))
        text = f"{clean(name, 200)}: {before}" + (f" -> {after}" if before != after else "")
        lines += wrap(text, width, label if not lines else " " * _LABEL, " " * _LABEL)
    return lines


def _short(number: int, unit: str) -> str:
    """``7.62 G``, ``15.2 GB``: three digits and the prefix that fits."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number} {unit}".rstrip()


def _dtypes(side: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{clean(dtype)} {_short(parameters, '')} ({_short(size, 'B')})"
        for dtype, (_, parameters, size) in side.items()
    )


def _line(change: Mapping[str, Any]) -> str:
    """``code: definition-added modeling_chatglm.py ChatGLMModel.set_input_embeddings``, with before -> after."""
    times = f" x {change['count']}" if change["count"] > 1 else ""
    path = clean(change["path"], 200)
    about = "" if change["symbol"] == change["path"] else f" {clean(change['symbol'], 200)}"
    text = f"{clean(change['area'])}: {clean(change['kind'])} {path}{about}{times}"
    before, after = change.get("before"), change.get("after")
    if before is not None and after is not None:
        text += f": {clean(before, _LONGEST)} -> {clean(after, _LONGEST)}"
    elif before is not None:
        text += f": {clean(before, _LONGEST)}"
    elif after is not None:
        text += f": {clean(after, _LONGEST)}"
    if change.get("detail"):
        text += f" ({clean(change['detail'], _LONGEST)})"
    return text
