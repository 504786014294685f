"""Asking an interpreter for its version and prefix: the last resort, for what its files do not tell."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.text.message import Message

_TIMEOUT_SECONDS = 10.0
_QUESTION = (
    "import sys, json; i = sys.implementation; print(json.dumps({'version': sys.version.split()[0], "
    "'implementation': i.name, 'executable': sys.executable, 'prefix': sys.prefix}))"
)


class Answer(NamedTuple):
    """What an interpreter says of itself: version ("3.11.9"), implementation ("cpython"), its own path and prefix."""

    version: str
    implementation: str
    executable: str
    prefix: str


def ask(executable: str, *, environ: Mapping[str, str], cwd: str) -> Answer | Unknown:
    """Start the interpreter once, isolated and without ``site`` (``-I -S -B``), and let it print what it is.

    It gets no input, ten seconds and a minimal environment; more than 64 KiB of output is not read.
    """
    import json

    from envdoctor.sandbox.asking import Limits, ask_program
    from envdoctor.sandbox.environment import minimal_environment

    limits = Limits(_TIMEOUT_SECONDS, mib=512, output=1 << 16)
    argv = [executable, "-I", "-S", "-B", "-c", _QUESTION]
    text, problem = ask_program(argv, limits, environ=minimal_environment(environ), cwd=cwd)
    if problem is not None and problem.kind in ("unstarted", "timeout"):
        return Unknown(Message("{} {}", executable, problem.clause()))
    lines = text.strip().splitlines()
    try:
        said: Any = json.loads(lines[-1])
        answer = Answer(*(said[name] for name in Answer._fields))
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return Unknown(Message("{} does not answer like a Python interpreter", executable))
    if not all(isinstance(part, str) and len(part) < 4096 and "\0" not in part for part in answer):
        return Unknown(Message("{} does not answer like a Python interpreter", executable))
    return answer._replace(version=answer.version.rstrip("+"))
