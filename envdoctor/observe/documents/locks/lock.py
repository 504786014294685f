"""What every format of lock gives: packages with the lines that name them, and when each counts; those in TOML are read
without the lists of files that nobody asks for."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from envdoctor.facts.values import Fact, Origin, Unknown
from envdoctor.matrix.ledger_taking import AskedRequirement
from envdoctor.matrix.matrix import TomlError, parse_toml
from envdoctor.observe.errors import ObservationError
from envdoctor.system.documents import content_of, text_of
from envdoctor.system.message import Message, listed
from envdoctor.versions.pep440 import is_version
from envdoctor.versions.requirement import NotAMarker, holds, normalise

#: What stands behind the name of a list for which the caller vouches, as ``envdoctor plan`` does for its own.
WHOLE = "whole"
#: More than any environment has: the largest lock that was seen names 1,100.
_MOST_PACKAGES = 20_000
#: Bytes: the largest lock that was seen has 3 MiB.
_LARGEST = 16 << 20
#: Conditions on extras and groups in a marker.
OF_EXTRAS = r"""extra\s*(==|!=)\s*['"]([^'"]*)['"]|['"]([^'"]*)['"]\s+(not\s+)?in\s+(?:extras|dependency_groups)"""

#: Most of a lock: tomllib reads 1 MB a second, and no fact comes from it.
_FILES = r"(?m)^(?:wheels|files) = \[\n(?:[ \t{].*\n)*\](?=\n)|^sdist = \{.*\}$"
_HEAD = r"(?m)^\[\[packages?\]\][ \t]*$"
_VERSION = r"(?m)^version[ \t]*=|^\["
#: A wheel with a build number was built again by somebody: PyPI's have none.
_REBUILT = r"""[/"'][^-/"'\n]+-[^-/"'\n]+-\d[\w.]*-(?:cp|py|pp)\d[\w.]*-[\w.]+-[\w.]+\.whl"""


#: The system that counts where none is given: runs are there.
_SYSTEM = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}


class LockError(ObservationError):
    """The file cannot be used; the message is what follows its name in a sentence."""


class EmptyLockError(LockError):
    """The file is a list, and nothing is in it."""

    usage = False


class Wish(NamedTuple):
    """What is asked of a lock. ``markers`` are the variables of PEP 508 for the target, None if not stated; ``names``
    the chosen extras, groups or environments. ``cwd`` is the caller's folder, ``rows`` gives the rows of a table of the
    matrix, ``decided`` caches the answers of markers."""

    markers: Mapping[str, str | None]
    names: tuple[str, ...]
    cwd: str
    rows: Callable[..., Any]
    decided: dict[str, bool | None]


class Locked(NamedTuple):
    """One package.

    ``name`` is normalised, ``place`` is what a user edits (``uv.lock:412``), ``marker`` says when it counts.
    ``requires`` are its requirements by PEP 508; ``declared``: as its metadata has them, otherwise the lock tells
    names alone. ``wheel`` is the file name of the one wheel that would be installed. ``conda``: a package of conda;
    ``rebuilt``: its wheel was built again by somebody, and may require something else than the released one. ``asks``
    are the specifiers in which the newest release was taken; None for what a line or a lock pins.
    """

    name: str
    version: str | Unknown
    place: str
    marker: str = ""
    requires: tuple[str, ...] | None = None
    declared: bool = False
    requires_python: str = ""
    wheel: str = ""
    conda: bool = False
    rebuilt: bool = False
    asks: str | None = None


class Command(NamedTuple):
    """One install command that is still to be run.

    ``limits`` are its constraints, ``overrides`` replace all other requirements on the same packages, ``invalid`` are
    lines (as ``url``) that no installer reads. ``deps``: requirements come along; ``upgrade``: named packages are taken
    new. ``elsewhere``: it names another index than PyPI, or a folder of files. ``builds``: it names PyTorch's own
    index; ``only`` is the tag of such an index that replaces PyPI (``cu121``), ``of_index`` those that do so for one
    package, ``tags`` are those of all. ``folder``:
    it takes files of a folder alone, which has these releases of each package. ``isolated``: a build from source does
    not see what is installed; ``legacy`` says whether it sees what was there before (None: the newest pip decides).
    ``before`` are the packages of the image with their versions ("" for an unknown one); None: it may have any.
    ``image``: the command made the base image, on the day of the release that its first line pins.
    """

    lines: tuple[AskedRequirement, ...]
    limits: tuple[AskedRequirement, ...] = ()
    deps: bool = True
    upgrade: bool = False
    elsewhere: bool = False
    isolated: bool = True
    only: str = ""
    of_index: Mapping[str, str] = MappingProxyType({})
    tags: tuple[str, ...] = ()
    overrides: tuple[AskedRequirement, ...] = ()
    invalid: tuple[AskedRequirement, ...] = ()
    builds: bool = False
    legacy: bool | None = None
    before: tuple[tuple[str, str], ...] | None = ()
    image: bool = False
    folder: Mapping[str, str] | None = None


class Lock(NamedTuple):
    """``incomplete`` says why more may be installed than is named; None if it is all. ``python`` is the version that
    the lock is made for (``3.11``, ``3.11.9``), ``facts`` are others that it tells. Requirements on the packages
    ``overrides`` do not count. ``notes`` are sentences for the user, ``unread`` those on lists that it takes and that
    could not be read. ``commands`` are still to be run: none for what was installed or resolved. ``for_python`` is the
    range of Pythons that the project asks for."""

    packages: list[Locked]
    incomplete: Message | None = None
    python: str | None = None
    facts: tuple[Fact, ...] = ()
    overrides: tuple[str, ...] = ()
    notes: tuple[Message, ...] = ()
    unread: tuple[Message, ...] = ()
    commands: tuple[Command, ...] = ()
    for_python: AskedRequirement | None = None


def counts(marker: str, wish: Wish) -> bool | None:
    """Return whether a marker holds for the target (x86-64 Linux where no system is given) with the chosen extras; None
    when the target does not say."""
    if marker not in wish.decided:
        wish.decided[marker] = _holds(marker, wish) if marker else True
    return wish.decided[marker]


def _holds(marker: str, wish: Wish) -> bool | None:
    python = wish.markers["python_version"]
    releases = pythons(wish) if python is not None else [wish.markers["python_full_version"]]
    markers = on_system(wish)
    try:
        answers = {holds(plain(marker, wish), {**markers, "python_full_version": release}) for release in releases}
    except NotAMarker:
        return None
    return answers.pop() if len(answers) == 1 else None


def pythons(wish: Wish) -> Sequence[str]:
    """Return the Python of the target; where only its minor release was stated, the first and the last of it."""
    whole, python = wish.markers["python_full_version"], wish.markers["python_version"]
    return [whole] if whole else [f"{python}.0", f"{python}.99"] if python else []


def on_system(wish: Wish) -> dict[str, str | None]:
    """Return the variables of markers, those of the system too where none is given."""
    given = {name: value for name, value in wish.markers.items() if value is not None}
    return {**wish.markers, **(_SYSTEM if wish.markers["sys_platform"] is None else {}), **given}


def plain(marker: str, wish: Wish) -> str:
    """Return the marker with its conditions on extras decided: as PEP 508 (``extra == 'gpu'``), uv (``extra ==
    'extra-7-project-gpu'``, ``'group-…'``) and PEP 751 (``'gpu' in extras``) have them. What always holds is written
    ``extra == ''``."""
    if "extra" not in marker and "dependency_groups" not in marker:
        return marker

    def decided(match: re.Match[str]) -> str:
        operator, extra = (match[1], match[2]) if match[1] else (match[4] or "in", match[3])
        names = map(normalise, wish.names)
        chosen = any(
            normalise(extra) == name or re.fullmatch(rf"(extra|group)-.*-{re.escape(name)}", extra) for name in names
        )
        return "extra == ''" if chosen is (operator in ("==", "in")) else "extra != ''"

    return re.sub(OF_EXTRAS, decided, marker)


def with_python(wish: Wish, python: str | None) -> Wish:
    """Return the wish with the Python that the lock is made for, where none was stated."""
    if python is None or wish.markers["python_version"] is not None:
        return wish
    return wish._replace(markers={**wish.markers, "python_version": minor(python)}, decided={})


def minor(python: str) -> str:
    """Return ``3.11`` of ``3.11.9``."""
    return ".".join(python.split(".")[:2])


def wheel_of(url: str) -> tuple[str, str, str] | None:
    """Name, version and file name of the wheel that a URL or path leads to; None when it is none."""
    from urllib.parse import unquote

    file = unquote(url.partition("#")[0].partition("?")[0].replace("\\", "/").rpartition("/")[2])
    parts = file.removesuffix(".whl").split("-")
    is_wheel = file.endswith(".whl") and len(parts) in (5, 6) and is_version(parts[1])
    return (parts[0], parts[1], file) if is_wheel else None


def build_of(name: str, version: str, tags: Iterable[str], wish: Wish) -> str | None:
    """Return the first tag of an index (``cu121``, ``cpu``) that has a build of this release; None without one."""
    indexed = {row["name"] for row in wish.rows("packages", "package") if row.get("wheel_index")}
    if "+" in version or name not in indexed:
        return None
    column = "key" if name == "torch" else name
    rows = [row for row in wish.rows("torch-builds") if row.get(column) == version]
    built = {"cu" + cuda.replace(".", "") for row in rows for cuda in row["cuda"]}
    return next((tag for tag in tags if tag == "cpu" or tag in built), None)


def bound(packages: int) -> None:
    """Raise :class:`LockError` for so many packages, where no environment has so many."""
    if packages > _MOST_PACKAGES:
        raise LockError("names more than {} packages, and no environment has so many", f"{_MOST_PACKAGES:,}")


def unpinned(place: str, specifiers: str) -> Unknown:
    """Return why a line gives no one version: what it asks for, if anything."""
    if not specifiers:
        return Unknown(Message("{} names no version", place))
    return Unknown(Message("{} asks for {}, no one version", place, specifiers))


def left_out(names: list[str]) -> Message:
    """Return a sentence about extras and groups that are not judged."""
    return Message("extras and groups that nobody chose are left out: {}", listed(names, 6))


def check_names(wish: Wish, spellings: Iterable[str]) -> Wish:
    """Return the wish with its extras and groups as the file spells them. Raises :class:`LockError` for one that was
    chosen and is not among those that the file has."""
    there: dict[str, list[str]] = {WHOLE: [WHOLE]}
    for name in sorted({*spellings} - {WHOLE}):
        there.setdefault(normalise(name), []).append(name)
    strange = [name for name in wish.names if normalise(name) not in there]
    if strange:
        others = sorted(name for names in there.values() for name in names if name != WHOLE)
        listing = listed(others, 12) if others else Message("it has none")
        raise LockError("has no extra or group {}: {}", repr(strange[0]), listing)
    return wish._replace(names=tuple(spelling for name in wish.names for spelling in there[normalise(name)]))


def read_text(path: str, name: str = "") -> str:
    """Return the text of a lock file, whatever its ``name`` leads to. Raises :class:`LockError`."""
    return text_of(content_of(path, _LARGEST, "lock", LockError, name), LockError)


class LockEntry(NamedTuple):
    """A package's table; the place of its version, without a line where that is not known; whether its wheel was built
    again."""

    table: dict[str, Any]
    place: str
    rebuilt: bool = False


def read_packages(text: str, key: str, path: str) -> tuple[dict[str, Any], list[LockEntry]]:
    """Return the document and its packages. Raises :class:`LockError`."""
    try:
        document = parse_toml(re.sub(_FILES, "", text).encode("utf-8", "replace"), "")
    except TomlError as error:
        raise LockError("is {}", error.problem) from None
    packages = items(document.get(key))
    if not packages:
        raise LockError("holds no [[{}]]", key)
    bound(len(packages))
    heads = [head.start() for head in re.finditer(_HEAD, text)]
    if len(heads) != len(packages):  # written in another way: the file is named without a line
        return document, [LockEntry(package, path) for package in packages]
    entries, line, counted = [], 1, 0
    for package, start, end in zip(packages, heads, [*heads[1:], len(text)], strict=True):
        version = re.compile(_VERSION).search(text, start + 2, end)
        place = version.start() if version is not None and text.startswith("version", version.start()) else start
        line += text.count("\n", counted, place)
        counted = place
        rebuilt = re.compile(_REBUILT).search(text, start, end) is not None
        entries.append(LockEntry(package, Origin(path, line), rebuilt))
    return document, entries


def items(value: object) -> list[dict[str, Any]]:
    """Return the tables of a list; nothing of anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def words(value: object) -> list[str]:
    """Return the texts of a list; nothing of anything else."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def table(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the table that lies below these names, one in the other; empty for anything else."""
    for name in names:
        inner = value.get(name)
        value = inner if isinstance(inner, dict) else {}
    return {**value}


def line_of(name: object, extras: Sequence[str], specifiers: str, marker: str) -> str:
    """Return a requirement as a line: ``trl[vllm]>=0.9 ; python_version >= '3.10'``."""
    chosen = f"[{','.join(extras)}]" if extras else ""
    return f"{name}{chosen}{specifiers}" + (f" ; {marker}" if marker else "")
