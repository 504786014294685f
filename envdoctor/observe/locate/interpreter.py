"""Asking an interpreter for its version and prefix: the last resort, for what its files do not tell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown

__all__ = ["Answer", "ask"]

_TIMEOUT_SECONDS = 10.0
_OUTPUT_LIMIT = 1 << 16
_QUESTION = (
    "import sys, json; i = sys.implementation; print(json.dumps({'version': sys.version.split()[0], "
    "'implementation': i.name, 'executable': sys.executable, 'prefix': sys.prefix}))"
)
#: What an interpreter may need to start at all (shared libraries of module systems, pyenv's choice of version).
_PASSED_ON = ("PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "PYENV_ROOT", "PYENV_VERSION")


class Answer(NamedTuple):
    """What an interpreter says of itself: version ("3.11.9"), implementation ("cpython"), its own path and prefix."""

    version: str
    implementation: str
    executable: str
    prefix: str


def ask(executable: str, *, environ: Mapping[str, str], cwd: str) -> Answer | Unknown:
    """Start the interpreter once, isolated and without ``site`` (``-I -S -B``), and let it print what it is.

    It gets no input, ten seconds, a minimal environment and a process group of its own, which is killed; more than
    64 KiB of output is not read.
    """
    import json

    command = [executable, "-I", "-S", "-B", "-c", _QUESTION]
    try:
        output = _run(command, {name: environ[name] for name in _PASSED_ON if name in environ}, cwd)
    except OSError as error:
        return Unknown(f"{executable} cannot be started: {error.strerror or error}")
    if output is None:
        return Unknown(f"{executable} did not answer within {_TIMEOUT_SECONDS:g} seconds")
    lines = output.decode("utf-8", "replace").strip().splitlines()
    try:
        said: Any = json.loads(lines[-1])
        answer = Answer(*(said[name] for name in Answer._fields))
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return Unknown(f"{executable} does not answer like a Python interpreter")
    if not all(isinstance(part, str) and len(part) < 4096 for part in answer):
        return Unknown(f"{executable} does not answer like a Python interpreter")
    return answer._replace(version=answer.version.rstrip("+"))


def _run(command: list[str], environ: dict[str, str], cwd: str) -> bytes | None:
    """Output of the command, cut at the limit; None when time ran out."""
    import subprocess
    import threading

    with open(os.devnull, "r+b") as nothing:
        child = subprocess.Popen(
            command,
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=nothing,
            env=environ,
            cwd=cwd,
            start_new_session=True,
            close_fds=True,
        )
    assert child.stdout is not None
    pipe = child.stdout
    parts: list[bytes] = []

    def read() -> None:
        try:
            parts.append(pipe.read(_OUTPUT_LIMIT))
        except (OSError, ValueError):
            pass

    # A thread, because a grandchild that left the process group can hold the pipe open for ever: it is then abandoned.
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        reader.join(_TIMEOUT_SECONDS)
        late = reader.is_alive()  # asked before the kill, which ends the reading too
    finally:
        _kill(child)
    if late:
        return None
    pipe.close()
    return parts[0] if parts else b""


def _kill(child: Any) -> None:
    import signal

    try:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()
