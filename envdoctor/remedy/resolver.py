"""Ask uv, the resolver, in a bounded child: it is the user's own, and downloads metadata only, and builds nothing.

It has the user's configuration, indexes and proxies, and uses the network as it always does. pip is not asked: its dry
run downloads every wheel, which for torch are gigabytes.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envdoctor.system.asking import Limits, ask_program
from envdoctor.system.message import Message, MessageError, quoted

_LIMITS = Limits(seconds=240.0, mib=4096)
#: uv's names of systems; Linux by the newest C library that wheels may ask for.
_SYSTEMS = {"windows": "pc-windows-msvc", "darwin": "apple-darwin"}
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
_MANYLINUX = ((2, 17), (2, 28), *((2, minor) for minor in range(31, 41)))
_OPTIONS = ("--no-header", "--no-annotate", "--quiet", "--no-progress", "--color", "never", "--only-binary", ":all:")
#: uv's words if there is no set; its other errors mean that it could not ask.
_NONE = r"(?i)no solution found"
_NO_WHEEL = "no usable wheels"


class NoResolver(MessageError):
    """uv is missing or failed; the message says which."""


class Wanted(NamedTuple):
    """A request to uv: requirement lines for a Python (``3.11``) and a machine; ``libc`` is the release of glibc there.
    ``backend`` is the tag of torch's builds whose index is added (``cpu``, ``cu126``), None for the user's indexes
    alone."""

    lines: Sequence[str]
    python: str
    system: str
    machine: str
    libc: str | None = None
    backend: str | None = None


def resolve(request: Wanted, environ: Mapping[str, str], cwd: str) -> tuple[str, ...] | Message:
    """Return exact pins, one a package, or why there is no such set, in uv's words. Raises :class:`NoResolver`."""
    from shutil import which

    beside = os.path.dirname(sys.executable)
    program = which("uv", path=environ.get("PATH")) or which("uv", path=beside)
    if program is None:
        raise NoResolver("uv resolves the versions, and it is not on PATH: pip install uv")
    command = [program, "pip", "compile", "-", *_OPTIONS, "--python-version", request.python]
    command += ["--python-platform", _platform(request)]
    command += ["--torch-backend", request.backend] if request.backend is not None else []
    lines = "".join(f"{line}\n" for line in request.lines)
    text, problem = ask_program(command, _LIMITS, lines.encode(), environ=environ, cwd=cwd)
    pins = tuple(line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line))
    if problem is None and pins:
        return pins
    reason = quoted(" ".join(problem.tail.split())) if problem else Message("it names no release")
    if problem is not None and problem.kind == "failed" and re.search(_NONE, reason):
        if _NO_WHEEL in reason:
            raise NoResolver("some package has no wheel, and nothing is built here, so there may be a set: {}", reason)
        return reason
    how = problem.clause() if problem is not None and problem.kind == "timeout" else "failed"
    raise NoResolver("uv {}: {}", how, reason)


def _platform(request: Wanted) -> str:
    """Return the machine in uv's words."""
    machine = _MACHINES.get(request.machine, request.machine)
    if request.system != "linux":
        return f"{machine}-{_SYSTEMS.get(request.system, request.system)}"
    limit = tuple(int(part) for part in re.findall(r"\d+", request.libc)[:2]) if request.libc else (2, 28)
    major, minor = max((version for version in _MANYLINUX if version <= limit), default=_MANYLINUX[0])
    return f"{machine}-manylinux_{major}_{minor}"
