"""The installed distributions: names, versions, requirements and tags, by their metadata and version files.

And what contradicts itself in a folder of packages.
"""

import os
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.observe.locate.installation import conda_name_version
from envdoctor.observe.locate.layout import EnvironmentUnreadable, Layout
from envdoctor.observe.packages.metadata_directory import (
    Distribution,
    MetadataProblem,
    checked_version,
    counts,
    first_named,
    invalid_name,
    named_by,
    read_directory,
    readable,
)
from envdoctor.observe.packages.version_files import (
    VERSION_FILES,
    VersionFile,
    another_version,
    module_in,
    read_version_file,
)
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files, Spent, because_of
from envdoctor.system.message import NOTHING, Message, joined
from envdoctor.versions.pep440 import base_release, same_release
from envdoctor.versions.requirement import NotARequirement, read_requirement, valid_name

_EDITABLE_PTH = r"__editable__\.(?P<name>.+)-[^-]+\.pth\Z"
#: How often an extra's requirements ask for another extra, and that for one again.
_DEEPEST = 8
_LIBRARY = re.compile(r"(?:python|pypy)([0-9]+\.[0-9]+)(t?)\Z")
_FOR_ALL = "\nTag: py3-none-any\n"
_TAG = re.compile(r"(?m)^Tag:([^\r\n]{1,200})")
_LIMIT = 1 << 14


class _Folders(NamedTuple):
    """The distributions of each folder in import order; ``trouble`` says what could not be read, and ``linked`` are the
    source folders that ``.egg-link`` files lead to."""

    distributions: dict[str, list[Distribution]]
    problems: list[MetadataProblem]
    trouble: list[Message]
    linked: list[str]


@observes(
    "environment",
    "environment.path environment.kind python.version python.minor python.implementation python.free_threaded "
    "python.executable python.gone environment.unseen pkg.* dist metadata_problem",
    kept=True,
)
def installed(request: Request) -> Found:
    """Return the environment, its Python and its packages; ``dist`` is complete when every folder was read.

    Raises :class:`EnvironmentUnreadable` when none of the folders could be listed.
    """
    layout = request.place
    modules = {row["name"]: row["module"] for row in request.rows("stack-modules", "module")}
    try:
        folders = _read_folders(layout)
        packages = _decide_versions(folders, layout, _replaced_code(folders.distributions, modules, layout))
        dists = tuple(_dists(folders, layout.files))
    except Spent as spent:
        raise EnvironmentUnreadable("the environment {} was {}", layout.prefix, spent) from None
    incomplete = folders.trouble[0] if folders.trouble else layout.incomplete
    counts = Counter(item["name"] for item in dists)
    problems = [item._replace(alone=counts[item.name] <= 1)._asdict() for item in folders.problems]
    return [
        *_own_facts(layout),
        *((f"pkg.{name}", *pair) for name, pair in packages.items()),
        ("dist", Records(dists, incomplete), Message("installed packages")),
        ("metadata_problem", Records(tuple(problems), incomplete), Message("installed packages")),
    ]


def _read_folders(layout: Layout) -> _Folders:
    folders = _Folders({}, [], [], [])
    for folder in layout.site_packages:
        try:
            folders.distributions[folder] = _read_folder(folder, layout.files, folders)
        except OSError as error:
            folders.trouble.append(Message("{} cannot be read: {}", folder, because_of(error)))
    if not folders.distributions:
        if folders.trouble:
            text = "nothing of the environment {} could be read: {}"
            raise EnvironmentUnreadable(text, layout.prefix, joined(folders.trouble))
        raise EnvironmentUnreadable(
            "the environment {} has no folder of packages{}; point at another one with --python PATH, or at the folder "
            "with --path DIR",
            layout.prefix,
            Message(" ({})", joined(layout.notes)) if layout.notes else NOTHING,
        )
    for folder in set(folders.linked) & set(folders.distributions):
        folders.distributions[folder] = [item._replace(editable=True) for item in folders.distributions[folder]]
    if layout.kind == "conda":
        try:
            known = {item.name for items in folders.distributions.values() for item in items}
            folders.distributions["conda-meta"] = _conda_packages(layout.prefix, known, layout.files)
        except OSError as error:
            folders.trouble.append(Message("conda-meta cannot be listed: {}", because_of(error)))
    _follow_extras(folders.distributions)
    return folders


def _follow_extras(in_folders: Mapping[str, list[Distribution]]) -> None:
    """Drop the requirements of extras that no other distribution asks for (``fsspec[http]``)."""
    extras: dict[str, set[str]] = {}
    for _ in range(_DEEPEST):
        before, extras = extras, {}
        for item in (item for items in in_folders.values() for item in items):
            for line in item.requires:
                if "[" in line and counts(line, before.get(item.name, ())):
                    with suppress(NotARequirement):
                        requirement = read_requirement(line)
                        extras.setdefault(requirement.name, set()).update(requirement.extras)
        if extras == before:
            break
    for items in in_folders.values():
        for at, item in enumerate(items):
            lines = (line for line in item.requires if counts(line, extras.get(item.name, ())))
            items[at] = item._replace(requires=tuple(" ".join(line.split()) for line in lines))


def _replaced_code(
    in_folders: Mapping[str, list[Distribution]], modules: Mapping[str, str], layout: Layout
) -> dict[str, VersionFile]:
    """Return the versions of code that is another release than its metadata says, of the packages that are imported."""
    versions: dict[str, VersionFile] = {}
    seen: set[str] = set(VERSION_FILES)
    for items in in_folders.values():
        for item in items:
            module = modules.get(item.name)
            if module is None or item.name in seen or not isinstance(item.version, str) or item.kind == "conda":
                continue
            seen.add(item.name)
            editable = item.editable is True
            folders = layout.site_packages if editable else (os.path.dirname(item.path),)
            places = (module_in(folder, module, layout.files) for folder in folders)
            place = next(filter(None, places), None)
            code = place and another_version(item.path, item.version, place, layout.files, listed=not editable)
            if place and code:
                versions[item.name] = VersionFile(os.path.dirname(place), code[1], {"__version__": code[0]})
    return versions


def _dists(folders: _Folders, files: Files) -> Iterator[dict[str, Value]]:
    imported: set[str] = set()
    for items in folders.distributions.values():
        here = {item.name for item in items} - imported
        for item in items:
            yield {
                "name": item.name,
                "version": item.version,
                "kind": item.kind,
                "installer": item.installer,
                "editable": item.editable,
                "active": item.name in here,
                "requires": Unknown(item.requires_unknown) if item.requires_unknown else item.requires,
                "requires_python": item.requires_python or ABSENT,
                "tags": _read_tags(item, files, folders.problems),
                "path": item.path,
                **({"said": item.said} if item.said else {}),
            }
        imported |= here


def _own_facts(layout: Layout) -> list[tuple[str, Value, str]]:
    executable: Value = layout.executable or ABSENT
    if layout.executable is None and layout.kind in ("path", "root"):
        executable = Unknown(Message("a folder of packages names no interpreter, and that of an image is not started"))
    because = layout.because.partition(";")[0]
    origin = layout.version_origin
    platform = "linux" if layout.kind == "root" else "windows"
    folders = [os.path.basename(os.path.dirname(folder)) for folder in layout.site_packages]
    libraries = [match for folder in folders if (match := _LIBRARY.match(folder))]
    minors = {match[1] for match in libraries}  # 3.11 of lib/python3.11/site-packages, where no version is known
    minor: Value = minors.pop() if len(minors) == 1 else layout.python_version
    if isinstance(layout.python_version, str):
        minor = ".".join((base_release(layout.python_version) or "").split(".")[:2])
    return [
        *([] if layout.live else [("os.platform", platform, because)]),
        ("environment.path", layout.prefix, because),
        ("environment.kind", layout.kind, because),
        ("python.version", layout.python_version, origin),
        ("python.implementation", layout.implementation, origin),
        ("python.minor", minor, origin or Message("the folder of packages")),
        ("python.free_threaded", any(match[2] for match in libraries), because),
        ("python.executable", executable, because),
        ("python.gone", layout.gone or ABSENT, because),
        ("environment.unseen", layout.unseen or ABSENT, because),
    ]


def _conda_packages(prefix: str, known: Container[str], files: Files) -> list[Distribution]:
    """Return the packages of ``conda-meta`` whose names are not ``known`` as distributions already (conda's
    ``pytorch``, which installs a distribution called torch, is listed beside it). No ``conda-meta``: an empty list.
    Raises ``OSError`` when the folder is there and cannot be listed."""
    folder = os.path.join(prefix, "conda-meta")
    try:
        entries = files.names(folder)
    except FileNotFoundError:
        return []
    items: list[Distribution] = []
    for entry in entries:
        raw_name, version = conda_name_version(entry)
        name = valid_name(raw_name)
        if name is not None and name not in known:
            path, origin = os.path.join(folder, entry), f"conda-meta/{entry}"
            items.append(Distribution(name, checked_version(version), "conda", "conda", False, path, origin))
    return items


def _read_tags(item: Distribution, files: Files, problems: list[MetadataProblem]) -> tuple[str, ...]:
    """Return the tags; none when it runs everywhere, when it says nothing, or when one of them is none: a problem."""
    text = files.text_or_empty(f"{item.path}{os.sep}WHEEL", _LIMIT) if item.kind == "dist-info" else ""
    tags = () if _FOR_ALL in text else tuple(map(str.strip, _TAG.findall(text)))
    broken = next((tag for tag in tags if tag.count("-") != 2), None)
    if broken is None:
        return tags
    detail = Message("{}/WHEEL has a tag that is none: {}", os.path.basename(item.path), broken)
    version = item.version if isinstance(item.version, str) else ABSENT
    problems.append(MetadataProblem(item.name, "unreadable", detail, version, item.path))
    return ()


def _read_folder(folder: str, files: Files, folders: _Folders) -> list[Distribution]:
    """Return the distributions whose metadata directories a folder holds, or of an egg on the import path that one.

    Raises ``OSError`` when the folder cannot be listed; what is wrong with one distribution is a
    :class:`MetadataProblem`.
    """
    items: list[Distribution | None] = []
    editable: set[str | None] = set()
    for entry in files.names(folder) if not folder.endswith(".egg") else ():
        path = f"{folder}{os.sep}{entry}"
        if entry.startswith("~"):
            name = readable(entry)
            detail = Message("{} is what an interrupted pip left behind", name)
            folders.problems.append(MetadataProblem(name, "leftover", detail, ABSENT, path))
        elif entry.endswith((".dist-info", ".egg-info")):
            items.append(read_directory(path, entry, entry.rpartition(".")[2], files, folders.problems))
        elif entry.endswith(".egg-link"):
            # "setup.py develop": the first line names the source folder, which a .pth line puts on the path.
            line = files.text_or_empty(path, 4096).partition("\n")[0].strip()
            if line and "\0" not in line:
                target = files.inside(line) if os.path.isabs(line) else os.path.join(folder, line)
                folders.linked.append(os.path.normpath(target))
        elif entry.startswith("__editable__."):
            match = re.match(_EDITABLE_PTH, entry)
            editable.add(valid_name(match["name"]) if match else None)
    if folder.endswith(".egg"):
        items = [_read_egg(folder, files, folders.problems)]
    here = [item._replace(editable=True) if item.name in editable else item for item in items if item is not None]
    folders.problems.extend(_duplicates(folder, here))
    return here


def _read_egg(folder: str, files: Files, problems: list[MetadataProblem]) -> Distribution | None:
    """Return a folder with EGG-INFO, or a zip file that has only its name to read."""
    entry, inside = os.path.basename(folder), os.path.join(folder, "EGG-INFO")
    if files.is_folder(folder):
        return read_directory(inside, entry, "egg-info", files, problems)
    raw_name, raw_version = named_by(entry)
    name = valid_name(raw_name)
    if name is None:
        problems.append(invalid_name(raw_name, entry, folder))
        return None
    version = Unknown(Message("{} carries no version", entry)) if raw_version is None else checked_version(raw_version)
    return Distribution(name, version, "egg-info", ABSENT, False, inside, entry)


def _duplicates(folder: str, distributions: list[Distribution]) -> Iterator[MetadataProblem]:
    """Yield the same name twice in one folder. Which of the two the files on disk belong to, metadata cannot tell."""
    groups: dict[str, list[Distribution]] = {}
    for item in distributions:
        groups.setdefault(item.name, []).append(item)
    for name, items in groups.items():
        if len(items) > 1:
            versions = ", ".join(first_named(sorted({item.version for item in items if isinstance(item.version, str)})))
            entries = " and ".join(first_named([os.path.basename(item.path) for item in items]))
            detail = Message("{} are in the same folder", entries)
            yield MetadataProblem(name, "duplicate", detail, versions or ABSENT, folder)


def _decide_versions(
    folders: _Folders, layout: Layout, replaced: Mapping[str, VersionFile]
) -> dict[str, tuple[Value, str]]:
    """Decide the version of each package, and its origin. The distributions get the local tags that version files add,
    and contradictions between METADATA and version files are problems.

    The first folder that has a name decides, as it does for ``import``; two versions in that folder leave it unknown. A
    version file that adds a local tag, or says something else, wins; so does code that was ``replaced`` by another
    release.
    """
    chosen: dict[str, tuple[Value, str]] = {}
    for items in folders.distributions.values():
        here: dict[str, tuple[Value, str]] = {}
        for item in items:
            earlier, origin = here.get(item.name, (item.version, ""))
            if origin and item.version != earlier:
                origin = f"{origin}, {item.origin}"
                text = "two metadata directories in one folder say {} and {}"
                known = isinstance(earlier, str) and isinstance(item.version, str)
                unknown = earlier if isinstance(earlier, Unknown) else item.version
                earlier = Unknown(Message(text, earlier, item.version)) if known else unknown
            here[item.name] = earlier, origin or item.origin
        chosen = {**here, **chosen}
    by_file = {name: read_version_file(name, layout.site_packages, layout.files) for name in VERSION_FILES}
    for name, file in (*by_file.items(), *replaced.items()):
        if not isinstance(file, Unknown):
            _prefer_file(name, file, chosen, folders)
    return chosen


def _prefer_file(name: str, file: VersionFile, chosen: dict[str, tuple[Value, str]], folders: _Folders) -> None:
    text = file.get("__version__")
    version = checked_version(text) if isinstance(text, str) else Unknown(Message("{} does not say", file.origin))
    if isinstance(version, Unknown):
        chosen.setdefault(name, (version, file.origin))
        return
    path = os.path.join(file.folder, *file.origin.split("/"))
    known, origin = chosen.get(name, (None, ""))
    if known is None:
        detail = Message("{} is there, and no metadata directory", file.origin)
        folders.problems.append(MetadataProblem(name, "no-metadata", detail, version, path))
    elif isinstance(known, str) and not same_release(known, version):
        detail = Message("{} says {}, {} says {}", origin, known, file.origin, version)
        folders.problems.append(MetadataProblem(name, "mismatch", detail, f"{known}, {version}", path))
    elif isinstance(known, str) and "+" in known and "+" not in version:
        return  # here it is METADATA that has the tag
    chosen[name] = version, file.origin
    for items in folders.distributions.values():
        for index, item in enumerate(items):
            beside = item.name == name and os.path.dirname(item.path) == file.folder
            if beside and isinstance(item.version, str) and same_release(item.version, version):
                items[index] = item._replace(version=version)
