"""The fact ``package_damage``: packages whose files are not those that were installed, though their metadata is there.

Looked at are the packages of the table stack-modules, those with extensions for torch, those without which the imports
that people begin with fail, and what all of these need. Their files are compared with the lists of the installation
(``compared.py``); of a package without a list it is known whether its module is there, and what an import of it meets
(``link.py``).
"""

import json
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from envdoctor.facts.values import NOT_KNOWN, Absent, Records, Unknown, Value
from envdoctor.matrix.entry_statements import parse_statement
from envdoctor.observe.locate.layout import LONGEST, Layout, touches
from envdoctor.observe.packages.link import needed, required
from envdoctor.observe.packages.metadata_directory import checked_version, first_named, named_by
from envdoctor.observe.packages.version_files import RECORD_LIMIT, module_in
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.asking import ChildProblem, Limits, ask_once
from envdoctor.system.files import Files
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import is_version, release_of
from envdoctor.versions.requirement import component_of

_MACHINES = ("x86_64", "aarch64")
_CHILD = "envdoctor.observe.packages.compared:answer"
_LIMITS = Limits(seconds=60.0, mib=768, patience=5.0)
_AT_START = Message("it runs code when Python starts, and what that puts in front of the packages is not known")
_ZIPPED = Message("it is a zip file on PYTHONPATH, and the modules in it that hide others are not read")
_LARGEST_ZIP = 64 << 20
#: What one file of a package takes from another.
_OF_FILES = ("module", "name", "attribute", "argument")
_Item = Mapping[str, Value]
#: Forms that are met everywhere, without their blanks: what ``setup.py develop`` writes, the ``-nspkg.pth`` of
#: namespace packages, setuptools' distutils.
_HARMLESS = (
    r"importsys;sys\.__plen=len\(sys\.path\)|"
    r"importsys;new=sys\.path\[sys\.__plen:\];delsys\.path\[sys\.__plen:\];p=getattr\(sys,'__egginsert',0\);"
    r"sys\.path\[p:p\]=new;sys\.__egginsert=p\+len\(new\);?|"
    r"importsys,types,os;(?:has_mfs=sys\.version_info>\(3,5\);)?p=os\.path\.join\(sys\._getframe\(1\)\.f_locals\['sitedir'\],"
    r"\*\((?:'\w+',?)+\)\);[^#]{0,600}\(pnotinmp\)andmp\.append\(p\);?|"
    r"importos;var='SETUPTOOLS_USE_DISTUTILS';enabled=os\.environ\.get\(var,'(?:local|stdlib)'\)=='local';"
    r"enabledand__import__\('_distutils_hack'\)\.add_shim\(\);?"
)
#: Modules that write no list, by how they begin: virtualenv's, uv's.
_HARMLESS_MODULES = {"_virtualenv": '"""Patches that are applied at runtime to the virtual environment."""'}


@observes("environment", "package_damage", kept=True)
def package_damage(request: Request) -> Found:
    """Return one item for each package and kind of damage."""
    dists, layout = request.value("dist"), request.place
    if not isinstance(dists, Records):
        return Unknown(Message("the installed packages are not known"))
    modules = {str(row["name"]): str(row["module"]) for row in request.rows("stack-modules", "module")}
    extensions = {str(row["name"]): row.get("vital", {}) for row in request.rows("torch-extensions", "package")}
    stack = {*modules, *extensions}
    begun = ((str(row["name"]), str(row["statements"][0])) for row in request.rows("entry-statements"))
    modules |= {name: parse_statement(statement)[0].partition(".")[0] for name, statement in begun}
    active = {str(item["name"]): item for item in dists if item.get("active") is True and item.get("kind") != "conda"}
    altered = tuple(str(row["name"]) for row in request.rows("installers", "installer"))
    records: list[dict[str, Value]] = []
    compared: list[_Item] = []
    imported = request.value("link_imported")
    for name in needed(active, stack.union(modules, imported if isinstance(imported, tuple) else ())):
        item = active[name]
        if item.get("editable") is True:
            records += _source_gone(item, modules.get(name), layout, request.cwd)
            continue
        missing = _module_gone(_as_named(item), modules.get(name), layout)
        missing = missing or _vital_gone(item, extensions.get(name, {}), layout)
        records += missing
        if not missing and (_lists_hold(item, altered, layout.files) or _half_removed(item)):
            compared.append(item)
    answer = _compared(compared, stack, extensions, request)
    misfits = _misfits(request)
    for name, kind, files, fails in answer:
        if kind == "files-edited" and not misfits.keys().isdisjoint(files):
            files, fails = sorted((misfits.get(file, file) for file in files), key=lambda text: "(" not in text), True
        records.append(_record(_as_named(active[name]), kind, ", ".join(first_named(files)), fails=fails))
    records += _met_on_imports(
        request, {str(item["name"]): item for item in dists if item.get("active") is True}, records
    )
    records += _left_behind(modules, dists, layout)
    records += _half_installed(modules, active, layout)
    for file in dict.fromkeys(_not_understood(layout, dists)):
        records.append(_record({"name": file}, "unread", _AT_START, fails=False))
    hiding = (file for file in layout.zipped if _hides(file, layout))
    records += [_record({"name": file}, "unread", _ZIPPED, fails=False) for file in hiding]
    return [("package_damage", Records(tuple(records), dists.incomplete), Message("installed packages"))]


def _record(item: _Item, kind: str, file: str, *, fails: bool) -> dict[str, Value]:
    version = item.get("version", NOT_KNOWN)
    return {"package": item["name"], "version": version, "kind": kind, "file": file, "fails": fails}


def is_compared(item: _Item, altered: tuple[str, ...], files: Files) -> bool:
    """Return whether every Python file of the distribution is compared with a digest in its list."""
    if item.get("kind") != "dist-info" or item.get("editable") is True or not _lists_hold(item, altered, files):
        return False
    with suppress(OSError):
        listed = files.whole(os.path.join(str(item["path"]), "RECORD"), RECORD_LIMIT)
        return listed.count(b".py,") == listed.count(b".py,sha256=") > 0
    return False


def foreign_startup(layout: Layout) -> Iterator[str]:
    """Yield the files that run code when Python starts, but for what tools of packaging write themselves."""
    for startup in layout.startup:
        module = startup.code.strip().removeprefix("import ")
        path = os.path.join(os.path.dirname(startup.file), f"{module}.py")
        text = layout.files.text_or_empty(path, LONGEST) if module in _HARMLESS_MODULES else ""
        usual = text.startswith(_HARMLESS_MODULES.get(module, "\0"))
        if not usual and not re.fullmatch(_HARMLESS, re.sub(r"\s+", "", startup.code)):
            yield startup.file


def _lists_hold(item: _Item, altered: tuple[str, ...], files: Files) -> bool:
    """Return whether the installer left the files as its list says. What names none is of hand or of a system,
    unless the list has the file that would name it."""
    installer = item.get("installer")
    if isinstance(installer, Absent) and item.get("kind") == "dist-info":
        with suppress(OSError):
            return b"/INSTALLER," in files.head(os.path.join(str(item["path"]), "RECORD"), RECORD_LIMIT)
    return isinstance(installer, str) and not installer.lower().startswith(altered)


def _half_removed(item: _Item) -> bool:
    """Return whether METADATA is gone, and INSTALLER with it: an upgrade or an uninstall was interrupted."""
    unknown = isinstance(item.get("version"), Unknown)
    return unknown and item.get("kind") == "dist-info" and not isinstance(item.get("installer"), str)


def _as_named(item: _Item) -> _Item:
    """Return a package of which METADATA is gone with the release that the name of its folder tells."""
    version = named_by(os.path.basename(str(item["path"])))[1] if _half_removed(item) else ""
    return {**item, "version": checked_version(version)} if version else item


def _module_gone(item: _Item, module: str | None, layout: Layout) -> list[dict[str, Value]]:
    """Return the module of the stack that the package installs lies in no folder: where nothing lists its files, this
    is all that can be said of them. (A package may be made to have no __init__.py: optimum; not one whose metadata was
    removed with the list.)"""
    if module is None or layout.incomplete is not None or layout.has_finder:
        return []
    listed = layout.files.names_or_none(str(item["path"]))
    removed = item.get("kind") == "dist-info" and not {"METADATA", "RECORD", "INSTALLER"}.intersection(listed)
    there = _elsewhere(module, layout) if removed else _is_begun(module, layout)
    return [] if there else [_record(item, "module-gone", f"{module}/__init__.py", fails=True)]


def _is_begun(module: str, layout: Layout) -> bool:
    """Return whether a folder, which cannot be listed or is a zipped egg, or something in it may be the module."""
    try:
        names = [name for folder in layout.site_packages for name in layout.files.names(folder)]
    except OSError:
        return True
    return any(name.partition(".")[0] == module and not name.endswith("-info") for name in names)


def _vital_gone(item: _Item, by_major: Mapping[str, str], layout: Layout) -> list[dict[str, Value]]:
    """Return an extension module that releases of this major version import first of all lies in no folder."""
    vital = by_major.get(str(item.get("version")).partition(".")[0]) if by_major else None
    folders = layout.site_packages if vital and layout.incomplete is None else ()
    names = [name for folder in folders for name in layout.files.names_or_none(folder)]
    there = not folders or any(name.startswith(f"{vital}.") for name in names)
    return [] if there else [_record(item, "files-gone", f"{vital}.*.so", fails=True)]


def _elsewhere(module: str, layout: Layout) -> bool:
    folders = layout.site_packages
    return layout.incomplete is not None or any(module_in(folder, module, layout.files) for folder in folders)


def _compared(
    compared: Sequence[_Item], stack: Container[str], extensions: Container[str], request: Request
) -> Iterable[tuple[str, str, list[str], bool]]:
    """Return what differs from the packages' lists, by a child: package, kind, files, and whether an import fails."""
    if not compared:
        return ()
    place = request.place
    python = release_of(place.python_version) if isinstance(place.python_version, str) else None
    packages = []
    for item in compared:
        # Of NVIDIA's wheels others tell whether they are found, of extensions for torch whether they can be loaded.
        of_nvidia = component_of(str(item["name"])) is not None
        elsewhere = ("gone", "changed") if of_nvidia else ("damaged", "changed") if item["name"] in extensions else ()
        columns = {"name": item["name"], "metadata": item["path"]}
        packages.append({**columns, "stack": item["name"] in stack, "elsewhere": elsewhere})
    machine = request.value("os.arch")
    question = {
        "root": place.files.root,
        "python": python,
        "machine": machine if request.value("os.platform") == "linux" and machine in _MACHINES else None,
        "packages": packages,
        "lists": [item["path"] for item in request.items("dist") if item.get("kind") == "dist-info"],
    }
    answer = ask_once(_CHILD, question, _LIMITS, looks=place.files.looks)
    if isinstance(answer, ChildProblem):
        reason = Message("the installed files were not compared with their lists: {}", answer.said())
        return [(str(compared[0]["name"]), "unread", [reason], False)]
    damage: list[tuple[str, str, list[str], bool]] = answer["damage"]
    return damage


def _misfits(request: Request) -> dict[str, str]:
    """Return the files for which an import of their own package fails, each with what it lacks or takes in vain."""
    files: dict[str, str] = {}
    for item in request.items("link"):
        taker, giver = (str(item[key]).partition(":")[0].replace(".", "/") for key in ("place", "module"))
        if item["consumer"] == item["provider"] and item["kind"] in _OF_FILES:
            module = taker.replace("/", ".")
            for ending in (".py", "/__init__.py"):
                files.setdefault(giver + ending, f"{giver}{ending} ({module}: {item['name']})")
                files.setdefault(taker + ending, f"{taker}{ending} ({item['name']})")
    return files


def _met_on_imports(
    request: Request, active: Mapping[str, _Item], known: Sequence[Mapping[str, Value]]
) -> Iterator[dict[str, Value]]:
    """Yield what an import opens and cannot be read, of packages of which their lists tell nothing."""
    damaged_packages = {one["package"] for one in known if one["kind"] != "files-edited"}
    for one in request.items("link_unread"):
        damaged = one["damaged"] is True
        name, kind = one["package"], "files-damaged" if damaged else "unread"
        if name not in damaged_packages:
            damaged_packages.add(name)
            item = active.get(str(name), {"name": name})
            yield _record(item, kind, f"{one['file']} ({one['reason']})", fails=damaged)


def _source_gone(item: _Item, module: str | None, layout: Layout, cwd: str) -> list[dict[str, Value]]:
    """Return an editable install (PEP 610) whose sources were removed, or are not reached: what leads to them is gone,
    or a line in front of it fails."""
    sources = []
    try:
        document = json.loads(layout.files.head(os.path.join(str(item["path"]), "direct_url.json"), 1 << 16))
        url = urlsplit(document["url"])
        sources = [unquote(url.path)] if url.scheme == "file" else []
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    places = (*sources, *_pointed_to(item, module, layout))
    records = [_gone_with(item, source, module, layout, cwd) for source in places]
    return sorted(filter(None, records), key=lambda record: record["kind"] != "source-gone")[:1]


def _pointed_to(item: _Item, module: str | None, layout: Layout) -> Iterator[str]:
    """Yield where an editable install says that its module is: in a ``.pth`` file of its name (``_peft.pth``), or in
    the finder of setuptools (``__editable___peft_0_17_1_finder.py``)."""
    name = str(item["name"])
    mapped = re.compile(rf"['\"]{module or name.replace('-', '_')}['\"]: *['\"]([^'\"\n]+)['\"]")
    folder = os.path.dirname(str(item["path"]))
    for entry in layout.files.names_or_none(folder):
        stem, _, ending = entry.lower().lstrip("_").removeprefix("editable").lstrip("_.").rpartition(".")
        if ending not in ("pth", "py") or not re.sub(r"[_.]", "-", f"{stem}.").startswith(f"{name}-"):
            continue
        text = layout.files.text_or_empty(os.path.join(folder, entry), 1 << 16)
        if entry.endswith("_finder.py"):
            yield from mapped.findall(text.partition("MAPPING")[2].partition("\n")[0])
        elif entry.endswith(".pth"):
            yield from (line.strip() for line in text.splitlines() if line.startswith("/"))


def _gone_with(item: _Item, source: str, module: str | None, layout: Layout, cwd: str) -> dict[str, Value] | None:
    """Return the record of a package whose sources are gone or not reached, and whose module is found nowhere else."""
    name = module or str(item["name"]).replace("-", "_")
    here = False
    if layout.live:
        layout.files.looks = None  # the answer is that of this working directory
        here = module_in(cwd, name, layout.files) is not None
    # The paths in a bare folder may be of another machine.
    if layout.kind == "path" or not os.path.isabs(source) or here or _elsewhere(name, layout):
        return None
    if layout.files.is_gone(layout.files.inside(source)):
        return _record(item, "source-gone", source[:400], fails=module is not None)
    is_known = module is not None and not layout.has_finder and not _is_begun(name, layout)
    return _record(item, "source-unreached", source[:400], fails=True) if is_known else None


def _unlisted(starts: list[str], items: Iterable[_Item], files: Files) -> list[str]:
    """Return the starts of names with which no file begins in any list (RECORD); each is read once at most."""
    for item in items if starts else ():
        try:
            record = b"\n" + files.head(os.path.join(str(item["path"]), "RECORD"), RECORD_LIMIT)
        except OSError:
            continue
        starts = [start for start in starts if b"\n" + start.encode("utf-8", "replace") not in record]
        if not starts:
            break
    return starts


def _left_behind(modules: Mapping[str, str], dists: Records, layout: Layout) -> Iterator[dict[str, Value]]:
    """Yield a folder without ``__init__.py`` under the name of a module whose package is not installed: it can be
    imported, and is empty. On PYTHONPATH it may be a folder of data."""
    installed = {item.get("name") for item in dists}
    for folder in layout.site_packages:
        if os.path.basename(folder) not in ("site-packages", "dist-packages") and layout.kind != "path":
            continue
        for name in set(layout.files.names_or_none(folder)).intersection(modules.values()):
            package = next(each for each, module in modules.items() if module == name)
            path = os.path.join(folder, name)
            if package not in installed and layout.files.is_folder(path) and not _elsewhere(name, layout):
                there = layout.files.names_or_none(path)
                own = any(entry.startswith("__init__.") for entry in there)
                if not own and _unlisted([f"{name}/"], dists, layout.files):
                    item: _Item = {"name": package, "version": Unknown(Message("it is not installed"))}
                    yield _record(item, "left-behind", path, fails=False)


def _half_installed(
    modules: Mapping[str, str], active: Mapping[str, _Item], layout: Layout
) -> Iterator[dict[str, Value]]:
    """Yield packages that an installer moved away (``~eft-0.17.1.dist-info``) and has not replaced, or unpacked without
    the list that it writes at the end: it works on them, or was interrupted."""
    required_names = {name for item in active.values() for name in required(item)}.union(modules) - active.keys()
    for folder in layout.site_packages:
        names = layout.files.names_or_none(folder)  # sorted: metadata comes behind the module
        moved = {entry[1:].partition("-")[0]: entry for entry in names if entry[:1] == "~"}
        for name in sorted(required_names) if moved else ():
            away = moved.get(modules.get(name, name)[1:]) or moved.get(name.replace("-", "_")[1:])
            if away:
                reason = Message("its installation was interrupted, or goes on: {} is there", away)
                version = away.removesuffix(".dist-info").partition("-")[2]
                if away.endswith(".dist-info") and is_version(version):
                    text = (
                        "its installation was interrupted, or goes on: {} is there; "
                        "pip install --force-reinstall --no-deps {} brings back what it replaced"
                    )
                    reason = Message(text, away, f"{name}=={version}")
                yield _record({"name": name}, "unread", reason, fails=False)
    for name in modules.keys() & active.keys():
        there = layout.files.names_or_none(str(active[name]["path"]))
        if "WHEEL" in there and "RECORD" not in there and "INSTALLER" not in there:
            reason = Message("its installation was interrupted, or goes on: it has no list of its files yet")
            yield _record(active[name], "unread", reason, fails=False)


def _not_understood(layout: Layout, dists: Records) -> Iterator[str]:
    """Yield files of no distribution whose code may change where modules come from, in a way that is not known."""
    for startup in layout.startup:
        if re.fullmatch(_HARMLESS, re.sub(r"\s+", "", startup.code)) or not _lists_none(startup.file, layout, dists):
            continue
        if not startup.known or any(_may_change(module, layout, dists) for module in startup.imports):
            yield startup.file


def _hides(path: str, layout: Layout) -> bool:
    """Return whether a zip file holds a module under a name that Python itself or a folder of the import path has."""
    from io import BytesIO
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(BytesIO(layout.files.whole(path, _LARGEST_ZIP))) as archive:
            modules = {re.split(r"[./]", name)[0] for name in archive.namelist()}
    except BadZipFile:
        return False  # Python passes it over
    except (OSError, ValueError, NotImplementedError):
        return True
    names = (name for folder in layout.site_packages for name in layout.files.names_or_none(folder))
    return not modules.isdisjoint(sys.stdlib_module_names.union(name.partition(".")[0] for name in names))


def _lists_none(file: str, layout: Layout, dists: Records) -> bool:
    folders = [one for one in layout.site_packages if file.startswith(one + os.sep)]
    names = [os.path.relpath(file, folder).replace(os.sep, "/") for folder in folders]
    return all(_unlisted([f"{name},"], dists, layout.files) for name in names)


def _may_change(module: str, layout: Layout, dists: Records) -> bool:
    """Return whether the module lies in the environment, comes from no distribution, and touches the import path."""
    files = layout.files
    for folder in layout.site_packages:
        names = files.names_or_none(folder)
        stem = os.path.join(folder, module)
        path = os.path.join(stem, "__init__.py") if module in names else f"{stem}.py"
        if not files.is_file(path):
            continue
        if not _lists_none(path, layout, dists):
            return False
        text = files.text_or_empty(path, LONGEST)
        return touches(text) and not text.startswith(_HARMLESS_MODULES.get(module, "\0"))
    return False
