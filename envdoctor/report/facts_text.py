"""Facts as aligned text, grouped by prefix: key, value, origin; unknown ones with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Absent, Fact, Records, Unknown, spell
from envdoctor.observe.target import Target
from envdoctor.report.header import target_lines
from envdoctor.report.layout import display_width, pad, wrap, wrap_items
from envdoctor.report.names import say_reason
from envdoctor.report.phrases import phrase
from envdoctor.text.clean import clean
from envdoctor.text.privacy import public_facts

__all__ = ["fact_lines", "render"]

#: Widest columns for keys and values; what is longer gets lines of its own.
_KEY_WIDTH = 30
_VALUE_WIDTH = 22
#: Longer lists (distributions, imported names) are only counted unless asked for.
_ITEMS = 12
#: More absent keys than this in a group (environment variables) share a line.
_ABSENT = 4


def render(
    facts: FactSet,
    registry: Registry,
    target: Target | None = None,
    *,
    public: bool = False,
    width: int | None = None,
    lang: str = "en",
    verbosity: int = 0,
) -> str:
    """All facts as text, below the environment they are of. ``verbosity`` 1 also lists the items of long lists.

    ``public`` leaves out what identifies this machine or its user.
    """
    lines: list[str] = []
    if public:
        facts = public_facts(facts, registry)
    elif target is not None:
        lines += [*target_lines(target, facts, width, lang, 1), ""]
    lines += fact_lines(facts, registry, width=width, lang=lang, verbosity=verbosity)
    return "\n".join(line.rstrip(" ") for line in lines) + "\n"


def fact_lines(
    facts: FactSet,
    registry: Registry,
    *,
    width: int | None,
    lang: str,
    verbosity: int = 0,
    wanted: Callable[[str], bool] = lambda key: True,
    unknown: bool = True,
) -> list[str]:
    """Lines of the known facts whose key is ``wanted``, a blank line between groups.

    With ``unknown``, the keys that are unknown follow, together where they share a reason.
    """
    groups: dict[str, list[Fact]] = {}
    for spec in registry:  # the registry's order is the reader's order
        groups.setdefault(spec.key.partition(".")[0], [])
    reasons: dict[str, list[str]] = {}
    complete = set(facts.complete_prefixes())
    for fact in sorted(facts, key=_key):
        if isinstance(fact.value, Unknown):
            reasons.setdefault(say_reason(fact.value.reason, lang), []).append(_key(fact))
        elif wanted(fact.key):
            groups.setdefault(fact.key.partition(".")[0], []).append(fact)
        else:
            complete.discard(fact.key.partition(".")[0])
    for spec in registry:
        if spec.key not in facts and not spec.key.endswith(".*"):
            reasons.setdefault(say_reason("not given", lang), []).append(clean(spec.key))
    rows = [fact for members in groups.values() for fact in members if not isinstance(fact.value, Records)]
    keys, values = map(_key, rows), (_text(fact, lang) for fact in rows)
    page = _Page(registry, width, lang, verbosity, _column(keys, _KEY_WIDTH), _column(values, _VALUE_WIDTH))
    lines: list[str] = []
    for prefix, members in groups.items():
        block = _group(members, page, prefix in complete)
        if block and prefix in complete:
            block.append(phrase(lang, "complete", prefix=clean(prefix)))
        lines += ["", *block] if block and lines else block
    for reason, names in sorted(reasons.items()) if unknown else ():
        label = phrase(lang, "listed", label=phrase(lang, "unknown_because", reason=reason))
        lines += ["", *wrap_items(names, width, label, "  ")]
    return lines


class _Page(NamedTuple):
    registry: Registry
    width: int | None
    lang: str
    verbosity: int
    key_column: int
    value_column: int


def _group(members: list[Fact], page: _Page, complete: bool) -> list[str]:
    """The rows of a group. Many absent keys share a line, or go without one where every key is known."""
    absent = [_key(fact) for fact in members if isinstance(fact.value, Absent)]
    together = len(absent) > _ABSENT
    lines: list[str] = []
    for fact in members:
        if isinstance(fact.value, Records):
            lines += _records(fact, fact.value, page)
        elif not (together and isinstance(fact.value, Absent)):
            lines += _scalar(fact, page)
    if together and not (complete and lines):
        label = phrase(page.lang, "listed", label=phrase(page.lang, "absent"))
        lines += wrap_items(absent, page.width, label, "  ")
    return lines


def _scalar(fact: Fact, page: _Page) -> list[str]:
    text = _text(fact, page.lang)
    if isinstance(fact.value, tuple) and _hidden(len(fact.value), page):
        text = phrase(page.lang, "items", len(fact.value))
        text = phrase(page.lang, "bracket", text=text, more=phrase(page.lang, "list_short"))
    return _row(_key(fact), text, clean(fact.origin), page)


def _row(key: str, text: str, origin: str, page: _Page) -> list[str]:
    """Key, value and origin in columns; a value that is too wide takes lines of its own, as does its origin."""
    row = f"{pad(key, page.key_column)}  {pad(text, page.value_column) if origin else text}"
    if origin:
        row += f"  {origin}"
    if page.width is None or display_width(row) <= page.width:
        return [row]
    margin = " " * (page.key_column + 2)
    lines = wrap(text, page.width, f"{pad(key, page.key_column)}  ", margin)
    return [*lines, *wrap(origin, page.width, f"{margin}  ", f"{margin}  ")] if origin else lines


def _records(fact: Fact, records: Records, page: _Page) -> list[str]:
    width, lang = page.width, page.lang
    text = phrase(lang, "items", len(records))
    hidden = _hidden(len(records), page)
    if hidden:
        text = phrase(lang, "bracket", text=text, more=phrase(lang, "list_short"))
    lines = _row(_key(fact), text, clean(fact.origin), page)
    if records.incomplete:
        lines += wrap(phrase(lang, "list_incomplete", reason=clean(records.incomplete)), width, "  ", "    ")
    spec = page.registry.find(fact.key)
    order = list(spec.columns) if spec else []
    for item in () if hidden else records:
        columns = sorted(item, key=lambda column: order.index(column) if column in order else len(order))
        cells = [f"{clean(column)} {clean(spell(item[column]))}" for column in columns]
        lines += wrap_items(cells, width, "  - ", "    ", phrase(lang, "separator"))
    return lines


def _hidden(items: int, page: _Page) -> bool:
    return items > _ITEMS and page.verbosity <= 0


def _key(fact: Fact) -> str:
    return clean(fact.key, 200)


def _text(fact: Fact, lang: str) -> str:
    return phrase(lang, "absent") if isinstance(fact.value, Absent) else clean(spell(fact.value), None)


def _column(texts: Iterable[str], widest: int) -> int:
    return max((width for width in map(display_width, texts) if width <= widest), default=0)
