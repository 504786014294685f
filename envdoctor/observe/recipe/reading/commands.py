"""A script's commands as parts: what goes to the launcher, what to the program, and the variables that are set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from envdoctor.observe.recipe.reading.document import scalar
from envdoctor.observe.recipe.reading.part import MOST_ENTRIES, Entry, Part
from envdoctor.observe.recipe.reading.script import Word, read_script

__all__ = ["options_of", "parts_of_script"]

_MOST_PARTS = 40
_SBATCH = re.compile(r"#SBATCH[ \t]+([^\n#]+)")
_OPTION = re.compile(r"--?[A-Za-z]")
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
#: How many words follow an option: a flag has none but true or false, of others one or all up to the next option.
Takes = Callable[[str], str]


def parts_of_script(text: str, is_program: Callable[[str], bool], takes: Takes) -> list[Part]:
    """The parts of a script or command line. ``is_program`` knows the names that start a training program.

    Raises :class:`~envdoctor.observe.recipe.reading.part.RecipeError`.
    """
    script = read_script(text)
    parts = list(islice((part for words in script.lines for part in _parts(words, is_program, takes)), _MOST_PARTS))
    asked = [
        Word(word, number)
        for number, row in enumerate(text.split("\n"), 1)
        if (found := _SBATCH.match(row)) is not None
        for word in found[1].split()
    ]
    if asked:
        parts.insert(0, Part("#SBATCH", options_of(asked, takes)))
    named = [
        Entry(name, scalar(word.text), str(word.line), False, word.computed) for name, word in script.variables.items()
    ]
    return [*parts, Part("environment", tuple(named[:MOST_ENTRIES]))]


def _parts(words: Sequence[Word], is_program: Callable[[str], bool], takes: Takes) -> Iterator[Part]:
    """A launcher, and the program that it starts; nothing of a command that is neither."""
    for at, word in enumerate(words):
        module = word.text in ("-m", "--module") and at + 1 < len(words)
        name, rest = _base(words[at + module].text), words[at + module + 1 :]
        longer = f"{name} {rest[0].text}" if rest else ""
        if not (module or name.endswith(".py") or is_program(name) or is_program(longer)):
            continue
        if is_program(longer):
            name, rest = longer, rest[1:]
        if at > 0:
            yield Part(_base(words[0].text), options_of(words[1:at], takes))
        yield Part(name, options_of(rest, takes))
        return


def options_of(words: Sequence[Word], takes: Takes) -> tuple[Entry, ...]:
    """``--key value``, ``--key=value``, ``key=value``, ``--flag`` and what stands alone, in their order."""
    entries: list[Entry] = []
    alone = 0
    at = 0
    while at < len(words) and len(entries) < MOST_ENTRIES:
        word = words[at]
        at += 1
        if _OPTION.match(word.text):
            key, equals, value = word.text.lstrip("-").partition("=")
            given = [word._replace(text=value)] if equals else []
            kind = takes(key)
            while not equals and at < len(words) and not _OPTION.match(words[at].text):
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


def _entry(key: str, given: Sequence[Word], line: int) -> Entry:
    values = tuple(scalar(word.text) for word in given[:200])
    value = True if not values else values[0] if len(values) == 1 else values
    return Entry(key[:200], value, str(line), False, any(word.computed for word in given))


def _base(word: str) -> str:
    """``scripts/dpo.py`` stays, since frameworks are told by it; of a program only its name."""
    return word if word.endswith(".py") else word.rpartition("/")[2]
