"""A script's commands as parts: what goes to the launcher, what to the program, and the variables that are set."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from envdoctor.observe.recipe.document import MOST_ENTRIES, Part, RecipeEntry, RecipeError, scalar
from envdoctor.observe.recipe.shell import LARGEST, OPTION, Other, Shell, Word, joined

_MOST_PARTS = 400
_SBATCH = re.compile(r"#SBATCH[ \t]+([^\n#]+)")
_IN_FRONT = re.compile(r"[ \t]*--[A-Za-z](?![^\s()]*[ \t]*\))")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
#: At the end of a line: what separates commands, and what joins lines for cmd and PowerShell.
_NOT_CUT = (*";&|()^`",)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
#: How many words follow an option: a flag has none but true or false, of others one or all up to the next option.
Takes = Callable[[str], str]

_PYTHON = re.compile(r"i?python[\d.]*\Z")
#: Programs that start the script which is named behind them.
_STARTS = re.compile(
    r"(?:i?python|pypy|accelerate|torchrun|deepspeed|composer|colossalai|srun|mpirun|mpiexec|horovodrun|ray|uv|poetry"
    r"|pipenv|conda|mamba|coverage|nsys|ncu|numactl|taskset|stdbuf|timeout|nice|singularity|apptainer|docker)[\d.]*\Z"
)
#: What starts a script that is not for the Python of this environment.
_PYTHON_2 = re.compile(r"python2[\d.]*\Z")
_CONTAINER = re.compile(r"(?:docker|podman|nerdctl)\Z")


def parts_of_script(
    text: str, kind_of: Callable[[str], str], takes: Takes, other: Other = lambda name, line: None, start: str = "/"
) -> list[Part]:
    """Return the parts of a script. ``kind_of`` knows the names that start a training program (``program``) or another
    name (``launcher``); ``other`` gives the text of a script that this one runs, ``start`` is its folder.

    Raises :class:`~envdoctor.observe.recipe.document.RecipeError`.
    """
    if len(text) > LARGEST:
        raise RecipeError("is larger than {} kB, and no script of a run is", LARGEST >> 10)
    shell = Shell(text, {}, 1, other, start=start)
    commands = list[list[Word]]()
    last = deque[Part](maxlen=_MOST_PARTS)  # they train, as a rule
    try:
        for command in filter(None, shell.commanded()):
            words = [word._replace(text=shell.near(word.text)) for word in command]
            commands.append(words)
            at, lines, behind = shell.folder, shell.lines, shell.exited
            last += (part._replace(folder=at, lines=lines, behind=behind) for part in _parts(words, kind_of, takes))
    except RecursionError:
        raise RecipeError("is nested too deeply to be read") from None
    parts = [*last]
    # An option in the place of a command: a comment or an empty line ends the one above, or its backslash is missing.
    rows = text.split("\n")
    for before, words in pairwise(commands):
        lower = words[0].text.startswith("--") and words[0].line > before[-1].line
        if lower and _cut_off(rows, words[0].line - 1) and any(part.line for part in _parts(before, kind_of, takes)):
            parts.append(Part("#cut", options_of(words[:1], takes)))
            break
    asked = [
        Word(word, number)
        for number, row in enumerate(rows, 1)
        if (found := _SBATCH.match(row)) is not None
        for word in found[1].split()
    ]
    if asked:
        parts.insert(0, Part("#SBATCH", options_of(asked, takes)))
    named = [
        RecipeEntry(name, scalar(shell.near(joined(words), "")[:4096]), (words[0].line,), **_doubts(words))
        for name, words in shell.variables.items()
        if words
    ]
    return [*parts, Part("environment", tuple(named[:MOST_ENTRIES]))]


def _cut_off(rows: Sequence[str], at: int) -> bool:
    """Return whether a row begins with an option that is no arm of a ``case``, and nothing but the end of a line parts
    it from the command above."""
    codes = (_COMMENT.sub("", rows[above]).strip() for above in range(at - 1, -1, -1))
    return bool(_IN_FRONT.match(rows[at])) and next(filter(None, codes), "")[-1:] not in _NOT_CUT


def _parts(words: Sequence[Word], kind_of: Callable[[str], str], takes: Takes) -> Iterator[Part]:
    """Yield the launchers, and the program that they start; nothing of a command that is neither."""
    starts = [0]
    # mason.py … -- accelerate launch train.py
    handing = max((at for at, word in enumerate(words) if word.text == "--"), default=0)
    launched = (at for at in range(len(words) - 1, 0, -1) if kind_of(_base(words[at].text)) == "launcher")
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
        if kind_of(name) == "launcher":
            starts.append(at + module)
            continue
        second = words[behind].text if behind < len(words) else "/"
        longer = "" if "/" in second else f"{name} {second}"
        script = name.endswith(".py") and (at == 0 or words[0].computed or _STARTS.match(_base(words[0].text)))
        # The image of a container is the program where options follow it, and not where a command does.
        image = _CONTAINER.match(words[0].text) and kind_of(name) == "program" and not (module or script)
        if (
            (image and not OPTION.match(second))
            or 0 < at == starts[-1]
            or (behind <= handing and script)
            or not (module or script or "program" in (kind_of(name), kind_of(longer)))
        ):
            continue
        if kind_of(name) != "program" and kind_of(longer) == "program":
            name, behind = longer, behind + 1
        for start, end in zip(starts, [*starts[1:], at], strict=True):
            if end > start:
                yield Part(_base(words[start].text), options_of(words[start + 1 : end], takes))
        rest = words[behind:]
        given = tuple(None if one.computed else one.text for one in rest)
        yield Part(name, options_of(rest, takes), word.line, given, module)
        return


def options_of(words: Sequence[Word], takes: Takes) -> tuple[RecipeEntry, ...]:
    """Return ``--key value``, ``--key=value``, ``key=value``, ``--flag`` and what stands alone, in their order."""
    entries: list[RecipeEntry] = []
    alone = 0
    at = 0
    while at < len(words) and len(entries) < MOST_ENTRIES:
        word = words[at]
        at += 1
        if OPTION.match(word.text):
            key, equals, value = word.text.lstrip("-").partition("=")
            given = [word._replace(text=value)] if equals else []
            kind = takes(key)
            while not equals and at < len(words) and not OPTION.match(words[at].text):
                if (kind == "one" and given) or (kind == "flag" and not isinstance(scalar(words[at].text), bool)):
                    break
                given.append(words[at])
                at += 1
            entries.append(_entry(key, given, word.line))
        elif (found := _OVERRIDE.match(word.text)) is not None:
            entries.append(_entry(found[1], [word._replace(text=found[2])], word.line))
        else:
            alone += 1
            entries.append(_entry(f"#{alone}", [word], word.line))
    return tuple(entries)


def _entry(key: str, given: Sequence[Word], line: int) -> RecipeEntry:
    values = tuple(scalar(word.text) for word in given[:200])
    value = True if not values else values[0] if len(values) == 1 else values
    return RecipeEntry(key[:200], value, (line,), **_doubts(given))


def _doubts(words: Sequence[Word]) -> dict[str, bool]:
    computed = any(word.computed for word in words)
    return {"computed": computed, "undecided": computed and any(word.undecided for word in words)}


def _base(word: str) -> str:
    """Return ``scripts/dpo.py`` stays, since frameworks are told by it; of a program only its name."""
    return word if word.endswith(".py") else word.rpartition("/")[2]
