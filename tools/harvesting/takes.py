"""What the imports of one package take from other distributions, by its files alone."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from envdoctor.source import UNKNOWN, Importing, Library, OutOfBudget, World
from envdoctor.source.definitions import last_name
from envdoctor.source.values import Failed, Frame, Module, Reference
from envdoctor.versions import base_release, normalise, order, satisfies

__all__ = ["Others", "Take", "takes_of"]

#: By which conditions on sys.version_info are decided: what differs are modules of its library.
_PYTHON = (3, 11)
_Key = tuple[str, str, str]
#: What a statement takes.
_Taken = tuple[str, _Key]
#: What is beside the package: distributions with their versions, UNKNOWN for any; None when everything is.
_Beside = Mapping[str, Any]


class Take(NamedTuple):
    """``module`` of another distribution, or its ``name`` ("" for the module itself), as ``consumer`` takes it when one
    of ``entries`` is imported; or, as ``module``, a requirement that it checks itself (``tokenizers>=0.21``). It does
    so where all of ``needs`` are beside it: distributions, with the versions that matter (``peft>=0.6.1,<0.14``)."""

    module: str
    name: str
    consumer: str
    entries: tuple[str, ...]
    needs: tuple[str, ...]


class Others(NamedTuple):
    """What is known of other distributions: whether one is ``among`` those that matter, its ``releases`` in order
    (those up to the package's day, and all), whether a dotted name is a ``module`` of one."""

    among: Callable[[str], bool]
    releases: Callable[[str], tuple[Sequence[str], Sequence[str]]]
    module: Callable[[str], bool]


def takes_of(
    folder: str,
    tops: Iterable[str],
    package: tuple[str, str],
    entries: Iterable[tuple[str, str, str | None]],
    *,
    required: Iterable[str],
    others: Others,
) -> list[Take]:
    """Return what the modules ``tops`` of a ``package`` (name, version) below a folder take from others, sorted.

    ``entries`` are (statement, module, name) of what is imported. ``required`` are distributions that are always beside
    the package (normalised). The others are taken as absent first, then one by one as present, those that are ``among``
    the ones that matter: what is taken only then needs them. Last come versions: where the package compares one,
    releases on both sides are put beside it. What stands in a branch whose condition cannot be decided, or where a
    failure is caught, is left out.
    """
    following = _Situations(_Trees([folder]), frozenset(tops), list(entries), others)
    found: dict[tuple[_Key, tuple[str, ...]], set[str]] = defaultdict(set)
    always = {package[0]: package[1], **dict.fromkeys(required, UNKNOWN)}
    for (statement, key), needs in following.conditions(package[0], always):
        found[key, needs].add(statement)
    by_name = {(module, consumer) for (module, name, consumer), _ in found if name}
    return sorted(
        Take(*key, tuple(sorted(statements)), needs)
        for (key, needs), statements in found.items()
        if key[1] or (key[0], key[2]) not in by_name
    )


class _Trees(Library):
    """A library that is followed again and again."""

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(folders)
        self._kept: dict[str, ast.Module] = {}

    def tree(self, name: str) -> ast.Module:
        if name not in self._kept:
            self._kept[name] = super().tree(name)
        return self._kept[name]


class _Situations:
    """The imports of one package followed with other distributions beside it."""

    def __init__(
        self, library: Library, own: frozenset[str], entries: Sequence[tuple[str, str, str | None]], others: Others
    ) -> None:
        self._library, self._own, self._entries, self._others = library, own, entries, others
        self._asked: set[str] = set()
        self._compared: set[tuple[str, str]] = set()
        self._known: dict[tuple[tuple[str, Any], ...], frozenset[_Taken]] = {}

    def conditions(self, package: str, always: _Beside) -> Iterator[tuple[_Taken, tuple[str, ...]]]:
        """Yield what each statement takes, with what must be there for it."""
        everything = self._followed(None)
        asked = sorted(one for one in self._asked if self._others.among(one) and one != package)
        always = self._needed(always)
        explained = set(self._followed(always))
        optional = {normalise(key[0].partition(".")[0]) for _, key in everything - explained}
        yield from ((one, ()) for one in explained)
        for name in asked:
            if name in optional and name not in always:
                found = self._followed({**always, name: UNKNOWN}) - explained
                yield from ((one, (name,)) for one in found)
                explained |= found
        usual = {name: past[-1] for name in asked if (past := self._others.releases(name)[0])}
        self._compared.clear()
        full = {**always, **usual}
        needs: dict[_Taken, dict[str, str]] = {one: {} for one in self._followed(full) - explained}
        for name, version in usual.items():
            spans = self._spans(name, version)
            if len(spans) > 1 and needs:
                there = [self._followed({**full, name: first}) for first, _ in spans]
                for one, conditions in needs.items():
                    texts = _held(spans, [one in found for found in there])
                    if held := next((text for text in texts if satisfies(version, text)), ""):
                        conditions[name] = held
            there = [self._followed({**always, name: first}) for first, _ in spans] if len(spans) > 1 else []
            for one in frozenset().union(*there) - explained:
                yield from ((one, (name + text,)) for text in _held(spans, [one in found for found in there]))
        for name in sorted(optional & usual.keys() - always.keys()) if needs else ():
            without = self._followed({other: version for other, version in full.items() if other != name})
            for one in needs.keys() - without:
                needs[one].setdefault(name, "")
        for one, conditions in needs.items():
            if len(conditions) > 1 and one in self._followed({**always, **{name: usual[name] for name in conditions}}):
                yield one, tuple(sorted(name + text for name, text in conditions.items()))

    def _needed(self, always: _Beside) -> _Beside:
        """Return these distributions, and those that are taken where they are absent: the import stops without them."""
        taken = {normalise(key[0].partition(".")[0]) for _, key in self._followed(always)} - always.keys()
        found = dict.fromkeys(filter(self._others.among, taken), UNKNOWN)
        return self._needed({**always, **found}) if found else always

    def _spans(self, name: str, version: str) -> list[tuple[str, str]]:
        """The releases of a distribution between which the package makes a difference: the first of each run, and the
        one behind the run ("": none)."""
        limits = [
            limit
            for pair in self._compared
            for here, there in (pair, pair[::-1])
            if base_release(here) == base_release(version) and (limit := order(there)) is not None
        ]
        keyed = [(key, one) for one in self._others.releases(name)[1] if (key := order(one)) is not None]
        sides = groupby(keyed, lambda one: [(one[0] > limit) - (one[0] < limit) for limit in limits])
        firsts = [next(run)[1] for _, run in sides]
        return list(zip(firsts, [*firsts[1:], ""], strict=True))

    def _followed(self, beside: _Beside | None) -> frozenset[_Taken]:
        """Return each entry's takes if exactly those distributions are beside the package; all of them for None."""
        situation = (("*", None),) if beside is None else tuple(sorted(beside.items(), key=str))
        if situation not in self._known:
            following = _Taking(self._library, self._own, beside, self._others)
            found = []
            for statement, module, name in self._entries:
                following.reset()
                try:
                    following.statement(module, [name] if name else [])
                except (OutOfBudget, RecursionError):
                    continue
                found += [(statement, key) for key in following.reached()]
            self._asked |= following.asked
            self._compared |= following.pairs
            self._known[situation] = frozenset(found)
        return self._known[situation]


def _held(spans: Sequence[tuple[str, str]], there: Sequence[bool]) -> Iterator[str]:
    """Yield the runs of spans in which something is there, as specifiers ("" for all versions)."""
    for is_there, run in groupby(range(len(spans)), there.__getitem__):
        places = list(run)
        if is_there:
            low, high = spans[places[0]][0] if places[0] else "", spans[places[-1]][1]
            yield ",".join([*([f">={low}"] if low else []), *([f"<{high}"] if high else [])])


class _Taking(Importing):
    """Imports of one package beside which every module and name of others is there, as far as they are present."""

    def __init__(self, library: Library, own: frozenset[str], beside: _Beside | None, others: Others) -> None:
        self._own, self._beside, self._others = own, beside, others
        self.asked: set[str] = set()
        self.pairs: set[tuple[str, str]] = set()
        self._by_module: dict[str, dict[_Key, None]] = {}
        self._inner: dict[str, dict[str, None]] = {}
        super().__init__(
            library,
            World(
                version=self._version,
                owners={},
                python=_PYTHON,
                platform="linux",
                standard=frozenset(sys.stdlib_module_names) | {"distutils", "imp"},
                followed=own.__contains__,
            ),
        )

    def reset(self) -> None:
        """Begin another entry."""
        self._inner.pop("", None)

    def reached(self) -> list[_Key]:
        """Return what the modules that the entry loads take."""
        found: dict[_Key, None] = {}
        waiting, seen = [""], set()
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            found.update(self._by_module.get(one, {}))
            waiting += self._inner.get(one, {})
        return list(found)

    def load(self, module: str, consumer: str, line: int) -> None:
        top = module.partition(".")[0]
        if top in self._own:
            if not self._unsure and not self._catching:
                parts = module.split(".")
                for length in range(1, len(parts) + 1):
                    self._inner.setdefault(self._running(), {})[".".join(parts[:length])] = None
            super().load(module, consumer, line)
        elif module and top not in self.world.standard:
            if (self._unsure or self._catching or self._depth) and not self._is_present(normalise(top)):
                raise Failed("ModuleNotFoundError", None)
            self._note(module, "", consumer)

    def compare(self, left: str, right: str) -> None:
        self.pairs.add((left, right))

    def visit_Call(self, node: ast.Call, frame: Frame) -> Any:
        if last_name(node.func).startswith("require_version") and node.args:  # whosever it is: most take transformers'
            text = self.value(node.args[0], frame)
            if isinstance(text, str) and not self._unsure and not self._catching:
                self._by_module.setdefault(self._running(), {})[text, "", self._running()] = None
            return None
        return super().visit_Call(node, frame)

    def present(self, module: str) -> Any:
        top = module.partition(".")[0]
        if top in self._own or top in self.world.standard:
            return super().present(module)
        return Module(module) if self._is_present(normalise(top)) else None

    def available(self, module: str) -> Any:
        return self._is_present(normalise(module))

    def has(self, module: str, name: str) -> Any:
        return super().has(module, name) if module.partition(".")[0] in self._own else UNKNOWN

    def attribute(self, module: str, name: str, consumer: str, line: int) -> Any:
        top = module.partition(".")[0]
        if top in self._own or top in self.world.standard:
            return super().attribute(module, name, consumer, line)
        if name == "__version__":
            return self._version(top) or UNKNOWN
        self._note(module, name, consumer)
        return Module(f"{module}.{name}") if self._others.module(f"{module}.{name}") else UNKNOWN

    def _take(self, module: str, name: str, consumer: str, line: int) -> Any:
        top = module.partition(".")[0]
        if top in self._own or top in self.world.standard or name == "TYPE_CHECKING":
            return super()._take(module, name, consumer, line)
        if name == "__version__":
            return self._version(top) or UNKNOWN
        self._note(module, name, consumer)
        decides = top in ("packaging", "importlib_metadata") or (name.startswith("is_") and name.endswith("_available"))
        return Reference(f"{module}.{name}") if decides else UNKNOWN

    def _version(self, distribution: str) -> Any:
        name = normalise(distribution)
        self.asked.add(name)
        return UNKNOWN if self._beside is None else self._beside.get(name)

    def _is_present(self, distribution: str) -> bool:
        return self._version(distribution) is not None

    def _running(self) -> str:
        """Return the module that is being executed, whosever function it calls; "" for the entry itself."""
        return self._current[-1].frame.module if self._current else ""

    def _note(self, module: str, name: str, consumer: str) -> None:
        if not self._unsure and not self._catching and not self._depth and consumer:
            self._by_module.setdefault(consumer, {})[module, name, consumer] = None
