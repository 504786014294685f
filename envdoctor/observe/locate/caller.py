"""Who asks: the caller's variables and folder, and the interpreter that envdoctor runs in; and asking another
interpreter for its version and prefix: the last resort, for what its files do not tell."""

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.system.files import Files
from envdoctor.system.message import Message

_TIMEOUT_SECONDS = 10.0
_QUESTION = (
    "import sys, json; i = sys.implementation; print(json.dumps({'version': sys.version.split()[0], "
    "'implementation': i.name, 'executable': sys.executable, 'prefix': sys.prefix}))"
)


class Running(NamedTuple):
    """What the running interpreter says of itself (``sys``). ``library`` is the name of its library folder."""

    prefix: str
    base_prefix: str
    executable: str
    version: str
    implementation: str
    library: str

    @classmethod
    def this(cls) -> "Running":
        """The interpreter that runs this code."""
        name = sys.implementation.name
        free_threaded = "t" if "t" in getattr(sys, "abiflags", "") else ""
        library = f"{'pypy' if name == 'pypy' else 'python'}{sys.version_info[0]}.{sys.version_info[1]}{free_threaded}"
        version = sys.version.split()[0].rstrip("+")
        return cls(sys.prefix, sys.base_prefix, sys.executable or "", version, name, library)


class InterpreterAnswer(NamedTuple):
    """What an interpreter says of itself: version ("3.11.9"), implementation ("cpython"), its own path and prefix."""

    version: str
    implementation: str
    executable: str
    prefix: str


class Caller(NamedTuple):
    """The variables and the working folder of whoever asks, the running interpreter, files as they are on this
    machine, and the interpreters that were started."""

    environ: Mapping[str, str]
    cwd: str
    running: Running
    files: Files
    started: list[str]

    def ask(self, executable: str) -> InterpreterAnswer | Unknown:
        """Start an interpreter once, isolated and without ``site`` (``-I -S -B``), and let it print what it is; it is
        named in ``started`` from then on.

        It gets no input, ten seconds and a minimal environment; more than 64 KiB of output is not read. It is not
        started beside a pyvenv.cfg that is a pipe: it would read that first, and wait.
        """
        folder = os.path.dirname(executable)
        for place in (folder, os.path.dirname(folder)):
            settings = os.path.join(place, "pyvenv.cfg")
            if os.path.exists(settings) and not self.files.is_file(settings):
                return Unknown(Message("{} cannot be read: it is not a regular file", settings))
        self.started.append(executable)
        from envdoctor.system.asking import Limits, ask_program
        from envdoctor.system.child import minimal_environment

        argv = [executable, "-I", "-S", "-B", "-c", _QUESTION]
        limits, environ = Limits(_TIMEOUT_SECONDS, mib=512, output=1 << 16), minimal_environment(self.environ)
        text, problem = ask_program(argv, limits, environ=environ, cwd=self.cwd)
        if problem is not None and problem.kind in ("unstarted", "timeout"):
            return Unknown(Message("{} {}", executable, problem.clause()))
        import json

        try:
            said: Any = json.loads(text.strip().splitlines()[-1])
            answer = InterpreterAnswer(*(said[name] for name in InterpreterAnswer._fields))
        except (IndexError, KeyError, TypeError, ValueError, RecursionError):
            answer = None
        if answer is None or not all(
            isinstance(part, str) and len(part) < 4096 and "\0" not in part for part in answer
        ):
            return Unknown(Message("{} does not answer like a Python interpreter", executable))
        return answer._replace(version=answer.version.rstrip("+"))


def absolute(path: str, cwd: str) -> str:
    """A path as the caller means it; links are kept, because a virtual environment's interpreter is one."""
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def same_folder(one: str, other: str) -> bool:
    """Whether two paths lead to the same folder."""
    try:
        return os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other))
    except ValueError:  # an embedded NUL
        return False
