"""The tags of wheels (PEP 425, PEP 600): which ones an interpreter on a machine takes, and why it refuses others.

It compares CPython on Linux with glibc, on Windows and on macOS, but not the oldest macOS that a tag names.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from envdoctor.versions.pep440 import dotted

_PYTHON = r"(cp|py)3(\d{0,3})\Z"
_TIED = r"cp3\d{1,3}-cp3\d{1,3}[mt]?-"
_INTERPRETER = r"(cp|pp|py)(\d)(\d{0,3})\Z"
_PLATFORM = r"(many|musl)?(linux|macosx|win)(1|2010|2014)?_?(?:(\d{1,4})_(\d{1,4})_)?(\w+)\Z"
_NAMES = {"cp": "CPython", "pp": "PyPy", "py": "Python"}
#: PEP 600: the older names and the glibc that they stand for.
_NAMED = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}
_SYSTEMS = {"linux": "linux", "macosx": "darwin", "win": "windows"}
_WORDS = {"linux": "Linux", "darwin": "macOS", "windows": "Windows"}
#: Processors by the names that some systems have for them; None: any will do.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "intel": "x86_64", "32": "x86", "universal2": None, "any": None}
_NO_GLIBC = (1 << 30,)
#: The number of parts that must fit, in this order: system, machine, interpreter, C library.
_STEPS = 4
#: The facts that a target is read from, in this order; then whether its Python is free-threaded.
_KEYS = ("python.minor", "python.implementation", "os.platform", "os.arch", "os.libc", "os.libc_version")
TARGET_KEYS = (*_KEYS, "python.free_threaded")


class WheelTarget(NamedTuple):
    """The target of a wheel: minor release of CPython 3, ``threads`` for the build without the GIL, ``system`` (linux,
    windows, darwin), ``machine`` (x86_64, aarch64) and glibc. An unknown part is None: any tag will do."""

    minor: int | None = None
    threads: bool = False
    system: str | None = None
    machine: str | None = None
    glibc: tuple[int, ...] | None = None

    @property
    def known(self) -> bool:
        """Return whether every part is known."""
        glibc = self.glibc if self.system == "linux" else ()
        return None not in (self.minor, self.system, self.machine, glibc)

    def misses(self, tag: str) -> str | None:
        """Return what one tag (``cp39-abi3-manylinux_2_17_x86_64``, each part may be several) is for; None if it fits
        this target."""
        pythons, abis, platforms = tag.split("-")
        if not self.is_for(pythons, abis):
            return _interpreter_named(pythons, abis)
        return None if _reached(self, tag) == _STEPS else platforms

    def cannot_load(self, tags: Iterable[str]) -> bool:
        """Return whether every compiled module of a wheel with these tags fails to load: each is for another system or
        machine, or for one other release of CPython alone, whose modules are not even found. A module for a newer C
        library, or for the stable interface of a newer Python, may load all the same."""
        return all(_reached(self, tag) < 2 or (_reached(self, tag) == 2 and bool(re.match(_TIED, tag))) for tag in tags)

    def lacks(self, tags: Iterable[str]) -> str | None:
        """Return what these tags do not support (``Python 3.13 on Linux x86_64``, ``glibc 2.31``); None if one fits
        this target, or if there are no tags at all."""
        reached = max((_reached(self, tag) for tag in tags), default=_STEPS)
        if reached == _STEPS:
            return None
        system = _WORDS[self.system] if self.system else ""
        place = " ".join(filter(None, (system, self.machine)))
        python = f"Python 3.{self.minor}{' without the GIL' if self.threads else ''}"
        return (
            system,
            place,
            " on ".join(filter(None, (python, place))),
            "glibc " + ".".join(map(str, self.glibc or ())),
        )[reached]

    def is_for(self, pythons: str, abis: str) -> bool:
        """Return whether one of these interpreters with one of these ABIs is the target's."""
        return any(self._takes(python, abi) for python in pythons.split(".") for abi in abis.split("."))

    def _takes(self, python: str, abi: str) -> bool:
        match = re.match(_PYTHON, python)
        if match is None or self.minor is None:
            return match is not None
        minor = int(match[2]) if match[2] else None
        if match[1] == "py":
            return abi == "none" and (minor is None or minor <= self.minor)
        if abi == "abi3":
            return not self.threads and minor is not None and 2 <= minor <= self.minor
        flag = "m" if self.minor < 8 else "t" if self.threads else ""
        return minor == self.minor and abi in ("none", f"cp3{minor}{flag}")


def wheel_target(value: Callable[[str], Any]) -> WheelTarget | None:
    """Read the target from the facts ``python.…`` and ``os.…``; None if it is certainly not compared."""
    python, implementation, system, machine, libc, version = (
        text if isinstance(text := value(key), str) else "" for key in _KEYS
    )
    release, glibc = dotted(python), dotted(version)
    if (release and release[0] != 3) or implementation not in ("", "cpython") or libc not in ("", "glibc"):
        return None
    return WheelTarget(
        release[1] if release and len(release) > 1 else None,
        value("python.free_threaded") is True,
        system if system in _WORDS else None,
        _MACHINES.get(machine.lower(), machine) or None,
        glibc if system in ("linux", "") else None,
    )


@lru_cache(maxsize=1 << 14)  # the releases of a package have the same few tags
def _reached(target: WheelTarget, tag: str) -> int:
    """Count how many of system, machine, interpreter and C library fit before one does not, by the tag's best part."""
    pythons, abis, platforms = tag.split("-")
    interpreter, most = target.is_for(pythons, abis), 0
    for system, machine, glibc in map(_platform, platforms.split(".")):
        fits = (
            None in (target.system, system) or target.system == system,
            None in (target.machine, machine) or target.machine == machine,
            interpreter,
            target.glibc is None or glibc <= target.glibc,
        )
        most = max(most, fits.index(False) if False in fits else _STEPS)
    return most


@lru_cache(maxsize=512)
def _platform(name: str) -> tuple[str | None, str | None, tuple[int, ...]]:
    """Return the system, machine and glibc that a platform tag names; None for a part that may be any."""
    match = re.match(_PLATFORM, name)
    if match is None:
        return (None, None, ()) if name == "any" else ("another", name, ())
    flavour, system, legacy, major, minor, machine = match.groups()
    glibc: tuple[int, ...] = _NO_GLIBC if flavour == "musl" else ()
    if flavour == "many":
        glibc = _NAMED[legacy] if legacy else (int(major or 0), int(minor or 0))
    return _SYSTEMS[system], _MACHINES.get(machine, machine), glibc


def _interpreter_named(pythons: str, abis: str) -> str:
    """Return ``CPython 3.10`` for cp310; the tags themselves if they say more."""
    match = re.match(_INTERPRETER, pythons)
    if match is None:
        return f"{pythons}-{abis}"
    release = ".".join(part for part in match.groups()[1:] if part)
    newer = " or newer" if abis == "abi3" or (match[1] == "py" and match[2] == "3") else ""
    if abis.endswith("t"):
        return f"{_NAMES[match[1]]} {release} without the GIL"
    return f"{_NAMES[match[1]]} {release}{newer}"
