"""The files of a recipe, those that were given and those that they name, each read and taken apart; and the formats of
recipes, from the table recipe-formats: which keys each has, and what they mean."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache
from glob import escape, glob
from itertools import islice
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Origin
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.recipe.commands import parts_of_script
from envdoctor.observe.recipe.document import (
    REST,
    Part,
    RecipeEntry,
    RecipeError,
    container_commands,
    folders_above,
    makefile_as_shell,
    read_document,
)
from envdoctor.system.documents import content_of, text_of
from envdoctor.system.message import Message, said_by

#: Formats of what says something of a run, and is no recipe of its own.
NO_RECIPES = (
    *("environment", "plain-training", "model-cast", "tokenizer", "torch-loop", "trainer", "trainer-run", "datasets"),
    *("script-arguments", "attention-patch", "model-config", "other-training"),
)
_NUMBERS = {"1": "true", "0": "false"}


class Meaning(NamedTuple):
    """What a key says of a ``field`` of the recipe: its value, by ``words`` (globs, the first that fits) another; an
    empty word says nothing. With ``add`` the value joins others of the list."""

    field: str
    words: Mapping[str, str] = {}
    add: bool = False

    def word(self, written: str) -> str:
        """Return what is meant by what is written; parsers of arguments take 1 for true."""
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

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Format":
        """Return the format of a row of the table."""
        unused = row.get("unused", ())
        keys = {
            key: tuple(Meaning(one) if isinstance(one, str) else Meaning(**one) for one in several)
            for key, said in row.get("keys", {}).items()
            for several in (said if isinstance(said, list) else [said],)
        }
        globs = tuple(name for name in unused if "*" in name)
        said = row.get("includes", {}), row.get("names", {}), row.get("authority", 2), row.get("framework", "")
        return cls(row["name"], row, keys, frozenset(unused) - {*globs}, globs, *said)

    def named(self, program: str) -> Mapping[str, str] | None:
        """Return what the name of a program or call says, by its end; None for another one."""
        for name, said in self.names.items():
            plain = program == name or program.endswith((f".{name}", f"/{name}"))
            if plain or ("*" in name and any(fnmatchcase(program, f"{before}{name}") for before in ("", "*.", "*/"))):
                return said
        return None


class Formats:
    """All formats, in the order in which a framework is chosen when a recipe has several. ``registry`` has the
    recipe's fields, of which ``kinds`` are the types; ``released`` are the rows of the table recipe-defaults."""

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], registry: Registry, released: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self._formats = {str(row["name"]): Format.of(row) for row in rows}
        self._released = tuple(released)
        self.registry = registry
        self.kinds = {spec.key[7:]: spec.type for spec in registry if spec.key.startswith("recipe.")}

    def __iter__(self) -> Iterator[Format]:
        return iter(self._formats.values())

    def __getitem__(self, name: str) -> Format:
        return self._formats[name]

    def find(self, form: Format, key: str, depth: int = 0) -> tuple[Format, tuple[Meaning, ...], str] | None:
        """Return the format that a key belongs to, ``form`` or one that it includes, what the key means there (nothing
        of one that is known and not used), and how it is called there. None for an unknown key."""
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
        """Return a pattern of every name that belongs to a format."""
        return "|".join(rf"(.*[./])?{translate(name)}" for form in self for name in form.names)

    @property
    def libraries(self) -> set[str]:
        """Return the modules of the libraries that have formats."""
        named = {str(row.get("call", "")) for row in self._released}
        named |= {name for form in self for name in form.names if "." in name and not name.endswith(".py")}
        tops = {name.partition(".")[0] for name in named} | {str(row["package"]) for row in self._released}
        return {top for top in tops if top.isidentifier() and top.islower()}

    def released(self, form: Format, calls: Collection[str]) -> list[Mapping[str, Any]]:
        """Return the released defaults of a format's keys: those of what a recipe calls, of all where it names none."""
        rows = [row for row in self._released if row["format"] == form.name]
        called = [row for row in rows if "call" not in row or any(row["call"] in call for call in calls)]
        return called or rows

    def known(self, form: Format) -> set[str]:
        """Return every key of a format and of what it includes, without its section, for somebody who mistyped one."""
        forms = [form, *(self._formats[name] for name in form.includes.values())]
        return {key.rpartition(".")[2] for one in forms for key in (*one.keys, *one.unused)}

    def of_part(self, part: Part, frameworks: Collection[str] = ()) -> Format | None:
        """Return the format that a program, a call or the keys of a document speak for, keys for one of these
        ``frameworks`` where they are given; None when none does."""
        for form in self:
            if part.program and form.named(part.program) is not None:
                if part.own:
                    continue
                deciding, size = form.row.get("keys_decide"), len(part.entries)
                known = 0 if deciding is None else self._count(form, part.entries)
                if deciding is None or (known == size if deciding == "all" else 2 * known > size):
                    return form
        if part.program and not (part.program.endswith(".py") or part.module):
            return None
        among = [form for form in self if form.row.get("files") and (not frameworks or form.framework in frameworks)]
        if part.program and not frameworks:  # options alone prove no framework whose files have such keys
            among = [form for form in among if not form.row.get("marked_only")]
        shares = [(self._share(form, part.entries), form) for form in among]
        best = max(shares, key=lambda share: share[0], default=None)
        return best[1] if best is not None and best[0] > 0 else None

    def _share(self, form: Format, entries: Sequence[RecipeEntry]) -> float:
        """Return how much of the settings a format knows; a mark, which no other format has, counts as ten. Nothing,
        without one, where it knows less than a third of them."""
        known = self._count(form, entries)
        keys = [entry.key.replace("-", "_") for entry in entries]
        marked = {mark for key in keys for mark in form.row.get("marks", ()) if fnmatchcase(key, mark)}
        enough = marked or (3 * known >= len(entries) and not form.row.get("marked_only"))
        return known + 10 * len(marked) if enough else 0

    def _count(self, form: Format, entries: Sequence[RecipeEntry]) -> int:
        return sum(1 for entry in entries if self.find(form, entry.key) is not None)


def spelled(value: object) -> str:
    """Return a value as the words of a table spell it."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


_LARGEST = 8 << 20
_MOST_FILES = 12
_DOCUMENTS = (".yaml", ".yml", ".json", ".jsonc", ".json5")
#: What lies in the first folder of a project.
_ROOT = (".git", "pyproject.toml", "setup.py")
_MOST_MODULES = 100
_IMPORTED = re.compile(r"(?m)^(?:from|import)[ \t]+\.*(\w[\w.]*)")
_TAKES = {"boolean": "flag", "texts": "many"}
_COMMENTS = re.compile(r"(?m)(?:^|[ \t])#.*")
_LINE = re.compile(r":(\d{1,6})\Z")
#: What no name of a file has: an option, or a script, a path or a key behind the program that starts it.
_COMMAND = re.compile(r"\s--?[A-Za-z]|\A\s*(?:\S{1,200}\s+){1,6}\S*(?:\.py|\.sh|\.ya?ml|=|[\w-]/[\w-])")
_NO_RUN = (
    "describes no run of a framework that is known: {}; say what it does (--set recipe.method=lora --set "
    "recipe.batch_size=2), or give the script that reads it: --code FILE"
)
_NO_FILE = "--recipe {}: there is no file of this name, and no framework that is known takes it for a command"
#: Words of scripts that train, and of others that run, merge or judge a model.
_TRAINS = re.compile(r"\w*(?:Trainer|TrainingArguments)|backward|optimizer|train_batch")
_RUNS = {"generate", "merge_and_unload", "evaluate"}
_NO_GRADIENTS = {"no_grad", "inference_mode", "for_inference"}
_NO_TRAINING = ("export", "infer", "serve")


class NoRun(RecipeError):
    """A file describes no run of a framework that is known; ``started`` are scripts of one's own that it starts, and
    ``missing`` is what :class:`RecipeFile` says."""

    started: tuple[str, ...] = ()
    missing: tuple[tuple[str, Origin, str], ...] = ()


class RecipeFileError(ObservationError):
    """A recipe that was given cannot be used; the message names the file. The others are those of :class:`NoRun`."""

    started: tuple[str, ...] = ()
    missing: tuple[tuple[str, Origin, str], ...] = ()


class RecipeFile(NamedTuple):
    """One file: its name as the user or the naming file gives it, and its parts, each with its format. ``missing`` are
    files that it names and that could not be read: the name, the place, and why (a clause after "which"); ``started``
    are scripts of one's own that its commands start. Of several training commands one is the run: ``runs`` are the
    lines of all, its own first. ``trains`` is False for a script that only runs a model, None where nobody knows."""

    name: str
    parts: tuple[tuple[Part, Format], ...]
    missing: tuple[tuple[str, Origin, str], ...] = ()
    started: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()
    trains: bool | None = True


def is_command(typed: str) -> bool:
    """Return whether this is a command and no name of a file."""
    return _COMMAND.search(typed) is not None


def read_files(given: Sequence[str], cwd: str, formats: Formats) -> Iterator[RecipeFile]:
    """Yield the files in their order, behind each those that it names. ``run.sh:4`` is the command in this line, ``-``
    standard input; what has blanks and is no file is the command itself.

    Raises :class:`RecipeFileError` for a file that was given; one that a recipe names may be anything.
    """
    seen: set[str] = set()
    chosen = dict[str, int | str | None]()
    for typed in given:
        there = os.path.lexists(os.path.join(cwd, typed))
        command = typed if is_command(typed) and not there else None
        end = None if there or command else _LINE.search(typed)
        line = int(end[1]) if end else None
        name = "command" if command else typed[: end.start()] if end else typed
        path = os.path.normpath(os.path.join(cwd, name))
        if chosen.setdefault(path, command or line) != (command or line):
            raise RecipeFileError("--recipe {}: one run is judged at a time; name one line of {}", typed, name)
        if path not in seen:
            try:
                yield from _taken_apart(path, name, cwd, formats, seen=seen, line=line, typed=command)
            except RecipeError as error:
                problem = RecipeFileError("--recipe {}: {}", name, error)
                if command and type(error) is NoRun and not (error.started or re.search(r"\s-", command)):
                    problem = RecipeFileError(_NO_FILE, command)
                if type(error) is NoRun:
                    problem.started, problem.missing = error.started, error.missing
                raise problem from None


def with_code(
    files: Sequence[RecipeFile], code: Sequence[str], cwd: str, formats: Formats
) -> tuple[list[RecipeFile], dict[str, str]]:
    """Return the files, with the keys of documents that their scripts and the ``code`` beside them name as the scripts'
    own; and by format the class to which a parser of theirs hands the keys of documents."""
    read = dict.fromkeys(name for file in files for name in (file.name, *file.started) if name.endswith(".py"))
    beside = dict.fromkeys(name for name in code if name.endswith(".py") and name not in read)
    takes = (form for file in files for part, form in file.parts if not part.program)
    # A framework that is a program of its own reads its files itself.
    documents = [form for form in takes if any("call" in said for said in form.names.values())]
    parts = [one for file in files for one in file.parts]
    for name in beside if documents else ():
        path = os.path.join(cwd, name)
        try:
            content = content_of(path, _LARGEST, "recipe", RecipeError)
            parts += with_formats(python_calls(content, formats, folder=os.path.dirname(path)), formats)
        except RecipeError:
            continue
    called = dict[str, str]()
    for part, form in parts:
        named = form.named(part.program) or {}
        if form in documents and {"stage", "call"} <= named.keys():
            called.setdefault(form.name, named["call"])
    own = set[str]().union(*(_names_in(os.path.join(cwd, name), cwd) for name in (*read, *beside) if documents))

    def marked(part: Part, form: Format) -> Part:
        # A key that a library has is the script's own only where the script declares it.
        words = (
            (entry, {f"{key}:" for key in keys} | ({*keys} if formats.find(form, entry.key) is None else set()))
            for entry in part.entries
            for keys in (entry.key.split("."),)
        )
        entries = tuple(entry._replace(own=not own.isdisjoint(ways)) for entry, ways in words)
        return part if part.program or form not in documents else part._replace(entries=entries)

    return [
        file._replace(parts=tuple((marked(part, form), form) for part, form in file.parts)) for file in files
    ], called


def _taken_apart(
    path: str,
    name: str,
    cwd: str,
    formats: Formats,
    *,
    seen: set[str],
    words: Sequence[str | None] = (),
    line: int | None = None,
    typed: str | None = None,
) -> Iterator[RecipeFile]:
    """Yield a file and those that it names; ``words`` stand behind its name in the command that starts it, ``line`` is
    one of the command that counts; ``typed`` is a command instead of a file."""
    seen.add(path)
    missing: list[tuple[str, Origin, str]] = []

    def other(script: str, line: int) -> str | None:
        there = _look_for(script, path, cwd)
        try:
            return text_of(content_of(there, _LARGEST, "recipe", RecipeError), RecipeError) if there else None
        except RecipeError:
            return None
        finally:
            if there is None and script.endswith(".sh") and not os.path.isabs(script):
                missing.append((script, Origin(name, line), Message("is not there")))

    project = _Project(path, cwd, formats)
    there_is, names_in = project.there_is, project.names_in
    several = _parts(path, name, formats, words, other) if typed is None else command_parts(typed, formats, other)
    taken, runs = _one_run([project.named(part) for part in several], project.trains, line)
    folder = next((part.folder for part in taken if part.line), "")
    parts = tuple(map(project.declared, with_formats(taken, formats)))
    named: dict[str, tuple[tuple[int, ...], Sequence[str | None]]] = {
        one: (place, ()) for one, place in named_files(parts, formats)
    }
    # The script or module of one's own that the command starts, with the words behind it.
    started: dict[str, tuple[tuple[int, ...], Sequence[str | None]]] = {
        part.program: ((part.line,), part.words) for part in taken if _is_own(part)
    }
    # A script that a framework brings, by its name, need not be here.
    own = {part.program for part, form in parts if form.framework and form.named(part.program) is not None}
    found: list[tuple[str, str, Origin, Sequence[str | None]]] = []
    for one, (place, behind) in {**named, **started}.items():
        there = there_is(one, folder)
        if there is None and one not in own:
            missing.append((one, Origin(name, *place), Message("is not there")))
            # What such a script declares nobody knows.
            parts = tuple((_own(part) if part.program == one else part, form) for part, form in parts)
        elif there is not None and there not in seen and len(seen) < _MOST_FILES:
            found.append((there, one, Origin(name, *place), behind))

    own_code = filter(None, (there_is(part.program, part.folder) for part in several if _is_own(part)))
    scripts = [*dict.fromkeys(_shown(one, cwd) for one in own_code)][:_MOST_FILES]
    later = list[RecipeFile]()
    for there, one, where, behind in found:
        shown = _shown(there, cwd)
        try:
            files = list(_taken_apart(there, shown, cwd, formats, seen=seen, words=behind))
            parts, files = _told_once(parts, files, one, names_in(there), formats)
            later += files
        except RecipeError as error:
            # A helper, or training that no format knows, is code: it sets nothing of what a format says.
            if one in started and type(error) is NoRun:
                parts, _ = _told_once(parts, [], one, names_in(there), formats)
            elif one not in own:
                missing.append((shown, where, said_by(error)))
    file = RecipeFile(name, parts, tuple(missing), tuple(scripts), runs, project.script_trains())
    if not later:
        _describes(file, formats)
    yield file
    yield from later


def _describes(file: RecipeFile, formats: Formats) -> None:
    """Raise :class:`RecipeError` if a file says nothing of a run: what it names is missing, or no framework known."""
    said = any(entry.key[:1] != "#" for part, form in file.parts if form.framework for entry in part.entries)
    lacking = [one for one in file.missing if one[0].endswith(_DOCUMENTS) and not said]
    if lacking or (file.missing and not (file.parts or file.started)):
        raise RecipeError("names {}, which {}", *(lacking or file.missing)[0][::2])
    if not file.parts:
        known = ", ".join(sorted({form.framework for form in formats if form.framework}))
        nothing = NoRun(_NO_RUN, known)
        nothing.started, nothing.missing = file.started, file.missing
        raise nothing


class _Project:
    """What lies beside a file that starts scripts: each is looked for once, and read once."""

    def __init__(self, path: str, cwd: str, formats: Formats) -> None:
        self._path, self._cwd, self._formats = path, cwd, formats
        self.there_is, self.names_in = cache(self._there_is), cache(self._names_in)

    def _there_is(self, one: str, folder: str) -> str | None:
        # A module, pkg.train, lies in pkg/train.py or pkg/train/__main__.py, also below src.
        ends = () if one.endswith((".py", *_DOCUMENTS)) else (".py", "/__main__.py")
        choices = (one, *(f"{top}{one.replace('.', '/')}{end}" for top in ("", "src/") for end in ends))
        return next(filter(None, (_look_for(choice, self._path, self._cwd, folder) for choice in choices)), None)

    def _names_in(self, there: str | None) -> set[str]:
        return _names_in(there, self._cwd) if there else set()

    def named(self, part: Part) -> Part:
        """Return a command whose script is somebody's own, although one of a framework has its name, as such."""
        form = self._formats.of_part(part) if _is_own(part) else None
        modules = form.row.get("imports", ()) if form is not None and form.named(part.program) is not None else ()
        there = self.there_is(part.program, part.folder) if modules else None
        return part._replace(own=there is not None and self.names_in(there).isdisjoint(modules))

    def declared(self, both: tuple[Part, Format]) -> tuple[Part, Format]:
        """Return a part with the keys as its own that a checkout of its framework beside it declares."""
        part, form = both
        scripts = [one for one in form.names if one.endswith(".py")] if form.row.get("imports") else []
        words = set[str]().union(*(self.names_in(self.there_is(one, part.folder)) for one in scripts))
        own = (entry._replace(own=f"{entry.key}:" in words) for entry in part.entries)
        return (part._replace(entries=tuple(own)) if words and not _is_own(part) else part), form

    def trains(self, part: Part) -> bool | None:
        """Return what :func:`_trains` says of a command."""
        there = self.there_is(part.program, part.folder) if _is_own(part) else None
        return _trains(part, self._formats, self.names_in(there))

    def script_trains(self) -> bool | None:
        """Return whether the file itself trains: any but a script does, and one without gradients does not."""
        if not self._path.endswith((".py", ".ipynb")):
            return True
        truth = _trains(Part("", ()), self._formats, words := self.names_in(self._path))
        return False if truth is None and not _NO_GRADIENTS.isdisjoint(words) else truth


def _shown(path: str, cwd: str) -> str:
    """Return a path as the user would type it here."""
    return os.path.relpath(path, cwd) if path.startswith(cwd.rstrip(os.sep) + os.sep) else path


def _own(part: Part) -> Part:
    return part._replace(entries=tuple(entry._replace(own=True) for entry in part.entries))


def _is_own(part: Part) -> bool:
    return part.line > 0 and (part.program.endswith(".py") or part.module)


def _trains(part: Part, formats: Formats, words: Collection[str]) -> bool | None:
    """Return whether a command trains, by the ``words`` of a script of one's own that it starts, else by what it is
    called; None where they say nothing."""
    form = formats.of_part(part)
    named = form.named(part.program) if form is not None and form.framework else None
    asked = {entry.key for entry in part.entries if entry.value is not False}
    judges = "do_train" not in asked and asked & {"do_eval", "do_predict"}
    if not words:
        other = named is None or "chats" in named or named.get("method") in _NO_TRAINING
        return None if other or judges else True
    # By itself the option is off, unless the script declares it as it likes.
    needed = "do_train" in words and "do_train:" not in words
    if needed and judges:
        return False
    trains = named is not None or any(_TRAINS.fullmatch(word) for word in words)
    return True if trains else None if _RUNS.isdisjoint(words) else False


def _one_run(
    parts: Sequence[Part], trains: Callable[[Part], bool | None], line: int | None
) -> tuple[list[Part], tuple[int, ...]]:
    """Return the parts of one training command, the last one (in a ``line``, where it is given), without those of other
    commands; and the lines of all that train. Of commands that certainly do not train none is left.

    Raises :class:`RecipeError` where no command stands in the line."""
    shared, commands = list[Part](), [list[Part]()]
    for part in parts:
        (shared if part.program[:1] == "#" or part.program == "environment" else commands[-1]).append(part)
        commands += [[]] if part.line else []
    commands.pop()
    here = commands
    if line is not None:
        spans = (({one[-1].line, *range(one[-1].lines[0], one[-1].lines[1] + 1)}, one) for one in commands)
        here = [one for span, one in spans if line in span]
    if line is not None and not here:
        others = ", ".join(dict.fromkeys(str(one[-1].line) for one in commands[:40]))
        text = "line {} has no command that starts a program; lines with one: {}"
        raise RecipeError(text, line, others) if others else RecipeError("it has no commands; leave out :{}", line)
    if not commands:
        return [*parts], ()
    known = [(trains(command[-1]), command) for command in commands]
    trained = [command for truth, command in known if truth]
    unknown = [command for truth, command in known if truth is None]
    choices = ([one for one in several if one in here] for several in (trained, unknown))
    run = next(filter(None, choices), here if line is not None else [[]])[-1]
    lines = (run, *(command for command in trained if command is not run)) if run else ()
    return [*run, *shared], tuple(command[-1].line for command in lines)


def named_files(parts: Iterable[tuple[Part, Format]], formats: Formats) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the documents that settings name, such as DeepSpeed's file, each with its place."""
    for entry, form in ((entry, form) for part, form in parts for entry in part.entries if not entry.computed):
        meanings = (formats.find(form, entry.key) or (form, (), ""))[1]
        if any(meaning.field == "file" for meaning in meanings) and isinstance(entry.value, str):
            yield from [(entry.value, entry.place)] if entry.value.endswith(_DOCUMENTS) else ()


def _told_once(
    parts: Sequence[tuple[Part, Format]],
    files: Sequence[RecipeFile],
    program: str,
    names: Collection[str],
    formats: Formats,
) -> tuple[tuple[tuple[Part, Format], ...], list[RecipeFile]]:
    """Return the parts of a file, and the files of the script that a command of it starts, without the options that
    the command gives: they stand at its own place. One that the script names, and does not refuse, is its own; the
    others are of a framework that the script uses."""
    typed, refused = set[str](), set[str]()
    used = {form.framework for file in files for _, form in file.parts if form.framework}
    commands = {
        at: (part, formats.of_part(part, used) or form)
        for at, (part, form) in enumerate(parts)
        if part.line and part.program == program
    }
    for part, form in commands.values():
        typed |= {entry.key.replace("-", "_") for entry in part.entries if formats.find(form, entry.key)}
    left = []
    for file in files:
        kept = []
        for part, form in file.parts:
            given = [entry for entry in part.entries if not (entry.place[0] or entry.own)]
            unknown = {entry.key for entry in given if not formats.find(form, entry.key)}
            refused |= unknown
            entries = (entry for entry in part.entries if entry.place[0] or entry.key not in typed | unknown)
            entries = (entry if entry.place[0] else entry._replace(place=(1,)) for entry in entries)
            kept.append((part._replace(entries=tuple(entries)), form))
        left.append(file._replace(parts=tuple(kept)))
    own = {*names} - refused
    for at, (part, form) in commands.items():
        entries = (entry._replace(own=entry.key.replace("-", "_") in own) for entry in part.entries)
        commands[at] = part._replace(entries=tuple(entries)), form
    return tuple(commands.get(at, both) for at, both in enumerate(parts)), left


def _names_in(script: str, cwd: str) -> set[str]:
    """Return the words of a script and of the modules that it imports by any way, each from the nearest folder that has
    it: of its project, else of the working directory. Fields that they declare are there with a colon too."""
    above = folders_above(os.path.dirname(script))
    cwd = os.path.normpath(cwd)
    roots = [at for at, folder in enumerate(above) if any(os.path.exists(os.path.join(folder, one)) for one in _ROOT)]
    above = above[: 1 + (roots[0] if roots else above.index(cwd) if cwd in above else 0)]
    found, modules, seen, left = set[str](), [script], {script}, _LARGEST
    for module in modules:  # it grows
        try:
            text = text_of(content_of(module, left, "recipe", RecipeError), RecipeError)
        except RecipeError:
            continue
        tops = dict.fromkeys((os.path.dirname(module), *above))
        for name in islice(dict.fromkeys(_IMPORTED.findall(text)), 40):
            bases = [os.path.join(folder, *name.split(".")) for top in tops for folder in (top, f"{top}/src")]
            there = ([f"{base}.py"] if os.path.isfile(f"{base}.py") else _modules_of(base) for base in bases)
            more = [one for one in next(filter(None, there), []) if one not in seen]
            modules += more[: _MOST_MODULES - len(modules)]
            seen.update(more)
        left -= len(text)
        text = _COMMENTS.sub("", text)
        found.update(word[0] for word in re.finditer(r"\w+", text))
        found.update(f"{field[1]}:" for field in re.finditer(r"(?m)^[ \t]{1,9}(\w{1,99})[ \t]{0,9}:", text))
    return found


def _modules_of(package: str) -> list[str]:
    """Return the modules in the folder of a package, 40 at the most."""
    return sorted(glob(os.path.join(escape(package), "*.py")))[:40] if os.path.isdir(package) else []


def _parts(
    path: str, name: str, formats: Formats, words: Sequence[str | None], other: Callable[[str, int], str | None]
) -> list[Part]:
    content = content_of(path, _LARGEST, "recipe", RecipeError, name)
    if path.endswith((".py", ".ipynb")):
        folder = os.path.dirname(os.path.abspath(path))
        return python_calls(content, formats, path.endswith(".ipynb"), words, folder)
    text = text_of(content, RecipeError)
    if path.endswith((".yaml", ".yml")) and (commands := container_commands(text)):
        started = command_parts(commands, formats, other)
        if any(part.line for part in started):
            return started
    if os.path.basename(path).lower() in ("makefile", "gnumakefile") or path.endswith(".mk"):
        text = makefile_as_shell(text)
    if path.endswith(_DOCUMENTS) or text.lstrip().startswith("{"):
        return [Part("", read_document(text))]
    # cmd and PowerShell join lines in ways of their own.
    others = path.lower().endswith((".bat", ".cmd", ".ps1"))
    return [part for part in command_parts(text, formats, other) if not (others and part.program == "#cut")]


def is_containers(path: str) -> bool:
    """Return whether a file for Docker Compose or Kubernetes lies there, with a container that has a command."""
    if not path.endswith((".yaml", ".yml")):
        return False
    try:
        return bool(container_commands(text_of(content_of(path, _LARGEST, "recipe", RecipeError), RecipeError)))
    except RecipeError:
        return False


def command_parts(
    text: str, formats: Formats, other: Callable[[str, int], str | None] = lambda name, line: None
) -> list[Part]:
    """Return the commands of a script or of command lines; ``other`` gives the text of a script that it runs.

    Raises :class:`RecipeError`.
    """

    @cache
    def takes(key: str) -> str:
        meanings = [meaning for form in formats if (found := formats.find(form, key)) for meaning in found[1]]
        # --flash_attn says something of a text by being there.
        switches = {
            "boolean" if {*meaning.words} == {"true", "false"} else "text" for meaning in meanings if meaning.words
        }
        types = switches | {formats.kinds.get(meaning.field) for meaning in meanings if not meaning.words}
        return _TAKES.get(types.pop() or "", "one") if len(types) == 1 else "one" if types else "many"

    @cache
    def kind_of(name: str) -> str:
        named = [form for form in formats if form.named(name) is not None]
        launches = any("launcher" in {**form.row.get("says", {}), **(form.named(name) or {})} for form in named)
        return "program" if any(form.authority >= 2 for form in named) else "launcher" if launches else ""

    return [_unfolded(part) for part in parts_of_script(text, kind_of, takes, other)]


def python_calls(
    content: bytes, formats: Formats, notebook: bool = False, words: Sequence[str | None] = (), folder: str = ""
) -> list[Part]:
    """Return the calls of a Python script or notebook in a folder that is started with these words. Modules of
    libraries that have formats are not followed, wherever they lie.

    Raises :class:`RecipeError`.
    """
    from envdoctor.system.asking import ChildProblem, Limits, ask_once

    asked = {"notebook": notebook, "words": words, "folder": folder}
    asked |= {"libraries": [*formats.libraries], "names": formats.pattern}
    child = "envdoctor.observe.recipe.script:calls_of"
    answer = ask_once(child, asked, Limits(seconds=20.0, mib=1024), content, packages=True)
    if isinstance(answer, ChildProblem):
        raise RecipeError(answer.clause())
    return [
        Part(
            name,
            tuple(
                RecipeEntry(
                    key, tuple(value) if isinstance(value, list) else value, tuple(place), False, how > 0, how == 2, own
                )
                for key, value, place, how, own in settings
            ),
            perhaps=perhaps,
        )
        for name, settings, perhaps in answer
    ]


def _unfolded(part: Part) -> Part:
    """Return a command with the settings of an option that holds JSON, each for itself."""
    entries: list[RecipeEntry] = []
    for entry in part.entries:
        if isinstance(entry.value, str) and entry.value.startswith("{"):
            try:
                entries += read_document(entry.value, entry.place[0], entry.key)
                continue
            except RecipeError:
                pass  # a template, or a text that only looks like it
        entries.append(entry)
    return part._replace(entries=tuple(entries))


def with_formats(parts: Sequence[Part], formats: Formats) -> tuple[tuple[Part, Format], ...]:
    """Return the parts of known formats: of each program or call the first, which the file is about."""
    found: dict[tuple[str, str], tuple[Part, Format]] = {}
    for part in parts:
        form = formats.of_part(part)
        if form is not None:
            beside = form.name in NO_RECIPES
            key = (form.name, part.program if form.framework or beside else "")
            before = found.get(key)
            if before is not None and beside:
                known = {entry.key for entry in before[0].entries}
                more = [entry for entry in part.entries if entry.key not in known]
                found[key] = (before[0]._replace(entries=(*before[0].entries, *more)), form)
            # Of several calls of one name the first, unless that is hardly one: TrainingArguments(".")
            elif before is None or (
                not part.line and (before[0].perhaps, len(part.entries)) > (part.perhaps, 2 * len(before[0].entries))
            ):
                found[key] = (part, form)
    if all(form.name in NO_RECIPES for _, form in found.values()):
        return ()
    return tuple(found.values())


def _look_for(name: str, beside: str, cwd: str, folder: str = "") -> str | None:
    """Return the path of a file that a script names, which may have gone into a ``folder`` before."""
    starts = (*folders_above(os.path.dirname(beside)), cwd)
    for start in (*(os.path.join(start, folder) for start in starts if folder), *starts):
        path = os.path.normpath(os.path.join(start, os.path.expanduser(name)))
        if os.path.isfile(path):
            return path
    return None
