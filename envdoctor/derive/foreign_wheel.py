"""Distributions whose wheel was built for another Python or another platform, by its tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.installed import InstalledSet
from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted

INPUTS = (
    "dist",
    "python.minor",
    "python.implementation",
    "python.free_threaded",
    "os.platform",
    "os.arch",
    "os.libc",
    "os.libc_version",
)
OUTPUTS = ("foreign_wheel", "environment.packages_python")

_PYTHON = re.compile(r"(cp|py)3(\d{0,3})\Z")
#: Compiled for one release of CPython: cp310-cp310-…
_TIED = re.compile(r"cp(3)(\d{1,3})-cp3\d{1,3}t?-")
_NAMES = {"cp": "CPython", "pp": "PyPy", "py": "Python"}
_INTERPRETER = r"(cp|pp|py)(\d)(\d{0,3})\Z"
_MANYLINUX = re.compile(r"manylinux_(\d{1,4})_(\d{1,4})_(.+)\Z")
#: PEP 600: the older names and the glibc that they stand for.
_NAMED = {"manylinux1_": (2, 5), "manylinux2010_": (2, 12), "manylinux2014_": (2, 17)}


class _Target:
    """What a wheel must be for: the minor release of CPython 3 and its ABI tags, machine and glibc."""

    def __init__(self, minor: int, threads: bool, machine: str, glibc: tuple[int, ...]) -> None:
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
    match = re.match(_INTERPRETER, pythons)
    if match is None:
        return f"{pythons}-{abis}"
    release = ".".join(part for part in match.groups()[1:] if part)
    newer = " or newer" if abis == "abi3" or (match[1] == "py" and match[2] == "3") else ""
    if abis.endswith("t"):
        return f"{_NAMES[match[1]]} {release} without the GIL"
    return f"{_NAMES[match[1]]} {release}{newer}"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``foreign_wheel``, what ``uv pip check`` calls built for a different platform, and the Python for which most of
    the compiled packages are. Only CPython on Linux with glibc is compared."""
    installed = InstalledSet(value)
    if not installed.known:
        return {}
    tagged = [(one, one.tags) for one, *_ in installed if isinstance(one.tags, tuple) and one.tags]
    tied = {one.name: match for one, tags in tagged if (match := _TIED.match(tags[0]))}
    packages = _most({name: f"{match[1]}.{match[2]}" for name, match in tied.items()})
    target = _target(value)
    if isinstance(target, Unknown):
        foreign: Value = target
    else:
        foreign = Records(
            tuple(
                {
                    "package": one.name,
                    "version": one.version if isinstance(one.version, str) else ABSENT,
                    "built_for": why,
                    "tag": tags[0],
                }
                for one, tags in tagged
                if (why := target.misses(tags[0])) is not None and all(target.misses(tag) for tag in tags)
            ),
            installed.incomplete,
        )
    return {
        "foreign_wheel": Derived(foreign, "WHEEL files"),
        "environment.packages_python": Derived(packages, "WHEEL files"),
    }


def _most(releases: Mapping[str, str]) -> Value:
    """The Python for which most of the compiled packages are, torch among them where it is compiled for one."""
    if not releases:
        return ABSENT
    (release, count), *_ = Counter(releases.values()).most_common(1)
    if 2 * count <= len(releases) or releases.get("torch", release) != release:
        return Unknown("packages compiled for several releases of Python are mixed")
    return release


def _target(value: Callable[[str], Value]) -> _Target | Unknown:
    minor, glibc = (dotted(str(value(key))) for key in ("python.minor", "os.libc_version"))
    known = minor is not None and glibc is not None and minor[0] == 3 and len(minor) > 1
    if not known or (value("python.implementation"), value("os.platform"), value("os.libc")) != (
        "cpython",
        "linux",
        "glibc",
    ):
        return Unknown("the tags of wheels are compared for CPython on Linux with a known glibc only")
    assert minor is not None and glibc is not None
    return _Target(minor[1], value("python.free_threaded") is True, str(value("os.arch")), glibc)
