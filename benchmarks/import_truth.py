"""Runs import statements in changing environments, each from the same interpreter that has loaded the heavy modules.

    python -I -S benchmarks/import_truth.py    (started by imports.py; any CPython with fork)

The first line of standard input is ``{"base": SITE, "preload": [modules]}``, every further one an environment
``{"site": SITE, "changed": [top-level modules], "statements": [...], "alone": false}``. The answer is one line each,
``{statement: null | {"errors": [{"type", "message", "place"}, ...], "frames": [...]}}``: the errors from the one that
was raised to its first cause, places and frames as ``peft/peft_model.py:37``.

Modules that are preloaded come from ``base``; an environment whose changed modules are among them gets an interpreter
without any. The statements of an environment run in one process as long as they succeed; a failed one leaves no trace,
because it ran in a fork. Where ``import trl`` fails, so do all statements that take something from trl, with the same
error. With ``alone`` every statement begins anew.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

#: What one statement may take.
SECONDS = 300
DIED = json.dumps({"errors": [{"type": "died", "message": "", "place": ""}], "frames": []})


def main() -> None:
    """Serve environments until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.filterwarnings("ignore")
    gc.disable()  # a collection would copy every page that the forks share
    request = json.loads(sys.stdin.readline())
    sys.path.append(request["base"])
    reader, writer = os.pipe()
    bare = os.fork()
    if not bare:  # keeps an interpreter without the preloaded modules
        os.close(writer)
        serve_bare(os.fdopen(reader), answers)
        os._exit(0)
    os.close(reader)
    with os.fdopen(writer, "w") as to_bare:
        for name in request["preload"]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        loaded = {name.partition(".")[0] for name in sys.modules}
        for line in sys.stdin:
            if loaded & set(json.loads(line)["changed"]):
                to_bare.write(line)
                to_bare.flush()
            else:
                answers.write(answer(line, request["base"]))
                answers.flush()
    os.waitpid(bare, 0)


def serve_bare(lines: Iterable[str], answers: Any) -> None:
    """The same without preloaded modules."""
    for line in lines:
        answers.write(answer(line, sys.path[-1]))
        answers.flush()


def answer(line: str, base: str) -> str:
    """One environment, in a fork."""
    request = json.loads(line)

    def work(emit: Callable[[object], None]) -> None:
        sys.path[:] = [request["site"] if entry == base else entry for entry in sys.path]
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        roots = (request["site"], base)
        if request["alone"]:
            emit({statement: alone(statement, roots) for statement in request["statements"]})
        else:
            emit(dict(in_turn(request["statements"], roots)))

    return (forked(work, SECONDS * 20).strip() or "{}") + "\n"


def in_turn(statements: list[str], roots: tuple[str, ...]) -> list[Any]:
    """Each statement in a fork, which goes on with the next ones when it succeeds; else they go on from before it.

    The statements about one package are tried together first, and one by one when that fails.
    """

    def work(emit: Callable[[object], None]) -> None:
        broken: dict[str, object] = {}
        pending = [list(group) for _, group in groupby(statements, key=root_of)]
        while pending:
            group = pending.pop(0)
            root = root_of(group[0])
            if root in broken:
                emit([group[0], broken[root]])
                continue
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                error = next(filter(None, (attempt(statement, roots) for statement in group)), None)
                os.write(writer, json.dumps(error).encode())
                os.close(writer)
                if error:
                    os._exit(0)
                for statement in group:
                    emit([statement, None])
                continue
            os.close(writer)
            error = received(reader, SECONDS) or DIED
            if error == "null":
                return  # the child is this process now
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if len(group) > 1:
                pending[:0] = [[statement] for statement in group]
                continue
            emit([group[0], json.loads(error)])
            if group[0] == f"import {root}":
                broken[root] = json.loads(error)

    return [json.loads(line) for line in forked(work, SECONDS * 20).splitlines()]


def root_of(statement: str) -> str:
    """``trl`` of ``from trl.trainer import SFTTrainer``."""
    return statement.split()[1].partition(".")[0]


def alone(statement: str, roots: tuple[str, ...]) -> object:
    """What a process of its own says about the statement."""
    return json.loads(forked(lambda emit: emit(attempt(statement, roots)), SECONDS) or DIED)


def attempt(statement: str, roots: tuple[str, ...]) -> dict[str, object] | None:
    """Run it here; the errors if it fails."""
    try:
        exec(statement, {"__name__": "entry"})
    except BaseException as error:
        return described(error, roots)
    return None


def described(error: BaseException, roots: tuple[str, ...]) -> dict[str, object]:
    """The error and its causes, with places in the packages."""
    chain, frames = [], []
    current: BaseException | None = error
    while current is not None and len(chain) < 12:
        places = [
            place
            for frame in traceback.extract_tb(current.__traceback__)
            if (place := relative(frame.filename, frame.lineno, roots))
        ]
        frames += [place for place in places if place not in frames]
        message = " ".join(str(current).replace(roots[0] + os.sep, "").split())[:400]
        chain.append({"type": type(current).__name__, "message": message, "place": places[-1] if places else ""})
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return {"errors": chain, "frames": frames[-40:]}


def relative(file: str, line: int | None, roots: tuple[str, ...]) -> str | None:
    """``peft/peft_model.py:37``; None outside of the packages."""
    for root in roots:
        if file.startswith(root + os.sep):
            return f"{file[len(root) + 1 :]}:{line}"
    return None


def forked(work: Callable[[Callable[[object], None]], None], seconds: float) -> str:
    """The lines of JSON that ``work`` emits in a child, as long as it lives and goes on to say something."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with contextlib.suppress(BaseException):
            work(lambda value: os.write(writer, (json.dumps(value) + "\n").encode()) and None)
        os._exit(0)
    os.close(writer)
    text = received(reader, seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return text


def received(reader: int, seconds: float) -> str:
    """What comes through a pipe until it is closed, or until nothing came for so long."""
    pieces = []
    while select.select([reader], [], [], seconds)[0] and (piece := os.read(reader, 1 << 16)):
        pieces.append(piece)
    os.close(reader)
    return b"".join(pieces).decode()


if __name__ == "__main__":
    main()
