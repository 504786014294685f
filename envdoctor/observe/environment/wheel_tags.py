"""Distributions whose wheel was built for another Python or another platform, by the tags in their WHEEL file."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.environment.files import Files
from envdoctor.observe.environment.layout import Layout
from envdoctor.observe.environment.metadata_directory import Distribution, Problem

__all__ = ["Wheels", "read_wheels"]

_FOR_ALL = b"\nTag: py3-none-any\n"
_TAG = re.compile(rb"(?m)^Tag:[ \t]*([^\r\n]{1,200}?)[ \t]*\r?$")
_MINOR = re.compile(r"3\.(\d{1,3})")
_PYTHON = re.compile(r"(cp|py)3(\d{0,3})\Z")
#: Compiled for one release of CPython: cp310-cp310-…
_TIED = re.compile(r"cp(3)(\d{1,3})-cp3\d{1,3}t?-")
_NAMES = {"cp": "CPython", "pp": "PyPy", "py": "Python"}
_INTERPRETER = re.compile(r"(cp|pp|py)(\d)(\d{0,3})\Z")
_MANYLINUX = re.compile(r"manylinux_(\d{1,4})_(\d{1,4})_(.+)\Z")
#: PEP 600: the older names and the glibc that they stand for.
_NAMED = {"manylinux1_": (2, 5), "manylinux2010_": (2, 12), "manylinux2014_": (2, 17)}
_LIMIT = 1 << 14


class _Target:
    """What a wheel must be for: the minor release of CPython 3 and its ABI tags, machine and glibc."""

    def __init__(self, minor: int, threads: bool, machine: str, glibc: tuple[int, int]) -> None:
        self.minor, self.machine, self.glibc = minor, machine, glibc
        own = f"cp3{minor}t" if threads else f"cp3{minor}"
        self.abis = ("none", own) if threads else ("none", own, "abi3")

    def misses(self, tag: str) -> str | None:
        """What one tag (``cp39-abi3-manylinux_2_17_x86_64``, each part may be several) is for, in words; None when that
        is this."""
        pythons, abis, platforms = tag.split("-")
        if not any(self._interpreter(python, abi) for python in pythons.split(".") for abi in abis.split(".")):
            return _interpreter_named(pythons, abis)
        return None if any(self._platform(platform) for platform in platforms.split(".")) else platforms

    def _interpreter(self, python: str, abi: str) -> bool:
        match = _PYTHON.match(python)
        if match is None or abi not in self.abis:
            return False
        minor = int(match[2]) if match[2] else None
        if match[1] == "py":
            return abi == "none" and (minor is None or minor <= self.minor)
        if abi == "abi3":
            return minor is not None and 2 <= minor <= self.minor
        return minor == self.minor

    def _platform(self, platform: str) -> bool:
        if platform in ("any", f"linux_{self.machine}"):
            return True
        match = _MANYLINUX.match(platform)
        if match:
            return match[3] == self.machine and (int(match[1]), int(match[2])) <= self.glibc
        return any(platform == name + self.machine and glibc <= self.glibc for name, glibc in _NAMED.items())


def _interpreter_named(pythons: str, abis: str) -> str:
    """``CPython 3.10`` of cp310; the tags themselves where they say more than that."""
    match = _INTERPRETER.match(pythons)
    if match is None:
        return f"{pythons}-{abis}"
    release = ".".join(part for part in match.groups()[1:] if part)
    newer = " or newer" if abis == "abi3" or (match[1] == "py" and match[2] == "3") else ""
    if abis.endswith("t"):
        return f"{_NAMES[match[1]]} {release} without the GIL"
    return f"{_NAMES[match[1]]} {release}{newer}"


class Wheels(NamedTuple):
    """``facts`` are ``foreign_wheel`` and ``environment.packages_python``; ``problems`` the WHEEL files with a tag
    that is none."""

    facts: list[Fact]
    problems: list[Problem]


def read_wheels(distributions: Sequence[Distribution], layout: Layout, incomplete: str | None) -> Wheels:
    """What ``uv pip check`` calls built for a different platform. Only CPython on Linux with glibc is compared, where
    the environment runs."""
    target = _target(layout)
    if target is None:
        reason = Unknown("the tags of wheels are compared for CPython on this machine's Linux only")
        return Wheels([_fact("foreign_wheel", reason), _fact("environment.packages_python", reason)], [])
    decided: dict[bytes, str | None] = {}
    foreign: list[dict[str, Value]] = []
    problems: list[Problem] = []
    releases: dict[str, str] = {}
    for item in distributions:
        tags = _tags(item, layout.files)
        if not tags:
            continue
        broken = next((tag for tag in tags if tag.count(b"-") != 2), None)
        version = item.version if isinstance(item.version, str) else ABSENT
        if broken is not None:
            detail = f"{os.path.basename(item.path)}/WHEEL has a tag that is none: {broken.decode('utf-8', 'replace')}"
            problems.append(Problem(item.name, "unreadable", detail, version, item.path))
            continue
        for one in tags:
            if one not in decided:
                decided[one] = target.misses(one.decode("utf-8", "replace"))
        tag = tags[0].decode("utf-8", "replace")
        tied = _TIED.match(tag)
        if tied:
            releases[item.name] = f"{tied[1]}.{tied[2]}"
        missed = decided[tags[0]]
        if missed is not None and all(decided[one] is not None for one in tags):
            foreign.append({"package": item.name, "version": version, "built_for": missed, "tag": tag})
    packages = _most(releases)
    records = Records(tuple(foreign), incomplete)
    return Wheels([_fact("foreign_wheel", records), _fact("environment.packages_python", packages)], problems)


def _tags(item: Distribution, files: Files) -> list[bytes]:
    """The tags in its WHEEL; none when it runs everywhere, or says nothing about where it can run."""
    if item.kind != "dist-info":
        return []
    try:
        descriptor = files.open(f"{item.path}{os.sep}WHEEL")
        try:
            data = os.read(descriptor, _LIMIT)
        finally:
            os.close(descriptor)
    except OSError:
        return []
    return [] if _FOR_ALL in data else _TAG.findall(data)


def _most(releases: dict[str, str]) -> Value:
    """The Python for which most of the compiled packages are, torch among them where it is compiled for one."""
    if not releases:
        return ABSENT
    (release, count), *_ = Counter(releases.values()).most_common(1)
    if 2 * count <= len(releases) or releases.get("torch", release) != release:
        return Unknown("packages compiled for several releases of Python are mixed")
    return release


def _fact(key: str, value: Value) -> Fact:
    return Fact(key, value, "WHEEL files", "environment")


def _target(layout: Layout) -> _Target | None:
    if not layout.live or not sys.platform.startswith("linux") or layout.implementation != "cpython":
        return None
    match = _MINOR.match(layout.python_version) if isinstance(layout.python_version, str) else None
    try:
        library, _, release = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        major, minor, *_ = (int(part) for part in release.split("."))
    except (ValueError, OSError):
        return None
    if match is None or library != "glibc":
        return None
    threads = any(os.path.basename(os.path.dirname(folder)).endswith("t") for folder in layout.site_packages)
    return _Target(int(match[1]), threads, os.uname().machine, (major, minor))
