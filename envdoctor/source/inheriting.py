"""What of a class no longer fits its base classes in other packages: keywords that they do not take, methods that they
call in another way; and keywords that functions of other packages do not take in its methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from envdoctor.source.definitions import FunctionNode, names_in
from envdoctor.source.importing import Importing
from envdoctor.source.library import Unreadable
from envdoctor.source.lineage import Lineage, Lineages, Member, calls_in
from envdoctor.source.signatures import can_be_called
from envdoctor.source.values import Stop


class Inheriting:
    """The classes of one environment."""

    def __init__(self, following: Importing) -> None:
        self._followed = following.world.followed
        self._names = following.names
        self._lineages = Lineages(self._names)

    def unfit(self, module: str, name: str) -> list[Stop]:
        """What does not fit of the class of a public name; nothing for what is no class of that kind, or cannot be
        told."""
        place = self._names.place(module, name)
        lineage = self._lineages.of(place) if place is not None else None
        if lineage is None or all(member.top == lineage.own for member in lineage.members):
            return []
        try:
            return [*self._handed(lineage), *_overrides(lineage), *self._passed(lineage)]
        except (Unreadable, RecursionError, MemoryError):
            return []

    def _handed(self, lineage: Lineage) -> Iterator[Stop]:
        """Keywords that ``super()`` hands to a base class of another package."""
        for at, member, name in _own_methods(lineage):
            for call in member.calls(name) if b"super()." in member.text(name) else ():
                for keyword in call.keywords if call.owner == "super" else ():
                    receiver = _receiver(lineage, at, call.name, keyword)
                    method = "" if call.name == "__init__" else f".{call.name}"
                    takes = self._names.takes(receiver.place + method, keyword) if receiver is not None else None
                    if receiver is not None and takes is False and lineage.runs(at, name):
                        base, _, written = lineage.written[receiver.place].partition(":")
                        always = call.name == name == "__init__" and call.sure and lineage.always(at, name)
                        asked = (base, written + method)
                        yield Stop("keyword", member.module, call.line, *asked, keyword=keyword, always=always)

    def _passed(self, lineage: Lineage) -> Iterator[Stop]:
        """Keywords that methods pass to what their module takes from other packages."""
        for at, member, name in _own_methods(lineage):
            called = member.mentions(name) if lineage.definer(name) == at else ()
            homes = {one: home for one in called if (home := self._other(member, one)) is not None}
            for call in member.calls(name) if homes else ():
                base, _, taken = homes.get(call.name if not call.owner else "", "").partition(":")
                place = self._names.place(base, taken) if base and call.keywords else None
                refused = [one for one in call.keywords if place and self._names.takes(place, one) is False]
                for keyword in refused if refused and call.name not in member.binds(name) else ():
                    yield Stop("keyword", member.module, call.line, base, taken, keyword=keyword, always=False)

    def _other(self, member: Member, name: str) -> str | None:
        """Where a name comes from that the module of a member takes from another package that is followed."""
        home = member.takes_from(name)
        top = home.partition(":")[0].partition(".")[0] if home is not None else member.top
        return home if top != member.top and self._followed(top) else None


def _overrides(lineage: Lineage) -> Iterator[Stop]:
    """Methods of other packages' base classes that own ones replace, and that these base classes call otherwise."""
    for at, member, name in _own_methods(lineage):
        parameters = member.parameters(name) if lineage.definer(name) == at else None
        if parameters is None:
            continue
        replaced = next((one for one in lineage.members if one.top != lineage.own and name in one.methods), None)
        unfit = [
            (call.sure and lineage.always(caller, method), call.way)
            for caller, method in (lineage.callers.get(name, ()) if replaced is not None else ())
            for call in lineage.members[caller].calls(method)
            if (call.owner, call.name) == ("self", name) and call.way and not can_be_called(parameters, call.way)
            if lineage.runs(caller, method)
        ]
        node = member.methods[name]
        if unfit and replaced is not None and node is not None:
            always, way = max(unfit, key=lambda one: one[0])
            base, _, written = lineage.written[replaced.place].partition(":")
            asked = (base, f"{written}.{name}", way)
            yield Stop("override", member.module, node.lineno, *asked, parameters=parameters, always=always)


def _own_methods(lineage: Lineage) -> Iterator[tuple[int, Member, str]]:
    """Every method of the own members, with its member and the place of that."""
    for at, member in enumerate(lineage.members):
        if member.top == lineage.own:
            yield from ((at, member, name) for name in member.methods)


def _receiver(lineage: Lineage, at: int, name: str, keyword: str) -> Member | None:
    """The base class of another package that gets a keyword which a member hands to ``super()``."""
    place = lineage.definer(name, at + 1)
    while place is not None:
        member = lineage.members[place]
        if member.top != lineage.own:
            return member
        body = member.body(name)
        if body is None or not _hands_on(body, name, keyword):
            return None
        place = lineage.definer(name, place + 1)
    return None


def _hands_on(method: FunctionNode, name: str, keyword: str) -> bool:
    """Whether a method does nothing with further keywords but to hand all of them to ``super()``, once."""
    rest = method.args.kwarg
    if rest is None or keyword in {one.arg for one in (*method.args.args, *method.args.kwonlyargs)}:
        return False
    if list(names_in(ast.walk(method))).count(rest.arg) != 1:
        return False
    return any(call.owner == "super" and call.name == name and call.rest == rest.arg for call in calls_in(method))
