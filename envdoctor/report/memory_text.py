"""The memory prediction as text: the number, a bar beside what is free, what holds it, and what would make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.report.layout import display_width, pad
from envdoctor.report.page import LABEL, Page

if TYPE_CHECKING:
    from envdoctor.memory.section import MemorySaving, MemorySection

#: Columns of the longer bar.
_BAR = 50
_MOST_TERMS = 3
_TERMS = {
    "weights": "weights",
    "adapters": "adapters",
    "reference model": "reference model",
    "gradients": "gradients",
    "optimizer states": "optimizer states",
    "temporary values of the optimizer": "temporary values of the optimizer",
    "batch": "batch",
    "embeddings and masks": "embeddings and masks",
    "attention": "attention",
    "MLP": "MLP",
    "hidden states": "hidden states",
    "logits and loss": "logits and loss",
    "gradients of activations": "gradients of activations",
    "communication buffers": "communication buffers",
    "gathered layers": "gathered layers",
    "KV cache": "KV cache",
    "activations of a step": "activations of a step",
    "CUDA context": "CUDA context",
}
_PHASES = {
    "forward": "forward",
    "backward": "backward",
    "clip": "gradient clipping",
    "step": "optimizer step",
    "decode": "generation",
    "start": "start of the engine",
    "KV cache": "KV cache",
}


def memory_lines(section: MemorySection, page: Page, *, brief: bool = False) -> list[str]:
    """The section of the report, without a blank line around it; ``brief``: of what fits no more than that it does."""
    low, high = map(gib, section["process_gib"])
    size = gib(section["allocated_gib"])
    if section["serving"] is None:
        amount = page.say("{size} GiB of tensors, {low} to {high} GiB on the GPU", size=size, low=low, high=high)
    else:
        amount = page.say("{size} GiB for the engine, up to {high} GiB on the GPU", size=size, high=high)
    lines = page.labelled(page.say("Memory"), amount)
    if section["verdict"] is not None:
        lines += page.labelled("", free_words(section, page))
    if not brief or section["verdict"] not in ("fits", None):
        lines += _details(section, page)
    taken = [page.sentence(text) for text in section["assumed"]]
    taken += [
        page.say("not followed, can be lower with it: {what}", what=page.sentence(one)) for one in section["savers"]
    ]
    return lines + page.listed(page.say("Assumed"), taken)


def _details(section: MemorySection, page: Page) -> list[str]:
    """The bars, where the peak is and what holds it, and what would lower it."""
    lines = [" " * LABEL + line for line in _bars(section, page)] if section["verdict"] is not None else []
    lines += page.labelled(page.say("Peak"), peak_words(section, page))
    terms = [f"{term_name(term['name'], page)} {gib(term['gib'])}" for term in section["terms"]]
    listed = terms if page.verbosity > 0 else terms[:_MOST_TERMS]
    lines += page.items(listed, pad(page.say("Largest"), LABEL), " " * LABEL)
    if section["serving"] is not None:
        held, length = (f"{section['serving'][name]:,}" for name in ("cache_tokens", "length"))
        text = page.say("{n} tokens fit into it, a sequence may have {length}", n=held, length=length)
        lines += page.labelled(page.say("KV cache"), text)
    return lines + page.listed(page.say("Changes"), [change_words(change, page) for change in section["changes"]])


def free_words(section: MemorySection, page: Page) -> str:
    """What is free on which GPU, and whether it is enough."""
    return page.say(
        "{free} of {total} GiB are free on {gpu}: {verdict}",
        free=gib(section["free_gib"] or 0.0),
        total=gib(section["total_gib"] or 0.0),
        gpu=section["gpu"],
        verdict=page.value("memory.verdict", str(section["verdict"])),
    )


def peak_words(section: MemorySection, page: Page) -> str:
    """In which phase and operation the peak is, and of what batch."""
    what = page.say(
        "{layers} layers, batch {batch} x {tokens} tokens",
        layers=section["layers"],
        batch=section["batch"],
        tokens=f"{section['tokens']:,}",
    )
    return page.bracket(page.separated([page.say(_PHASES[section["phase"]]), section["operation"]]), what)


def _bars(section: MemorySection, page: Page) -> list[str]:
    """Two bars of one scale: what is needed (``#`` the least, ``+`` the most), and what is free (``=``)."""
    low, high = section["process_gib"]
    scale = _BAR / max(high, section["total_gib"] or 0.0)
    least = round(low * scale)
    bars = ["#" * least + "+" * (round(high * scale) - least), "=" * round((section["free_gib"] or 0.0) * scale)]
    names = [page.say("needed"), page.say("free")]
    width = max(map(display_width, names)) + 1
    return [f"{pad(name, width)}|{bar}|" for name, bar in zip(names, bars, strict=True)]


def change_words(change: MemorySaving, page: Page) -> str:
    """The settings of a change, the size with it, and whether it fits."""
    settings = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in change["set"].items()
    ]
    verdict = page.value("memory.verdict", change["verdict"])
    return page.say("{set}: {size} GiB, {verdict}", set=" ".join(settings), size=gib(change["gib"]), verdict=verdict)


def term_name(name: str, page: Page) -> str:
    """What a part of the peak is called."""
    return page.say(_TERMS[name])


def gib(size: float) -> str:
    """A size in GiB, with one digit from 1 on and two below."""
    return f"{size:.1f}" if size >= 1 else f"{size:.2f}"
