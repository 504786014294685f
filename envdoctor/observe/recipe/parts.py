"""The parts of one file: the settings of a document, the commands of a script, the calls of Python code."""

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

from envdoctor.observe.recipe.document import (
    DOCUMENTS,
    LARGEST,
    MOST_ENTRIES,
    Part,
    RecipeEntry,
    RecipeError,
    container_commands,
    makefile_as_shell,
    read_document,
    scalar,
)
from envdoctor.observe.recipe.formats import Formats
from envdoctor.observe.recipe.shell import LARGEST as LONGEST_SCRIPT
from envdoctor.observe.recipe.shell import OPTION, Shell, Word, joined
from envdoctor.system.documents import content_of, text_of

_MOST_PARTS = 400
_SBATCH = re.compile(r"#SBATCH[ \t]+([^\n#]+)")
#: An option, or Hydra's, whose dot no variable has.
_IN_FRONT = re.compile(r"[ \t]*(?:--[A-Za-z](?![^\s()]*[ \t]*\))|\+{0,2}[A-Za-z_]\w{0,80}\.[\w.]{1,160}=)")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
#: At the end of a line: what separates commands, and what joins lines for cmd and PowerShell.
_NOT_CUT = (*";&|()^`",)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"i?python[\d.]*\Z")
#: Programs that start the script which is named behind them.
_STARTS = re.compile(
    r"(?:i?python|pypy|accelerate|torchrun|deepspeed|composer|colossalai|srun|mpirun|mpiexec|horovodrun|ray|uv|poetry"
    r"|pipenv|conda|mamba|coverage|nsys|ncu|numactl|taskset|stdbuf|timeout|nice|singularity|apptainer|docker)[\d.]*\Z"
)
#: What starts a script that is not for the Python of this environment.
_PYTHON_2 = re.compile(r"python2[\d.]*\Z")
_CONTAINER = re.compile(r"(?:docker|podman|nerdctl)\Z")


def parts_of_file(
    path: str, name: str, formats: Formats, words: Sequence[str | None], other: Callable[[str, int], str | None]
) -> list[Part]:
    """Return the parts of a file; ``words`` stand behind its name in the command that starts it, ``other`` gives the
    text of a script that it runs.

    Raises :class:`RecipeError`.
    """
    content = content_of(path, LARGEST, "recipe", RecipeError, name)
    start = os.path.dirname(os.path.abspath(path))
    if path.endswith((".py", ".ipynb")):
        return python_calls(content, formats, path.endswith(".ipynb"), words, start, shown=os.path.dirname(name))
    text = text_of(content, RecipeError)
    if path.endswith((".yaml", ".yml")) and (commands := container_commands(text)):
        started = command_parts(commands, formats, other, start)
        if any(part.line for part in started):
            return started
    if os.path.basename(path).lower() in ("makefile", "gnumakefile") or path.endswith(".mk"):
        text = makefile_as_shell(text)
    if path.endswith(DOCUMENTS) or text.lstrip().startswith("{"):
        return [Part("", read_document(text))]
    # cmd and PowerShell join lines in ways of their own.
    others = path.lower().endswith((".bat", ".cmd", ".ps1"))
    return [part for part in command_parts(text, formats, other, start) if not (others and part.program == "#cut")]


def is_containers(path: str) -> bool:
    """Return whether a file for Docker Compose or Kubernetes lies there, with a container that has a command."""
    if not path.endswith((".yaml", ".yml")):
        return False
    try:
        return bool(container_commands(text_of(content_of(path, LARGEST, "recipe", RecipeError), RecipeError)))
    except RecipeError:
        return False


def command_parts(
    text: str, formats: Formats, other: Callable[[str, int], str | None] = lambda name, line: None, start: str = "/"
) -> list[Part]:
    """Return the commands of a script or of command lines: what goes to the launcher, what to the program, and the
    variables that are set. ``other`` gives the text of a script that it runs, ``start`` is the folder of the script, or
    the one in which they are typed.

    Raises :class:`RecipeError`.
    """
    if len(text) > LONGEST_SCRIPT:
        raise RecipeError("is larger than {} kB, and no script of a run is", LONGEST_SCRIPT >> 10)
    shell = Shell(text, {}, 1, other, start=start)
    commands = list[list[Word]]()
    last = deque[Part](maxlen=_MOST_PARTS)  # they train, as a rule
    try:
        for command in filter(None, shell.commanded()):
            words = [word._replace(text=shell.near(word.text)) for word in command]
            commands.append(words)
            at, lines, behind = shell.folder, shell.lines, shell.exited
            last += (part._replace(folder=at, lines=lines, behind=behind) for part in _parts(words, formats))
    except RecursionError:
        raise RecipeError("is nested too deeply to be read") from None
    parts = [*last]
    # An option in the place of a command: a comment or an empty line ends the one above, or its backslash is missing.
    rows = text.split("\n")
    for before, words in pairwise(commands):
        lower = _IN_FRONT.match(words[0].text) and words[0].line > before[-1].line
        if lower and _cut_off(rows, words[0].line - 1) and any(part.line for part in _parts(before, formats)):
            parts.append(Part("#cut", _options_of(words[:1], formats)))
            break
    headers = ((number, match[1]) for number, row in enumerate(rows, 1) if (match := _SBATCH.match(row)))
    if options := [Word(word, number) for number, header in headers for word in header.split()]:
        parts.insert(0, Part("#SBATCH", _options_of(options, formats)))
    variables = (
        RecipeEntry(name, scalar(shell.near(joined(words), "")[:4096]), (words[0].line,))._replace(**_doubts(words))
        for name, words in shell.variables.items()
        if words
    )
    parts.append(Part("environment", tuple(islice(variables, MOST_ENTRIES))))
    return [_unfolded(part) for part in parts]


def python_calls(
    content: bytes,
    formats: Formats,
    notebook: bool = False,
    words: Sequence[str | None] = (),
    folder: str = "",
    *,
    shown: str = "",
) -> list[Part]:
    """Return the calls of a Python script or notebook in a folder that is started with these words, and a part
    ``#modules`` whose keys are its own modules. The folder is ``shown`` in their paths. Modules of libraries that have
    formats are not followed, wherever they lie.

    Raises :class:`RecipeError`.
    """
    from envdoctor.system.asking import ChildProblem, Limits, ask_once

    question = {"notebook": notebook, "words": words, "folder": folder, "shown": shown}
    question |= {"libraries": [*formats.libraries], "names": formats.pattern}
    child = "envdoctor.observe.recipe.script:calls_of"
    answer = ask_once(child, question, Limits(seconds=20.0, mib=1024), content, packages=True)
    if isinstance(answer, ChildProblem):
        raise RecipeError(answer.clause())

    def entry(setting: list[Any]) -> RecipeEntry:
        key, value, place, file, how, own = setting
        value = tuple(value) if isinstance(value, list) else value
        return RecipeEntry(key, value, tuple(place), computed=how > 0, perhaps=how == 2, own=own, file=file)

    return [Part(name, tuple(map(entry, settings)), perhaps=perhaps) for name, settings, perhaps in answer]


def _unfolded(part: Part) -> Part:
    """Return a command with the settings of an option that holds JSON, each for itself."""
    entries: list[RecipeEntry] = []
    for entry in part.entries:
        if isinstance(entry.value, str) and entry.value.startswith("{") and ":" in entry.value:
            try:
                entries += read_document(entry.value, entry.place[0], entry.key)
                continue
            except RecipeError:
                pass  # a template, or a text that only looks like it
        entries.append(entry)
    return part._replace(entries=tuple(entries))


def _cut_off(rows: Sequence[str], at: int) -> bool:
    """Return whether a row begins with an option that is no arm of a ``case``, and nothing but the end of a line parts
    it from the command above."""
    codes = (_COMMENT.sub("", rows[above]).strip() for above in range(at - 1, -1, -1))
    return bool(_IN_FRONT.match(rows[at])) and next(filter(None, codes), "")[-1:] not in _NOT_CUT


def _parts(words: Sequence[Word], formats: Formats) -> Iterator[Part]:
    """Yield the launchers, and the program that they start; nothing of a command that is neither."""
    starts = [0]
    # mason.py … -- accelerate launch train.py
    handing = max((at for at, word in enumerate(words) if word.text == "--"), default=0)
    launched = (at for at in range(len(words) - 1, 0, -1) if formats.kind_of(_base(words[at].text)) == "launcher")
    handing = min(handing, next(launched, 0)) if handing else 0
    before = ""
    for at, word in enumerate(words):
        before = word.text if word.text[:1] != "-" else before
        if word.text == "-c" and _PYTHON.match(_base(before)):  # what stands behind it are words for that code
            return
        module = word.text in ("-m", "--module") and at + 1 < len(words)
        behind = at + module + 1
        name = _base(words[behind - 1].known)
        # "$(dirname "$0")/train.py": a folder that is not known, as a rule the script's own.
        name = name.lstrip("/") if words[behind - 1].computed else name
        if _PYTHON_2.match(name):
            return
        if formats.kind_of(name) == "launcher":
            starts.append(at + module)
            continue
        second = words[behind].text if behind < len(words) else "/"
        longer = "" if "/" in second else f"{name} {second}"
        script = name.endswith(".py") and (at == 0 or words[0].computed or _STARTS.match(_base(words[0].text)))
        # The image of a container is the program where options follow it, and not where a command does.
        image = _CONTAINER.match(words[0].text) and formats.kind_of(name) == "program" and not (module or script)
        if (
            (image and not OPTION.match(second))
            or 0 < at == starts[-1]
            or (behind <= handing and script)
            or not (module or script or "program" in (formats.kind_of(name), formats.kind_of(longer)))
        ):
            continue
        if formats.kind_of(name) != "program" and formats.kind_of(longer) == "program":
            name, behind = longer, behind + 1
        for start, end in zip(starts, [*starts[1:], at], strict=True):
            if end > start:
                yield Part(_base(words[start].text), _options_of(words[start + 1 : end], formats))
        rest = words[behind:]
        yield Part(name, _options_of(rest, formats), word.line, tuple(_given(rest)), module)
        return


def _given(words: Sequence[Word]) -> Iterator[str | None]:
    """Yield the words that a script is given, None for one that is computed, behind ``--key`` or ``key=`` if that is
    known of it."""
    for word in words:
        key, equals, _ = word.text.partition("=")
        if word.computed and equals and key == word._replace(text=key).known:
            yield key if OPTION.match(key) else f"{key}="
        yield None if word.computed else word.text


def _options_of(words: Sequence[Word], formats: Formats) -> tuple[RecipeEntry, ...]:
    """Return ``--key value``, ``--key=value``, ``key=value``, ``--flag`` and what stands alone, in their order."""
    entries: list[RecipeEntry] = []
    alone = 0
    at = 0
    while at < len(words) and len(entries) < MOST_ENTRIES:
        word = words[at]
        at += 1
        if OPTION.match(word.text):
            key, equals, value = word.text.lstrip("-").partition("=")
            values = [word._replace(text=value)] if equals else []
            kind = formats.takes(key)
            while not equals and at < len(words) and not OPTION.match(words[at].text):
                if (kind == "one" and values) or (kind == "flag" and not isinstance(scalar(words[at].text), bool)):
                    break
                values.append(words[at])
                at += 1
            entries.append(_entry(key, values, word.line))
        elif (match := _OVERRIDE.match(word.text)) is not None:
            entries.append(_entry(match[1], [word._replace(text=match[2])], word.line))
        else:
            alone += 1
            entries.append(_entry(f"#{alone}", [word], word.line))
    return tuple(entries)


def _entry(key: str, words: Sequence[Word], line: int) -> RecipeEntry:
    values = tuple(scalar(word.text) for word in words[:200])
    value = True if not values else values[0] if len(values) == 1 else values
    return RecipeEntry(key[:200], value, (line,))._replace(**_doubts(words))


def _doubts(words: Sequence[Word]) -> dict[str, Any]:
    computed = any(word.computed for word in words)
    return {"computed": computed, "undecided": computed and any(word.undecided for word in words)}


def _base(word: str) -> str:
    """Return ``scripts/dpo.py`` stays, since frameworks are told by it; of a program only its name."""
    return word if word.endswith(".py") else word.rpartition("/")[2]
