"""The formats of recipes, from the table recipe-formats: which keys each has, and what they mean."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.observe.recipe.reading.document import REST, Part, RecipeEntry

#: Formats of what says something of a run, and is no recipe of its own.
NO_RECIPES = (
    "environment",
    "plain-training",
    "model-cast",
    "tokenizer",
    "torch-loop",
    "trainer",
    "trainer-run",
    "datasets",
)
_NUMBERS = {"1": "true", "0": "false"}


class Meaning(NamedTuple):
    """What a key says of a ``field`` of the recipe: its value, by ``words`` (globs, the first that fits) another; an
    empty word says nothing. With ``add`` the value joins others of the list."""

    field: str
    words: Mapping[str, str] = {}
    add: bool = False

    def word(self, written: str) -> str:
        """What is meant by what is written; parsers of arguments take 1 for true."""
        if written not in self.words and written in _NUMBERS and "true" in self.words:
            written = _NUMBERS[written]
        if written in self.words:
            return self.words[written]
        return next((word for glob, word in self.words.items() if fnmatchcase(written, glob)), written)


class Format(NamedTuple):
    """One format: ``keys`` with what they mean, ``unused`` ones (globs), ``includes`` (formats whose keys stand in a
    section; an empty name: beside its own), ``names`` (globs of programs and calls that it belongs to, each with what
    they say). Of two formats that give a field the one with the higher ``authority`` is believed; a negative one never
    overrides, and what it says otherwise is a contradiction. ``framework`` is whose run is described; empty for a
    format that stands beside one. ``matrices/schema/recipe-formats.json`` has the columns of ``row``."""

    name: str
    row: Mapping[str, Any]
    keys: Mapping[str, tuple[Meaning, ...]]
    unused: frozenset[str]
    globs: tuple[str, ...]
    includes: Mapping[str, str]
    names: Mapping[str, Mapping[str, str]]
    authority: int
    framework: str

    def named(self, program: str) -> Mapping[str, str] | None:
        """What the name of a program or call says, which ends as the format's own names do; None for another one."""
        for name, said in self.names.items():
            if any(fnmatchcase(program, f"{before}{name}") for before in ("", "*.", "*/")):
                return said
        return None


class Formats:
    """All formats, in the order in which a framework is chosen when a recipe has several. ``registry`` has the
    recipe's fields, of which ``kinds`` are the types; ``released`` are the rows of the table recipe-defaults."""

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], registry: Registry, released: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self._formats = {str(row["name"]): _format(row) for row in rows}
        self._released = tuple(released)
        self.registry = registry
        self.kinds = {spec.key[7:]: spec.type for spec in registry if spec.key.startswith("recipe.")}

    def __iter__(self) -> Iterator[Format]:
        return iter(self._formats.values())

    def __getitem__(self, name: str) -> Format:
        return self._formats[name]

    def find(self, form: Format, key: str, depth: int = 0) -> tuple[Format, tuple[Meaning, ...], str] | None:
        """The format that a key belongs to, ``form`` or one that it includes, what the key means there (nothing of one
        that is known and not used), and how it is called there. None for an unknown key."""
        key = key.replace("-", "_")
        found = form.keys.get(key)
        if found is not None or key == REST:
            return form, found or (), key
        for section, name in form.includes.items() if depth < 4 else ():
            if not section or key.startswith(f"{section}."):
                inner = self.find(self._formats[name], key[len(section) + 1 :] if section else key, depth + 1)
                if inner is not None:
                    return inner
        return (form, (), key) if key in form.unused or any(fnmatchcase(key, name) for name in form.globs) else None

    @property
    def pattern(self) -> str:
        """A pattern of every name that belongs to a format."""
        return "|".join(rf"(.*[./])?{translate(name)}" for form in self for name in form.names)

    @property
    def libraries(self) -> set[str]:
        """The modules of the libraries that have formats."""
        named = {str(row.get("call", "")) for row in self._released}
        named |= {name for form in self for name in form.names if "." in name and not name.endswith(".py")}
        tops = {name.partition(".")[0] for name in named} | {str(row["package"]) for row in self._released}
        return {top for top in tops if top.isidentifier() and top.islower()}

    def released(self, form: Format, calls: Collection[str]) -> list[Mapping[str, Any]]:
        """The released defaults of a format's keys: those of what a recipe calls, of all where it names none."""
        rows = [row for row in self._released if row["format"] == form.name]
        called = [row for row in rows if "call" not in row or any(row["call"] in call for call in calls)]
        return called or rows

    def known(self, form: Format) -> set[str]:
        """Every key of a format and of what it includes, without its section, for somebody who mistyped one."""
        forms = [form, *(self._formats[name] for name in form.includes.values())]
        return {key.rpartition(".")[2] for one in forms for key in (*one.keys, *one.unused)}

    def of_part(self, part: Part) -> Format | None:
        """The format that a program, a call or the keys of a document speak for; None when none does."""
        for form in self:
            if part.program and form.named(part.program) is not None and self._decided(form, part.entries):
                return form
        if part.program and not part.program.endswith(".py"):
            return None
        shares = [(self._share(form, part.entries), form) for form in self if form.row.get("files")]
        best = max(shares, key=lambda share: share[0], default=None)
        return best[1] if best is not None and best[0] > 0 else None

    def _decided(self, form: Format, entries: Sequence[RecipeEntry]) -> bool:
        """Whether the keys may be those of the format that a name speaks for."""
        deciding = form.row.get("keys_decide")
        if deciding is None:
            return True
        known = self._count(form, entries)
        return known == len(entries) if deciding == "all" else 2 * known > len(entries)

    def _count(self, form: Format, entries: Sequence[RecipeEntry]) -> int:
        return sum(1 for entry in entries if self.find(form, entry.key) is not None)

    def _share(self, form: Format, entries: Sequence[RecipeEntry]) -> float:
        """How much of the settings a format knows; a mark, which no other format has, counts as ten. Nothing, without
        one, where it knows less than a third of them."""
        marks = form.row.get("marks", ())
        known = self._count(form, entries)
        marked = {mark for entry in entries for mark in marks if fnmatchcase(entry.key.replace("-", "_"), mark)}
        enough = marked or (3 * known >= len(entries) and not form.row.get("marked_only"))
        return known + 10 * len(marked) if enough else 0


def _format(row: Mapping[str, Any]) -> Format:
    unused = row.get("unused", ())
    listed = {key: said if isinstance(said, list) else [said] for key, said in row.get("keys", {}).items()}
    keys = {
        key: tuple(Meaning(one) if isinstance(one, str) else Meaning(**one) for one in several)
        for key, several in listed.items()
    }
    globs = tuple(name for name in unused if "*" in name)
    said = row.get("includes", {}), row.get("names", {}), row.get("authority", 2), row.get("framework", "")
    return Format(row["name"], row, keys, frozenset(unused) - {*globs}, globs, *said)


def spelled(value: object) -> str:
    """A value as the words of a table spell it."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
