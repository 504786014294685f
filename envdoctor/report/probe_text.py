"""The experiments as text: what ran where, a line for each with its counts, and the evidence of what is not right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envdoctor.report.layout import pad, wrap, wrap_items
from envdoctor.report.phrases import phrase
from envdoctor.report.report import Report
from envdoctor.text.clean import clean

if TYPE_CHECKING:
    from envdoctor.probe.catalogue import Probe

__all__ = ["catalogue_text", "probe_lines"]

_LABEL = 13
_COUNTED = ("pass", "warn", "fail", "skip", "error", "garbage")
#: Groups that are told before "and N more".
_MOST_GROUPS = 12
_MOST_VALUES = 8


def catalogue_text(probes: Iterable[Probe]) -> str:
    """The experiments there are: name, title, and the suites that run each."""
    entries = [(probe.name, probe.title, [name for name in probe.suites if probe.suites[name]]) for probe in probes]
    width = max(len(name) for name, _, _ in entries) + 2
    return "\n".join(f"{name:<{width}}{clean(title)} ({', '.join(suites)})" for name, title, suites in entries)


def probe_lines(report: Report, width: int | None, lang: str, verbosity: int) -> list[str]:
    """The section of the report, without a blank line around it."""
    section: Mapping[str, Any] = report.sections["probe"]
    lines = _where(section, width, lang)
    if section["unusable"] is not None:
        return lines
    for entry in _entries(section["probes"], verbosity):
        lines.append(_counted(entry, lang))
    groups = section["groups"]
    listed = groups if verbosity > 0 else groups[:_MOST_GROUPS]
    for group in listed:
        lines += _group(group, width, lang)
    if len(listed) < len(groups):
        lines.append("  " + phrase(lang, "others", n=len(groups) - len(listed)))
    if verbosity > 0:
        for entry in section["skipped"]:
            text = f"{clean(entry['name'])}: {entry['cases']} skip: {clean(entry['why'], 300)}"
            lines += wrap(text, width, "  ", "    ")
    if section["in_use"] is False:
        lines += wrap(phrase(lang, "probe_not_in_use"), width, "  ", "    ")
    elif section["in_use"] is None:
        reason = clean(section["in_use_unknown"] or "", 300)
        lines += wrap(phrase(lang, "probe_in_use_unknown", reason=reason), width, "  ", "    ")
    if section["reproducer"] is not None:
        lines += wrap(phrase(lang, "probe_reproducer"), width, "  ", "    ")
    return lines


def _where(section: Mapping[str, Any], width: int | None, lang: str) -> list[str]:
    """Device, torch, cuDNN, suite; how many cases, how long, how much memory."""
    environment = section["environment"]
    build, device = environment.get("build", {}), environment.get("device", {})
    words = [clean(str(device.get("name") or section["device"] or ""))]
    if build.get("torch"):
        words.append(f"torch {clean(str(build['torch']), 60)}")
    if device.get("cudnn"):
        words.append(f"cuDNN {clean(str(device['cudnn']), 30)}")
    if isinstance(device.get("context_s"), (int, float)):
        words.append(
            phrase(lang, "probe_context", t=f"{device['context_s']:.1f}", mib=clean(str(device.get("context_mib"))))
        )
    words.append(clean(section["suite"], 200))
    words.append(phrase(lang, "probe_cases", section["cases"]))
    words.append(phrase(lang, "probe_seconds", t=f"{section['seconds']:.1f}"))
    if section["peak_mib"]:
        words.append(phrase(lang, "probe_peak", mib=f"{section['peak_mib']:.0f}"))
    label = pad(phrase(lang, "probe_title"), _LABEL)
    return wrap_items([word for word in words if word], width, label, " " * _LABEL, phrase(lang, "separator"))


def _entries(probes: Sequence[Mapping[str, Any]], verbosity: int) -> list[dict[str, Any]]:
    """One entry a probe; with -v one a child."""
    if verbosity > 0:
        return [{**entry, "what": _what(entry)} for entry in probes]
    merged: dict[str, dict[str, Any]] = {}
    for entry in probes:
        into = merged.setdefault(entry["name"], {"what": entry["name"], "counts": {}, "seconds": 0.0, "endings": []})
        into["seconds"] += entry["seconds"]
        for verdict, count in entry["counts"].items():
            into["counts"][verdict] = into["counts"].get(verdict, 0) + count
        if entry["ending"] != "ok":
            into["endings"].append(entry["ending"])
    return list(merged.values())


def _what(entry: Mapping[str, Any]) -> str:
    return " ".join(str(entry[key]) for key in ("name", "dtype", "backend") if entry.get(key))


def _counted(entry: Mapping[str, Any], lang: str) -> str:
    counts = [f"{entry['counts'][verdict]} {verdict}" for verdict in _COUNTED if entry["counts"].get(verdict)]
    counts += entry.get("endings") or ([entry["ending"]] if entry.get("ending", "ok") != "ok" else [])
    seconds = phrase(lang, "probe_seconds", t=f"{entry['seconds']:.1f}")
    text = phrase(lang, "separator").join(map(clean, counts)) or phrase(lang, "probe_noted")
    return f"  {pad(clean(entry['what']), 28)} {pad(text, 28)} {seconds}"


def _group(group: Mapping[str, Any], width: int | None, lang: str) -> list[str]:
    """``fail nan-gradient x 20: attention cuda bf16 cudnn``, then the evidence, then one of the cases."""
    what = " ".join(clean(str(group[key])) for key in ("name", "device", "dtype", "backend", "model") if group[key])
    times = f" x {group['wrong']}" if group["wrong"] > 1 else ""
    of = f" of {group['cases']}" if group["cases"] > group["wrong"] else ""
    lines = wrap(f"{group['verdict']} {clean(group['signature'])}{times}{of}: {what}", width, "  ", "    ")
    evidence = []
    if group["tensors"]:
        evidence.append(", ".join(map(clean, group["tensors"])))
    if group["ratio"] is not None:
        evidence.append(f"ratio {group['ratio']:.3g}")
    for name, key in (("mask", "masks"), ("stress", "stresses"), ("S", "lengths")):
        if group[key]:
            evidence.append(f"{name} {_some(group[key])}")
    if group["tile"]:
        evidence.append(f"S {clean(group['tile'])}")
    if group["lse"]:
        evidence.append(f"lse {group['lse'][0]:g} to {group['lse'][1]:g}")
    if group["nodes"]:
        evidence.append(_some(group["nodes"]))
    if evidence:
        lines += wrap_items(evidence, width, "    ", "    ", "; ")
    if group["why"]:
        lines += wrap(clean(group["why"], 400), width, "    ", "    ")
    if group["example"]:
        lines += wrap(phrase(lang, "probe_example", case=clean(group["example"], 300)), width, "    ", "    ")
    return lines


def _some(values: Sequence[str]) -> str:
    shown = ", ".join(clean(value, 80) for value in values[:_MOST_VALUES])
    return shown if len(values) <= _MOST_VALUES else f"{shown}, ..."
