"""Elements of the HTML page: text is always escaped, and nothing is drawn that does not stand in the page itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: object) -> Html:
    """An element. Children are escaped unless they are :class:`Html`; an attribute of None is left out, and a trailing
    underscore (``class_``) is dropped."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{name}{named}>{inner}</{name}>")


def chips(items: Iterable[str]) -> Html:
    """Short texts side by side."""
    return tag("ul", *(tag("li", item) for item in items), class_="chips")


def folded(summary: str, *children: str) -> Html:
    """Something that is shown when it is asked for."""
    return tag("details", tag("summary", summary), *children)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table that scrolls within itself on a narrow screen."""
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    titles = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in head)))
    return tag("div", tag("table", titles, tag("tbody", *body)), class_="wide", tabindex="0", role="group")


def bar(parts: Sequence[tuple[float, str]], whole: float, label: str) -> Html:
    """A bar of segments (size, kind) on a scale that ends at ``whole``; ``label`` says in words what it shows."""
    x, drawn = 0.0, []
    for size, kind in parts:
        width = 100 * size / whole if whole > 0 else 0.0
        drawn.append(tag("rect", x=f"{x:.3f}", y="0", width=f"{max(width, 0):.3f}", height="10", class_=kind))
        x += width
    return tag(
        "svg", *drawn, viewBox="0 0 100 10", preserveAspectRatio="none", class_="bar", role="img", aria_label=label
    )
