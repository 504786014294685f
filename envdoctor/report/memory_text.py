"""The memory prediction as text: the number, a bar beside what is free, what holds it, and what would make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.report.layout import display_width, pad
from envdoctor.report.page import LABEL, Page

if TYPE_CHECKING:
    from envdoctor.memory.section import MemoryChange, MemorySection

__all__ = ["memory_lines"]

_BAR = 50
_MOST_TERMS = 3


def memory_lines(section: MemorySection, page: Page) -> list[str]:
    """The section of the report, without a blank line around it."""
    low, high = section["process_gib"]
    amount = page.say(
        "{size} GiB of tensors, {low} to {high} GiB on the GPU", **_sizes(section["allocated_gib"], low, high)
    )
    if section["serving"] is not None:
        amount = page.say(
            "{size} GiB for the engine, up to {high} GiB on the GPU", **_sizes(section["allocated_gib"], low, high)
        )
    lines = page.labelled(page.say("Memory"), amount)
    if section["verdict"] is not None:
        free = page.say("{free} of {total} GiB are free on {gpu}", gpu=section["gpu"], **_free(section))
        lines += page.labelled("", page.say("{what}: {verdict}", what=free, verdict=_verdict(section["verdict"], page)))
        lines += [" " * LABEL + line for line in _bars(section, page)]
    lines += page.labelled(page.say("Peak"), _peak(section, page))
    terms = [f"{page.sentence(term['name'])} {_gib(term['gib'])}" for term in section["terms"]]
    listed = terms if page.verbosity > 0 else terms[:_MOST_TERMS]
    lines += page.items(listed, pad(page.say("Largest"), LABEL), " " * LABEL)
    lines += _serving(section, page)
    label = page.say("Changes")
    for change in section["changes"]:
        lines += page.labelled(label, _change(change, page))
        label = ""
    label = page.say("Taken")
    for text in (
        *section["assumed"],
        *(page.say("{what}: not followed, it can be lower", what=page.sentence(one)) for one in section["savers"]),
    ):
        lines += page.labelled(label, page.sentence(text))
        label = ""
    return lines


def _peak(section: MemorySection, page: Page) -> str:
    what = page.say(
        "{layers} layers, batch {batch} x {tokens} tokens",
        layers=section["layers"],
        batch=section["batch"],
        tokens=f"{section['tokens']:,}",
    )
    return page.bracket(f"{page.sentence(section['phase'])}, {section['operation']}", what)


def _bars(section: MemorySection, page: Page) -> list[str]:
    """Two bars of one scale: what is needed (``#`` the least, ``+`` the most), and what is free (``=``)."""
    low, high = section["process_gib"]
    free, total = section["free_gib"] or 0.0, section["total_gib"] or 0.0
    scale = _BAR / max(high, total)
    needed = "#" * round(low * scale)
    needed += "+" * (round(high * scale) - len(needed))
    there = "=" * round(free * scale)
    names = [page.say("needed"), page.say("free")]
    width = max(map(display_width, names)) + 1
    return [
        f"{pad(name, width)}|{bar}" + ("|" if name == names[1] else "")
        for name, bar in zip(names, (needed, there), strict=True)
    ]


def _serving(section: MemorySection, page: Page) -> list[str]:
    serving = section["serving"]
    if serving is None:
        return []
    text = page.say(
        "{n} tokens fit into the cache, a sequence may have {length}",
        n=f"{serving['cache_tokens']:,}",
        length=f"{serving['length']:,}",
    )
    return page.labelled(page.say("KV cache"), text)


def _change(change: MemoryChange, page: Page) -> str:
    settings = " ".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in change["set"].items()
    )
    return page.say(
        "{set}: {size} GiB, {verdict}",
        set=settings,
        size=_gib(change["gib"]),
        verdict=_verdict(change["verdict"], page),
    )


def _verdict(verdict: str, page: Page) -> str:
    return {"fits": page.say("fits"), "tight": page.say("tight"), "does-not-fit": page.say("does not fit")}[verdict]


def _sizes(size: float, low: float, high: float) -> dict[str, str]:
    return {"size": _gib(size), "low": _gib(low), "high": _gib(high)}


def _free(section: MemorySection) -> dict[str, str]:
    return {"free": _gib(section["free_gib"] or 0.0), "total": _gib(section["total_gib"] or 0.0)}


def _gib(size: float) -> str:
    return f"{size:.1f}" if size >= 1 else f"{size:.2f}"
