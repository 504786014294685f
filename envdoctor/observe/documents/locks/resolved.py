"""uv.lock, by walking from the project through the dependencies; and poetry.lock, pdm.lock and pylock.toml (PEP 751),
lists of packages, each with the marker that says when it counts."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from envdoctor.facts.values import Unknown
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
    version_at,
    wheel_of,
    with_python,
    words,
)
from envdoctor.system.message import Message

_ONE_PYTHON = r"==\s*(3\.\d{1,2})(?:\.\*|\.\d+)?\Z"
#: The group that uv installs unless it is told otherwise.
_DEFAULT_OF_UV = "dev"
_OWN = ("virtual", "editable", "directory")
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
    walk = _Walk(packages, with_python(wish, python))
    for root in roots:
        for extra in ("", _DEFAULT_OF_UV, *wish.names):
            walk.enter(root, extra, True)
    walk.run()
    found, own = [], set(roots)
    for number, entry in enumerate(entries):
        sure = walk.reached.get((number, ""), False)
        if sure is not False and (number not in own or "version" in entry.table):
            found.append(_locked_by_uv(entry, path, wish, sure=sure is True))
    left = sorted(there - {_DEFAULT_OF_UV, *wish.names})
    notes = [Message("{}; --lock '{}[{}]' takes one", left_out(left), path, left[0])] if left else []
    manifest = document.get("manifest")
    overrides = items(manifest.get("overrides")) if isinstance(manifest, dict) else []
    replaced = tuple(str(one.get("name")) for one in overrides)
    return Lock(found, None, python, overrides=replaced, notes=tuple(notes))


def _roots(packages: list[dict[str, Any]]) -> list[int]:
    """Return the project; where it is not told which that is, every package of one's own, else all packages."""
    sources = dict(enumerate(package.get("source") for package in packages))
    own = {at: source for at, source in sources.items() if isinstance(source, dict) and set(source) & set(_OWN)}
    return [at for at, source in own.items() if "." in source.values()] or list(own or sources)


class _Walk:
    """What is reached, by package and extra: True where it is sure, None where the target does not say."""

    def __init__(self, packages: list[dict[str, Any]], wish: Wish) -> None:
        self._packages, self._wish = packages, wish
        #: Who answers to a name, to its version ("" for any) and to an extra ("" for none).
        self._called: dict[_Asked, list[int]] = {}
        for number, package in enumerate(packages):
            for extra in ("", *_extras_of_uv(package)):
                for version in {"", str(package.get("version", ""))}:
                    self._called.setdefault((str(package.get("name")), version, extra), []).append(number)
        self.reached: dict[tuple[int, str], bool | None] = {}
        self._waiting: list[tuple[int, str]] = []
        self._asked: set[tuple[_Asked, bool | None]] = set()

    def enter(self, number: int, extra: str, sure: bool | None) -> None:
        """Note that a package is asked for, with an extra of its own or without."""
        known = self.reached.get((number, extra), False)
        if known is False or (known is None and sure):
            self.reached[number, extra] = sure
            self._waiting.append((number, extra))

    def run(self) -> None:
        """Follow the dependencies of all that was entered."""
        while self._waiting:
            number, extra = self._waiting.pop()
            sure = self.reached[number, extra]
            package = self._packages[number]
            tables = (package.get(table) for table in ("optional-dependencies", "dev-dependencies"))
            listed = (table.get(extra) for table in tables if isinstance(table, dict))
            for wanted in (
                one for group in (listed if extra else [package.get("dependencies")]) for one in items(group)
            ):
                there = counts(str(wanted.get("marker", "")), self._wish)
                if there is False:
                    continue
                name, version = str(wanted.get("name")), str(wanted.get("version", ""))
                alone = len(self._called.get((name, version, ""), ())) == 1
                certain = (sure and there) if alone else None
                for asked in ((name, version, extra_of_it) for extra_of_it in ("", *words(wanted.get("extra")))):
                    # All that are meant, once: a lock may ask for thousands of one name thousands of times.
                    if (asked, certain) not in self._asked:
                        self._asked.add((asked, certain))
                        for one in self._called.get(asked, ()):
                            self.enter(one, asked[2], certain)


def _extras_of_uv(package: dict[str, Any]) -> Iterator[str]:
    for table in ("optional-dependencies", "dev-dependencies"):
        names = package.get(table)
        yield from names if isinstance(names, dict) else ()


def _without_packages(package: dict[str, Any]) -> list[str]:
    """Return all extras and groups of a project: those that are empty stand in its metadata alone."""
    metadata = _table(package, "metadata")
    return [*words(metadata.get("provides-extras")), *_table(metadata, "requires-dev")]


def _locked_by_uv(entry: LockEntry, path: str, wish: Wish, *, sure: bool) -> Locked:
    package, place = entry.table, place_in(path, entry.line)
    name, source = name_of(package.get("name"), package), package.get("source")
    wheel = wheel_of(str(source.get("url", ""))) if isinstance(source, dict) else None
    requires = tuple(
        line_of(one.get("name"), words(one.get("extra")), "", plain(str(one.get("marker") or ""), wish))
        for one in items(package.get("dependencies"))
    )
    partly = Unknown(Message("{} is for some targets only", place))
    version = version_at(place, package.get("version")) if sure else partly
    return Locked(name, version, place, requires=requires, wheel=wheel[2] if wheel else "", rebuilt=entry.rebuilt)


#: Groups that installers take unless they are told otherwise.
_DEFAULT = ("main", "default", "dev")
_BARE = r"\d[\w.+!]*\Z"


def read_list(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages of the default groups and of those that are chosen. Raises :class:`LockError`."""
    standard = "lock-version" in text[: text.find("[[packages]]")] if "[[packages]]" in text else False
    document, entries = read_packages(text, "packages" if standard else "package")
    wish = check_names(wish, _names(document, [entry.table for entry in entries], wish))
    found: list[Locked] = []
    left: set[str] = set()
    lines = [line for chosen in wish.names for line in words(_extras(document).get(chosen))]
    asked = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines}
    for entry in entries:
        package = entry.table
        groups = words(package.get("groups")) or [str(package.get("category", _DEFAULT[0]))]
        optional = package.get("optional") is True and str(package.get("name")) not in asked
        chosen = [group for group in groups if group in (*_DEFAULT, *wish.names)]
        if optional or not chosen:
            left.update(_extras(document) if optional else groups)
            continue
        found.append(_locked(entry, path, chosen))
    notes = (left_out(sorted(left)),) if left else ()
    return Lock(found, None if found else Message("no group of it was chosen"), notes=notes)


def _names(document: dict[str, Any], packages: list[dict[str, Any]], wish: Wish) -> Iterator[str]:
    """Yield the extras and groups of a list; those that were chosen too where it is poetry's before 2.0, which does not
    tell its groups."""
    yield from _extras(document)
    for listed in ("extras", "dependency-groups", "default-groups"):  # of pylock.toml
        yield from words(document.get(listed))
    yield from words(_table(document, "metadata").get("groups"))  # of pdm
    for package in packages:
        yield from (*words(package.get("groups")), *words([package.get("category")]))
        yield from extras_in(str(package.get("marker", package.get("markers", ""))))
    if "package" in document and not any("groups" in package for package in packages):
        yield from wish.names


def _extras(document: dict[str, Any]) -> dict[str, Any]:
    return _table(document, "extras")


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def _locked(entry: LockEntry, path: str, groups: Iterable[str]) -> Locked:
    package, place = entry.table, place_in(path, entry.line)
    name = name_of(package.get("name"), package)
    marker = package.get("marker", package.get("markers", ""))
    if isinstance(marker, dict):  # of poetry, by group; a group without one has the package everywhere
        each = [str(marker.get(group, "")) for group in groups]
        marker = " or ".join(f"({one})" for one in each) if all(each) else ""
    wheels = items(package.get("wheels")) or items([package.get("archive")])
    wheel = wheel_of(str(wheels[0].get("name") or wheels[0].get("url", ""))) if len(wheels) == 1 else None
    requires, declared = _requires(package.get("dependencies"))
    python = package.get("python-versions", package.get("requires_python", package.get("requires-python", "")))
    python = str(python) if re.match(r"[\d.,<>=!~*\s]*\Z", str(python)) and str(python) != "*" else ""
    version, file = version_at(place, package.get("version")), wheel[2] if wheel else ""
    return Locked(name, version, place, str(marker), requires, declared, python, file, rebuilt=entry.rebuilt)


def _requires(given: object) -> tuple[tuple[str, ...] | None, bool]:
    """Return requirements by PEP 508, and whether they are those of the metadata, as pdm's and poetry's are."""
    match given:
        case dict():
            return tuple(line for name, one in given.items() for line in _poetry(name, one)), True
        case list() if given and all(isinstance(one, str) for one in given):
            return tuple(given), True
    return None, False


def _poetry(name: str, given: object) -> list[str]:
    if isinstance(given, list):
        return [line for one in given for line in _poetry(name, one)]
    entry: dict[str, Any] = given if isinstance(given, dict) else {"version": given}
    if entry.get("optional") is True:
        return []
    version, markers = str(entry.get("version", "*")).strip(), str(entry.get("markers", ""))
    specifiers = "" if version == "*" else f"=={version}" if re.match(_BARE, version) else version
    return [line_of(name, words(entry.get("extras")), specifiers, markers)]
