"""Runs import statements in changing environments, each from the same interpreter that has loaded the heavy modules.

    python -I -S benchmarks/import_truth.py    (started by imports.py; any CPython with fork)

The first line of standard input is ``{"base": SITE, "preload": [modules]}``, every further one an environment
``{"site": SITE, "changed": [top-level modules], "statements": [...], "alone": false}``. The answer is one line each,
``{statement: null | {"outcome": "fails", "errors": [...], "frames": [...]}}`` (`payload/probes/imports.py` says how
they are run and what is told).

Modules that are preloaded come from ``base``; an environment whose changed modules are among them gets an interpreter
without any. With ``alone`` every statement begins anew.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

#: What one statement may take.
SECONDS = 300.0
#: How envdoctor's own experiment runs them.
_SPEC: Any = importlib.util.spec_from_file_location(
    "statements", Path(__file__).parents[1] / "envdoctor" / "payload" / "probes" / "imports.py"
)
STATEMENTS: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(STATEMENTS)


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
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        sys.path[:] = [request["site"] if entry == base else entry for entry in sys.path]
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        tell = partial(write, writer)
        for group in [[one] for one in request["statements"]] if request["alone"] else [request["statements"]]:
            STATEMENTS.run_in_turn(group, tell, SECONDS)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        found = dict(map(json.loads, lines))
    os.waitpid(child, 0)
    return json.dumps(found) + "\n"


def write(descriptor: int, statement: str, result: dict[str, Any]) -> None:
    """A result as a line, from whichever process has it."""
    os.write(descriptor, (json.dumps([statement, None if result["outcome"] == "works" else result]) + "\n").encode())


if __name__ == "__main__":
    main()
