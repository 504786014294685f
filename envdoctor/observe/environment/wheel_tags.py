"""Distributions whose wheel was built for another Python or another platform, by the tags in their WHEEL file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence

from envdoctor.facts.values import ABSENT
from envdoctor.observe.environment.files import Files
from envdoctor.observe.environment.layout import Layout
from envdoctor.observe.environment.metadata_directory import Distribution, Problem

__all__ = ["wheel_problems"]

_FOR_ALL = b"\nTag: py3-none-any\n"
_TAG = re.compile(rb"(?m)^Tag:[ \t]*([^\r\n]{1,200}?)[ \t]*\r?$")
_MINOR = re.compile(r"3\.(\d{1,3})")
_PYTHON = re.compile(r"(cp|py)3(\d{0,3})\Z")
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

    def takes(self, tag: str) -> bool:
        """Whether one tag (``cp39-abi3-manylinux_2_17_x86_64``, each part may be several) fits."""
        pythons, abis, platforms = tag.split("-")
        return any(self._platform(platform) for platform in platforms.split(".")) and any(
            self._interpreter(python, abi) for python in pythons.split(".") for abi in abis.split(".")
        )

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


def wheel_problems(distributions: Sequence[Distribution], layout: Layout) -> list[Problem]:
    """What ``uv pip check`` calls built for a different platform. Only CPython on Linux with glibc is compared, where
    the environment runs; others have none of these problems."""
    target = _target(layout)
    return [] if target is None else list(_problems(distributions, target, layout.files))


def _problems(distributions: Sequence[Distribution], target: _Target, files: Files) -> Iterator[Problem]:
    decided: dict[bytes, bool] = {}
    for item in distributions:
        if item.kind != "dist-info":
            continue
        try:
            descriptor = files.open(f"{item.path}{os.sep}WHEEL")
            try:
                data = os.read(descriptor, _LIMIT)
            finally:
                os.close(descriptor)
        except OSError:  # none: the distribution says nothing about where it can run
            continue
        if _FOR_ALL in data:
            continue
        tags = _TAG.findall(data)
        broken = [tag for tag in tags if tag.count(b"-") != 2]
        version = item.version if isinstance(item.version, str) else ABSENT
        entry = os.path.basename(item.path)
        if broken:
            detail = f"{entry}/WHEEL has a tag that is none: {broken[0].decode('utf-8', 'replace')}"
            yield Problem(item.name, "unreadable", detail, version, item.path)
            continue
        for tag in tags:
            if tag not in decided:
                decided[tag] = target.takes(tag.decode("utf-8", "replace"))
        if tags and not any(decided[tag] for tag in tags):
            detail = f"its wheel is for {tags[0].decode('utf-8', 'replace')}"
            yield Problem(item.name, "other-platform", detail, version, item.path)


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
