"""What changed in one function: parameters, keywords of its calls, how it starts values, its attention, its body."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from envdoctor.revision.code.parts.records import Call, Definition, Parameter
from envdoctor.revision.code.parts.syntax import CREATORS
from envdoctor.revision.comparer import Change
from envdoctor.text.message import Message, joined

_ATTENTION_PARAMETER = re.compile(r"(attn|attention)_?impl|flash_?attn|flash_attention|use_sdpa", re.IGNORECASE)
_MAX_NAMES = 6


def compare_functions(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    """Changes of a function that is in both revisions under the same name."""
    yield from _parameters(path, old, new)
    if old.decorators != new.decorators:
        yield _change(path, "definition-changed", new, _listed(old.decorators), _listed(new.decorators), "decorators")
    if old.attention != new.attention:
        gone, come = _apart(old.attention, new.attention)
        yield _change(path, "attention-default-changed", new, _listed(gone), _listed(come))
    if old.meaning != new.meaning:
        yield from _body(path, old, new)
    elif old.annotations != new.annotations and old.text == new.text:
        yield _change(path, "definition-changed", new, None, None, "annotations only")


def _change(path: str, kind: str, new: Definition, *said: str | None) -> Change:
    before, after, detail = (*said, None)[:3]
    return Change("code", kind, path, new.name, before, after, detail=detail)


def _parameters(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    if old.parameters == new.parameters:
        return
    before = {parameter.name: parameter for parameter in old.parameters}
    after = {parameter.name: parameter for parameter in new.parameters}
    other = [name for name, one in before.items() if name in after and one.default != after[name].default]
    if list(before) == list(after) and all(before[name].kind == after[name].kind for name in before):
        defaults = [name for name in other if after[name].default is not None]
        attention = [name for name in defaults if _ATTENTION_PARAMETER.search(name)]
        if len(defaults) == len(other):
            kind = "attention-default-changed" if attention else "default-changed"
            yield _change(path, kind, new, _defaults(before, other), _defaults(after, other))
            return
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    kind = "signature-extended" if not gone and not other and _only_extends(old, new) else "signature-changed"
    words = [f"{verb} {', '.join(names[:_MAX_NAMES])}" for verb, names in (("without", gone), ("with", come)) if names]
    yield _change(path, kind, new, old.text, new.text, "; ".join(words) or "other order or defaults")


def _only_extends(old: Definition, new: Definition) -> bool:
    """Whether every call that the old signature accepts means the same to the new one."""
    known = {parameter.name for parameter in old.parameters}
    if [parameter for parameter in new.parameters if parameter.name in known] != list(old.parameters):
        return False
    places = [parameter.name in known for parameter in new.parameters if parameter.kind in ("positional", "normal")]
    takes_rest = any(parameter.kind == "*" for parameter in old.parameters)
    # A new positional parameter before *args takes what used to be the first of those.
    return places == sorted(places, reverse=True) and all(
        parameter.kind in ("*", "**")
        or (parameter.default is not None and not (takes_rest and parameter.kind != "keyword"))
        for parameter in new.parameters
        if parameter.name not in known
    )


def _defaults(parameters: dict[str, Parameter], names: Sequence[str]) -> str:
    shown = [(name, parameters[name].default) for name in names[:_MAX_NAMES]]
    return ", ".join(name if default is None else f"{name}={default}" for name, default in shown)


def _body(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    starts = "init" in new.leaf or new.leaf.startswith("reset_")
    names = [[call.name for call in one.calls] for one in (old, new)]
    gone, come = _apart(*([name for name in side if starts and name.rpartition(".")[2] in CREATORS] for side in names))
    keywords = list(_keywords(old, new))
    if gone or come:
        yield _change(path, "initialisation-changed", new, _listed(gone), _listed(come))
    if keywords:
        before = _listed([f"{name}({', '.join(less)})" for name, less, _ in keywords if less])
        after = _listed([f"{name}({', '.join(more)})" for name, _, more in keywords if more])
        words = [
            f"{name} {verb} {', '.join(others[:_MAX_NAMES])}"
            for name, less, more in keywords[:_MAX_NAMES]
            for verb, others in (("loses", less), ("gains", more))
            if others
        ]
        yield _change(path, "call-keyword-changed", new, before, after, "; ".join(words))
    if old.skeleton != new.skeleton or not (gone or come or keywords):
        gone, come = _apart(*names)
        clauses = [Message("no longer calls {}", _listed(gone))] if gone else []
        clauses += [Message("now calls {}", _listed(come))] if come else []
        detail = joined(clauses) if clauses else Message("body")
        yield _change(path, "definition-changed", new, _listed(gone), _listed(come), detail)


def _keywords(old: Definition, new: Definition) -> Iterator[tuple[str, list[str], list[str]]]:
    """Calls of the same function, as often as before, with other keywords: name, keywords gone, keywords new."""
    before, after = (_by_name(one.calls) for one in (old, new))
    for name, first in before.items():
        second = after.get(name, [])
        gone, come = _apart([word for words in first for word in words], [word for words in second for word in words])
        if len(first) == len(second) and (gone or come):
            yield name, gone, come


def _by_name(calls: Iterable[Call]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for call in calls:
        found.setdefault(call.name, []).append(call.keywords)
    return found


def _apart(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str]]:
    """What only the first has and what only the second has, counted, in their order."""
    first, second = Counter(old), Counter(new)
    return list((first - second).elements()), list((second - first).elements())


def _listed(names: Sequence[str]) -> str | None:
    distinct = list(dict.fromkeys(name for name in names if name))
    more = len(distinct) - _MAX_NAMES
    return ", ".join([*distinct[:_MAX_NAMES], *([Message("{} more", more)] if more > 0 else [])]) or None
