"""uv.lock, by walking from the project through the dependencies; and poetry.lock, pdm.lock and pylock.toml (PEP 751),
lists of packages, each with the marker that says when it counts."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.matrix.toml_files import TomlError, parse_toml
from envdoctor.observe.documents.locks.lock import (
    Lock,
    Locked,
    LockEntry,
    LockError,
    Wish,
    check_names,
    counts,
    extras_in,
    items,
    left_out,
    line_of,
    name_of,
    place_in,
    plain,
    read_packages,
    table,
    version_at,
    wheel_of,
    with_python,
    words,
)
from envdoctor.observe.documents.locks.requirements import requirements_of_poetry
from envdoctor.system.files import Files
from envdoctor.system.message import Message
from envdoctor.versions.requirement import normalise

_ONE_PYTHON = r"==\s*(3\.\d{1,2})(?:\.\*|\.\d+)?\Z"
#: Bytes of a pyproject.toml that are read.
_LARGEST = 1 << 20
_OWN = ("virtual", "editable", "directory")
_GROUPS = "dev-dependencies"
_EXTRAS = ("optional-dependencies", _GROUPS)
_Asked = tuple[str, str, str]


def read_uv(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages that are reached from the project. Raises :class:`LockError`."""
    document, entries = read_packages(text, "package")
    packages = [entry.table for entry in entries]
    if document.get("version") != 1:
        raise LockError("is no uv.lock of version 1, the only one that is known")
    match = re.match(_ONE_PYTHON, str(document.get("requires-python", "")))
    python = match[1] if match else None
    roots = _roots(packages)
    there = {extra for root in roots for extra in _extras_of_uv(packages[root])}
    wish = check_names(wish, there.union(*(_without_packages(packages[root]) for root in roots)))
    default = _default_groups(path, wish, [group for root in roots for group in table(packages[root], _GROUPS)])
    reached = _reached(packages, roots, with_python(wish, python), default)
    locked = [
        _locked_by_uv(entry, path, wish, sure=reached[number] is True)
        for number, entry in enumerate(entries)
        if number in reached and (number not in roots or "version" in entry.table)
    ]
    others = sorted(there - {*default, *wish.names})
    notes = [Message("{}; --lock '{}[{}]' takes one", left_out(others), path, others[0])] if others else []
    overrides = tuple(str(entry.get("name")) for entry in items(table(document, "manifest").get("overrides")))
    return Lock(locked, None, python, overrides=overrides, notes=tuple(notes))


def _roots(packages: list[dict[str, Any]]) -> list[int]:
    """Return the project; where it is not told which that is, every package of one's own, else all packages."""
    sources = dict(enumerate(package.get("source") for package in packages))
    own = {at: source for at, source in sources.items() if isinstance(source, dict) and set(source) & set(_OWN)}
    return [at for at, source in own.items() if "." in source.values()] or list(own or sources)


def _default_groups(path: str, wish: Wish, there: Sequence[str]) -> Sequence[str]:
    """Return the groups that uv installs unless it is told otherwise: those that the pyproject.toml beside the lock
    says, else dev (https://docs.astral.sh/uv/concepts/projects/dependencies/#default-groups)."""
    text = Files().text_or_empty(os.path.join(wish.cwd, os.path.dirname(path), "pyproject.toml"), _LARGEST)
    try:
        groups = table(parse_toml(text.encode("utf-8", "replace"), ""), "tool", "uv").get("default-groups", ["dev"])
    except TomlError:
        return ("dev",)
    return there if groups == "all" else [*map(normalise, words(groups))]


def _reached(
    packages: list[dict[str, Any]], roots: list[int], wish: Wish, default: Sequence[str]
) -> dict[int, bool | None]:
    """Follow the dependencies from the roots. Return which packages an install takes: True where it is certain, None
    where the target does not say."""
    numbers_of: dict[_Asked, list[int]] = {}
    for number, package in enumerate(packages):
        for extra in ("", *_extras_of_uv(package)):
            for version in {"", str(package.get("version", ""))}:
                numbers_of.setdefault((str(package.get("name")), version, extra), []).append(number)
    reached: dict[tuple[int, str], bool | None] = {}
    waiting: list[tuple[int, str, bool | None]] = [
        (root, extra, True) for root in roots for extra in ("", *default, *wish.names)
    ]
    followed: set[tuple[_Asked, bool | None]] = set()
    while waiting:
        number, extra, sure = waiting.pop()
        before = reached.get((number, extra), False)
        if before or (before is None and not sure):
            continue
        reached[number, extra] = sure
        package = packages[number]
        groups = [table(package, name).get(extra) for name in _EXTRAS] if extra else [package.get("dependencies")]
        for entry in (entry for group in groups for entry in items(group)):
            there = counts(str(entry.get("marker", "")), wish)
            if there is False:
                continue
            name, version = str(entry.get("name")), str(entry.get("version", ""))
            certain = (sure and there) if len(numbers_of.get((name, version, ""), ())) == 1 else None
            for key in ((name, version, extra) for extra in ("", *words(entry.get("extra")))):
                # All that are meant, once: a lock may ask for thousands of one name thousands of times.
                if (key, certain) not in followed:
                    followed.add((key, certain))
                    waiting += [(number, key[2], certain) for number in numbers_of.get(key, ())]
    return {number: sure for (number, extra), sure in reached.items() if not extra}


def _extras_of_uv(package: dict[str, Any]) -> Iterator[str]:
    return (extra for name in _EXTRAS for extra in table(package, name))


def _without_packages(package: dict[str, Any]) -> list[str]:
    """Return all extras and groups of a project: those that are empty stand in its metadata alone."""
    return [*words(table(package, "metadata").get("provides-extras")), *table(package, "metadata", "requires-dev")]


def _locked_by_uv(entry: LockEntry, path: str, wish: Wish, *, sure: bool) -> Locked:
    package, place = entry.table, place_in(path, entry.line)
    name, wheel = name_of(package.get("name"), package), wheel_of(str(table(package, "source").get("url", "")))
    requires = tuple(
        line_of(item.get("name"), words(item.get("extra")), "", plain(str(item.get("marker") or ""), wish))
        for item in items(package.get("dependencies"))
    )
    partly = Unknown(Message("{} is for some targets only", place))
    version = version_at(place, package.get("version")) if sure else partly
    return Locked(name, version, place, requires=requires, wheel=wheel[2] if wheel else "", rebuilt=entry.rebuilt)


#: Groups that installers take unless they are told otherwise.
_DEFAULT = ("main", "default", "dev")


def read_list(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages of the default groups and of those that are chosen. Raises :class:`LockError`."""
    standard = "lock-version" in text[: text.find("[[packages]]")] if "[[packages]]" in text else False
    document, entries = read_packages(text, "packages" if standard else "package")
    wish = check_names(wish, _names(document, [entry.table for entry in entries], wish))
    packages: list[Locked] = []
    others: set[str] = set()
    extras = table(document, "extras")
    of_extras = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for name in wish.names for line in words(extras.get(name))}
    for entry in entries:
        package = entry.table
        groups = words(package.get("groups")) or [str(package.get("category", _DEFAULT[0]))]
        optional = package.get("optional") is True and str(package.get("name")) not in of_extras
        chosen = [group for group in groups if group in (*_DEFAULT, *wish.names)]
        if optional or not chosen:
            others.update(extras if optional else groups)
            continue
        packages.append(_locked(entry, path, chosen))
    notes = (left_out(sorted(others)),) if others else ()
    return Lock(packages, None if packages else Message("no group of it was chosen"), notes=notes)


def _names(document: dict[str, Any], packages: list[dict[str, Any]], wish: Wish) -> Iterator[str]:
    """Yield the extras and groups of a list; those that were chosen too where it is poetry's before 2.0, which does not
    tell its groups."""
    yield from table(document, "extras")
    for listed in ("extras", "dependency-groups", "default-groups"):  # of pylock.toml
        yield from words(document.get(listed))
    yield from words(table(document, "metadata").get("groups"))  # of pdm
    for package in packages:
        yield from (*words(package.get("groups")), *words([package.get("category")]))
        yield from extras_in(str(package.get("marker", package.get("markers", ""))))
    if "package" in document and not any("groups" in package for package in packages):
        yield from wish.names


def _locked(entry: LockEntry, path: str, groups: Iterable[str]) -> Locked:
    package, place = entry.table, place_in(path, entry.line)
    name = name_of(package.get("name"), package)
    marker = package.get("marker", package.get("markers", ""))
    if isinstance(marker, dict):  # of poetry, by group; a group without one has the package everywhere
        each = [str(marker.get(group, "")) for group in groups]
        marker = " or ".join(f"({condition})" for condition in each) if all(each) else ""
    wheels = items(package.get("wheels")) or items([package.get("archive")])
    wheel = wheel_of(str(wheels[0].get("name") or wheels[0].get("url", ""))) if len(wheels) == 1 else None
    requires, declared = _requires(package.get("dependencies"))
    python = package.get("python-versions", package.get("requires_python", package.get("requires-python", "")))
    python = str(python) if re.match(r"[\d.,<>=!~*\s]*\Z", str(python)) and str(python) != "*" else ""
    version, file = version_at(place, package.get("version")), wheel[2] if wheel else ""
    return Locked(name, version, place, str(marker), requires, declared, python, file, rebuilt=entry.rebuilt)


def _requires(dependencies: object) -> tuple[tuple[str, ...] | None, bool]:
    """Return requirements by PEP 508, and whether they are those of the metadata, as pdm's and poetry's are."""
    match dependencies:
        case dict():
            return tuple(requirements_of_poetry(dependencies)), True
        case list() if dependencies and all(isinstance(line, str) for line in dependencies):
            return tuple(dependencies), True
    return None, False
