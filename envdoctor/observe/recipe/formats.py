"""The formats of recipes, from the table recipe-formats: which keys each has, and what they mean."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.recipe.document import DOCUMENTS, REST, Part, RecipeEntry

#: How much a misspelled key is like the one that is meant, and how many others a file of a strict framework may have.
MISSPELLED, _MOST_FOREIGN = 0.87, 4
_NUMBERS = {"1": "true", "0": "false"}
_TAKES = {"boolean": "flag", "texts": "many"}


class Meaning(NamedTuple):
    """What a key says of a ``field`` of the recipe: its value, by ``words`` (globs, the first that fits) another; an
    empty word says nothing. With ``add`` the value joins others of the list."""

    field: str
    words: Mapping[str, str] = {}
    add: bool = False

    def word(self, spelling: str) -> str:
        """Return what is meant by what is written; parsers of arguments take 1 for true."""
        if spelling not in self.words and spelling in _NUMBERS and "true" in self.words:
            spelling = _NUMBERS[spelling]
        if spelling in self.words:
            return self.words[spelling]
        return next((word for glob, word in self.words.items() if fnmatchcase(spelling, glob)), spelling)


class Format(NamedTuple):
    """One format. ``keys`` have their meanings; ``unused`` ones (globs) have none. ``includes`` are formats whose keys
    stand in a section (an empty name: beside its own). ``names`` are globs of its programs and calls, each with what
    they say. If two formats give a field, the one with the higher ``authority`` counts; a negative one never overrides,
    and what it says otherwise is a contradiction. ``framework`` is empty for a format that stands beside that of a run.
    ``matrices/schema/recipe-formats.json`` has the columns of ``row``."""

    name: str
    row: Mapping[str, Any]
    keys: Mapping[str, tuple[Meaning, ...]]
    unused: frozenset[str]
    globs: tuple[str, ...]
    includes: Mapping[str, str]
    names: Mapping[str, Mapping[str, str]]
    authority: int
    framework: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Format":
        """Return the format of a row of the table."""
        unused = row.get("unused", ())
        keys = {
            key: tuple(Meaning(meaning) if isinstance(meaning, str) else Meaning(**meaning) for meaning in several)
            for key, values in row.get("keys", {}).items()
            for several in (values if isinstance(values, list) else [values],)
        }
        globs = tuple(name for name in unused if "*" in name)
        values = row.get("includes", {}), row.get("names", {}), row.get("authority", 2), row.get("framework", "")
        return cls(row["name"], row, keys, frozenset(unused) - {*globs}, globs, *values)

    def named(self, program: str) -> Mapping[str, str] | None:
        """Return what the name of a program or call says, by its end; None for another one."""
        for name, meaning in self.names.items():
            plain = program == name or program.endswith((f".{name}", f"/{name}"))
            if plain or ("*" in name and any(fnmatchcase(program, f"{before}{name}") for before in ("", "*.", "*/"))):
                return meaning
        return None


class Formats:
    """All formats, in the order in which a framework is chosen when a recipe has several. ``registry`` has the
    recipe's fields, of which ``kinds`` are the types; ``released`` are the rows of the table recipe-defaults."""

    def __init__(self, matrix: Matrix, released: Iterable[Mapping[str, Any]] = ()) -> None:
        self._formats = {str(row["name"]): Format.of(row) for row in matrix.rows("recipe-formats", "format")}
        self._released, self.registry = tuple(released), matrix.registry
        self.kinds = {spec.key[7:]: spec.type for spec in self.registry if spec.key.startswith("recipe.")}
        self.kind_of, self.takes = lru_cache(4096)(self._kind_of), lru_cache(4096)(self._takes)

    def _kind_of(self, name: str) -> str:
        """Return whether a name in a command starts a training program (``program``) or another name (``launcher``)."""
        forms = [form for form in self if form.named(name) is not None]
        launches = any("launcher" in {**form.row.get("says", {}), **(form.named(name) or {})} for form in forms)
        return "program" if any(form.authority >= 2 for form in forms) else "launcher" if launches else ""

    def _takes(self, key: str) -> str:
        """Return how many words follow an option: a ``flag`` has none but true or false, others ``one``, or as ``many``
        as stand before the next option."""
        meanings = [meaning for form in self if (place := self.find(form, key)) for meaning in place[1]]
        # --flash_attn says something of a text by being there.
        spelt = [word for word in meanings if word.words]
        types = {"boolean" if {*word.words} == {"true", "false"} else "texts" if word.add else "text" for word in spelt}
        types |= {self.kinds.get(meaning.field) or "" for meaning in meanings if not meaning.words}
        return _TAKES.get(types.pop(), "one") if len(types) == 1 else "one" if types else "many"

    @staticmethod
    @lru_cache(maxsize=1)
    def with_releases(matrix: Matrix) -> "Formats":
        """Return the formats of a matrix with the defaults of releases; of each recipe that is read the same."""
        return Formats(matrix, matrix.rows("recipe-defaults", "arguments"))

    def __iter__(self) -> Iterator[Format]:
        return iter(self._formats.values())

    def __getitem__(self, name: str) -> Format:
        return self._formats[name]

    def find(self, form: Format, key: str, depth: int = 0) -> tuple[Format, tuple[Meaning, ...], str] | None:
        """Return the format that a key belongs to, ``form`` or one that it includes, what the key means there (nothing
        of one that is known and not used), and how it is called there. None for an unknown key."""
        key = key.replace("-", "_")
        meanings = form.keys.get(key)
        if meanings is not None or key == REST:
            return form, meanings or (), key
        for section, name in form.includes.items() if depth < 4 else ():
            if not section or key.startswith(f"{section}."):
                inner = self.find(self._formats[name], key[len(section) + 1 :] if section else key, depth + 1)
                if inner is not None:
                    return inner
        return (form, (), key) if key in form.unused or any(fnmatchcase(key, name) for name in form.globs) else None

    @cached_property
    def pattern(self) -> str:
        """Return a pattern of every name that belongs to a format."""
        return "|".join(rf"(.*[./])?{translate(name)}" for form in self for name in form.names)

    @property
    def libraries(self) -> set[str]:
        """Return the modules of the libraries that have formats."""
        names = {str(row.get("call", "")) for row in self._released}
        # What stands beside a framework has names of variables: model.half, trainer.train.
        callables = [name for form in self if not form.row.get("aside") for name in form.names]
        names |= {name for name in callables if "." in name and not name.endswith(".py")}
        tops = {name.partition(".")[0] for name in names} | {str(row["package"]) for row in self._released}
        return {top for top in tops if top.isidentifier() and top.islower()}

    def released(
        self, form: Format, calls: Collection[str]
    ) -> tuple[list[Mapping[str, Any]], Mapping[str, Mapping[str, Meaning]]]:
        """Return the rows with the released defaults of a format's keys: those of what a recipe calls, of all where it
        names none; and the keys in them with what they mean, by field."""
        rows = [row for row in self._released if row["format"] == form.name]
        rows = [row for row in rows if "call" not in row or any(row["call"] in call for call in calls)] or rows
        meanings: dict[str, dict[str, Meaning]] = {}
        for key in dict.fromkeys(key for row in rows for key in row["defaults"]):
            for meaning in (self.find(form, key) or (form, (), ""))[1]:
                meanings.setdefault(meaning.field, {}).setdefault(key, meaning)
        return rows, meanings

    def known(self, form: Format) -> set[str]:
        """Return every key of a format and of what it includes, without its section, for somebody who mistyped one."""
        forms = [form, *(self._formats[name] for name in form.includes.values())]
        return {key.rpartition(".")[2] for other in forms for key in (*other.keys, *other.unused)}

    def of_part(self, part: Part, frameworks: Collection[str] = (), asked: Collection[str] = ()) -> Format | None:
        """Return the format that a program, a call or the keys of a document speak for, keys for one of these
        ``frameworks`` where they are given; None when none does. Something besides names the ``asked`` frameworks."""
        for form in self:
            if part.program and form.named(part.program) is not None:
                if part.own:
                    continue
                deciding, size = form.row.get("keys_decide"), len(part.entries)
                count = 0 if deciding is None else self._count(form, part.entries)
                alone = sum(entry.key.startswith("#") for entry in part.entries)
                if deciding is None or (count == size if deciding == "all" else 2 * count > size - alone):
                    return form
        if part.program and not (part.program.endswith(".py") or part.module):
            return None
        among = [form for form in self if form.row.get("files") and (not frameworks or form.framework in frameworks)]
        if part.program and not frameworks:  # options alone prove no framework whose files have such keys
            among = [form for form in among if not form.row.get("marked_only")]
        shares = [(self._share(form, part, form.framework in asked), form) for form in among]
        best = max(shares, key=lambda share: share[0], default=None)
        return best[1] if best is not None and best[0] > 0 else None

    def of_parts(self, parts: Sequence[Part], asked: Collection[str] = ()) -> tuple[tuple[Part, Format], ...]:
        """Return the parts of known formats: of each program or call the first, which the file is about. Something
        besides names the ``asked`` frameworks."""
        chosen: dict[tuple[str, str], tuple[Part, Format]] = {}
        for part in parts:
            form = self.of_part(part, asked=asked)
            if form is None:
                continue
            beside = form.row.get("aside", False)
            key = (form.name, part.program if form.framework or beside else "")
            before = chosen.get(key)
            if before is not None and beside:
                keys = {entry.key for entry in before[0].entries}
                entries = (*before[0].entries, *(entry for entry in part.entries if entry.key not in keys))
                if "switch" in form.row:  # what one of two calls says, and the other does not, is open
                    keys &= {entry.key for entry in part.entries}
                    entries = tuple(each if each.key in keys else _in_doubt(each) for each in entries)
                chosen[key] = (before[0]._replace(entries=entries), form)
            # Of several calls of one name the first, unless that is hardly one: TrainingArguments(".")
            elif before is None or (
                not part.line and (before[0].perhaps, len(part.entries)) > (part.perhaps, 2 * len(before[0].entries))
            ):
                chosen[key] = (part, form)
        return () if all(form.row.get("aside") for _, form in chosen.values()) else tuple(chosen.values())

    def named_files(self, parts: Iterable[tuple[Part, Format]]) -> Iterator[RecipeEntry]:
        """Yield the settings that name a document (DeepSpeed's file), or a configuration that the framework brings."""
        for entry, form in ((entry, form) for part, form in parts for entry in part.entries if not entry.computed):
            meanings = (self.find(form, entry.key) or (form, (), ""))[1]
            if any(meaning.field == "file" for meaning in meanings) and isinstance(entry.value, str):
                yield from [entry] if entry.value.endswith(DOCUMENTS) or "overrides" in form.row else ()

    def _share(self, form: Format, part: Part, asked: bool) -> float:
        """Return how many of the settings a format knows; a mark, which no other format has, counts as ten. Return 0 if
        there are too few marks, or if fewer than two keys are marks and the format knows less than half of a document
        (a third of a command's options). A document of which it does not know a third, and more than some misspelled
        keys, is a project's own, which has keys of the framework; so is one with more than four other keys that are
        misspelled in no way, if the framework's parser refuses them and nothing else has ``asked`` for it."""
        count, size = self._count(form, part.entries), len(part.entries)
        keys = [entry.key.replace("-", "_") for entry in part.entries]
        marks = [mark for key in keys for mark in form.row.get("marks", ()) if fnmatchcase(key, mark)]
        enough = len(marks) > (not part.program) or (3 if part.program else 2) * count >= size
        enough = enough and (part.program > "" or size - count <= max(4, size // 3))
        if enough and "lenient" in form.row and not (part.program or asked) and size - count > _MOST_FOREIGN:
            from difflib import get_close_matches

            known, foreign = self.known(form), [key for key in keys if self.find(form, key) is None]
            enough = sum(not get_close_matches(key, known, 1, MISSPELLED) for key in foreign) <= _MOST_FOREIGN
        return count + 10 * len({*marks}) if enough and len({*marks}) >= form.row.get("marked_only", 0) else 0

    def _count(self, form: Format, entries: Sequence[RecipeEntry]) -> int:
        return sum(1 for entry in entries if self.find(form, entry.key) is not None)


def _in_doubt(entry: RecipeEntry) -> RecipeEntry:
    return entry._replace(computed=True, undecided=True)


def spelled(value: object) -> str:
    """Return a value as the words of a table spell it."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
