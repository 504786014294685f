"""The files of a recipe, those that were given and those that they name, each read and taken apart; and the project
around each: the scripts that commands start, the words in them, and which command trains."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from glob import escape, glob
from itertools import islice
from typing import NamedTuple

from envdoctor.facts.values import Origin
from envdoctor.observe.recipe.document import DOCUMENTS, LARGEST, Part, RecipeError, folders_above
from envdoctor.observe.recipe.formats import Format, Formats
from envdoctor.observe.recipe.parts import command_parts, parts_of_file, python_calls
from envdoctor.system.documents import content_of, text_of
from envdoctor.system.message import Message, said_by

_MOST_FILES = 12
_LINE = re.compile(r":(\d{1,6})\Z")
#: What no name of a file has: an option, or a script, a path or a key behind the program that starts it.
_COMMAND = re.compile(r"\s--?[A-Za-z]|\A\s*(?:\S{1,200}\s+){1,6}\S*(?:\.py|\.sh|\.ya?ml|=|[\w-]/[\w-])")
_NO_RUN = (
    "describes no run of a framework that is known; say what it does (--set recipe.method=lora --set "
    "recipe.batch_size=2)"
)
_NO_FILE = "--recipe {}: there is no file of this name, and no framework that is known takes it for a command"


class RecipeFileError(RecipeError):
    """A recipe that was given cannot be used; the message names the file. If it describes no run of a framework that is
    known, ``started`` are the scripts of one's own that it starts, and ``missing`` is what :class:`RecipeFile` says."""

    started: tuple[str, ...] | None = None
    missing: tuple[tuple[str, Origin, str], ...] = ()


class RecipeFile(NamedTuple):
    """One file: its name as the user or another file writes it, and its parts, each with its format. ``missing`` are
    the files that it names and that could not be read: name, place and reason (a clause after "which"). ``started`` are
    the user's own scripts that its commands start, ``modules`` what it imports of its own. ``runs`` are the lines of
    all training commands; the first is the one that is judged. ``trains``: False for a script that only runs a model,
    None if that is unknown."""

    name: str
    parts: tuple[tuple[Part, Format], ...]
    missing: tuple[tuple[str, Origin, str], ...] = ()
    started: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()
    trains: bool | None = True
    modules: tuple[str, ...] = ()

    @property
    def code(self) -> tuple[str, ...]:
        """Return the code of one's own: the file itself, what it starts, what it imports."""
        names = (self.name, *self.started, *self.modules)
        return tuple(name for name in names if name.endswith((".py", ".ipynb")))


def is_command(text: str) -> bool:
    """Return whether this is a command and no name of a file."""
    return _COMMAND.search(text) is not None


def read_files(recipes: Sequence[str], cwd: str, formats: Formats, asked: Collection[str] = ()) -> Iterator[RecipeFile]:
    """Yield the files in their order, behind each those that it names. ``run.sh:4`` is the command in this line, ``-``
    standard input; what has blanks and is no file is the command itself. The environment has the ``asked`` frameworks.

    Raises :class:`RecipeFileError` for a file that was given; one that a recipe names may be anything.
    """
    reader = _Reader(cwd, formats, asked)
    chosen = dict[str, int | str | None]()
    for recipe in recipes:
        there = os.path.lexists(os.path.join(cwd, recipe))
        command = recipe if is_command(recipe) and not there else None
        end = None if there or command else _LINE.search(recipe)
        line = int(end[1]) if end else None
        name = "command" if command else recipe[: end.start()] if end else recipe
        path = os.path.normpath(os.path.join(cwd, name))
        if chosen.setdefault(path, command or line) != (command or line):
            raise RecipeFileError("--recipe {}: one run is judged at a time; name one line of {}", recipe, name)
        if path not in reader.seen:
            try:
                yield from reader.read(path, name, line=line, command=command)
            except RecipeError as error:
                problem = RecipeFileError("--recipe {}: {}", name, error)
                if command and getattr(error, "started", None) == () and not re.search(r"\s-", command):
                    problem = RecipeFileError(_NO_FILE, command)
                elif isinstance(error, RecipeFileError):
                    problem.started, problem.missing = error.started, error.missing
                raise problem from None


def with_code(
    files: Sequence[RecipeFile], code: Sequence[str], cwd: str, formats: Formats
) -> tuple[list[RecipeFile], dict[str, str]]:
    """Return the files, with the keys of documents that their scripts and the ``code`` beside them name as the scripts'
    own; and by format the class to which a parser of theirs hands the keys of documents."""
    scripts = dict.fromkeys(name for file in files for name in (file.name, *file.started) if name.endswith(".py"))
    beside = dict.fromkeys(name for name in code if name.endswith(".py") and name not in scripts)
    takes = (form for file in files for part, form in file.parts if not part.program)
    # A framework that is a program of its own reads its files itself.
    documents = [form for form in takes if any("call" in row for row in form.names.values())]
    parts = [pair for file in files for pair in file.parts]
    for name in beside if documents else ():
        path = os.path.join(cwd, name)
        try:
            content = content_of(path, LARGEST, "recipe", RecipeError)
            parts += formats.of_parts(python_calls(content, formats, folder=os.path.dirname(path)))
        except RecipeError:
            continue
    called = dict[str, str]()
    for part, form in parts:
        meaning = form.named(part.program) or {}
        if form in documents and {"stage", "call"} <= meaning.keys():
            called.setdefault(form.name, meaning["call"])
    words_of = _Project(cwd, cwd, formats).words_of
    own = set[str]().union(*(words_of(os.path.join(cwd, name)) for name in (*scripts, *beside) if documents))

    def is_own(key: str, form: Format) -> bool:
        # A key that a library has is the script's own only where the script declares it.
        words = key.split(".") if formats.find(form, key) is None else []
        return not own.isdisjoint([*words, *(f"{word}:" for word in key.split("."))])

    def marked(part: Part, form: Format) -> Part:
        return part if part.program or form not in documents else part.owning(lambda key: is_own(key, form))

    parts_of = [tuple((marked(part, form), form) for part, form in file.parts) for file in files]
    return [file._replace(parts=parts) for file, parts in zip(files, parts_of, strict=True)], called


class _Link(NamedTuple):
    """A file that another one names: the place, and the words behind it in the command that it is ``started`` by."""

    name: str
    place: Origin
    started: bool = False
    words: Sequence[str | None] = ()


class _Reader:
    """Reads files, and behind each those that it names: none twice (``seen`` are their paths), and not too many."""

    def __init__(self, cwd: str, formats: Formats, asked: Collection[str]) -> None:
        self._cwd, self._formats, self._asked = cwd, formats, {*asked}
        self.seen = set[str]()

    def read(
        self,
        path: str,
        name: str,
        words: Sequence[str | None] = (),
        *,
        line: int | None = None,
        command: str | None = None,
        starts: Sequence[str] = (),
    ) -> list[RecipeFile]:
        """Return a file, and behind it those that it names; ``words`` stand behind its name in the command that starts
        it in one of the folders ``starts``, ``line`` is one of the command that counts; ``command`` is one instead of
        a file.

        Raises :class:`RecipeError`.
        """
        self.seen.add(path)
        project = _Project(path, self._cwd, self._formats, starts)
        missing: list[tuple[str, Origin, str]] = []

        def other(script: str, line: int) -> str | None:
            there = project.file_named(script)
            if there is None and script.endswith(".sh") and not os.path.isabs(script):
                missing.append((script, Origin(name, line), Message("is not there")))
            try:
                return text_of(content_of(there, LARGEST, "recipe", RecipeError), RecipeError) if there else None
            except RecipeError:
                return None

        if command is None:
            several = parts_of_file(path, name, self._formats, words, other)
        else:
            several = command_parts(command, self._formats, other, self._cwd)
        modules = [entry.key for part in several if part.program == "#modules" for entry in part.entries]
        several = [part for part in several if part.program != "#modules" and (line is not None or not part.behind)]
        run, runs = project.run_of(several, line, command is not None)
        parts = tuple((project.declared(part, form), form) for part, form in self._formats.of_parts(run, self._asked))
        self._asked |= {form.framework for part, form in parts if part.program}
        # A script that a framework brings, by its name, need not be here.
        brought = {part.program for part, form in parts if form.framework and form.named(part.program) is not None}
        folder = next((part.folder for part in run if part.line), "")
        later = list[RecipeFile]()
        for link in self._links(run, parts, name):
            where, there = link.place, project.path_of(link.name, folder)
            if there is None and link.name not in brought:
                missing.append((link.name, where, Message("is not there")))
                # What such a script declares nobody knows.
                of_name = (part.owning(lambda key: True) if part.program == link.name else part for part, _ in parts)
                parts = tuple(zip(of_name, (form for _, form in parts), strict=True))
            if there is None or there in self.seen or len(self.seen) >= _MOST_FILES:
                continue
            try:
                files = self.read(there, _shown(there, self._cwd), link.words, starts=project.below(folder))
            except RecipeError as error:
                files = []
                if isinstance(error, RecipeFileError) and link.started:
                    # A helper, or training that no format knows, is code: it sets nothing of what a format says.
                    modules += error.started or ()
                elif link.name not in brought:
                    missing.append((_shown(there, self._cwd), where, said_by(error)))
            parts, files = _told_once(parts, files, link.name, project.words_of(there), self._formats)
            later += files

        started = (part for part in (several if line is None else run) if part.starts_script)
        own_code = filter(None, (project.path_of(part.program, part.folder) for part in started))
        scripts = tuple(dict.fromkeys(_shown(script, self._cwd) for script in own_code))[:_MOST_FILES]
        file = RecipeFile(name, parts, tuple(missing), scripts, runs, project.file_trains(), (*modules,))
        if not later:
            _describes(file)
        return [file, *later]

    def _links(self, run: Sequence[Part], parts: Sequence[tuple[Part, Format]], name: str) -> Iterable[_Link]:
        """Return the documents that settings name, and the scripts or modules of one's own that commands start."""
        links = [_Link(str(entry.value), entry.origin(name)) for entry in self._formats.named_files(parts)]
        started = (part for part in run if part.starts_script)
        links += [_Link(part.program, Origin(name, part.line), True, part.words) for part in started]
        return {link.name: link for link in links}.values()


def _describes(file: RecipeFile) -> None:
    """Raise :class:`RecipeError` if a file says nothing of a run: what it names is missing, or no framework known."""
    described = (entry for part, form in file.parts if form.name != "environment" for entry in part.entries)
    has_settings = any(entry.key[:1] != "#" for entry in described)
    lacking = [missing for missing in file.missing if missing[0].endswith(DOCUMENTS) and not has_settings]
    if lacking or (file.missing and not (file.parts or file.started)):
        raise RecipeError("names {}, which {}", *(lacking or file.missing)[0][::2])
    if not file.parts:
        nothing = RecipeFileError(_NO_RUN)
        nothing.started, nothing.missing = file.code, file.missing
        raise nothing


def _shown(path: str, cwd: str) -> str:
    """Return a path as the user would type it here."""
    return os.path.relpath(path, cwd) if path.startswith(cwd.rstrip(os.sep) + os.sep) else path


def _told_once(
    parts: Sequence[tuple[Part, Format]],
    files: Sequence[RecipeFile],
    program: str,
    names: Collection[str],
    formats: Formats,
) -> tuple[tuple[tuple[Part, Format], ...], list[RecipeFile]]:
    """Take the options of the command that starts a script out of the ``files`` of that script: they stay at the
    command's own place, in the ``parts``. An option is the script's own if the script names it and does not refuse it;
    the others are those of a framework that the script uses."""
    keys, refused, declared = set[str](), set[str](), set[str]()
    frameworks = {form.framework for file in files for _, form in file.parts if form.framework}
    commands = {
        at: (part, formats.of_part(part, frameworks) or form)
        for at, (part, form) in enumerate(parts)
        if part.line and part.program == program
    }
    for part, form in commands.values():
        keys |= {entry.key.replace("-", "_") for entry in part.entries if formats.find(form, entry.key)}
    others = []
    for file in files:
        remaining = []
        for part, form in file.parts:
            options = [entry for entry in part.entries if not (entry.place[0] or entry.own)]
            unknown = {entry.key for entry in options if not formats.find(form, entry.key)}
            declared |= {entry.key for entry in part.entries if entry.own and not entry.place[0]}
            refused |= unknown
            entries = (entry for entry in part.entries if entry.place[0] or entry.key not in keys | unknown)
            entries = (entry if entry.place[0] else entry._replace(place=(1,)) for entry in entries)
            remaining.append((part._replace(entries=tuple(entries)), form))
        others.append(file._replace(parts=tuple(remaining)))
    own = {*names, *declared} - refused
    for at, (part, form) in commands.items():
        commands[at] = part.owning(lambda key: key.replace("-", "_") in own), form
    return tuple(commands.get(at, both) for at, both in enumerate(parts)), others


#: What lies in the first folder of a project.
_ROOT = (".git", "pyproject.toml", "setup.py")
_MOST_MODULES = 100
_IMPORTED = re.compile(r"(?m)^(?:from|import)[ \t]+\.*(\w[\w.]*)")
_COMMENTS = re.compile(r"(?m)(?:^|[ \t])#.*")
#: Words of scripts that train, and of others that run, merge or judge a model. Those may parse TrainingArguments.
_TRAINS = re.compile(r"\w*Trainer|backward|optimizer|train_batch")
_TAKES_OPTIONS = re.compile(r"\w*TrainingArguments")
_RUNS = {"generate", "merge_and_unload", "evaluate", "SamplingParams"}
_NO_GRADIENTS = {"no_grad", "inference_mode", "for_inference"}
_NO_TRAINING = ("export", "infer", "serve")


class _Project:
    """What lies around one file of a recipe. Each script is looked for once, and read once."""

    def __init__(self, path: str, cwd: str, formats: Formats, starts: Sequence[str] = ()) -> None:
        """``starts`` are folders in which a command may have started the file."""
        self._path, self._formats = path, formats
        self._starts = (*starts, *folders_above(os.path.dirname(path)), cwd)
        self.path_of = cache(self._path_of)
        self.words_of = cache(lambda path: _script_words(path, cwd) if path else set())

    def _path_of(self, name: str, folder: str) -> str | None:
        """Return the path of the file or module that a command in a ``folder`` names; None without one."""
        # A module, pkg.train, lies in pkg/train.py or pkg/train/__main__.py, also below src.
        ends = () if name.endswith((".py", *DOCUMENTS)) else (".py", "/__main__.py")
        choices = (name, *(f"{top}{name.replace('.', '/')}{end}" for top in ("", "src/") for end in ends))
        return next(filter(None, (self.file_named(choice, folder) for choice in choices)), None)

    def file_named(self, name: str, folder: str = "") -> str | None:
        """Return the path of a file that a script names, which may have gone into a ``folder`` before."""
        for start in (*self.below(folder), *self._starts):
            path = os.path.normpath(os.path.join(start, os.path.expanduser(name)))
            if os.path.isfile(path):
                return path
        return None

    def below(self, folder: str) -> tuple[str, ...]:
        """Return where a folder may be into which a script has gone; nothing for none."""
        return tuple(os.path.join(start, folder) for start in self._starts if folder)

    def run_of(
        self, parts: Sequence[Part], line: int | None, is_typed: bool = False
    ) -> tuple[list[Part], tuple[int, ...]]:
        """Return the parts of one training command, the last one (in a ``line``, where it is given), without those of
        other commands; and the lines of all that train. A command that certainly does not train is left out, unless it
        ``is_typed`` and its script trains in no case.

        Raises :class:`RecipeError` where no command stands in the line."""
        parts = [self._named(part) for part in parts]
        shared, commands = list[Part](), [list[Part]()]
        for part in parts:
            (shared if part.program[:1] == "#" or part.program == "environment" else commands[-1]).append(part)
            commands += [[]] if part.line else []
        commands.pop()
        here = commands if line is None else [group for group in commands if group[-1].stands_in(line)]
        if line is not None and not here:
            lines = ", ".join(dict.fromkeys(str(group[-1].line) for group in commands[:40]))
            text = "line {} has no command that starts a program; lines with one: {}"
            raise RecipeError(text, line, lines) if lines else RecipeError("it has no commands; leave out :{}", line)
        if not commands:
            return parts, ()
        answers = [(self._trains(command[-1]), command) for command in commands]
        trained = [command for truth, command in answers if truth]
        unknown = [command for truth, command in answers if truth is None]
        choices = ([group for group in several if group in here] for several in (trained, unknown))
        runs_only = (group for group in here if is_typed and self._trains(group[-1], by_script=True) is False)
        others = here if line is not None else [*runs_only]
        run = next(filter(None, (*choices, others)), [[]])[-1]
        runs = (run, *(command for command in trained if command is not run)) if run else ()
        return [*run, *shared], tuple(command[-1].line for command in runs)

    def declared(self, part: Part, form: Format) -> Part:
        """Return a part with the keys as its own that a checkout of its framework beside it declares; all that are not
        known where the class that takes them is that of a copy."""
        top = str(form.row.get("call", "")).partition(".")[0]
        if top and any(self.file_named(f"{above}{top}/__init__.py", part.folder) for above in ("", "src/")):
            return part.owning(lambda key: self._formats.find(form, key) is None)
        scripts = [script for script in form.names if script.endswith(".py")] if form.row.get("imports") else []
        words = set[str]().union(*(self.words_of(self.path_of(script, part.folder)) for script in scripts))
        return part.owning(lambda key: f"{key}:" in words) if words and not part.starts_script else part

    def file_trains(self) -> bool | None:
        """Return whether the file itself trains: any but a script does, and one without gradients does not."""
        if not self._path.endswith((".py", ".ipynb")):
            return True
        truth = _trains(Part("", ()), self._formats, words := self.words_of(self._path))
        return False if truth is None and not _NO_GRADIENTS.isdisjoint(words) else truth

    def _named(self, part: Part) -> Part:
        """Return a command whose script is somebody's own, although one of a framework has its name, as such."""
        form = self._formats.of_part(part) if part.starts_script else None
        modules = form.row.get("imports", ()) if form is not None and form.named(part.program) is not None else ()
        there = self.path_of(part.program, part.folder) if modules else None
        return part._replace(own=there is not None and self.words_of(there).isdisjoint(modules))

    def _trains(self, part: Part, *, by_script: bool = False) -> bool | None:
        """Return whether a command trains; ``by_script``: by the words of its script alone."""
        script = self.path_of(part.program, part.folder) if part.starts_script else None
        return _trains(Part("", ()) if by_script else part, self._formats, self.words_of(script))


def _trains(part: Part, formats: Formats, words: Collection[str]) -> bool | None:
    """Return whether a command trains, by the ``words`` of a script of one's own that it starts, else by what it is
    called; None where they say nothing."""
    form = formats.of_part(part)
    meaning = form.named(part.program) if form is not None and form.framework else None
    keys = {entry.key for entry in part.entries if entry.value is not False}
    judges = "do_train" not in keys and keys & {"do_eval", "do_predict"}
    if not words:
        other = meaning is None or "chats" in meaning or meaning.get("method") in _NO_TRAINING
        return True if "do_train" in keys else None if other or judges else True
    # By itself the option is off, unless the script declares it as it likes.
    may_not_train = "do_train" in words and "do_train:" not in words
    if may_not_train and judges:
        return False
    if meaning is not None or any(map(_TRAINS.fullmatch, words)):
        return True
    return False if not _RUNS.isdisjoint(words) else True if any(map(_TAKES_OPTIONS.fullmatch, words)) else None


def _script_words(script: str, cwd: str) -> set[str]:
    """Return the words of a script and of the modules that it imports by any way, each from the nearest folder that has
    it: of its project, else of the working directory. Fields that they declare are there with a colon too."""
    above = folders_above(os.path.dirname(script))
    cwd = os.path.normpath(cwd)
    roots = [at for at, folder in enumerate(above) if any(os.path.exists(os.path.join(folder, file)) for file in _ROOT)]
    above = above[: 1 + (roots[0] if roots else above.index(cwd) if cwd in above else 0)]
    words, modules, visited, rest = set[str](), [script], {script}, LARGEST
    for module in modules:  # it grows
        try:
            text = text_of(content_of(module, rest, "recipe", RecipeError), RecipeError)
        except RecipeError:
            continue
        tops = dict.fromkeys((os.path.dirname(module), *above))
        for name in islice(dict.fromkeys(_IMPORTED.findall(text)), 40):
            bases = [os.path.join(folder, *name.split(".")) for top in tops for folder in (top, f"{top}/src")]
            # Of a package its modules, 40 at the most.
            there = ([f"{base}.py"] * os.path.isfile(f"{base}.py") or glob(f"{escape(base)}/*.py") for base in bases)
            more = [file for file in sorted(next(filter(None, there), []))[:40] if file not in visited]
            modules += more[: _MOST_MODULES - len(modules)]
            visited.update(more)
        rest -= len(text)
        text = _COMMENTS.sub("", text)
        words.update(word[0] for word in re.finditer(r"\w+", text))
        words.update(f"{field[1]}:" for field in re.finditer(r"(?m)^[ \t]{1,9}(\w{1,99})[ \t]{0,9}:", text))
    return words
