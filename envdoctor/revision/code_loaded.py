"""Which Python files transformers loads for a model, and what they import whenever they are loaded."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.code_auto_map import AUTO_MAP_FILES, references
from envdoctor.revision.code_file import FileCode
from envdoctor.revision.code_reading import parse, read_sources

__all__ = ["imports_of"]


def imports_of(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]] | Unread:
    """By file, the names (``transformers.modeling_outputs.CausalLMOutputWithPast``) whose import must succeed for it.

    The files are those that an auto_map names and what they import from their own folder; empty when no code is loaded.
    Imports in functions, under conditions and in a ``try`` that survives them are left out. Unread when any of the
    files or configurations cannot be read or parsed, for then a missing name would prove nothing.
    """
    waiting = _entry_files(snapshot)
    if isinstance(waiting, Unread):
        return waiting
    found: dict[str, tuple[str, ...]] = {}
    while waiting:
        paths = [path for path in sorted(waiting) if path in snapshot.files and path not in found]
        sources, unread = read_sources(snapshot, paths)
        if unread:
            return unread[0]
        waiting = set()
        for source, code in zip(sources, parse(sources), strict=True):
            if not isinstance(code, FileCode):
                return Unread(source.path, code.reason)
            found[source.path] = tuple(
                one.name for one in code.imports if one.required and not one.name.startswith(".")
            )
            waiting |= _own_files(source.path, (one.name for one in code.imports if one.name.startswith(".")))
        waiting -= found.keys()
    return found


def _entry_files(snapshot: Snapshot) -> set[str] | Unread:
    """The files that the configurations name; entries of other repositories are not of this snapshot."""
    modules: set[str] = set()
    for path in AUTO_MAP_FILES:
        found = references(snapshot, path)
        if isinstance(found, Unread):
            return found
        modules |= {f"{one.module}.py" for one in found.values() if one.repository is None}
    return modules


def _own_files(path: str, names: Iterable[str]) -> set[str]:
    """Files that relative imports of the file at ``path`` may mean."""
    files: set[str] = set()
    for name in names:
        rest = name.lstrip(".")
        folder = posixpath.dirname(path)
        for _ in range(len(name) - len(rest) - 1):
            folder = posixpath.dirname(folder)
        parts = rest.split(".")
        # `from .modeling import Model` and `from . import modeling`: the last part is a name or a module.
        for kept in (parts, parts[:-1]):
            if kept:
                base = posixpath.join(folder, *kept)
                files |= {f"{base}.py", f"{base}/__init__.py"}
    return files
