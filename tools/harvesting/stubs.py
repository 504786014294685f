"""What modules and classes have of compiled ones, by the stubs that a release carries.

``places`` says what takes over what: a module the names of modules, a class (``torch:dtype``) the members of classes.
Stubs may say late what was there before. A name that the package's own files use in the release before is taken for
there in that one, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

from harvesting.changing import OPEN, Release, members

__all__ = ["told_earlier", "with_stubs"]

#: Subjects with the items that stubs tell of, and those that the package's own files use.
Stubs = dict[str, tuple[frozenset[str], frozenset[str]]]


def with_stubs(release: Release, archive: Path, places: Mapping[str, Sequence[str]]) -> Stubs:
    """Add to a release what the stubs in its files say of these places; what it was, for :func:`told_earlier`."""
    found: Stubs = {}
    wanted = {one.partition(":")[0] for takes in places.values() for one in takes}
    with ZipFile(archive) as sources:
        stubs = ((name.removesuffix(".pyi"), name) for name in sources.namelist() if name.endswith(".pyi"))
        named = {stem.removesuffix("/__init__").replace("/", "."): name for stem, name in stubs}
        trees = {module: ast.parse(sources.read(name)) for module, name in named.items() if module in wanted}
        for place, takes in places.items():
            told = {item for one in takes for item in _items(trees, one) if not item.startswith("_")}
            if not told:
                continue
            section = "members" if ":" in place else "offers"
            release[section][place] = release[section].get(place, frozenset()) - {OPEN} | told
            found[place] = frozenset(told), frozenset(_used(sources, place))
    return found


def told_earlier(found: Sequence[Release], stubs: Sequence[Stubs]) -> None:
    """Add to releases, the last first, the names that the one after tells of and they use."""
    for place in range(len(found) - 1, 0, -1):
        for subject, (told, _) in stubs[place].items():
            before, used = stubs[place - 1].get(subject, (frozenset(), frozenset()))
            section = found[place - 1]["members" if ":" in subject else "offers"]
            section |= {subject: section[subject] | told & used} if subject in section else {}
            stubs[place - 1][subject] = before | told & used, used


def _items(trees: Mapping[str, ast.Module], place: str) -> Iterator[str]:
    module, _, wanted = place.partition(":")
    for node in ast.walk(trees[module]) if module in trees else ():
        if isinstance(node, ast.ClassDef) and node.name == wanted:
            yield from members(node)
    for node in trees[module].body if module in trees and not wanted else ():
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _used(sources: ZipFile, place: str) -> Collection[str]:
    """Return the names that files of the package write behind the module's, or the class's."""
    use = re.compile(rb"(?<![\w\"'`#])%b\.([A-Za-z]\w*)" % re.escape(place.rpartition(":")[2].encode()))
    top = re.split("[.:]", place)[0]
    files = (name for name in sources.namelist() if name.startswith(f"{top}/") and name.endswith(".py"))
    return {name.decode() for file in files for name in use.findall(sources.read(file))}
