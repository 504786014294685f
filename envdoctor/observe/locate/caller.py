"""Who asks: the caller's variables and folder, and the interpreter that envdoctor runs in."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.text.files import Files
from envdoctor.text.message import Message

if TYPE_CHECKING:
    from envdoctor.observe.locate.interpreter import Answer


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


class Caller(NamedTuple):
    """The variables and the working folder of whoever asks, the running interpreter, files as they are on this
    machine, and the interpreters that were started."""

    environ: Mapping[str, str]
    cwd: str
    running: Running
    files: Files
    started: list[str]

    def ask(self, executable: str) -> "Answer | Unknown":
        """Start an interpreter and let it say what it is; it is named in ``started`` from then on.

        It is not started beside a pyvenv.cfg that is a pipe: it would read that first, and wait.
        """
        from envdoctor.observe.locate.interpreter import ask

        folder = os.path.dirname(executable)
        for place in (folder, os.path.dirname(folder)):
            settings = os.path.join(place, "pyvenv.cfg")
            if os.path.exists(settings) and not self.files.is_file(settings):
                return Unknown(Message("{} cannot be read: it is not a regular file", settings))
        self.started.append(executable)
        return ask(executable, environ=self.environ, cwd=self.cwd)


def absolute(path: str, cwd: str) -> str:
    """A path as the caller means it; links are kept, because a virtual environment's interpreter is one."""
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def same_folder(one: str, other: str) -> bool:
    """Whether two paths lead to the same folder."""
    try:
        return os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other))
    except ValueError:  # an embedded NUL
        return False
