"""Start uv or pip in a bounded child: uv to resolve versions, the environment's own installer to preview its changes or
to make them. Configuration, indexes, proxies and network are the user's.

To resolve, uv downloads metadata only, and builds nothing. pip is not asked: its dry run downloads every wheel, which
for torch are gigabytes.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.system.asking import ChildResult, Limits, ask_program, run_child
from envdoctor.system.message import Message, MessageError, quoted
from envdoctor.versions.requirement import normalise

#: Downloads of gigabytes, and builds; the answer about packages is at most this long.
_LIMITS = Limits(seconds=7200.0, mib=32768, output=64 << 20)
#: Settings of pip by which it would install elsewhere, and settings that keep it from asking.
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_DRY_RUN", "PIP_REPORT")
_ASKS_NOTHING = {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
_LINE = re.compile(r"(?m)^ ([-+~]) ([A-Za-z0-9._-]+)==(\S+)")
_LONGEST = 600
#: Characters of uv's list of changes that are kept: of a longer list some may be missing.
_MOST_SAID = 8000
#: Asked of the interpreter: the version as text knows it may be another's.
_PLACES = """
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
own = sys.prefix != sys.base_prefix
print(json.dumps([sys.prefix, own or not os.path.exists(marker), [sys.prefix] if own else [
    *(paths[name] for name in ("purelib", "platlib", "scripts")),
    *(os.path.join(paths["data"], name) for name in ("share", "etc"))], paths["purelib"], paths["platlib"]]))
"""


class InstallerError(MessageError):
    """The installer failed; the message has its own words."""


class PackageFolders(NamedTuple):
    """The folders of an interpreter: its ``prefix``, the ``roots`` below which an install changes files, and its
    folders of packages (``site``), all real paths. Not ``free``: the system forbids changes (PEP 668)."""

    prefix: str
    free: bool
    roots: tuple[str, ...]
    site: tuple[str, ...]


class PackageChange(NamedTuple):
    """The change of a package: ``old`` is None if it is new, ``new`` if it is removed."""

    name: str
    old: str | None
    new: str | None


def place_of_python(python: str, environ: Mapping[str, str], cwd: str) -> PackageFolders:
    """Return the folders of an interpreter. Raises :class:`InstallerError`."""
    child = run_child([python, "-I", "-B", "-c", _PLACES], Limits(60, 1024), confined=False, environ=environ, cwd=cwd)
    try:
        prefix, free, roots, *site = json.loads(child.stdout)
    except ValueError:
        raise InstallerError("{} does not start: {}", python, _words(child)) from None
    real = sorted({os.path.realpath(root) for root in roots})
    outer = (folder for folder in real if not any(folder.startswith(other + os.sep) for other in real))
    return PackageFolders(
        os.path.realpath(prefix), free, tuple(outer), tuple(dict.fromkeys(map(os.path.realpath, site)))
    )


def preview(
    command: Sequence[str], versions: Mapping[str, str], environ: Mapping[str, str], cwd: str
) -> tuple[PackageChange, ...]:
    """Return the changes that a command would make, by the installer's dry run, in which pip downloads.
    ``versions`` are those of the installed packages, by normalised name. Raises :class:`InstallerError`."""
    is_uv, verb = _is_uv(command), command[2 if _is_uv(command) else 3]
    if not is_uv and verb == "uninstall":
        return tuple(PackageChange(name, versions.get(name), None) for name in command[4:] if not name.startswith("-"))
    more = ["--dry-run", "--color", "never"] if is_uv else ["--dry-run", "--quiet", "--report", "-"]
    child = _run([*command, *more], environ, cwd)
    if not is_uv:
        try:
            packages = [dist["metadata"] for dist in json.loads(child.stdout)["install"]]
            new = {normalise(package["name"]): package["version"] for package in packages}
        except (ValueError, KeyError, TypeError):
            raise InstallerError("pip gave no report that can be read: {}", _words(child)) from None
        return tuple(PackageChange(name, versions.get(name), version) for name, version in new.items())
    if len(child.stderr_tail) >= _MOST_SAID:
        raise InstallerError("uv would change more packages than can be followed")
    signs: dict[str, dict[str, str]] = {}
    for sign, name, version in _LINE.findall(child.stderr_tail):
        signs.setdefault(normalise(name), {})[sign] = version
    same = ((name, marks, marks.get("~")) for name, marks in signs.items())
    return tuple(PackageChange(name, again or marks.get("-"), again or marks.get("+")) for name, marks, again in same)


def install(command: Sequence[str], environ: Mapping[str, str], cwd: str) -> None:
    """Run a command of the plan. Raises :class:`InstallerError` if it fails, perhaps after part of the change."""
    _run(command, environ, cwd)


def merged(changes: Iterable[PackageChange]) -> tuple[PackageChange, ...]:
    """Return the changes of several commands, one a package: the first version, and the last."""
    last: dict[str, PackageChange] = {}
    for change in changes:
        old = last[change.name].old if change.name in last else change.old
        last[change.name] = PackageChange(change.name, old, change.new)
    return tuple(last[name] for name in sorted(last))


def _is_uv(command: Sequence[str]) -> bool:
    return command[1] == "pip"  # "uv pip install", or "PYTHON -m pip install"


def _run(command: Sequence[str], environ: Mapping[str, str], cwd: str) -> ChildResult:
    program = _uv(environ) if _is_uv(command) else command[0]
    if program is None:
        raise InstallerError("uv installed this environment, and it is not on PATH")
    rest = {name: value for name, value in environ.items() if name not in _ELSEWHERE}
    variables = {**rest, **_ASKS_NOTHING, "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    child = run_child([program, *command[1:]], _LIMITS, confined=False, environ=variables, cwd=cwd)
    if child.status != "ok":
        raise InstallerError("{} failed: {}", command[0] if _is_uv(command) else command[2], _words(child))
    return child


def _words(child: ChildResult) -> Message:
    """Return the end of the child's output, on one line."""
    text = " ".join((child.stderr_tail or child.stdout.decode("utf-8", "replace")).split())
    return quoted(text[-_LONGEST:] or child.status)


def _uv(environ: Mapping[str, str]) -> str | None:
    from shutil import which

    return which("uv", path=environ.get("PATH")) or which("uv", path=os.path.dirname(sys.executable))


# --- the versions that go together ------------------------------------------------------------------------------------

#: How long a resolution may take, and its memory.
_TO_RESOLVE = Limits(seconds=240.0, mib=4096)
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
    program = _uv(environ)
    if program is None:
        raise NoResolver("uv resolves the versions, and it is not on PATH: pip install uv")
    command = [program, "pip", "compile", "-", *_OPTIONS, "--python-version", request.python]
    command += ["--python-platform", _platform(request)]
    command += ["--torch-backend", request.backend] if request.backend is not None else []
    lines = "".join(f"{line}\n" for line in request.lines)
    text, problem = ask_program(command, _TO_RESOLVE, lines.encode(), environ=environ, cwd=cwd)
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
