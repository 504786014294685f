"""The installed set: the distributions of an environment with versions and requirements, wherever they were read."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from envdoctor.facts.factset import View
from envdoctor.facts.values import NOT_KNOWN, Range, Records, Unknown, Value
from envdoctor.system.message import Message

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
