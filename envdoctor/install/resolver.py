"""The resolver is the user's own: uv, or pip where there is none. It is asked, in a bounded child, and nothing is built.

It has the user's configuration, indexes and proxies, and uses the network as it always does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envdoctor.sandbox.child import ChildResult, run_child

__all__ = ["NoResolver", "Resolved", "Wanted", "resolve"]

_SECONDS = 240.0
_MEMORY_MIB = 4096
_OUTPUT = 64 << 20
#: Systems as uv names them; Linux by the newest C library that wheels may ask for.
_SYSTEMS = {"windows": "pc-windows-msvc", "darwin": "apple-darwin"}
_MANYLINUX = ((2, 17), (2, 28), *((2, minor) for minor in range(31, 41)))
#: What uv says when there is no set, rather than when it could not ask.
_NONE = r"(?i)no solution found|because .*unsatisfiable|conflicting dependencies|ResolutionImpossible|no matching distribution"


class NoResolver(Exception):
    """There is neither uv nor pip that could answer; the message says what is missing, or what failed."""


class Wanted(NamedTuple):
    """What is asked: requirement lines for a Python (``3.11``) and a machine (None: this one). ``backend`` is the tag of
    torch's builds whose index is added (``cpu``, ``cu126``), None for the user's indexes alone; ``wheel_index`` is that index
    by its address."""

    lines: Sequence[str]
    python: str
    system: str | None = None
    machine: str | None = None
    libc: str | None = None
    backend: str | None = None
    wheel_index: str | None = None


class Resolved(NamedTuple):
    """``lines`` are exact pins, one a package; empty when there is no such set, and ``because`` is the resolver's reason.
    ``by`` names the resolver."""

    lines: tuple[str, ...]
    by: str
    because: str = ""


def resolve(wanted: Wanted, environ: Mapping[str, str], cwd: str) -> Resolved:
    """One set of releases for what is asked. Raises :class:`NoResolver`."""
    from shutil import which

    program = which("uv", path=environ.get("PATH"))
    if program is not None:
        return _uv(program, wanted, environ, cwd)
    here = (f"{sys.version_info[0]}.{sys.version_info[1]}", None)
    if (wanted.python, wanted.system) == here:
        return _pip(wanted, environ, cwd)
    raise NoResolver("uv is needed to resolve for another Python or machine than this one, and it is not on PATH")


def _uv(program: str, wanted: Wanted, environ: Mapping[str, str], cwd: str) -> Resolved:
    command = [program, "pip", "compile", "-", "--no-header", "--no-annotate", "--only-binary", ":all:", "--quiet"]
    command += ["--no-progress", "--color", "never", "--python-version", wanted.python]
    if wanted.system is not None:
        command += ["--python-platform", _platform(wanted)]
    if wanted.backend is not None:
        command += ["--torch-backend", wanted.backend]
    result = _asked(command, wanted, environ, cwd)
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    return _answer(result, [line for line in lines if re.match(r"[A-Za-z0-9]", line)], "uv")


def _pip(wanted: Wanted, environ: Mapping[str, str], cwd: str) -> Resolved:
    import json

    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    command += ["--only-binary", ":all:", "-r", "/dev/stdin"]
    if wanted.wheel_index is not None:
        command += ["--extra-index-url", wanted.wheel_index]
    result = _asked(command, wanted, environ, cwd)
    try:
        items = json.loads(result.stdout)["install"] if result.status == "ok" else []
        lines = [f"{one['metadata']['name'].lower()}=={one['metadata']['version']}" for one in items]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NoResolver("pip gave no report that can be read: pip 23.0 or newer is needed") from None
    return _answer(result, sorted(lines), "pip")


def _asked(command: Sequence[str], wanted: Wanted, environ: Mapping[str, str], cwd: str) -> ChildResult:
    text = "\n".join(wanted.lines) + "\n"
    return run_child(
        command,
        text.encode(),
        seconds=_SECONDS,
        memory_mib=_MEMORY_MIB,
        output_limit=_OUTPUT,
        confined=False,
        environ=environ,
        cwd=cwd,
    )


def _answer(result: ChildResult, lines: Sequence[str], by: str) -> Resolved:
    if result.status == "ok" and lines:
        return Resolved(tuple(lines), by)
    said = " ".join(result.stderr_tail.split())
    if result.status == "failed" and re.search(_NONE, said):
        return Resolved((), by, said)
    how = "took too long" if result.status == "timeout" else f"ended with {result.status}"
    raise NoResolver(f"{by} {how}: {said or 'it said nothing'}")


def _platform(wanted: Wanted) -> str:
    """The machine in uv's words."""
    machine = {"arm64": "aarch64"}.get(str(wanted.machine), str(wanted.machine))
    if wanted.system != "linux":
        return f"{machine}-{_SYSTEMS[str(wanted.system)]}"
    limit = tuple(map(int, wanted.libc.split(".")[:2])) if wanted.libc else (2, 28)
    major, minor = max((one for one in _MANYLINUX if one <= limit), default=_MANYLINUX[0])
    return f"{machine}-manylinux_{major}_{minor}"
