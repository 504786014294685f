"""The experiments: what ran where, a row for each with its counts, and the evidence of wrong results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log10
from typing import TYPE_CHECKING, Any

from envdoctor.report.blocks import Bar, Bars, Block, Content, Field, Folded, Group, Items, Paragraph, Section, Table
from envdoctor.report.page import Page, shortened
from envdoctor.system.clean import clean

if TYPE_CHECKING:
    from envdoctor.experiments.probe.catalogue import Probe
    from envdoctor.experiments.probe.results import Result

_COUNTED = ("pass", "warn", "fail", "skip", "error", "partial", "garbage")
#: Groups and values that are shown before "and N more".
_MOST_GROUPS, _MOST_VALUES = 12, 8
#: Where the bars of measured errors end: a thousand times what rounding must cost.
_FULL = 3.0


def catalogue_text(probes: Iterable[Probe]) -> str:
    """Return the experiments: name, title, and the suites that run each."""
    entries = [(probe.name, probe.title, [name for name in probe.suites if probe.suites[name]]) for probe in probes]
    width = max(len(name) for name, _, _ in entries) + 2
    return "\n".join(f"{name:<{width}}{clean(title)} ({', '.join(suites)})" for name, title, suites in entries)


def experiments(section: Mapping[str, Any], page: Page) -> Section:
    """Return what ran where, a row an experiment, and the evidence of errors beyond unavoidable rounding."""
    label = page.say("Experiments")
    blocks: list[Block] = [Field(label, [Items(_where(section, page))])]
    if section["unusable"] is not None:
        return Section(label, blocks, bare=True)
    blocks.append(Table((label, "", ""), _rows(section["probes"], page)))
    groups = [_group(group, page) for group in section["groups"]]
    blocks += groups[:_MOST_GROUPS]
    if len(groups) > _MOST_GROUPS:
        more = page.say("{n} more", n=len(groups) - _MOST_GROUPS)
        blocks.append(Folded(more, groups[_MOST_GROUPS:], more))
    notes = []
    for entry in section["skipped"] if page.verbosity > 0 else ():
        notes.append(f"{entry['name']}: {_times(entry['cases'], 'skip', page)}: {shortened(entry['why'], 300)}")
    if section["in_use"] is False:
        notes.append(page.say("training would use another device: what ran here does not fail the run"))
    elif section["in_use"] is None:
        reason = page.sentence(section["in_use_unknown"] or "")
        notes.append(page.say("whether training would use this device is not known: {reason}", reason=reason))
    released = section["released"]
    if released["clean"]:
        text = "not run: {names}: {n} case(s) right with {versions}, and the files are as released (--suite full)"
        names, versions = ", ".join(released["clean"]), released["versions"]
        notes.append(page.say(text, sum(released["clean"].values()), names=names, versions=versions))
    elif released["why"] is not None and page.verbosity > 0:
        notes.append(page.say("released code was tried as well: {reason}", reason=page.sentence(released["why"])))
    if section["reproducer"] is not None:
        notes.append(page.say("a script that shows the worst failure alone: --reproducer FILE"))
    return Section(label, [*blocks, *map(Paragraph, notes)], bare=True)


def _where(section: Mapping[str, Any], page: Page) -> list[str]:
    """Return device, torch, cuDNN and suite; how many cases, how long, how much memory (MiB)."""
    build, device = (section["environment"].get(part, {}) for part in ("build", "device"))
    words = [str(device.get("name") or section["device"] or "")]
    words += [f"torch {build['torch']}"] if build.get("torch") else []
    words += [f"cuDNN {device['cudnn']}"] if device.get("cudnn") else []
    if isinstance(device.get("context_s"), (int, float)):
        seconds, mib = f"{device['context_s']:.1f}", str(device.get("context_mib"))
        words.append(page.say("context {t} s and {mib} MiB", t=seconds, mib=mib))
    words += [section["suite"], page.say("{n} case(s)", section["cases"]), _seconds(section["seconds"], page)]
    words += [page.say("seed {seed}", seed=str(section["seed"]))] if section["seed"] is not None else []
    if section["peak_mib"]:
        words.append(page.say("at most {mib} MiB each", mib=f"{section['peak_mib']:.0f}"))
    return [shortened(word, 100) for word in words if word]


def _rows(children: Sequence[Mapping[str, Any]], page: Page) -> list[tuple[str, str, str]]:
    """Return a row an experiment, with ``-v`` a row a child: its name, how its cases ended, and how long it took."""
    alone = page.verbosity > 0
    by_name: dict[object, list[Mapping[str, Any]]] = {}
    for number, child in enumerate(children):
        by_name.setdefault(number if alone else child["name"], []).append(child)
    rows = []
    for alike in by_name.values():
        words = [alike[0]["name"], *([alike[0]["dtype"], alike[0]["backend"]] if alone else [])]
        counts = {verdict: sum(child["counts"].get(verdict, 0) for child in alike) for verdict in _COUNTED}
        outcomes = [_times(number, verdict, page) for verdict, number in counts.items() if number]
        outcomes += [page.value("probe.verdict", child["ending"]) for child in alike if child["ending"] != "ok"]
        seconds = sum(child["seconds"] for child in alike)
        name = " ".join(word for word in words if word)
        rows.append((name, page.separated(outcomes) or page.say("noted"), _seconds(seconds, page)))
    return rows


def _times(number: int, verdict: str, page: Page) -> str:
    return f"{number} {page.value('probe.verdict', verdict)}"


def _seconds(seconds: float, page: Page) -> str:
    return page.say("{t} s", t=f"{seconds:.1f}")


def _group(group: Result, page: Page) -> Group:
    """Return ``fail nan-gradient x 20: attention cuda bf16 cudnn``, then the evidence, then one of the cases."""
    words = (group.name, group.device, group.dtype, group.backend, group.model)
    times = f" x {group.wrong}" if group.wrong > 1 else ""
    of = page.say(" of {n}", n=group.cases) if group.cases > group.wrong else ""
    verdict, outcome = (page.value(f"probe.{column}", getattr(group, column)) for column in ("verdict", "signature"))
    title = page.say("{verdict} {outcome}", verdict=verdict, outcome=outcome)
    where = " ".join(word for word in words if word)
    contents: list[Content] = [page.say("only on {ranks}", ranks=group.ranks)] if group.ranks else []
    evidence, ratio = [", ".join(group.tensors)], group.ratio
    if ratio is not None:
        evidence.append(f"{page.name('probe.ratio')} {ratio:.3g}")
        if 0 < ratio < float("inf"):
            segments = [(min(max(log10(ratio), 0.0), _FULL), group.verdict)]
            contents.append(Bars([Bar("", segments, evidence[-1])], _FULL))
    for name, values in (("mask", group.masks), ("stress", group.stresses), ("S", group.lengths)):
        evidence += [f"{name} {_some(values)}"] if values else []
    evidence += [f"S {group.tile}"] if group.tile else []
    if group.lse:
        evidence.append(page.say("lse {least} to {most}", least=f"{group.lse[0]:g}", most=f"{group.lse[1]:g}"))
    evidence.append(_some(group.nodes))
    if any(evidence):
        contents.append(Items([part for part in evidence if part], page.say("; ")))
    if group.why:
        contents.append(shortened(page.sentence(group.why), 400))
    if group.example:
        contents.append(page.say("such as {case}", case=shortened(group.example, 300)))
    return Group(page.labelled(f"{title}{times}{of}", where), contents)


def _some(values: Sequence[str]) -> str:
    shown = ", ".join(shortened(value, 80) for value in values[:_MOST_VALUES])
    return shown if len(values) <= _MOST_VALUES else f"{shown}, ..."
