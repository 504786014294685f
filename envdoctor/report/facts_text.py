"""Facts as aligned text, grouped by prefix: key, value, origin; and the block to paste into a bug report: versions,
torch build, GPUs, driver, system and model, nothing private. And facts as a file of the published format
``envdoctor.facts/1``, which ``--facts`` reads back on any machine."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from envdoctor import __version__
from envdoctor.facts.factset import FactSet, public_facts
from envdoctor.facts.registry import FactSpec, FactTypeError, Registry, parse_value
from envdoctor.facts.values import ABSENT, NOT_GIVEN, Absent, Fact, Range, Records, Unknown, Value, plain, spell
from envdoctor.observe.documents.facts_file import SCHEMA
from envdoctor.observe.request import Target
from envdoctor.report.blocks import block_lines, fenced
from envdoctor.report.header import gpu_groups, python_words, system_words, target_fields, torch_words
from envdoctor.report.page import Page, display_width, pad, shortened
from envdoctor.report.report import CleanFacts, cleaned
from envdoctor.system.message import Message, packed

#: Widest columns for keys and values; what is longer gets lines of its own.
_KEY_WIDTH, _VALUE_WIDTH = 30, 22
#: Longer lists (distributions, imported names) are only counted unless asked for; more absent keys than this in a group
#: (environment variables) share a line.
_ITEMS, _ABSENT = 12, 4


def render(facts: FactSet, page: Page, target: Target | None = None, *, public: bool = False) -> str:
    """Return all facts as text, below their environment. A ``verbosity`` of 1 also lists the items of long lists.
    ``public`` leaves out what identifies this machine or its user."""
    facts = CleanFacts(public_facts(facts, page.registry) if public else facts)
    lines: list[str] = []
    if target is not None and not public:
        page_of_all = page._replace(verbosity=1)
        lines += [*block_lines(target_fields(cleaned(target), facts, page_of_all), page_of_all), ""]
    lines += fact_lines(facts, page)
    return "\n".join(line.rstrip(" ") for line in lines) + "\n"


def fact_lines(
    facts: FactSet, page: Page, *, is_listed: Callable[[str], bool] = lambda key: True, unknown: bool = True
) -> list[str]:
    """Return lines of the known facts whose key ``is_listed``, a blank line between groups; the facts are clean. With
    ``unknown``, the keys that are unknown follow, together where they share a reason."""
    groups: dict[str, list[Fact]] = {spec.key.partition(".")[0]: [] for spec in page.registry}  # the reader's order
    reasons: dict[str, list[str]] = {}
    empty: list[str] = []
    complete = set(facts.complete_prefixes())
    for fact in sorted(facts, key=lambda fact: fact.key):
        if isinstance(fact.value, Unknown) and not isinstance(fact.value, Range):
            reasons.setdefault(page.sentence(fact.value.reason), []).append(fact.key)
        elif not is_listed(fact.key):
            complete.discard(fact.key.partition(".")[0])
        elif isinstance(fact.value, Records) and not (fact.value or fact.value.incomplete or page.verbosity):
            empty.append(fact.key)
        else:
            groups.setdefault(fact.key.partition(".")[0], []).append(fact)
    for spec in page.registry:
        if spec.key not in facts and not spec.key.endswith(".*"):
            reasons.setdefault(page.sentence(NOT_GIVEN.reason), []).append(spec.key)
    rows = [fact for members in groups.values() for fact in members if not isinstance(fact.value, Records)]
    keys, values = (fact.key for fact in rows), (_value(fact, page) for fact in rows)
    table = _Table(page, _column(keys, _KEY_WIDTH), _column(values, _VALUE_WIDTH))
    lines: list[str] = []
    for prefix, members in groups.items():
        block = table.group(members, prefix in complete)
        if members and prefix in complete:
            block.append(page.say("any other {prefix}.* is absent", prefix=prefix))
        lines += ["", *block] if block and lines else block
    lines += ["", *page.items(empty, page.say("none: "), "  ")] if empty else []
    if unknown and page.verbosity == 0 and (names := reasons.pop(page.sentence(NOT_GIVEN.reason), None)):
        text_of_rest = page.say("{n} more fact(s) are not known, and nothing was given that tells them: -v", len(names))
        lines += ["", *page.lines(text_of_rest)]
    for reason, names in sorted(reasons.items()) if unknown else ():
        lines += ["", *page.items(names, page.say("unknown ({reason}): ", reason=reason), "  ")]
    return lines


class _Table(NamedTuple):
    """Rows of keys, values and origins; the first two have columns of this width."""

    page: Page
    key_column: int
    value_column: int

    def group(self, members: list[Fact], complete: bool) -> list[str]:
        """Return the rows of a group. Many absent keys share a line, or go without one if every key is known."""
        absent = [fact.key for fact in members if fact.value is ABSENT]
        together = len(absent) > _ABSENT
        lines: list[str] = []
        for fact in members:
            match fact.value:
                case Records():
                    lines += self._records(fact, fact.value)
                case tuple():
                    lines += self._row(fact, self._counted(len(fact.value)) or _value(fact, self.page))
                case value if not together or value is not ABSENT:
                    lines += self._row(fact, _value(fact, self.page))
        if together and not complete:
            lines += self.page.items(absent, self.page.say("absent: "), "  ")
        return lines

    def _row(self, fact: Fact, text: str) -> list[str]:
        """Return the lines of a fact: a value that is too wide takes lines of its own, as does its origin."""
        page, key, origin = self.page, pad(fact.key, self.key_column), self.page.sentence(fact.origin)
        row = f"{key}  {pad(text, self.value_column)}  {origin}" if origin else f"{key}  {text}"
        if page.width is None or display_width(row) <= page.width:
            return [row]
        margin = " " * (self.key_column + 2)
        last = page.lines(origin, f"{margin}  ", f"{margin}  ") if origin else []
        return page.lines(text, f"{key}  ", margin) + last

    def _records(self, fact: Fact, records: Records) -> list[str]:
        page, summary = self.page, self._counted(len(records))
        lines = self._row(fact, summary or page.say("{n} item(s)", len(records)))
        if records.incomplete:
            lines += page.lines(page.say("list may be incomplete: {reason}", reason=page.sentence(records.incomplete)))
        spec = page.registry.find(fact.key)
        order = list(spec.columns) if spec else []
        for item in () if summary else records:
            columns = sorted(item, key=lambda column: order.index(column) if column in order else len(order))
            lines += page.items([f"{column} {spell(item[column])}" for column in columns], "  - ", "    ")
        return lines

    def _counted(self, items: int) -> str:
        """Return the number of items, in words, if the list is too long to be shown; else an empty text."""
        if items <= _ITEMS or self.page.verbosity > 0:
            return ""
        return self.page.bracket(self.page.say("{n} item(s)", items), "envdoctor facts --format json")


def _value(fact: Fact, page: Page) -> str:
    return page.say("absent") if fact.value is ABSENT else spell(fact.value)


def _column(texts: Iterable[str], widest: int) -> int:
    return max((width for width in map(display_width, texts) if width <= widest), default=0)


_OF_TORCH = ("torch.cxx11_abi", "torch.cudnn")
_OTHERS = ("driver.version", "driver.max_cuda", "cuda.toolkit", "model.repo", "model.revision", "model.type")
#: Shown even when it is not installed or not known; the others only when they have a value.
_ALWAYS_SHOWN = ("pkg.torch", "pkg.transformers", "driver.version")


def render_issue(facts: FactSet, registry: Registry) -> str:
    """Return a folded Markdown block (``<details>``) with a fence that no value can close; always English."""
    facts, page = CleanFacts(public_facts(facts, registry)), Page(registry)
    rows: list[tuple[str, str]] = []
    for name in registry.first("pkg"):
        text = _issue_value(facts.get(f"pkg.{name}"), "not installed")
        if text:
            rows.append((name, page.bracket(text, torch_words(facts, page) if name == "torch" else "")))
    rows += _labelled(_OF_TORCH, facts, page)
    gpus = facts.value("gpu")
    doubt = gpus.reason if isinstance(gpus, Unknown) else getattr(gpus, "incomplete", None)
    none = f"not known ({doubt})" if doubt else "not known" if facts.unknown("gpu") else "none"
    rows += [("GPU", group) for group in gpu_groups(facts) or [none]]
    rows += _labelled(_OTHERS, facts, page)
    rows.append(("python", python_words(facts, page).removeprefix("python ") or "not known"))
    rows.append(("system", ", ".join(system_words(facts)) or "not known"))
    column = max(len(label) for label, _ in rows)
    body = [f"{pad(label, column)}  {shortened(text, 200)}".rstrip() for label, text in rows]
    summary = f"<details><summary>Environment (envdoctor {__version__})</summary>"
    return "\n".join([summary, "", fenced(body, "text"), "", "</details>", ""])


def _labelled(keys: Iterable[str], facts: FactSet, page: Page) -> list[tuple[str, str]]:
    """Return the facts of these keys, by their names, without the empty ones."""
    values = ((key, _issue_value(facts.get(key), "none")) for key in keys)
    return [(page.name(key), page.value(key, text)) for key, text in values if text]


def _issue_value(fact: Fact, absent: str) -> str:
    match fact.value:
        case Unknown():
            return "not known" if fact.key in _ALWAYS_SHOWN else ""
        case Absent():
            return absent if fact.key in _ALWAYS_SHOWN else ""
    return spell(fact.value)


def render_json(facts: FactSet, registry: Registry, *, public: bool = False) -> str:
    """Return the facts file as ASCII-only JSON with a final newline; the same facts give the same bytes. ``public``
    leaves out what identifies this machine or its user (see :mod:`envdoctor.facts.factset`)."""
    return json.dumps(document(facts, registry, public=public), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def document(facts: FactSet, registry: Registry, *, public: bool = False) -> dict[str, object]:
    """Return the facts file as JSON data (``schemas/facts.schema.json``).

    A reader needs ``facts`` alone. ``incomplete`` names the lists of records that may lack items: a reader must not
    take such a list for complete. A column that an item lacks is unknown. Derived facts are left out: a reader derives
    them again from the file and from its own options. ``messages`` has the ids and values of the sentences, for readers
    in another language.
    """
    facts = CleanFacts(public_facts(facts, registry) if public else facts)
    entries = _readable(facts, registry)
    data = fact_data(entries)
    return {
        "schema": SCHEMA,
        "tool": {"name": "envdoctor", "version": __version__},
        "facts": data.known,
        "complete": sorted(facts.complete_prefixes()),
        "incomplete": data.incomplete,
        "unknown": data.unknown,
        "origins": data.origins,
        "messages": {text: packed(text) for fact in entries for text in _messages(fact.value)},
    }


def _messages(value: Value) -> Iterator[Message]:
    """Yield the sentences of a value, which another reader may want in another language."""
    if isinstance(value, Records):
        yield from _messages(value.incomplete or "")
        for item in value:
            for cell in item.values():
                yield from _messages(cell)
    text = value.reason if isinstance(value, Unknown) else value
    if isinstance(text, Message) and text.id != "{}":
        yield text


def _readable(facts: FactSet, registry: Registry) -> FactSet:
    """Return the facts that a reader accepts: registered keys with values of their type; it does not know others."""
    subset = FactSet()
    for fact in facts:
        spec = registry.find(fact.key)
        if spec is None or fact.is_computed:
            continue
        value = fact.value
        if isinstance(value, Records):
            rows = ({name: cell for name, cell in item.items() if name in spec.columns} for item in value)
            items = ({name: _accepted(spec.columns[name], cell) for name, cell in item.items()} for item in rows)
            subset.add(fact._replace(value=Records(tuple(items), value.incomplete)))
        else:
            subset.add(fact._replace(value=_accepted(spec, value)))
    for prefix in facts.complete_prefixes():
        subset.declare_complete(prefix, "")
    return subset


def _accepted(spec: FactSpec, value: Value) -> Value:
    if isinstance(value, Unknown):
        return value
    try:
        parse_value(spec, plain(value))
    except FactTypeError as error:
        return Unknown(Message("not written: {}", error))
    return value


# --- facts as JSON data ----------------------------------------------------------------------------------------------


class _FactData(NamedTuple):
    """Facts by key: ``known`` JSON values (null = known to be absent) and their ``origins``; why a list of records is
    ``incomplete``; why a value is ``unknown``. A key in none of them was not given."""

    known: dict[str, object]
    origins: dict[str, str]
    incomplete: dict[str, str]
    unknown: dict[str, str]


def fact_data(facts: FactSet) -> _FactData:
    """Return the data of clean facts. A number that JSON cannot hold (NaN) counts as unknown."""
    data = _FactData({}, {}, {}, {})
    for key, value, origin, _ in sorted(facts, key=lambda fact: fact.key):
        if isinstance(value, Unknown) and not isinstance(value, Range):
            data.unknown[key] = value.reason
        elif not _finite(value):
            data.unknown[key] = "the value is not a finite number"
        else:
            if isinstance(value, Records):
                data.incomplete.update({key: value.incomplete} if value.incomplete is not None else {})
                items = ({name: cell for name, cell in item.items() if _finite(cell)} for item in value)
                value = Records(tuple(items), value.incomplete)
            data.known[key] = plain(value)
            data.origins.update({key: origin} if origin else {})
    return data


def _finite(value: Value) -> bool:
    return not isinstance(value, float) or value - value == 0
