"""The child in the interpreter that is judged: what a payload script is, how it is asked, and what it answers.

A *payload script* is a Python file with a function ``run(job, emit)``. It runs in the target's interpreter, never in
envdoctor's: Python 3.8 syntax, the standard library, and what the target has. ``job`` is the dictionary of a
:class:`Task`; ``emit(dict)`` hands back one *record* at once, so that what was seen stays seen however the child ends::

    # payload/imports.py
    def run(job, emit):
        module = __import__(job["module"])
        emit({"version": getattr(module, "__version__", None)})

    (answer,) = run_in_target([Task("imports.py", {"module": "flash_attn"}, needs=("torch",))], place)
    answer.ending     # "ok", or one of ENDINGS with answer.detail in words
    answer.records    # ({"version": "2.8.3"},)

Several tasks run one after another in one process, so that torch is imported but once. The child gets the request as
JSON on standard input and writes one JSON object a line (``payload/child.py`` says which); what libraries print is no
answer. It runs in the user's own environment, with scratch files and one thread (``environment.py``), and is ended at
its time, at its memory, with this process, and with everything it started (``child.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.sandbox.answers import ENDINGS, NO_TORCH, PATIENCE, Answer, Conversation
from envdoctor.sandbox.child import Limits, run_child
from envdoctor.sandbox.environment import target_environment

__all__ = ["ENDINGS", "NO_TORCH", "PAYLOAD", "Answer", "Place", "Task", "run_in_target", "scratch_folder"]

#: The scripts that run in the target interpreter, and the one that runs them.
PAYLOAD = Path(__file__).resolve().parents[1] / "payload"


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """A folder for the children's files, which goes with everything in it."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield os.path.realpath(folder)


class Place(NamedTuple):
    """Where children run: the target ``python``, the caller's environment variables and working directory, the folder
    ``scratch`` for their files, which devices they may see (None: as in ``environ``), and the folder of the scripts."""

    python: str
    environ: Mapping[str, str]
    cwd: str
    scratch: str
    visible: str | None = None
    payload: Path = PAYLOAD


class Task(NamedTuple):
    """One call of a payload script.

    ``script`` is its path in the folder of the scripts, ``job`` what it gets: ``device`` in it (default cpu) is cpu,
    cuda, or auto, which becomes cuda where torch sees such a device. ``needs`` are modules that are imported before it;
    without torch, or the device, the task ends so, and without another module its only record says so (``skip``, or
    ``error`` when it does not import). ``seconds`` is the limit of its processor time, and on the clock of one that
    hardly computes: a busy machine ends nobody who would be done. ``memory_mib`` is the limit of its memory beside
    mapped files, ``gpu_memory_mib`` what it may take of the device (None: no limit).
    """

    script: str
    job: Mapping[str, Any] = {}
    needs: tuple[str, ...] = ()
    seconds: float = 60.0
    memory_mib: int = 1500
    gpu_memory_mib: int | None = None


def run_in_target(
    tasks: Sequence[Task],
    place: Place,
    *,
    heard: Callable[[int, int], None] = lambda task, records: None,
    until: Callable[[], bool] = lambda: False,
) -> list[Answer]:
    """Run the tasks, all for one device, in one child; one answer a task. Never raises for what the child does.

    ``heard`` is told, in another thread, the place of the task that is at work and how many records it gave; ``until``
    is asked again and again whether to stop now.
    """
    conversation = Conversation([task.seconds for task in tasks], heard)
    request = {"folder": str(place.payload), "tasks": [{**task._asdict(), "job": dict(task.job)} for task in tasks]}
    result = run_child(
        [place.python, "-X", "faulthandler", "-B", "-u", str(PAYLOAD / "child.py")],
        Limits(sum(task.seconds for task in tasks), max(task.memory_mib for task in tasks), 32 << 20, PATIENCE),
        json.dumps(request).encode(),
        confined=False,
        environ=target_environment(
            place.environ,
            cwd=place.cwd,
            scratch=place.scratch,
            device=tasks[0].job.get("device", "cpu"),
            visible=place.visible,
        ),
        cwd=place.scratch,
        on_line=conversation.take,
        until=lambda used: until() or conversation.is_late(used),
    )
    return conversation.answers(result, [task.memory_mib for task in tasks])
