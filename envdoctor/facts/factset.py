"""A set of facts about one environment, on one machine, for one model and recipe; a view of it by the kind of value
that a reader can use; its public part, without paths, host names, user names, UUIDs and addresses; and the installed
set: the distributions with versions and requirements, wherever they were read."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from envdoctor.facts.registry import FactSpec, Registry
from envdoctor.facts.values import ABSENT, NOT_GIVEN, NOT_KNOWN, Absent, Fact, Range, Records, Unknown, Value
from envdoctor.system.message import Message, mapped


class View:
    """The values that ``read`` gives for keys, by kind: None for another kind, an absent or an unknown one."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[str], Value]) -> None:
        self._read = read

    @classmethod
    def of(cls, item: Mapping[str, Value]) -> "View":
        """Return a view of a record's columns; a missing column is unknown."""
        return cls(lambda column: item.get(column, NOT_KNOWN))

    def value(self, key: str) -> Value:
        """Return the value, whatever it is."""
        return self._read(key)

    def text(self, key: str) -> str | None:
        """Return a text, such as a name or a version."""
        value = self.value(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> float | None:
        """Return a number."""
        value = self.value(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def words(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts."""
        value = self.value(key)
        return value if isinstance(value, tuple) else None

    def records(self, key: str) -> Records | None:
        """Return a list of records."""
        value = self.value(key)
        return value if isinstance(value, Records) else None

    def items(self, key: str) -> tuple[Mapping[str, Value], ...]:
        """Return the items of a list of records; none where the list is not known."""
        value = self.value(key)
        return value.items if isinstance(value, Records) else ()

    def each(self, key: str) -> "Iterator[View]":
        """Yield a view of each item of a list; nothing if the list is unknown."""
        return map(View.of, self.items(key))

    def absent(self, key: str) -> bool:
        """Return whether it is known to be absent."""
        return isinstance(self.value(key), Absent)

    def unknown(self, *keys: str) -> Unknown | None:
        """Return the first of these values that is not known, with its reason."""
        return next((value for key in keys if isinstance(value := self.value(key), Unknown)), None)

    def known(self, key: str) -> bool:
        """Return whether it is known and not absent."""
        return not isinstance(self.value(key), (Unknown, Absent))


class Kept(NamedTuple):
    """The facts of an environment that are the same whenever ``name`` is: written to the cache, or read from there."""

    name: str
    facts: Mapping[str, Fact]


class FactSet(View):
    """Facts by key. A later fact replaces an earlier one of the same key; there is no other merging.

    A key that was never added is unknown, except below a prefix that was declared complete: there it is absent.
    ``kept`` are facts that came from envdoctor's cache, or are there now; others may have replaced them since.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._facts: dict[str, Fact] = {}
        self._complete: dict[str, str] = {}
        self.kept: Kept | None = None
        self.update(facts)

    def add(self, fact: Fact) -> None:
        """Add or replace one fact."""
        self._facts[fact.key] = fact

    def update(self, facts: Iterable[Fact]) -> None:
        """Add or replace facts in order."""
        self._facts.update((fact.key, fact) for fact in facts)

    def declare_complete(self, prefix: str, origin: str) -> None:
        """Declare that every existing key below ``prefix`` (``"pkg"``) is listed: the others are absent."""
        self._complete[prefix] = origin

    def complete_prefixes(self) -> Mapping[str, str]:
        """Return the prefixes whose unlisted keys are absent, each with the origin of that knowledge."""
        return dict(self._complete)

    def drop(self, key: str) -> None:
        """Forget a fact, or every fact below a prefix (``"torch."``)."""
        for other in [other for other in self._facts if other == key or (key[-1] == "." and other.startswith(key))]:
            del self._facts[other]

    def get(self, key: str) -> Fact:
        """Return the fact of ``key``; its value is :data:`NOT_GIVEN` or absent if nothing was added."""
        if key in self._facts:
            return self._facts[key]
        origin = self._complete.get(key.partition(".")[0])
        return Fact(key, NOT_GIVEN, "", "") if origin is None else Fact(key, ABSENT, origin, "environment")

    def value(self, key: str) -> Value:
        """Return the value of ``key``: shorthand for ``get(key).value``."""
        return self.get(key).value

    def __contains__(self, key: str) -> bool:
        return key in self._facts

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def __len__(self) -> int:
        return len(self._facts)

    def below(self, prefix: str) -> Iterator[Fact]:
        """Return the facts whose keys begin with a prefix (``recipe.``)."""
        return (self.get(key) for key in self._facts if key.startswith(prefix))

    def copy(self, facts: Iterable[Fact] | None = None) -> "FactSet":
        """Return an independent set with the same facts, or with ``facts`` only."""
        twin = FactSet(self._facts.values() if facts is None else facts)
        twin._complete.update(self._complete)
        twin.kept = self.kept
        return twin


# The one place that knows what a changed fact invalidates: ``--set``, fixes that are tried, replays.


def change(facts: FactSet, changes: Iterable[Fact], registry: Registry) -> FactSet:
    """Return a copy with these changes, without the facts that were known only because of the earlier values.

    The registry says what depends on a fact (``depends_on``, ``concerns``): a fact is dropped, an item of a list goes
    with the package that it is about, a column becomes unknown. A changed fact stays whatever it depends on. All
    derived facts are dropped, to be derived again.
    """
    stand = {fact.key: fact for fact in changes}
    basis = given_only(facts)
    changed = [key for key, fact in stand.items() if key not in facts or facts.value(key) != fact.value]
    changed_keys = set(changed)
    for key in changed:  # it grows: a dropped fact is a change itself
        for spec in registry:
            if spec.key in stand or spec.key not in basis:
                continue
            if _depends(spec.depends_on, key):
                basis.drop(spec.key)
                if spec.key not in changed_keys:
                    changed_keys.add(spec.key)
                    changed.append(spec.key)
            elif spec.type == "records":
                basis.add(_changed_list(basis.get(spec.key), spec, key))
    basis.update(stand.values())
    return basis


def given_only(facts: FactSet) -> FactSet:
    """Return the facts without the derived ones."""
    return facts.copy(fact for fact in facts if not fact.is_computed)


def _depends(patterns: Sequence[str], key: str) -> bool:
    return any(fnmatchcase(key, pattern) if pattern.endswith("*") else key == pattern for pattern in patterns)


def _changed_list(fact: Fact, spec: FactSpec, key: str) -> Fact:
    if not isinstance(fact.value, Records):
        return fact
    items, incomplete = fact.value.items, fact.value.incomplete
    package = key.partition(".")[2]
    for pattern, columns in spec.concerns.items():
        if _depends((pattern,), key):
            items = tuple(item for item in items if all(item.get(column) != package for column in columns))
            incomplete = incomplete or Message("{} was changed", key)
    for name, column in spec.columns.items():
        subjects = [about for pattern, them in column.concerns.items() if _depends((pattern,), key) for about in them]
        if _depends(column.depends_on, key) or subjects:
            # A column that is about another package stays.
            items = tuple(
                {column: cell for column, cell in item.items() if column != name}
                if name in item and (not subjects or any(item.get(about) == package for about in subjects))
                else item
                for item in items
            )
    changed = Records(items, incomplete)
    return fact if changed == fact.value else fact._replace(value=changed)


_URL = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,20}://\S*")
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F-]{4,}|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,253}")
#: From the start of an absolute path to the end of the text: a folder may hold blanks, so its end is unknown.
_PATH = re.compile(r"(?<![\w/.])(?:~[\w.-]*[/\\]|~$|/(?=\S)|[A-Za-z]:[/\\]|\\\\).*", re.DOTALL)


def public_facts(facts: FactSet, registry: Registry) -> FactSet:
    """Return the facts as another machine or a bug report may have them.

    Facts and columns of privacy ``path`` or ``host``, and those the registry does not know, become unknown ("left out
    for privacy"); in the text of the others, paths, URLs and UUIDs become ``<path>``, ``<url>``, ``<uuid>``. Origins,
    which may name files of this machine, go.
    """
    public = FactSet(Fact(fact.key, _public(fact, registry), "", fact.source) for fact in facts)
    for prefix in facts.complete_prefixes():
        public.declare_complete(prefix, "")
    return public


def redact(text: str) -> str:
    """Replace every URL, UUID, e-mail address and absolute path by its kind, as ``<url>``."""
    text = _UUID.sub("<uuid>", _URL.sub("<url>", text[:65_536]))
    return _PATH.sub("<path>", _ADDRESS.sub("<address>", text))


def _public(fact: Fact, registry: Registry) -> Value:
    spec = registry.find(fact.key)
    value = fact.value
    if spec is None or spec.privacy != "public":
        return Unknown(Message("left out for privacy"))
    if isinstance(value, Records):
        allowed = {name for name, column in spec.columns.items() if column.privacy == "public"}
        items = tuple({name: _redacted(item[name]) for name in item if name in allowed} for item in value)
        return Records(items, mapped(value.incomplete, redact))
    return _redacted(value)


def _redacted(value: Value) -> Value:
    match value:
        case str():
            return mapped(value, redact)
        case tuple():
            return tuple(redact(text) for text in value)
        case Unknown() if not isinstance(value, Range):
            return Unknown(mapped(value.reason, redact))
    return value


_SYSTEMS = {"linux": ("linux", "Linux"), "windows": ("win32", "Windows"), "darwin": ("darwin", "Darwin")}


class Installed(NamedTuple):
    """One distribution that would be imported. ``requires`` and ``tags`` are unknown if its metadata is."""

    name: str
    version: Value
    kind: str
    requires: tuple[str, ...] | Unknown
    requires_python: Value
    tags: tuple[str, ...] | Unknown


class InstalledSet:
    """The installed distributions, by the facts ``dist`` and ``pkg.*``. ``incomplete`` says why some may be missing
    from ``dist``; None when all are there."""

    def __init__(self, value: Callable[[str], Value]) -> None:
        self._facts = View(value)
        dists = self._facts.records("dist")
        self.known = dists is not None
        self.incomplete = Message("the installed packages are not known") if dists is None else dists.incomplete
        self._by_name = {} if dists is None else _by_name(dists)

    def __iter__(self) -> Iterator[list[Installed]]:
        """Yield the distributions of each name: several if one folder has it more than once."""
        return iter(self._by_name.values())

    def get(self, name: str) -> list[Installed]:
        """Return the distributions of a name."""
        return self._by_name.get(name, [])

    def versions(self, name: str) -> list[str | None] | Unknown | None:
        """Return the distinct versions by metadata, None for an unknown one; None if it is not installed. For a range,
        return all versions that it may be."""
        if (possible := self.range(name)) is not None:
            return [str(release) for release in possible.releases]
        if name in self._by_name:
            versions = [dist.version if isinstance(dist.version, str) else None for dist in self._by_name[name]]
            return versions if len(versions) == 1 else list(dict.fromkeys(versions))
        if self._facts.absent(f"pkg.{name}"):
            return None
        version = self._facts.text(f"pkg.{name}")
        return Unknown(Message("whether it is installed is not known")) if version is None else [version]

    def range(self, name: str) -> Range | None:
        """Return the range of releases of a package if no version is known; None for any other package."""
        version = self._facts.value(f"pkg.{name}")
        return version if isinstance(version, Range) and version.releases and len(self.get(name)) < 2 else None


#: The list that was read last: several derivations ask in turn about the same one.
_LAST: list[tuple[Records, dict[str, list[Installed]]]] = []


def _by_name(dists: Records) -> dict[str, list[Installed]]:
    if not _LAST or _LAST[0][0] is not dists:
        by_name: dict[str, list[Installed]] = {}
        for item in dists:
            name, read = item.get("name"), View.of(item).value
            if item.get("active") is not False and isinstance(name, str):
                requires, tags = (
                    cell if isinstance(cell := read(column), (tuple, Unknown)) else NOT_KNOWN
                    for column in ("requires", "tags")
                )
                dist = Installed(name, read("version"), str(read("kind")), requires, read("requires_python"), tags)
                by_name.setdefault(name, []).append(dist)
        _LAST[:] = [(dists, by_name)]
    return _LAST[0][1]


def marker_values(value: Callable[[str], Value]) -> dict[str, str | None]:
    """Return the variables of environment markers (PEP 508) for the judged interpreter; None for an unknown one."""
    text = View(value).text
    version, implementation = text("python.version") or "", text("python.implementation")
    full = version if version.count(".") > 1 else None  # 3.11 may be any of its releases
    platform, system = _SYSTEMS.get(text("os.platform") or "", (None, None))
    machine = text("os.arch")
    if machine == "x86_64" and platform == "win32":
        machine = "AMD64"
    return {
        "python_version": text("python.minor"),
        "python_full_version": full,
        "implementation_name": implementation,
        "implementation_version": full if implementation == "cpython" else None,
        "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(implementation or ""),
        "sys_platform": platform,
        "platform_system": system,
        "os_name": None if platform is None else "nt" if platform == "win32" else "posix",
        "platform_machine": machine,
        "platform_release": text("os.kernel"),
        "platform_version": None,
        "extra": "",
    }
