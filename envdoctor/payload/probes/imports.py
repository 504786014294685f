"""Do the statements work that people begin with? The real import settles what no metadata says.

A package takes names that another release of a neighbour no longer has, and every declared requirement is met:
``from transformers import HybridCache`` stops ``import peft`` from transformers 5 on
(https://github.com/huggingface/peft/issues/3333). Which statements are tried stands in the table entry-statements.

Each statement runs in a fork of the process in which those before it succeeded: what these have loaded is there
already, and of one that fails nothing stays. The statements about one package are tried together first, and one by one
when that fails. Where there is no fork they all run in this process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from itertools import groupby
from typing import Any, Callable, Dict  # noqa: UP035 (Python 3.8 knows no others at run time)

PROBES = {
    "imports": {
        "title": "imports of the installed packages",
        "needs": (),
        "suites": {"full": [{}]},
        "entries": True,
        "seconds": {"cpu": 600, "cuda": 600},
        "memory_mib": 8000,
        "gpu_memory_mib": None,
        "alone": True,
    }
}
#: What one statement may take; a cold network disk makes tens of seconds of an import.
_SECONDS = 180.0
#: Exceptions that led to one another, and frames, that are told.
_MOST_ERRORS = 12
_MOST_FRAMES = 40
_MOST_TEXT = 400

#: ``outcome`` (works, fails, crashes, hangs), ``errors`` and ``frames``.
Result = Dict[str, Any]  # noqa: UP006
_WORKS: Result = {"outcome": "works", "errors": [], "frames": []}
#: Where Python's own modules lie: their frames are no package's.
_LIBRARY = (os.path.dirname(os.__file__), os.path.join(os.path.dirname(os.__file__), "lib-dynload"))


def imports(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Emit one observation for each statement, for the judge ``import``."""

    def tell(statement: str, result: Result) -> None:
        emit({"case": statement, "judge": "import", **result})

    run_in_turn(list(job["entries"]), tell, _SECONDS)


def run_in_turn(statements: list[str], tell: Callable[[str, Result], None], seconds: float) -> None:
    """Run each for at most ``seconds`` and tell its result, in whatever process that is known.

    ``import trl`` is the first thing that ``from trl import SFTTrainer`` does: if it fails, so do the others.
    """
    if not hasattr(os, "fork"):
        for statement in statements:
            tell(statement, _first_failure([statement]))
        return
    alive, ended = os.pipe()
    child = os.fork()
    if not child:
        os.close(alive)
        try:
            _go_on([list(group) for _, group in groupby(statements, key=_root)], tell, seconds)
        finally:
            os._exit(0)
    os.close(ended)
    os.waitpid(child, 0)
    _received(alive, None)  # until the last of the processes that went on has ended


def _first_failure(statements: list[str]) -> Result:
    """Run one after another here, until one fails; what its failure was."""
    for statement in statements:
        try:
            exec(statement, {"__name__": "entry"})  # noqa: S102 (a line of a table that is shipped)
        except BaseException as error:  # an import may do anything, sys.exit included
            return {"outcome": "fails", **_described(error)}
    return _WORKS


def _described(error: BaseException) -> dict[str, Any]:
    """Return the errors from the one that was raised to its first cause, with places in the packages."""
    folders = {os.path.abspath(entry) for entry in sys.path if entry}.difference(_LIBRARY)
    roots = sorted((folder + os.sep for folder in folders), key=len, reverse=True)
    errors: list[dict[str, Any]] = []
    frames: list[str] = []
    current: BaseException | None = error
    visited: list[BaseException] = []
    while current is not None and current not in visited and len(errors) < _MOST_ERRORS:
        visited.append(current)
        places = [_place(frame, roots) for frame in traceback.extract_tb(current.__traceback__)]
        known = [place for place in places if place]
        frames += [place for place in known if place not in frames]
        record = {"type": type(current).__name__, "message": _message(current, roots), "name": _missing(current)}
        errors.append({**record, "place": known[-1] if known else ""})
        current = _cause(current)
    return {"errors": errors, "frames": frames[-_MOST_FRAMES:]}


def _cause(error: BaseException) -> BaseException | None:
    """Return what led to an exception.

    ``from module import name`` makes an ImportError without a cause of the AttributeError that the module's
    ``__getattr__`` raises, also when that is about something else: so it is asked again.
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    module, _, name = _missing(error).rpartition(".")
    lazy = sys.modules.get(module)
    if (
        cause is not None
        or not isinstance(error, ImportError)
        or lazy is None
        or isinstance(error, ModuleNotFoundError)
    ):
        return cause
    try:
        getattr(lazy, name)
    except AttributeError as hidden:
        return None if name in str(hidden) else hidden
    except BaseException as hidden:
        return hidden
    return None


def _go_on(groups: list[list[str]], tell: Callable[[str, Result], None], seconds: float) -> None:
    """Run each group in a fork, which takes over if all of its statements work."""
    broken: dict[str, Result] = {}
    while groups:
        group = groups.pop(0)
        root = _root(group[0])
        if root in broken:
            tell(group[0], broken[root])
            continue
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            result = _first_failure(group)
            if result["outcome"] != "works":
                os.write(writer, json.dumps(result).encode("utf-8", "replace"))
                os._exit(0)
            os.write(writer, b"+")
            os.close(writer)
            for statement in group:
                tell(statement, _WORKS)
            continue
        os.close(writer)
        answer = _received(reader, seconds * len(group))
        if answer == b"+":
            return  # the fork has taken over
        result = _ended(child, answer)
        if len(group) > 1:
            groups[:0] = [[statement] for statement in group]
            continue
        tell(group[0], result)
        if group[0] == "import " + root:
            broken[root] = result


def _ended(child: int, answer: bytes | None) -> Result:
    """Return the result of a fork that did not take over: its own words, or how it ended."""
    if answer is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if answer:
        result: Result = json.loads(answer.decode("utf-8"))
        return result
    if answer is None:
        return {**_WORKS, "outcome": "hangs"}
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    ending = signal.Signals(number).name if number else "the process ended itself"
    return {**_WORKS, "outcome": "crashes", "errors": [{"type": ending, "message": "", "name": "", "place": ""}]}


def _received(reader: int, seconds: float | None) -> bytes | None:
    """Return what comes through a pipe until it is closed; None if nothing came for so long."""
    content = b""
    try:
        while select.select([reader], [], [], seconds)[0]:
            piece = os.read(reader, 1 << 16)
            if not piece:
                return content
            content += piece
        return None
    finally:
        os.close(reader)


def _root(statement: str) -> str:
    """Return ``trl`` for ``from trl.trainer import SFTTrainer``."""
    return statement.split()[1].partition(".")[0]


def _place(frame: traceback.FrameSummary, roots: list[str]) -> str:
    """Return the place as ``peft/peft_model.py:37``; empty outside of the installed packages."""
    for root in roots:
        if frame.filename.startswith(root):
            return "{}:{}".format(frame.filename[len(root) :].replace(os.sep, "/"), frame.lineno)
    return ""


def _message(error: BaseException, roots: list[str]) -> str:
    text = " ".join(str(error).split())
    for root in roots:
        text = text.replace(root, "")
    return text[:_MOST_TEXT]


def _missing(error: BaseException) -> str:
    """Return the missing name with its module, ``transformers.HybridCache``; empty if the error does not say it."""
    name = getattr(error, "name", None)
    if isinstance(error, AttributeError):
        module = getattr(getattr(error, "obj", None), "__name__", None)  # from Python 3.10 on
        return f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else ""
    if isinstance(error, ImportError) and isinstance(name, str):
        attribute = str(error).partition("cannot import name '")[2].partition("'")[0]
        return f"{name}.{attribute}" if attribute else name
    return ""
