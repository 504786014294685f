"""Find what the user's code and recipe use and the installed releases lack, by the ledger of released packages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial, reduce
from itertools import takewhile
from operator import and_
from typing import NamedTuple

from envdoctor.facts.factset import View
from envdoctor.facts.values import ABSENT, Range, Records, Unknown, Value
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.matrix import lookup
from envdoctor.matrix.ledger import Released
from envdoctor.matrix.matrix import Matrix
from envdoctor.source.signatures import spelled
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted
from envdoctor.versions.releases import Releases, lies_in
from envdoctor.versions.requirement import normalise

_OF_A_RECIPE = ("recipe_key", "recipe.framework", "recipe.stage", "recipe.arguments")

#: From what runs for sure to what may never run.
_REACH = ("start", "branch", "call", "optional", "unused")
_MOST_PLACES = 5


@derives("code_unread", of="code_unread python.minor")
def _unread_syntax(facts: View, matrix: Matrix) -> Answer:
    """Tell whether this Python refuses the code that another one could not parse: an older one refuses it too."""
    here, unread = dotted(facts.text("python.minor") or ""), facts.records("code_unread")

    def broken(upto: str | None) -> Value:
        newest = dotted(upto or "")
        sure = newest is None or (here is not None and here <= newest)
        return newest is not None if sure else Unknown(Message("a newer Python may parse it"))

    items = ({**one, "broken": broken(View.of(one).text("upto"))} for one in unread or ())
    return Derived(Records(tuple(items), unread.incomplete), Message("the syntax of the code")) if unread else None


@derives("broken_use", of=f"use model_use {' '.join(_OF_A_RECIPE)} model.registered model.run_by pkg.*")
def _broken_use(facts: View, matrix: Matrix) -> Answer:
    """Give ``broken_use``: one item for each missing symbol, with all its places; the earliest reach counts.

    It leaves out unknown uses, of releases that the ledger does not know or of modules that make names up: the list
    says what is known to fail, and is complete when the uses are.
    """
    recipe = _of_recipe(facts, matrix)
    lists = [uses for uses in (facts.records("use"), facts.records("model_use"), recipe) if uses is not None]
    if not lists:
        return None
    judged = _Judged(facts, matrix)
    for item in (*facts.items("use"), *_of_model(facts), *(recipe or ())):
        if item.get("guarded") is not True:
            judged.add(item)
    incomplete = next((records.incomplete for records in lists if records.incomplete), None)
    return Derived(Records(judged.records(), incomplete), Message("the code and the ledger of releases"))


def _of_model(facts: View) -> Iterator[Mapping[str, Value]]:
    """Yield the uses of the model's code: optional where transformers has a class for the type; serving engines and
    trainers with models of their own run none of it. Methods that it overrides are left to rules of their own: training
    frameworks replace some."""
    if facts.value("model.run_by") in ("engine", "trainer"):
        return
    for item in facts.items("model_use"):
        module, kind, lacks = str(item.get("module")), item.get("kind"), item.get("lacks")
        if kind == "override":
            continue
        optional = {"reach": "optional"} if facts.value("model.registered") is True else {}
        yield {**item, **optional}
        if kind in ("module", "name"):
            # Before it loads a file, transformers asks for every package that is imported anywhere in it.
            top = module.partition(".")[0]
            own = {} if lacks is None else {"lacks": top if lacks == top else ABSENT}
            rest = {name: cell for name, cell in item.items() if name != "lacks"}
            yield {**rest, **own, "kind": "module", "module": top, "name": ABSENT, "reach": "start", **optional}


def _of_recipe(facts: View, matrix: Matrix) -> Records | None:
    """Return the keys of a recipe (``recipe_key``) as keywords of calls; if only their names are known
    (``recipe.arguments``), by the table ``recipe-calls``. None when neither is known. ``others`` are calls that take
    what this one does not: a parser hands each key to the class that has it."""
    rows = matrix.rows("recipe-calls")
    keys, names = facts.records("recipe_key"), facts.words("recipe.arguments")
    framework, stage = map(facts.value, ("recipe.framework", "recipe.stage"))
    arguments: list[tuple[str, Value, Value]] = []
    if keys is not None:
        entries = [(row.text("call"), row.text("key"), row.words("place") or ()) for row in facts.each("recipe_key")]
        arguments = [(call, key, place) for call, key, place in entries if call is not None and key is not None]
    elif names is not None:
        calls = [row["call"] for row in rows if row["framework"] == framework and row.get("stage", stage) == stage]
        arguments = [(call, name, ()) for call in calls for name in names]
    else:
        return None
    others = {row["call"]: tuple(row.get("others", ())) for row in rows}
    items: list[Mapping[str, Value]] = []
    for call, keyword, place in arguments:
        module, _, name = call.rpartition(".")
        use = {"kind": "keyword", "module": module, "name": name, "keyword": keyword, "place": place}
        items.append({**use, "others": others.get(call, ())})
    return Records(tuple(items), keys.incomplete if keys is not None else None)


class _Broken(NamedTuple):
    """A missing symbol, before its places are known. ``symbol`` is looked up in other releases; ``move`` is its row of
    the table moved-names."""

    package: str
    kind: str
    label: str
    installed: str | None
    symbol: lookup.Symbol
    call: str = ""
    move: lookup.Move | None = None


class _Judged:
    """The uses that fail, by what is missing."""

    def __init__(self, facts: View, matrix: Matrix) -> None:
        self._facts, self._matrix, self._ledger = facts, matrix, matrix.ledger
        self._entries: dict[tuple[str, str, str], tuple[_Broken, list[str], list[str]]] = {}
        self._symbols: dict[tuple[str, lookup.Symbol], None] = {}
        self._where = cache(lambda released, symbol: lookup.where(self._ledger, released, symbol, self._version))
        self._every_run = {method for row in matrix.rows("entry-statements") for method in row.get("every_run", ())}
        modules = [str(item.get("module")) for item in facts.items("use")]
        self._beside = {str(facts.value("recipe.framework")), *(module.partition(".")[0] for module in modules)}

    def add(self, item: Mapping[str, Value]) -> None:
        use, lacks = View.of(item), item.get("lacks")
        module, kind, others = use.text("module"), use.text("kind"), use.words("others")
        if module is None or kind is None:
            return
        keyword = item.get("keyword") if kind == "keyword" else None
        parameters = item.get("parameters") if kind == "override" else None
        symbol = lookup.Symbol.of(module, item.get("name"), keyword, parameters)
        moves = self._moves(symbol)
        top = module.partition(".")[0]
        owner = use.text("package") or self._owner(top) or (moves[0].package if moves else None)
        version = self._facts.value(f"pkg.{owner}") if owner is not None else None
        broken: _Broken | None = None
        if owner is None:
            if lacks == top and kind in ("module", "name"):
                broken = _Broken(normalise(top), "unknown-module", top, None, lookup.Symbol(top))
        elif version is ABSENT:
            # Where a distribution of another name brings the module, its files are there.
            if kind in ("module", "name") and lacks in (None, top):
                broken = _Broken(owner, "package", top, None, lookup.Symbol(top))
        elif isinstance(version, (str, Range)):
            self._symbols[owner, symbol] = None
            gap = use.text("lacks") if lacks != top else None
            find = partial(self._broken, owner, symbol, moves=moves, lacks=gap)
            if lacks is not ABSENT:
                broken = self._in_all(owner, version, find) if isinstance(version, Range) else find(version)
        if broken is None or self._is_kept(broken) or (others is not None and not self._is_dropped(broken, others)):
            return
        _, places, reaches = self._entries.setdefault((broken.package, broken.kind, broken.label), (broken, [], []))
        places += use.words("place") or ()
        reaches += [reach] if (reach := use.text("reach")) in _REACH else ["start"]

    def _in_all(self, owner: str, possible: Range, find: Callable[[str], _Broken | None]) -> _Broken | None:
        """Return the gap that every release in a range has, as that of the newest one that the ledger lists."""
        gaps = [*takewhile(bool, (find(str(release)) for release in reversed(possible.releases)))]
        is_one = len(gaps) == len(possible.releases) and len({gap and (gap.kind, gap.label) for gap in gaps}) == 1
        listed = (gap for gap in gaps if gap and self._ledger.release(owner, str(gap.installed)) is not None)
        return next(listed, None) if is_one else None

    def _is_kept(self, broken: _Broken) -> bool:
        """Return whether something else that the code imports makes the call take the keyword."""
        symbol = broken.symbol
        return broken.kind == "keyword" and any(
            by in self._beside
            and not self._facts.absent(f"pkg.{by}")
            and ((version := self._version(by)) is None or lies_in(version, releases) is not False)
            for by, releases in lookup.keepers(self._matrix, broken.package, symbol.name, symbol.keyword)
        )

    def _is_dropped(self, broken: _Broken, others: Sequence[str]) -> bool:
        """Return whether another release takes the keyword of a recipe, and no other call of this one does: a recipe
        has keys of the framework's own too."""
        for module, _, name in (call.rpartition(".") for call in others):
            version = self._version(module)
            symbol = broken.symbol._replace(module=module, name=name)
            if version is None or not isinstance(self._by_releases(module, symbol, version), lookup.Lacking):
                return False
        releases = self._releases_with(broken, alone=True)
        return broken.move is not None or releases is not ABSENT or self._inherited(broken) is not None

    def _owner(self, top: str) -> str | None:
        """Return the distribution that a top-level module comes from."""
        owner = self._ledger.owner(top)
        if owner is None:
            rows = (*self._matrix.rows("module-distributions"), *self._matrix.rows("stack-modules", "module"))
            owner = next((str(row["name"]) for row in rows if row["module"] == top), None)
        if owner is None and self._facts.known(f"pkg.{normalise(top)}"):
            owner = normalise(top)
        return owner

    def records(self) -> tuple[Mapping[str, Value], ...]:
        """Return one record for each missing symbol, in the order in which the code uses them."""
        return tuple(self._record(*entry) for entry in self._entries.values())

    def _broken(
        self, owner: str, symbol: lookup.Symbol, version: str, moves: Sequence[lookup.Move], lacks: str | None
    ) -> _Broken | None:
        """Return what a release lacks: by its installed files (``lacks``), else by the files of the releases, else by
        the table."""
        move = next((row for row in moves if row.package == owner), None)
        lacking = _lacking(symbol, lacks) if lacks is not None else self._by_releases(owner, symbol, version)
        if isinstance(lacking, Unknown):
            is_listed = move is not None and move.has(version) is False
            lacking = _lacking(symbol, symbol.keyword or symbol.dotted) if is_listed else None
        part = "keyword" if symbol.keyword else "override" if symbol.parameters is not None else ""
        if lacking is None or (part and lacking.kind != part):
            return None  # where the name itself is missing, that is another use
        label = f"{lacking.name}({symbol.keyword}=)" if lacking.kind == "keyword" else lacking.name
        if lacking.kind in ("module", "name"):
            module, _, name = lacking.name.rpartition(".")
            symbol = lookup.Symbol(lacking.name) if lacking.kind == "module" else lookup.Symbol(module, name)
        return _Broken(owner, lacking.kind, label, version, symbol, lacking.call, move)

    def _by_releases(self, owner: str, symbol: lookup.Symbol, version: str) -> lookup.Lacking | Unknown | None:
        """Return what a release lacks. A release behind all that were read lacks what was there once and went, one
        between two that were read what both lack."""
        released = self._ledger.package(owner)
        if released is None or not released.by_names:
            return Unknown(Message("the ledger has no names of this package"))
        lacking = lookup.answer(self._ledger, released, symbol, version, self._version)
        releases = self._where(released, symbol) if isinstance(lacking, Unknown) else None
        if releases is not None and releases.yes:
            place = min(releases.place_of(version), len(releases.read) - 1)
            if releases.place_of(version) > place or releases.has(version) is False:
                before = lookup.answer(self._ledger, released, symbol, releases.read[place], self._version)
                return before or lacking
        return lacking

    def _moves(self, symbol: lookup.Symbol) -> list[lookup.Move]:
        """Return the rows of the table moved-names about a symbol."""
        if symbol.keyword:
            names = symbol.name, symbol.name.rpartition(".")[2]
            return list(lookup.part_moves(self._matrix, "keyword", names, symbol.keyword))
        if symbol.parameters is not None:
            return []
        return list(lookup.name_moves(self._matrix, symbol.module, symbol.name.partition(".")[0]))

    def _record(self, broken: _Broken, places: list[str], reaches: list[str]) -> Mapping[str, Value]:
        package, installed, has = broken.package, broken.installed, self._releases_with(broken, alone=True)
        fits = self._releases_with(broken)
        of_parts = has is ABSENT and broken.kind in ("keyword", "override")
        if of_parts and (inherited := self._inherited(broken)) is not None:
            package, installed, has = inherited
            fits, rows = has, (row for row in self._moves(broken.symbol) if row.package == package)
            broken = broken._replace(move=next(rows, None))
        reach = min(reaches, key=_REACH.index)
        if broken.kind == "override" and reach != "unused" and broken.label.rpartition(".")[2] not in self._every_run:
            reach = "sometimes"
        return {
            "package": package,
            "kind": broken.kind,
            "what": broken.label,
            "installed": installed or ABSENT,
            "has": has,
            "fits": fits,
            "moved_to": self._moved_to(broken, "en"),
            "moved_to_zh": self._moved_to(broken, "zh"),
            "call": spelled(broken.label, broken.call) if broken.call else ABSENT,
            "reach": reach,
            "place": tuple(dict.fromkeys(places))[:_MOST_PLACES],
        }

    def _inherited(self, broken: _Broken) -> tuple[str, str, str] | None:
        """Return the package whose class is inherited from, its installed version, and its releases with which it
        works: a keyword of ``trl.SFTConfig`` may be one of transformers' ``TrainingArguments``."""
        released = self._ledger.package(broken.package)
        if released is None or broken.installed is None or not released.by_names:
            return None
        user = released, broken.installed
        for base in lookup.inherited_from(self._ledger, released, broken.symbol, broken.installed, self._version):
            version = str(self._version(base.name))
            releases = lookup.where(self._ledger, base, broken.symbol, self._version, user).nearest(version)
            if releases.yes:
                return base.name, version, releases.excluding(version)
        return None

    def _releases_with(self, broken: _Broken, alone: bool = False) -> Value:
        """Return the releases that have the symbol and, unless it stands ``alone``, all else that the code uses of the
        package, if any have: by the releases that were read, else by the table."""
        released = self._ledger.package(broken.package)
        if broken.installed is None:
            return ABSENT
        if released is not None and released.by_names:
            releases = self._releases_for_all(released, broken.symbol, broken.installed) if not alone else None
            if releases is None or not releases.yes:
                releases = self._where(released, broken.symbol).nearest(broken.installed)
            beyond = broken.move is not None and releases.place_of(broken.installed) == len(releases.read)
            if releases.yes and not beyond:
                return releases.excluding(broken.installed)
        return broken.move.releases if broken.move is not None and "|" not in broken.move.releases else ABSENT

    def _releases_for_all(self, released: Released, symbol: lookup.Symbol, installed: str) -> Releases:
        """Return the nearest releases of a package that have the symbol, and all else that the code uses of it. A
        symbol that no release has does not count: a base class of another package may bring it."""
        symbols = [gap.symbol for gap, _, _ in self._entries.values() if gap.package == released.name and gap.installed]
        fitting = [releases for other in symbols if (releases := self._where(released, other)).yes]
        releases = reduce(and_, fitting, self._where(released, symbol)).nearest(installed)
        uses = [other for owner, other in self._symbols if owner == released.name] if releases.yes else []
        possible = [fits for other in uses if (fits := self._where(released, other).possible).yes]
        return reduce(and_, possible, releases).nearest(installed)

    def _moved_to(self, broken: _Broken, lang: str) -> Value:
        symbol, move = broken.symbol, broken.move
        if move is not None and (move.new or move.write):
            # The judged release must have what took the keyword's place: in the class that was called, of whichever
            # package, or in another one of the table's.
            owner = move.package if move.into or not move.new else broken.package
            version = self._version(owner)
            is_new = not move.new_releases or version is None or lies_in(version, move.new_releases) is not False
            place = lookup.Symbol(move.package, move.into, move.new if move.new and is_new else symbol.keyword)
            if move.new and not move.into:
                place = lookup.Symbol(symbol.module, symbol.name, move.new)
            home = move.write[lang] if move.into and move.write else move.called(broken.kind) or move.write[lang]
            if broken.kind != "keyword" or version is None or not (move.into or move.new.isidentifier()):
                return home
            if not (is_new or move.into):
                return ABSENT
            return ABSENT if isinstance(self._by_releases(owner, place, version), lookup.Lacking) else home
        released = self._ledger.package(broken.package)
        if released is None or broken.installed is None or broken.kind not in ("module", "name"):
            return ABSENT
        return lookup.went_to(released, broken.label, broken.installed) or ABSENT

    def _version(self, package: str) -> str | None:
        return self._facts.text(f"pkg.{package}")


def _lacking(symbol: lookup.Symbol, lacks: str) -> lookup.Lacking:
    """Return the gap of the installed files, in the form of the ledger's answer."""
    if symbol.keyword and lacks == symbol.keyword:
        return lookup.Lacking("keyword", symbol.dotted)
    if symbol.parameters is not None and not lacks.startswith(symbol.module.partition(".")[0]):
        return lookup.Lacking("override", symbol.dotted, lacks)
    is_module = symbol.module == lacks or symbol.module.startswith(f"{lacks}.")
    return lookup.Lacking("module" if is_module else "name", lacks)
