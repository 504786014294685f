"""What lies beside a script: modules that it imports from its own folders, and documents that it reads."""

import ast
import os
from collections.abc import Iterable
from typing import Any

from envdoctor.observe.recipe.reading.document import RecipeEntry, RecipeError, folders_above, read_document
from envdoctor.system.documents import content_of, text_of

#: Bounds: files, and bytes of each.
_MOST_FILES = 30
_LARGEST = 1 << 20


class Beside:
    """The files that a script reads; ``folder`` is its own, empty where it has none (a report, a pipe). Modules of
    ``libraries`` count as those of a library wherever they lie."""

    def __init__(self, folder: str, libraries: Iterable[str] = ()) -> None:
        self.folder = folder
        self._libraries = frozenset(libraries)
        self._left = _MOST_FILES
        self._read: dict[str, bytes | None] = {}

    def module(self, name: str, level: int, folder: str) -> tuple[ast.Module, str] | None:
        """Return the syntax tree of a module and its folder; None for one of a library. ``level`` and ``folder`` are
        those of a relative import."""
        starts = (
            folders_above(self.folder)
            if not level
            else [os.path.normpath(os.path.join(folder, *[os.pardir] * (level - 1)))]
        )
        own = self.folder and (level or name.partition(".")[0] not in self._libraries)
        for start in starts if own else ():
            base = os.path.join(start, *name.split("."))
            for path in (f"{base}.py", os.path.join(base, "__init__.py")):
                content = self._content(path)
                if content is not None:
                    try:
                        return ast.parse(content), os.path.dirname(path)
                    except (SyntaxError, ValueError):
                        return None
        return None

    def document(self, name: str) -> dict[str, Any] | None:
        """Return the settings of a YAML or JSON document as a tree; None where there is none. What a list ``defaults``
        names for hydra is a dictionary from groups to files."""
        for start in folders_above(self.folder) if self.folder else ():
            content = self._content(os.path.join(start, name))
            if content is not None:
                try:
                    text = text_of(content, RecipeError)
                    found = tree_of(read_document(text))
                    return found | _defaults(text) if "defaults" in found else found
                except RecipeError:
                    return None
        return None

    def _content(self, path: str) -> bytes | None:
        if path in self._read or self._left <= 0 or not os.path.isfile(path):
            return self._read.get(path)
        self._left -= 1
        try:
            self._read[path] = content_of(path, _LARGEST, "recipe", RecipeError)
        except RecipeError:
            self._read[path] = None
        return self._read[path]


def _defaults(text: str) -> dict[str, Any]:
    import yaml

    try:
        listed = yaml.safe_load(text)["defaults"]
    except (yaml.YAMLError, RecursionError, TypeError, KeyError):
        return {}
    groups = [item for item in (listed if isinstance(listed, list) else ())[:_MOST_FILES] if isinstance(item, dict)]
    named = {str(group): file for item in groups for group, file in item.items() if isinstance(file, str)}
    return {"defaults": {group.removeprefix("override ").partition("@")[0]: file for group, file in named.items()}}


def tree_of(entries: tuple[RecipeEntry, ...]) -> dict[str, Any]:
    """Return settings with dotted keys as dictionaries in dictionaries."""
    found: dict[str, Any] = {}
    for entry in entries:
        *sections, last = entry.key.split(".")
        inner = found
        for section in sections:
            below = inner.setdefault(section, {})
            inner = below if isinstance(below, dict) else {}
        inner[last] = list(entry.value) if isinstance(entry.value, tuple) else entry.value
    return found
