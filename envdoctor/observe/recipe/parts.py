"""The parts of one file: the settings of a document, the commands of a script, the calls of Python code."""

import os
from collections.abc import Callable, Sequence
from functools import cache

from envdoctor.observe.recipe.commands import parts_of_script
from envdoctor.observe.recipe.document import (
    DOCUMENTS,
    LARGEST,
    Part,
    RecipeEntry,
    RecipeError,
    container_commands,
    makefile_as_shell,
    read_document,
)
from envdoctor.observe.recipe.formats import Formats
from envdoctor.system.documents import content_of, text_of

_TAKES = {"boolean": "flag", "texts": "many"}


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
        return python_calls(content, formats, path.endswith(".ipynb"), words, start)
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
    """Return the commands of a script or of command lines; ``other`` gives the text of a script that it runs,
    ``start`` is the folder of the script, or the one in which they are typed.

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

    return [_unfolded(part) for part in parts_of_script(text, kind_of, takes, other, start)]


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
