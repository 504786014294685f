"""The files of a recipe: those that were given and those that they name, each read and taken apart."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from envdoctor.facts.values import Origin
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.recipe.formats import NO_RECIPES, Format, Formats
from envdoctor.observe.recipe.reading.commands import parts_of_script
from envdoctor.observe.recipe.reading.document import (
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

_LARGEST = 8 << 20
_MOST_FILES = 12
_DOCUMENTS = (".yaml", ".yml", ".json", ".jsonc", ".json5")
_TAKES = {"boolean": "flag", "texts": "many"}


class RecipeFileError(ObservationError):
    """A recipe that was given cannot be used; the message names the file."""


class RecipeFile(NamedTuple):
    """One file: its name as the user or the naming file gives it, and its parts, each with its format. ``missing`` are
    files that it names and that could not be read: the name, the place, and why (a clause after "which")."""

    name: str
    parts: tuple[tuple[Part, Format], ...]
    missing: tuple[tuple[str, Origin, str], ...] = ()


def read_files(given: Sequence[str], cwd: str, formats: Formats) -> Iterator[RecipeFile]:
    """The files in their order, behind each those that it names.

    Raises :class:`RecipeFileError` for a file that was given; one that a recipe names may be anything.
    """
    seen: set[str] = set()
    for name in given:
        path = os.path.normpath(os.path.join(cwd, name))
        if path not in seen:
            try:
                yield from _taken_apart(path, name, cwd, formats, seen=seen)
            except RecipeError as error:
                raise RecipeFileError("--recipe {}: {}", name, error) from None


def _taken_apart(
    path: str, name: str, cwd: str, formats: Formats, *, seen: set[str], words: Sequence[str | None] = ()
) -> Iterator[RecipeFile]:
    """A file and those that it names; ``words`` stand behind its name in the command that starts it."""
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

    taken = _parts(path, formats, words, other)
    parts = with_formats(taken, formats)
    named = {one: (place, ()) for part, form in parts for one, place in _named_files(part, form, formats)}
    # The scripts or modules of one's own that commands start, with the words behind them.
    own_code = (part for part in taken if part.line and (part.program.endswith(".py") or part.module))
    started: dict[str, tuple[tuple[int, ...], Sequence[str | None]]] = {
        part.program: ((part.line,), part.words) for part in own_code
    }
    own = {part.program for part, form in parts if form.framework}
    found: list[tuple[str, str, Origin, Sequence[str | None]]] = []
    for one, (place, behind) in {**named, **started}.items():
        there = next(filter(None, (_look_for(there, path, cwd) for there in _places(one))), None)
        if there is None and one not in own:
            missing.append((one, Origin(name, *place), Message("is not there")))
        elif there is not None and there not in seen and len(seen) < _MOST_FILES:
            found.append((there, one, Origin(name, *place), behind))
    later: list[RecipeFile] = []
    for there, one, where, behind in found:
        # As the user would type its name here.
        shown = os.path.relpath(there, cwd) if there.startswith(cwd.rstrip(os.sep) + os.sep) else there
        try:
            later += _taken_apart(there, shown, cwd, formats, seen=seen, words=behind)
        except RecipeError as error:
            if one not in own:
                missing.append((shown, where, said_by(error)))
    if not parts and not later:
        if missing:
            raise RecipeError("names {}, which {}", missing[0][0], missing[0][2])
        known = ", ".join(sorted({form.name for form in formats if form.row.get("framework")}))
        raise RecipeError("is no recipe of a framework that is known: {}", known)
    yield RecipeFile(name, parts, tuple(missing))
    yield from later


def _places(name: str) -> Iterator[str]:
    """Where a script or module may lie: ``pkg.train`` in ``pkg/train.py`` or ``pkg/train/__main__.py``."""
    yield name
    if not name.endswith((".py", *_DOCUMENTS)):
        yield from (f"{name.replace('.', '/')}{end}" for end in (".py", "/__main__.py"))


def _parts(
    path: str, formats: Formats, words: Sequence[str | None], other: Callable[[str, int], str | None]
) -> list[Part]:
    content = content_of(path, _LARGEST, "recipe", RecipeError)
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
    return command_parts(text, formats, other)


def command_parts(
    text: str, formats: Formats, other: Callable[[str, int], str | None] = lambda name, line: None
) -> list[Part]:
    """The commands of a script or of command lines; ``other`` gives the text of a script that it runs.

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
    """The calls of a Python script or notebook in a folder that is started with these words. Modules of libraries that
    have formats are not followed, wherever they lie.

    Raises :class:`RecipeError`.
    """
    from envdoctor.system.asking import ChildProblem, Limits, ask_once

    asked = {"notebook": notebook, "words": words, "folder": folder}
    asked |= {"libraries": [*formats.libraries], "names": formats.pattern}
    child = "envdoctor.observe.recipe.reading.calls:calls_of"
    answer = ask_once(child, asked, Limits(seconds=20.0, mib=1024), content, packages=True)
    if isinstance(answer, ChildProblem):
        raise RecipeError(answer.clause())
    return [
        Part(
            name,
            tuple(
                RecipeEntry(
                    key, tuple(value) if isinstance(value, list) else value, tuple(place), False, how > 0, how == 2
                )
                for key, value, place, how in settings
            ),
            perhaps=perhaps,
        )
        for name, settings, perhaps in answer
    ]


def _unfolded(part: Part) -> Part:
    """A command with the settings of an option that holds JSON, each for itself."""
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
    """The parts that are of a format: of each program or call the first, which is the one that the file is about."""
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


def _named_files(part: Part, form: Format, formats: Formats) -> Iterator[tuple[str, tuple[int, ...]]]:
    for entry in part.entries:
        known = formats.find(form, entry.key)
        names = known is not None and any(meaning.field == "file" for meaning in known[1]) and not entry.computed
        if names and isinstance(entry.value, str) and entry.value.endswith(_DOCUMENTS):
            yield entry.value, entry.place


def _look_for(name: str, beside: str, cwd: str) -> str | None:
    for start in (*folders_above(os.path.dirname(beside)), cwd):
        path = os.path.normpath(os.path.join(start, os.path.expanduser(name)))
        if os.path.isfile(path):
            return path
    return None
