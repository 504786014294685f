"""The fact ``package_damage``: packages whose files are not those that were installed, though their metadata is there.

Looked at are the packages of the table stack-modules, those with extensions for torch, and what they need. Only the
file lists (RECORD) of packages with compiled files are read: those of packages in plain Python are long, and what is
missing there is told by the one file that an import begins with. What torch loads, NVIDIA's wheels among it, is looked
at elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.knowledge.cuda_wheels import component_of
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.needed import needed
from envdoctor.observe.packages.reading.code_version import module_in
from envdoctor.observe.packages.reading.file_list import RECORD_LIMIT, Listed, listed_libraries
from envdoctor.observe.request import Request
from envdoctor.text.files import Files
from envdoctor.versions.names import normalise

KEPT = True
KEYS = ("package_damage",)
NEEDS = ("dist",)

#: ``_C.cpython-311-x86_64-linux-gnu.so``, ``tokenizers.abi3.so``: what ``import`` loads by its name. Other libraries
#: may be for one of several kinds of hardware.
_MODULE = r"\.(?:cpython-[\w-]+|abi3|cp\d+-[\w-]+|pypy\d+-[\w-]+)\.(?:so|pyd)\Z"
_FOR_TESTS = re.compile(r"(?:\A|[/_])tests?(?:[/_.]|\Z)")
#: Whose lists hold: conda and Linux distributions change the files after the list was made.
_EXACT = ("pip", "uv")
_LIBRARY = re.compile(r"\.so(?:\.[\d.]+)?\Z")
_NAMED = 3
_Item = Mapping[str, Value]


def observe(request: Request) -> list[Fact]:
    """One item for each package and kind of damage."""
    (key,) = KEYS
    dists, layout = request.value("dist"), request.place
    if not isinstance(dists, Records):
        return [Fact(key, Unknown("the installed packages are not known"), "", "environment")]
    modules = {str(row["name"]): str(row["module"]) for row in request.rows("stack-modules", "module")}
    extensions = {str(row["name"]): row.get("vital", {}) for row in request.rows("torch-extensions", "package")}
    stack = {*modules, *extensions}
    active = {str(item["name"]): item for item in dists if item.get("active") is True and item.get("kind") != "conda"}
    found: list[dict[str, Value]] = []
    lists: dict[str, dict[str, list[Listed]]] = {}
    for name in needed(active, stack):
        item = active[name]
        if item.get("editable") is True:
            found += _source_gone(item, modules.get(name), layout, request.cwd)
            continue
        of_torch = name == "torch" or component_of(name) is not None
        gone = [] if of_torch else _module_gone(item, modules.get(name), layout)
        gone = gone or _vital_gone(item, extensions.get(name, {}), layout)
        found += gone
        if not gone and item.get("tags") and item.get("installer") in _EXACT:
            listed: list[Listed] = []
            with suppress(OSError):
                listed = listed_libraries(str(item["path"]), layout.files)
            lists.setdefault(os.path.dirname(str(item["path"])), {})[name] = listed
            if not of_torch:
                found += _against_list(item, listed, name in stack, name in extensions, layout.files)
    for folder, by_name in lists.items():
        found += _dropped_in(folder, by_name, active, dists, layout.files)
    found += _left_behind(modules, dists, layout)
    found += _links_to_nowhere(modules, layout, request.cwd)
    return [Fact(key, Records(tuple(found), dists.incomplete), "installed packages", "environment")]


def _record(item: _Item, kind: str, file: str, *, fails: bool) -> dict[str, Value]:
    version = item.get("version", Unknown("not known"))
    return {"package": item["name"], "version": version, "kind": kind, "file": file, "fails": fails}


def _module_gone(item: _Item, module: str | None, layout: Layout) -> list[dict[str, Value]]:
    """The module of the stack that the package installs is not importable from any folder."""
    if module is None or _elsewhere(module, layout):
        return []
    folder = os.path.dirname(str(item["path"]))
    names = layout.files.names_or_none(folder)
    # An extension module may stand for the package, and a package may be made to have no __init__.py (optimum).
    if any(name.startswith(f"{module}.") and not name.endswith("-info") for name in names):
        return []
    start = f"{module}/__init__.py"
    return [] if _unlisted([start], [item], layout.files) else [_record(item, "module-gone", start, fails=True)]


def _vital_gone(item: _Item, by_major: Mapping[str, str], layout: Layout) -> list[dict[str, Value]]:
    """An extension module that releases of this major version import first of all lies in no folder."""
    vital = by_major.get(str(item.get("version")).partition(".")[0]) if by_major else None
    folders = layout.site_packages if vital and layout.incomplete is None else ()
    if not folders or any(
        name.startswith(f"{vital}.") for each in folders for name in layout.files.names_or_none(each)
    ):
        return []
    return [_record(item, "files-gone", f"{vital}.*.so", fails=True)]


def _elsewhere(module: str, layout: Layout) -> bool:
    return layout.incomplete is not None or any(
        module_in(folder, module, layout.files) for folder in layout.site_packages
    )


def _against_list(
    item: _Item, listed: list[Listed], stack: bool, extension: bool, files: Files
) -> Iterator[dict[str, Value]]:
    """Compiled files that are gone, or of another size than when they were installed; those of an ``extension`` for
    torch are read by whoever compares their symbols."""
    folder = os.path.dirname(str(item["path"]))
    gone: list[str] = []
    changed: list[str] = []
    for one in listed:
        if _FOR_TESTS.search(one.name):
            continue
        try:
            status = files.status(f"{folder}{os.sep}{one.name}")
        except (FileNotFoundError, NotADirectoryError):
            gone.append(one.name)
        except OSError:
            continue
        else:
            if one.size is not None and one.size != status.st_size:
                changed.append(one.name)
    if gone:
        vital = [name for name in gone if re.search(_MODULE, name) or os.path.dirname(name).endswith(".libs")]
        fails = stack and (bool(vital) or len(gone) == len(listed))
        yield _record(item, "files-gone", _few(vital or gone), fails=fails)
    if changed and not extension:
        broken = [name for name in changed if _damaged(os.path.join(folder, *name.split("/")), files)]
        fails = stack and any(re.search(_MODULE, name) for name in broken)
        yield _record(item, "files-damaged" if broken else "files-changed", _few(broken or changed), fails=fails)


def _damaged(path: str, files: Files) -> bool:
    from envdoctor.observe.binaries.reading.elf_file import ElfError, ElfFile

    try:
        with ElfFile(path, files):
            return False
    except ElfError as error:
        return error.damaged
    except OSError:
        return False


def _source_gone(item: _Item, module: str | None, layout: Layout, cwd: str) -> Iterator[dict[str, Value]]:
    """An editable install (PEP 610) whose folder of sources was removed."""
    import json

    try:
        said = json.loads(layout.files.head(os.path.join(str(item["path"]), "direct_url.json"), 1 << 16))
        url = urlsplit(said["url"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return
    if url.scheme == "file":
        yield from _gone_with(item, unquote(url.path), module, layout, cwd)


def _links_to_nowhere(modules: Mapping[str, str], layout: Layout, cwd: str) -> Iterator[dict[str, Value]]:
    """``setup.py develop``: an ``.egg-link`` to a folder that was removed; the metadata went with it."""
    for folder in layout.site_packages:
        for entry in layout.files.names_or_none(folder):
            if entry.endswith(".egg-link"):
                line = layout.files.text_or_empty(os.path.join(folder, entry), 4096).partition("\n")[0].strip()
                name = normalise(entry.removesuffix(".egg-link"))
                item: _Item = {"name": name, "version": Unknown("its metadata is gone with its source")}
                yield from _gone_with(item, line, modules.get(name), layout, cwd)


def _gone_with(item: _Item, source: str, module: str | None, layout: Layout, cwd: str) -> Iterator[dict[str, Value]]:
    """The record of a package whose folder of sources is gone, and whose module is found nowhere else."""
    name = module or str(item["name"]).replace("-", "_")
    here = False
    if layout.live:
        layout.files.looks = None  # the answer is that of this working directory
        here = module_in(cwd, name, layout.files) is not None
    # The paths in a bare folder may be of another machine.
    if layout.kind == "path" or not os.path.isabs(source) or here or _elsewhere(name, layout):
        return
    if layout.files.is_gone(layout.files.inside(source)):
        yield _record(item, "source-gone", source[:400], fails=module is not None)


def _unlisted(starts: list[str], items: Iterable[_Item], files: Files) -> list[str]:
    """Those of the starts of names with which no file begins that one of the packages lists (RECORD). Each list is read
    once at most."""
    for item in items if starts else ():
        try:
            record = b"\n" + files.head(os.path.join(str(item["path"]), "RECORD"), RECORD_LIMIT)
        except OSError:
            continue
        starts = [start for start in starts if b"\n" + start.encode("utf-8", "replace") not in record]
        if not starts:
            break
    return starts


def _dropped_in(
    folder: str, lists: Mapping[str, list[Listed]], active: Mapping[str, _Item], dists: Records, files: Files
) -> Iterator[dict[str, Value]]:
    """Libraries in the folders where packages keep theirs (``torch/lib``, ``nvidia/cudnn/lib``, ``numpy.libs``) that no
    package lists."""
    known: dict[str, set[str]] = {}
    owners: dict[str, str] = {}
    for name, listed in lists.items():
        for one in listed:
            place, _, base = one.name.rpartition("/")
            if place.endswith((".libs", "/lib")):
                known.setdefault(place, set()).add(base)
                owners.setdefault(place, name)
    for place, names in known.items():
        there = files.names_or_none(os.path.join(folder, *place.split("/")))
        strange = [f"{place}/{name}," for name in there if name not in names and _LIBRARY.search(name)]
        if strange := [name.removesuffix(",") for name in _unlisted(strange, dists, files)]:
            yield _record(active[owners[place]], "dropped-in", _few(strange), fails=False)


def _left_behind(modules: Mapping[str, str], dists: Records, layout: Layout) -> Iterator[dict[str, Value]]:
    """A folder without ``__init__.py`` under the name of a module whose package is not installed: it can be imported,
    and is empty. On PYTHONPATH it may be a folder of data."""
    installed = {item.get("name") for item in dists}
    for folder in layout.site_packages:
        if os.path.basename(folder) not in ("site-packages", "dist-packages") and layout.kind != "path":
            continue
        for name in set(layout.files.names_or_none(folder)).intersection(modules.values()):
            package = next(each for each, module in modules.items() if module == name)
            path = os.path.join(folder, name)
            if package not in installed and layout.files.is_folder(path) and not _elsewhere(name, layout):
                there = layout.files.names_or_none(path)
                own = any(one.startswith("__init__.") for one in there)
                if not own and _unlisted([f"{name}/"], dists, layout.files):
                    item: _Item = {"name": package, "version": Unknown("it is not installed")}
                    yield _record(item, "left-behind", path, fails=False)


def _few(names: list[str]) -> str:
    more = f", … +{len(names) - _NAMED}" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
