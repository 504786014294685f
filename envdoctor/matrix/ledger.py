"""The ledger of released packages: what each release offers, takes and requires, one text a package.

A file is searched, never parsed whole: a question costs the reading of one file and a few ``find``s. The format of the
lines stands in ``matrices/ledger/README.md``; ``tools/harvesting/ledger_format.py`` checks it.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import Order, order
from envdoctor.versions.requirement import NotARequirement, Requirement, normalise, read_requirement

if TYPE_CHECKING:
    from envdoctor.versions.releases import Releases

#: The releases that a section covers: all that are listed, those with this flag, or (by default) those that were read.
BASIS = {"wheels": "", "requires": "metadata"}
_LETTERS = {"m": "metadata", "r": "read", "y": "yanked"}
_HEAD = 4096
#: The file of packages that only requirement lists name; no package has this name. The most bytes of its line of names,
#: and of its texts together.
PACKED, _LONGEST_LINE, _LONGEST_TEXTS = "_metadata.xz", 1 << 20, 32 << 20
_BEGIN = b"\nenvdoctor-ledger\t"
_NOT_BY_NAMES = Unknown(Message("the ledger has no names of this package"))


class Release(NamedTuple):
    """One release: its day (``2023-07-18``), the Python it requires ("" when it does not say), whether its files were
    read for names, whether its requirements were read, whether it was withdrawn."""

    version: str
    date: str
    requires_python: str
    read: bool
    metadata: bool
    yanked: bool


class Ledger:
    """The packages of the folder ``home``; nothing is read before it is asked for."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._released, self._changed = cache(self._read), cache(self._read_changes)

    def package(self, name: str) -> "Released | None":
        """Return the releases of a distribution; None if the ledger does not know it."""
        return self._released(normalise(name))

    def _read(self, name: str) -> "Released | None":
        data = self._text(name)
        return Released(name, data, lambda: self.changes(name)) if data is not None else None

    def _text(self, name: str) -> bytes | None:
        try:
            return (self.home / f"{name}.txt").read_bytes()
        except (OSError, ValueError):
            return self._texts.get(name) if name in self._shared else None

    @cached_property
    def _texts(self) -> Mapping[str, bytes]:
        try:
            return shared_texts((self.home / PACKED).read_bytes())
        except (OSError, ValueError):
            return {}

    def published(self, name: str) -> list[str]:
        """Return the releases of a distribution that were not withdrawn, oldest first; none if they are not known."""
        return [release.version for release in getattr(self.package(name), "releases", ()) if not release.yanked]

    def release(self, name: str, version: str) -> Release | None:
        """Return the release of this version, whatever its build; None if the ledger does not list it."""
        package, key = self.package(name), order(version)
        return None if package is None or key is None else package.by_order.get(key)

    def changes(self, name: str) -> "Released | None":
        """Return what changed between the releases of a distribution: only modules and names that changed are listed
        (``[members]``: of classes). None if the ledger lacks it."""
        return self._changed(normalise(name))

    def _read_changes(self, name: str) -> "Released | None":
        released, packed = self.package(name), b""
        with suppress(OSError, ValueError):
            packed = (self.home / f"{name}.xz").read_bytes()
        return _changes(released, packed) if released is not None and packed else None

    def packages(self) -> tuple[str, ...]:
        """Return the names of the distributions that have a file of their own, sorted."""
        return self._packages

    @cached_property
    def _packages(self) -> tuple[str, ...]:
        with suppress(OSError):
            return tuple(sorted(name[:-4] for name in os.listdir(self.home) if name.endswith(".txt")))
        return ()

    @cached_property
    def _shared(self) -> tuple[str, ...]:
        """Return the names of the distributions that share a file, because only lists name them, sorted."""
        with suppress(OSError, ValueError), open(self.home / PACKED, "rb") as file:
            line = file.readline(_LONGEST_LINE).decode()
            return tuple(line.split()) if line.endswith("\n") else ()
        return ()

    def every(self) -> tuple[str, ...]:
        """Return the names of all distributions in the ledger, sorted."""
        return tuple(sorted((*self._packages, *self._shared)))

    def days(self) -> tuple[str, str]:
        """Return the days of the oldest and of the newest release in the ledger; empty texts if it has none."""
        spans = [days for name in self.every() if (entry := self.package(name)) is not None and (days := entry.days)]
        return min((first for first, _ in spans), default=""), max((last for _, last in spans), default="")

    def owner(self, module: str) -> str | None:
        """Return the distribution of a dotted name's top-level module (``sklearn`` → ``scikit-learn``)."""
        top = module.partition(".")[0]
        namesake = self.package(top) if top.isidentifier() else None
        return namesake.name if namesake is not None and top in namesake.modules else self._owners.get(top)

    @cached_property
    def _owners(self) -> Mapping[str, str]:
        owners: dict[str, str] = {}
        for name in self._packages:
            with open(self.home / f"{name}.txt", "rb") as file:
                for owned in _head(file.read(_HEAD), b"modules"):
                    owners.setdefault(owned, name)
        return owners


class Released:
    """The releases of one distribution.

    ``name`` is normalised, ``modules`` are its top-level import names. ``by_names`` says whether the files of releases
    were read; if not, it has releases, requirements and wheels only. For a version that was not read itself, the
    releases before and after it answer every question when they agree; it is :class:`Unknown` when they differ, and for
    versions before the first or after the last.
    """

    def __init__(self, name: str, data: bytes, changes: "Callable[[], Released | None]" = lambda: None) -> None:
        self.name = name
        self._data, self._changes = data, changes
        self.modules = _head(data[:_HEAD], b"modules")
        self.by_names = _head(data[:_HEAD], b"depth") == ("names",)
        # A question is asked again for every release, and a fix is tried against each of them.
        self._place, self._lines = cache(self._find_section), cache(self._find_lines)
        self._of_flag = cache(self._covered)
        self._required = cache(lambda version, subject: tuple(self._requires(version, subject)))

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        """Return every release that is not a pre-release, in order."""
        return tuple(
            Release(version, day, "" if python == "-" else python, *(flag in flags for flag in Release._fields[3:]))
            for version, day, python, flags in self._release_lines()
        )

    @cached_property
    def by_order(self) -> dict[Order, Release]:
        """Return the releases, oldest first, by the keys that they are ordered by."""
        return {key: release for release in self.releases if (key := order(release.version)) is not None}

    @property
    def days(self) -> tuple[str, str] | None:
        """Return the days of the oldest and of the newest version; None if there is no version."""
        start, end = self._place("releases")
        rows = self._data[start:end].splitlines()
        return (rows[0].split(b"\t")[1].decode(), rows[-1].split(b"\t")[1].decode()) if rows else None

    @property
    def read(self) -> list[str]:
        """Return the releases whose files were read for names, in order."""
        return self._versions_of("offers")[0]

    def covers(self, version: str) -> bool:
        """Return whether the version, or one before and one after it, was read for names."""
        return not isinstance(self._places_near("offers", version), Unknown)

    def items(self, section: str, subject: str, version: str) -> tuple[str, ...] | Unknown:
        """Return the items of a subject in a version, sorted; empty if it has none, or if the subject is missing."""
        places = self._places_near(section, version)
        if isinstance(places, Unknown):
            return places
        items = self._items_at(section, subject, places)
        return tuple(sorted(items[0])) if items[0] == items[1] else self._differ(section, *places, version)

    def certain(self, section: str, subject: str, version: str) -> tuple[str, ...]:
        """Return the items that a subject has in a version, or in both its neighbours, sorted; empty if unknown."""
        places = self._places_near(section, version)
        items = [] if isinstance(places, Unknown) else self._items_at(section, subject, places)
        return tuple(sorted(set.intersection(*items))) if items else ()

    def _items_at(self, section: str, subject: str, places: tuple[int, int]) -> list[set[str]]:
        spans = [(span, line.decode().split("\t")[1:]) for span, line in self._lines(section, subject)]
        return [{item for (since, until), items in spans if since <= at <= until for item in items} for at in places]

    def has(self, section: str, subject: str, item: str, version: str) -> bool | Unknown:
        """Return whether a subject has an item in a version."""
        return self._answer(section, version, [span for span, _ in self._lines(section, subject, item)])

    def requires(self, version: str, extras: Iterable[str] = ()) -> Iterator[Requirement]:
        """Yield the requirements of a version, with these extras, without unknown and unreadable ones."""
        for subject in ("*", *extras):
            yield from self._required(version, subject)

    def _requires(self, version: str, subject: str) -> Iterator[Requirement]:
        lines = self.items("requires", subject, version)
        for line in () if isinstance(lines, Unknown) else lines:
            with suppress(NotARequirement):
                yield read_requirement(line)

    def neighbours(self, version: str) -> tuple[str | None, str | None]:
        """Return the nearest releases before and behind a version whose requirements were read, each None if there is
        no such release; twice the version itself if its own were read."""
        versions, orders, _ = self._versions_of("requires")
        key = order(version)
        if key is None:
            return None, None
        before, behind = bisect_right(orders, key) - 1, bisect_left(orders, key)  # both at the version itself
        return versions[before] if before >= 0 else None, versions[behind] if behind < len(orders) else None

    def listed(self, section: str, subject: str, version: str) -> bool | Unknown:
        """Return whether a version has a subject, even without items: a module, or a class of known parameters."""
        return self._answer(section, version, [span for span, _ in self._lines(section, subject)])

    def offers(self, module: str, name: str, version: str) -> bool | Unknown:
        """Return whether ``from module import name`` works in a version: for a name that the module binds, or a module
        below it. Unknown also if the list of a module's names is incomplete, and for names that the ledger leaves out.
        """
        if not self.by_names:
            return _NOT_BY_NAMES
        below = f"{module}.{name}"
        answers = [self.has("offers", module, name, version), self.listed("offers", below, version)]
        if True in answers:
            return True
        unsure = next((answer for answer in answers if isinstance(answer, Unknown)), None)
        if unsure is not None:
            return unsure
        reason = self._why_open(module, version) or (self._why_open(below, version) if name == name.lower() else None)
        reason = reason or self._why_made(module.partition(".")[0], name, version)
        if reason is not None:
            return reason
        # A module may have a name that is not recorded for it: a private one, or one from elsewhere. Packages are
        # recorded with the names that they hand on.
        if self._lines("offers", module, name):
            is_package = self._data.find(f"\n{module}.".encode(), *self._place("offers")) >= 0
            left_out = not is_package and self.has("offers", "*", name, version) is not False
        else:
            left_out = name.startswith("_") or bool(self._lines("offers", "*", name))
        is_left_out = left_out and not self._is_gone(module, name, version)
        return is_left_out and Unknown(Message("the ledger does not say from where {} can be taken", name))

    def _is_gone(self, module: str, name: str, version: str) -> bool:
        """Return whether a name certainly went that the package still defines elsewhere: it was recorded of the module,
        which never defined it, so what this module imports of the package is recorded."""
        changed = self._changes()
        if changed is None or not self._lines("offers", module, name):
            return False
        if changed.having("offers", module, item=name).yes:
            return False
        homes = self.subjects_named("parameters", name)
        return any(self.listed("parameters", home, version) is True for home in homes)

    def exists(self, module: str, version: str) -> bool | Unknown:
        """Return whether a version has a module of that dotted name. Unknown also if it may be made at run time."""
        if not self.by_names:
            return _NOT_BY_NAMES
        answer = self.listed("offers", module, version)
        if answer is not False:
            return answer
        return self._why_open(module, version) or False

    def _why_open(self, module: str, version: str) -> Unknown | None:
        """Return why a module may have other names, or exist, than the ledger lists; None if it certainly does not."""
        subjects = [module]
        if not self._lines("offers", module):
            parts = module.split(".")
            if len(parts) > 2 and self.exists(".".join(parts[:-1]), version) is False:
                return None
            # The modules right below a package are listed, unless nothing of the package is.
            bare = len(parts) == 2 and self.items("open", parts[0], version) != ()
            subjects += [".".join((*parts[:length], "*")) for length in range(1, len(parts) - (0 if bare else 1))]
        for subject in subjects:
            reason = self.items("open", subject, version)
            if isinstance(reason, Unknown):
                return reason
            if reason:
                return Unknown(Message("{} of {} {}: {}", module, self.name, version, reason[0]))
        return None

    def _why_made(self, top: str, name: str, version: str) -> Unknown | None:
        """Return why a package may make a name on demand; None if it makes no names of that kind."""
        start, end = self._place("open")
        if self._data.find(f"\n{top}:".encode(), start - 1, end) < 0:
            return None
        for at in range(1, len(name)):
            for kind in (f"*{name[at:]}", f"{name[:at]}*"):
                if self.items("open", f"{top}:{kind}", version) != ():
                    return Unknown(Message("{} {} makes names like {}", self.name, version, kind))
        return None

    def having(self, section: str, *subjects: str, item: str | None = None) -> "Releases":
        """Return the releases that list any of the subjects, or have the item of one."""
        from envdoctor.versions.releases import Releases

        lines = (line for subject in subjects for line in self._lines(section, subject, item))
        return Releases.between(self._versions_of(section)[0], (span for span, _ in lines))

    def subjects(self, section: str) -> Iterator[str]:
        """Yield every subject of a section, sorted."""
        start, end = self._place(section)
        for subject in dict.fromkeys(line.partition(b"\t")[0] for line in self._data[start:end].splitlines()):
            yield subject.decode()

    def subjects_with(self, section: str, item: str) -> Iterator[str]:
        """Yield every subject of a section that has the item in any release, sorted."""
        yield from dict.fromkeys(subject for subject, items in self._lines_with(section, f"\t{item}") if item in items)

    def subjects_named(self, section: str, name: str, *, whole: bool = True) -> Iterator[str]:
        """Yield every subject ``module:name`` of a section with this name, whatever its module; unless ``whole``, also
        those whose name ends with it (``Trainer.compute_loss`` for ``compute_loss``)."""
        for mark in ":" if whole else ":.":
            subjects = dict.fromkeys(subject for subject, _ in self._lines_with(section, f"{mark}{name}\t"))
            yield from (subject for subject in subjects if ":" in subject and subject.endswith(mark + name))

    def items_of(self, section: str, subject: str) -> Iterator[tuple[str, str, str, str | None]]:
        """Yield every item of a subject, with the subject, and the first and last release that have it (None: the
        newest that was read). The item is empty for a line without items."""
        versions = self._versions_of(section)[0]
        for (since, until), line in self._lines(section, subject):
            for item in line.decode().split("\t")[1:] or [""]:
                yield subject, item, versions[since], versions[until] if until < len(versions) - 1 else None

    def beginning(self, section: str, start: str) -> Iterator[tuple[str, str]]:
        """Yield every item of a section with this beginning, behind its subject, in the order of the file."""
        for subject, items in self._lines_with(section, f"\t{start}"):
            yield from ((subject, item) for item in items if item.startswith(start))

    def _lines_with(self, section: str, text: str) -> Iterator[tuple[str, list[str]]]:
        """Yield subject and items of every line of a section in which a text stands."""
        start, end = self._place(section)
        sought = text.encode()
        at = self._data.find(sought, start, end)
        while at >= 0:
            stop = self._data.find(b"\n", at)
            subject, _, *items = self._data[self._data.rfind(b"\n", 0, at) + 1 : stop].decode().split("\t")
            yield subject, items
            at = self._data.find(sought, stop, end)

    def _release_lines(self) -> Iterator[tuple[str, str, str, list[str]]]:
        start, end = self._place("releases")
        return release_rows(self._data[start:end].decode().splitlines())

    def _versions_of(self, section: str) -> tuple[list[str], list[Order], dict[str, int]]:
        """Return the versions that a section covers, their sort keys, and their places, also by letters."""
        return self._of_flag(BASIS.get(section, "read"))

    def _covered(self, flag: str) -> tuple[list[str], list[Order], dict[str, int]]:
        versions = [version for version, _, _, flags in self._release_lines() if not flag or flag in flags]
        orders = [key for version in versions if (key := order(version)) is not None]
        return versions, orders, places_of(versions)

    def _places_near(self, section: str, version: str) -> tuple[int, int] | Unknown:
        """Return the places of a version itself, or of its neighbours, among the versions that a section covers."""
        versions, orders, _ = self._versions_of(section)
        key = order(version)
        if key is None:
            return Unknown(Message("{} is no version", version))
        place = bisect_left(orders, key)
        if place < len(orders) and orders[place] == key:
            return place, place
        if not orders:
            by_names = BASIS.get(section, "read") == "read"
            return _NOT_BY_NAMES if by_names else Unknown(Message("nothing of this was read"))
        if place == 0:
            return Unknown(Message("{} was read from {} on", self.name, versions[0]))
        if place == len(orders):
            return Unknown(Message("{} was read up to {}", self.name, versions[-1]))
        return place - 1, place

    def _answer(self, section: str, version: str, spans: list[tuple[int, int]]) -> bool | Unknown:
        places = self._places_near(section, version)
        if isinstance(places, Unknown):
            return places
        before, after = (any(since <= place <= until for since, until in spans) for place in places)
        return before if before is after else self._differ(section, *places, version)

    def _differ(self, section: str, before: int, after: int, version: str) -> Unknown:
        versions = self._versions_of(section)[0]
        return Unknown(
            Message("{} {} was not read, and {} and {} differ", self.name, version, versions[before], versions[after])
        )

    def _find_lines(
        self, section: str, subject: str, item: str | None = None
    ) -> tuple[tuple[tuple[int, int], bytes], ...]:
        """Return the lines of a subject, or only those with ``item``: the places of the first and the last release, and
        what follows the subject."""
        lines: list[tuple[tuple[int, int], bytes]] = []
        start, end = self._place(section)
        head = b"\n" + subject.encode() + b"\t"
        sought = b"" if item is None else b"\t" + item.encode()
        at = self._data.find(head, start - 1, end) if start < end else -1
        while at >= 0 and self._data.startswith(head, at):
            stop = self._data.find(b"\n", at + 1)
            line = self._data[at + len(head) : stop]
            if not sought or sought + b"\t" in line or line.endswith(sought):
                since, _, until = line.partition(b"\t")[0].decode().partition("..")
                versions, _, places = self._versions_of(section)
                lines.append(((places[since], places[until] if until else len(versions) - 1), line))
            at = stop
        return tuple(lines)

    def _find_section(self, section: str) -> tuple[int, int]:
        """Return where the lines of a section begin and end, without the last newline."""
        title = f"\n[{section}]\n".encode()
        above = self._data.find(title)
        start = above + len(title)
        end = self._data.find(b"\n[", start - 1)
        last = max(start, len(self._data) - 1 if end < 0 else end)
        return (0, 0) if above < 0 else (start, last)


def release_rows(lines: Iterable[str]) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield the lines of releases as version, day, Python and flags: ``.`` repeats the Python of the line before, and
    flags may be their first letters (``mr``)."""
    before = ""
    for line in lines:
        version, day, python, *flags = line.split("\t")
        before = python = before if python == "." else python
        if flags and _LETTERS.keys() >= set(flags[0]):
            flags = [_LETTERS[letter] for letter in flags[0]]
        yield version, day, python, flags


def letters(place: int) -> str:
    """Return the place of a release as files write it: A, B, … Z, BA, BB."""
    rest, last = divmod(place, 26)
    return (letters(rest) if rest else "") + chr(ord("A") + last)


def places_of(versions: Sequence[str]) -> dict[str, int]:
    """Return the place for each end of a span: letters, or in files written by hand the versions themselves."""
    return {end: place for place, version in enumerate(versions) for end in (version, letters(place))}


def shared_texts(data: bytes) -> dict[str, bytes]:
    """Return the texts of the file of packages that only lists name (a line of their names, and the texts, compressed),
    each as other packages have it in their own file. Raises :class:`ValueError`."""
    try:
        from lzma import LZMADecompressor, LZMAError
    except ImportError:  # a Python that was built without it
        return {}
    names, _, stream = data.partition(b"\n")
    reader = LZMADecompressor()
    try:
        whole = reader.decompress(stream, _LONGEST_TEXTS)
    except (LZMAError, EOFError) as error:
        raise ValueError(str(error)) from None
    if not reader.eof or reader.unused_data:
        raise ValueError(f"it is cut off, or has more than {_LONGEST_TEXTS:,} bytes")
    _, *parts = (b"\n" + whole.removesuffix(b"\n")).split(_BEGIN)
    texts = (_BEGIN[1:] + part + b"\n" for part in parts)
    return dict(zip(names.decode().split("\t"), texts, strict=True))


def _changes(released: Released, packed: bytes) -> Released | None:
    """Read a file of changes: it begins with the releases that were read for it; the rest is as in other files."""
    try:
        from lzma import decompress
    except ImportError:  # a Python that was built without it
        return None
    head, _, sections = decompress(packed).partition(b"\n")
    versions = set(head.decode().split("\t"))
    lines = [["envdoctor-ledger", "1"], ["package", released.name], ["modules", *released.modules]]
    lines += [["depth", "names"], ["[releases]"]]
    for release in released.releases:
        flags = ["read"] * (release.version in versions) + ["yanked"] * release.yanked
        lines.append([release.version, release.date, release.requires_python or "-", *flags])
    return Released(released.name, "\n".join(map("\t".join, lines)).encode() + b"\n" + sections)


def _head(data: bytes, key: bytes) -> tuple[str, ...]:
    """Return the values of a line before the first section."""
    for line in data.partition(b"\n[")[0].split(b"\n"):
        first, *values = line.split(b"\t")
        if first == key:
            return tuple(value.decode() for value in values)
    return ()
