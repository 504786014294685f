"""The sections about a run. Will it fit: the predicted memory beside what is free, what holds it and what would lower
it; lengths of the data. The experiments: what ran where, a row for each with its counts, evidence of wrong results."""

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
    from envdoctor.peak.section import MemorySaving, MemorySection
    from envdoctor.peak.summary import DataSection

#: Parts of the peak that a terminal lists, and the colours that parts have.
_MOST_TERMS, _COLOURS = 3, 6
_PADDING = (
    "{batch} a batch, up to {tokens} tokens: {random} padding, {grouped} if grouped by length, {packed} if packed"
)
_OTHER = "columns of other names, their texts together"


def memory(section: MemorySection, page: Page, *, brief: bool = False) -> Section:
    """Return the needed memory beside the free memory, its parts, and the effect of each change. ``brief``: fold the
    details of a run that fits."""
    low, high = section["process_gib"]
    words = {"low": _gib(low), "high": _gib(high), "size": _gib(section["allocated_gib"])}
    if section["interval"] is not None:
        likely, words["size"] = (_gib(section["interval"][name][1]) for name in ("process", "allocated"))
        text = "about {likely} GiB on the GPU ({low} to {high}), {size} GiB of them tensors"
        if section["verdict"] is None:
            text = (
                "about {likely} GiB on the GPU for {batch} x {tokens} tokens ({low} to {high}), "
                "{size} GiB of them tensors"
            )
        amount = page.say(text, likely=likely, batch=section["batch"], tokens=f"{section['tokens']:,}", **words)
    elif section["verdict"] == "does-not-fit" and section["phase"] == "KV cache":
        amount = page.say("{size} GiB for the engine, and {low} GiB are needed in it", **words)
    else:
        amount = page.say("{size} GiB for the engine, up to {high} GiB on the GPU", **words)
    label, verdict = page.say("Memory"), section["verdict"]
    texts = [amount]
    if section["gpu"] is not None:
        free, total = (_gib(size or 0.0) for size in (section["free_gib"], section["total_gib"]))
        text = "{free} of {total} GiB are free on {gpu}: {verdict}"
        answer = page.value("memory.verdict", verdict) if verdict else page.say("not judged, see below")
        texts.append(page.say(text, free=free, total=total, gpu=section["gpu"], verdict=answer))
    blocks: list[Block] = [Field(label, texts)]
    details = _details(section, page)
    folded = brief and (verdict == "fits" or (verdict is None and not section["reach"]))
    blocks += [Folded(page.say("Peak"), details)] if folded else details
    notes, text = list(map(page.sentence, section["assumed"])), "not counted, and may lower the need: {what}"
    notes += [page.say(text, what=page.sentence(saver)) for saver in section["savers"]]
    if page.verbosity > 0 and section["interval"] is not None and section["interval"]["not_given"]:
        least, most = map(_gib, section["interval"]["shown"]["process"])
        names, text = section["interval"]["not_given"], "nvidia-smi may show {low} to {high} GiB: not given are {names}"
        notes.append(page.say(text, low=least, high=most, names=", ".join(names)))
    blocks += [Field(page.say("Assumed"), notes)] if notes else []
    return Section(label, blocks, bare=True)


def _details(section: MemorySection, page: Page) -> list[Field]:
    """Return the bars, where the peak is, its parts, and the changes that would lower it. The changes come first if
    there is no verdict."""
    terms = section["terms"]
    names = [f"{page.say(term['name'])} {_gib(term['gib'])}" for term in terms]
    segments = [(term["gib"], f"part{number % _COLOURS}") for number, term in enumerate(terms)]
    parts = Bars([Bar("", segments, page.separated(names))], sum(term["gib"] for term in terms))
    whole = max(section["process_gib"][1], section["total_gib"] or 0.0)
    fields = []
    if (
        section["verdict"] is not None
    ):  # two bars of one scale: what is needed, the least and the most, and what is free
        (low, high), free = section["process_gib"], section["free_gib"] or 0.0
        need = Bar(page.say("needed"), [(low, section["verdict"]), (high - low, "more")])
        supply = Bar(page.say("free"), [(free, "free"), ((section["total_gib"] or 0.0) - free, "taken")])
        fields.append(Field("", [Bars([need, supply], whole, drawn=True)]))
    layers, batch, tokens = section["layers"], section["batch"], f"{section['tokens']:,}"
    of = page.say("{layers} layers, batch {batch} x {tokens} tokens", layers=layers, batch=batch, tokens=tokens)
    phase = page.separated([page.value("memory.phase", section["phase"]), section["operation"]])
    fields.append(Field(page.say("Peak"), [page.bracket(phase, of)]))
    fields.append(Field(page.say("Largest"), [parts, Items(names, most=_MOST_TERMS, keys=True)]))
    if section["serving"] is not None:
        capacity, length = (f"{section['serving'][name]:,}" for name in ("cache_tokens", "length"))
        text = page.say("{n} tokens fit into it, a sequence may have {length}", n=capacity, length=length)
        fields.append(Field(page.say("KV cache"), [text]))
    changed = section["changes"]
    changes = [Bar(_change(change, page, section), [(change["gib"], change["verdict"])]) for change in changed]
    most = max([whole, *(change["gib"] for change in changed)])
    advice = [Field(page.say("Changes"), [Bars(changes, most)])] if changes else []
    sizes = [(point["batch"], f"{point['tokens']:,}") for point in section["reach"]]
    reach = [page.say("batch {batch} x {tokens} tokens", batch=batch, tokens=tokens) for batch, tokens in sizes]
    longest = [Field(page.say("Fits up to"), [Items(reach)])] if reach else []
    return [*longest, *advice, *fields] if section["verdict"] is None else [*fields, *advice, *longest]


def fitting_words(section: MemorySection, page: Page) -> str:
    """Return the first change with which the run fits, in words; empty where none is known."""
    return next((_change(change, page, section) for change in section["changes"] if change["verdict"] == "fits"), "")


def _change(change: MemorySaving, page: Page, section: MemorySection) -> str:
    """Return a change's settings (by the recipe's keys if it has them), its size, and whether it fits."""
    keys = change.get("keys", {})
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in change["set"].items()}
    settings = [keys.get(key) or f"{key}={word}" for key, word in words.items()]
    verdict = page.value("memory.verdict", change["verdict"])
    text = "{size} GiB, {verdict}" if section["serving"] is not None else "{size} GiB of tensors, {verdict}"
    size = page.say(text, size=_gib(change["gib"]), verdict=verdict)
    return page.bracket(page.separated(list(dict.fromkeys(settings))), size)


def _gib(size: float) -> str:
    """Return a size in GiB, with one digit from 1 on and two below."""
    return f"{size:.1f}" if size >= 1 else f"{size:.2f}"


# --- the lengths of the training data --------------------------------------------------------------------------------


def lengths(section: DataSection, page: Page) -> Section:
    """Return how long samples are, how many are cut off, and how much of a batch is padding."""
    formats = page.separated([page.say(_OTHER if name == "other" else name) for name in section["formats"]])
    rows = page.say("{rows} rows of {path}", rows=f"{section['rows']:,}", path=section["path"])
    texts: list[Content] = [page.bracket(rows, formats)]
    most = f"{section['longest_at_most']:,}"
    if section["longest"] is not None:
        names = {name: f"{section[name]:,}" for name in ("p50", "p90", "p99", "longest")}
        texts.append(page.say("tokens: half have up to {p50}, 90% {p90}, 99% {p99}, the longest {longest}", **names))
        if section["longest_at_most"] > section["longest"]:
            texts.append(page.say("a row that was not counted may have up to {most}", most=most))
    else:
        texts.append(page.say("the longest text has {most} bytes, and no more tokens than that", most=most))
    if section["cut"]:
        share = f"{section['cut'] / section['rows']:.2%}"
        limit = f"{section['cutoff']:,}"
        texts.append(page.say("{n} row(s) ({share}) are cut off at {limit}", section["cut"], share=share, limit=limit))
    if section["padding"] is not None:
        padding, longest = section["padding"], f"{section['longest_batch'] or 0:,}"
        shares = {name: f"{padding[name]:.0%}" for name in ("random", "grouped", "packed")}
        texts.append(page.say(_PADDING, batch=padding["batch"], tokens=longest, **shares))
    if section["longest"] is not None:
        none = "without a chat template: {folder} has none"
        text = "with the chat template of {folder}" if section["template"] else none
        texts.append(page.say(text, folder=section["tokenizer"]))
    texts += [page.sentence(note) for note in section["notes"]]
    return Section(page.say("Data"), [Field(page.say("Data"), texts)], bare=True)


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
