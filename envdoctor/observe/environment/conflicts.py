"""Requirements that installed packages have and the environment does not meet: one record a package to be changed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from envdoctor.facts.values import ABSENT, Absent, Fact, Records, Value
from envdoctor.observe.environment.layout import Layout
from envdoctor.observe.environment.marker import NotAMarker, holds
from envdoctor.observe.environment.metadata_directory import Distribution
from envdoctor.observe.environment.requirement import NotARequirement, read_requirement
from envdoctor.observe.environment.specifier import NotASpecifier, satisfies

__all__ = ["conflicts", "marker_values"]

_LIBRARY = re.compile(r"(?:python|pypy)([0-9]+\.[0-9]+)t?\Z")
_RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+)*")
#: How many askers a message can name; ``required_by`` has them all.
_NAMED = 3
#: More than anybody would mend one by one; every record becomes a finding.
_MOST_RECORDS = 300
_SYSTEMS = {"linux": "Linux", "win32": "Windows", "darwin": "Darwin"}


class _Installed:
    """Every package with the versions that its first folder has; None stands for one that could not be read."""

    def __init__(self, in_folders: Mapping[str, list[Distribution]], versions: list[Fact]) -> None:
        self.first: dict[str, list[Distribution]] = {}
        for items in in_folders.values():
            here: dict[str, list[Distribution]] = {}
            for item in items:
                if item.name not in self.first:
                    here.setdefault(item.name, []).append(item)
            self.first.update(here)
        # A package whose code is there and whose metadata is gone is reported as that.
        self.without_metadata = {fact.key[4:] for fact in versions} - set(self.first)

    def versions(self, name: str) -> list[str | None] | None:
        """Distinct versions; None when it is not installed."""
        if name in self.first:
            found = [item.version if isinstance(item.version, str) else None for item in self.first[name]]
            return found if len(found) == 1 else list(dict.fromkeys(found))
        return [None] if name in self.without_metadata else None


class _Cause:
    """One package that must change, and who asks for what."""

    def __init__(self, package: str, kind: str, installed: str | Absent) -> None:
        self.package, self.kind, self.installed = package, kind, installed
        self.asked: list[tuple[str, str]] = []

    def record(self) -> dict[str, Value]:
        askers = [f"{name} ({what})" if what else name for name, what in self.asked]
        named = ", ".join(askers[:_NAMED])
        if len(askers) > _NAMED:
            named += f", … +{len(askers) - _NAMED}"
        wanted = tuple(dict.fromkeys(what for _, what in self.asked if what))
        return {
            "package": self.package,
            "kind": self.kind,
            "installed": self.installed,
            "requires": " / ".join(wanted[:_NAMED]) or "*",
            "asked_by": named,
            "required_by": tuple(askers),
        }


def conflicts(
    in_folders: Mapping[str, list[Distribution]], versions: list[Fact], layout: Layout, incomplete: str | None
) -> Records:
    """What ``uv pip check`` calls missing, incompatible, or of another Python, by cause.

    ``versions`` are the ``pkg.*`` facts. Compared are the versions that METADATA gives, as installers do. Of a package
    that is installed twice in one folder only what holds for both is said. A requirement on something that conda
    installed is met by it. When a requirement cannot be decided the list is incomplete, and says which.
    """
    installed = _Installed(in_folders, versions)
    values = marker_values(layout)
    causes: dict[tuple[str, str], _Cause] = {}
    open_reasons: list[str] = [incomplete] if incomplete else []
    decided: dict[str, bool | None] = {}
    for items in installed.first.values():
        if len({item.requires for item in items}) > 1:
            open_reasons.append(f"{items[0].name} is installed twice, with different requirements")
            continue
        asker = items[0]
        if asker.requires_unknown:
            open_reasons.append(asker.requires_unknown)
        if asker.requires_python is not None:
            _python(asker, values, causes, open_reasons)
        for line in asker.requires:
            try:
                wanted = read_requirement(line)
                if wanted.marker:
                    if wanted.marker not in decided:
                        decided[wanted.marker] = holds(wanted.marker, values)
                    if decided[wanted.marker] is False:
                        continue
                there = installed.versions(wanted.name)
                if there is None:
                    met: bool | None = None if incomplete else False
                else:
                    met = _meets(there, wanted.specifiers)
            except (NotARequirement, NotAMarker, NotASpecifier) as error:
                open_reasons.append(f"a requirement of {asker.name} cannot be read: {error}")
                continue
            if met:
                continue
            if met is None or (wanted.marker and decided[wanted.marker] is None):
                open_reasons.append(f"it is not known whether {asker.name} has the {wanted.name} that it requires")
                continue
            kind = "missing" if there is None else "conflict"
            found = ABSENT if there is None else ", ".join(version for version in there if version)
            cause = causes.setdefault((wanted.name, kind), _Cause(wanted.name, kind, found))
            cause.asked.append((asker.name, _as_named(wanted.specifiers)))
    told = sorted(causes)[:_MOST_RECORDS]
    if len(causes) > len(told):
        open_reasons.insert(
            0, f"{len(causes) - len(told)} more packages are missing or do not fit; {len(told)} are told"
        )
    items_found = tuple(causes[key].record() for key in told)
    return Records(items_found, open_reasons[0] if open_reasons else None)


def _as_named(specifiers: str) -> str:
    """Specifiers without blanks; nothing when it holds characters of no specifier, which no report would print."""
    text = "".join(specifiers.split())
    return text if text.isascii() and text.isprintable() else ""


def _meets(versions: list[str | None], specifiers: str) -> bool | None:
    """Whether all versions are in the set; None when some are, or one is not known."""
    if not specifiers:
        return True
    answers = {None if version is None else satisfies(version, specifiers) for version in versions}
    return answers.pop() if len(answers) == 1 else None


def _python(
    asker: Distribution,
    values: Mapping[str, str | None],
    causes: dict[tuple[str, str], _Cause],
    open_reasons: list[str],
) -> None:
    """Requires-Python against the release of the interpreter: a release candidate counts as its release, as for pip."""
    wanted = asker.requires_python or ""
    full, minor = values["python_full_version"], values["python_version"]
    match = _RELEASE.match(full) if full else None
    candidates = [match[0]] if match else [f"{minor}.0", f"{minor}.99"] if minor else []
    try:
        answers = {satisfies(candidate, wanted) for candidate in candidates}
    except NotASpecifier as error:
        open_reasons.append(f"Requires-Python of {asker.name} cannot be read: {error}")
        return
    if len(answers) != 1:
        open_reasons.append(f"it is not known whether {asker.name} is for this Python")
    elif False in answers:
        installed = asker.version if isinstance(asker.version, str) else ABSENT
        cause = causes.setdefault((asker.name, "python"), _Cause(asker.name, "python", installed))
        cause.asked.append(("Python", _as_named(wanted)))


def marker_values(layout: Layout) -> dict[str, str | None]:
    """The marker variables of the judged interpreter; None for what is not known without starting it."""
    full = layout.python_version if isinstance(layout.python_version, str) else None
    match = _RELEASE.match(full) if full else None
    minor = ".".join(match[0].split(".")[:2]) if match else _minor_of_folders(layout)
    implementation = layout.implementation if isinstance(layout.implementation, str) else None
    platform, machine, release, kernel = _system(layout)
    return {
        "python_version": minor,
        "python_full_version": full,
        "implementation_name": implementation,
        "implementation_version": full if implementation == "cpython" else None,
        "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(implementation or ""),
        "sys_platform": platform,
        "platform_system": _SYSTEMS.get(platform or ""),
        "os_name": None if platform is None else "nt" if platform == "win32" else "posix",
        "platform_machine": machine,
        "platform_release": release,
        "platform_version": kernel,
        "extra": "",
    }


def _minor_of_folders(layout: Layout) -> str | None:
    """``3.11`` of ``lib/python3.11/site-packages``."""
    found = [_LIBRARY.match(os.path.basename(os.path.dirname(folder))) for folder in layout.site_packages]
    minors = {match[1] for match in found if match}
    return minors.pop() if len(minors) == 1 else None


def _system(layout: Layout) -> tuple[str | None, str | None, str | None, str | None]:
    """``sys_platform``, machine, release and version of the system that the environment runs on."""
    if not layout.live:
        return ("linux", None, None, None) if layout.kind == "root" else ("win32", None, None, None)
    import sys

    if not hasattr(os, "uname"):
        import platform

        return sys.platform, platform.machine(), platform.release(), platform.version()
    system = os.uname()
    return sys.platform, system.machine, system.release, system.version
