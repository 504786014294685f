"""The project around a recipe's file: the scripts that commands start, the words in them, and which command trains."""

import os
import re
from collections.abc import Collection, Sequence
from functools import cache
from glob import escape, glob
from itertools import islice

from envdoctor.observe.recipe.document import DOCUMENTS, LARGEST, Part, RecipeError, folders_above
from envdoctor.observe.recipe.formats import Format, Formats
from envdoctor.system.documents import content_of, text_of

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


class Project:
    """What lies around one file of a recipe. Each script is looked for once, and read once."""

    def __init__(self, path: str, cwd: str, formats: Formats, starts: Sequence[str] = ()) -> None:
        """``starts`` are folders in which a command may have started the file."""
        self._path, self._cwd, self._formats = path, cwd, formats
        self._starts = (*starts, *folders_above(os.path.dirname(path)), cwd)
        self.path_of, self.words_of = cache(self._path_of), cache(self._words_of)

    def _path_of(self, name: str, folder: str) -> str | None:
        """Return the path of the file or module that a command in a ``folder`` names; None without one."""
        # A module, pkg.train, lies in pkg/train.py or pkg/train/__main__.py, also below src.
        ends = () if name.endswith((".py", *DOCUMENTS)) else (".py", "/__main__.py")
        choices = (name, *(f"{top}{name.replace('.', '/')}{end}" for top in ("", "src/") for end in ends))
        return next(filter(None, (self.file_named(choice, folder) for choice in choices)), None)

    def _words_of(self, path: str | None) -> set[str]:
        """Return what :func:`_script_words` says of a script; nothing for None."""
        return _script_words(path, self._cwd) if path else set()

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
        """Return a part with the keys as its own that a checkout of its framework beside it declares."""
        scripts = [script for script in form.names if script.endswith(".py")] if form.row.get("imports") else []
        words = set[str]().union(*(self.words_of(self.path_of(script, part.folder)) for script in scripts))
        own = (entry._replace(own=f"{entry.key}:" in words) for entry in part.entries)
        return part._replace(entries=tuple(own)) if words and not part.starts_script else part

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
            there = ([f"{base}.py"] if os.path.isfile(f"{base}.py") else _modules_of(base) for base in bases)
            more = [file for file in next(filter(None, there), []) if file not in visited]
            modules += more[: _MOST_MODULES - len(modules)]
            visited.update(more)
        rest -= len(text)
        text = _COMMENTS.sub("", text)
        words.update(word[0] for word in re.finditer(r"\w+", text))
        words.update(f"{field[1]}:" for field in re.finditer(r"(?m)^[ \t]{1,9}(\w{1,99})[ \t]{0,9}:", text))
    return words


def _modules_of(package: str) -> list[str]:
    """Return the modules in the folder of a package, 40 at the most."""
    return sorted(glob(os.path.join(escape(package), "*.py")))[:40] if os.path.isdir(package) else []
