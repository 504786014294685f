"""The child in the judged interpreter: what a payload script is, how it is called, and what it answers.

A *payload script* is a Python file with a function ``run(job, emit)``. It runs in the target's interpreter, never in
envdoctor's: Python 3.8 syntax, the standard library, and the target's packages. ``job`` is the dictionary of a
:class:`Task`; ``emit(dict)`` hands back one *record* at once, so that no record is lost however the child ends::

    # payload/imports.py
    def run(job, emit):
        module = __import__(job["module"])
        emit({"version": getattr(module, "__version__", None)})

    (answer,) = run_in_target([Task("imports.py", {"module": "flash_attn"}, needs=("torch",))], place)
    answer.ending     # "ok", or one of ENDINGS with answer.detail in words
    answer.records    # ({"version": "2.8.3"},)

Several tasks run one after another in one process, so that torch is imported but once. The child gets the request as
JSON on standard input and writes one JSON object a line (``payload/child.py`` says which); output of libraries
does not count. It runs in the user's own environment, with scratch files and one thread, and is ended at
its time, at its memory, with this process, and with everything it started.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.system.asking import OFFLINE, ChildResult, Limits, Usage, run_child
from envdoctor.system.message import NOTHING, Message, quoted

#: The scripts that run in the target interpreter, and the one that runs them.
PAYLOAD = Path(__file__).resolve().parents[1] / "payload"
#: Endings that say that torch cannot be used, whatever the task, in the words of the child.
NO_TORCH = ("no-torch", "torch-broken", "torch-old")
#: Every way in which a task can end. Only ``ok`` says that it was complete.
ENDINGS = (
    *("ok", "timeout", "killed", "crash", "oom", "sticky", "garbage", "output-limit", "failed", "lost"),
    *(*NO_TORCH, "no-device"),
)
#: A task that computes may take so many times its seconds on the clock: other programs may use the machine as well.
PATIENCE = 10.0
#: A task that computes, or waits in the queue for a processor, less than this share of the time hangs or waits for
#: something else: it has its seconds on the clock.
_IDLE = 0.05
#: Variables of a process that a launcher started among many. The child is not one, and would wait for the others.
_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_LAUNCHERS = ("TORCHELASTIC_", "ACCELERATE_", "OMPI_COMM_WORLD_", "PMI_", "FSDP_", "NODE_RANK", "DEEPSPEED_")
#: Lists of folders that may be given relative to the working directory.
_PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_GARBAGE_KEPT = 200
_MOST_GARBAGE = 100
_FRAME = re.compile(r'File "([^"]*)", line (\d+) in (\S+)')


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """Yield a folder for the children's files; it is removed with everything in it."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield os.path.realpath(folder)


class Place(NamedTuple):
    """A place for children: the target ``python``, the caller's environment variables and working directory, the folder
    ``scratch`` for their files, which devices they may see (None: as in ``environ``), and the folder of the scripts."""

    python: str
    environ: Mapping[str, str]
    cwd: str
    scratch: str
    visible: str | None = None
    payload: Path = PAYLOAD

    def environment(self, device: str) -> dict[str, str]:
        """Return the variables of a child.

        PYTHONPATH, LD_LIBRARY_PATH, the allocator's configuration and everything else stay as they are, because an
        experiment in a cleaned environment is one on another environment. Relative folders are resolved against the
        working directory, which itself is taken off PYTHONPATH. Files of compilers and temporary files go to
        ``scratch``; the network is not used; one thread computes. CUDA's variable names the visible devices; HIP's
        variable stays as it is. On the device ``cpu`` no other is visible, or a library would take it unasked.
        """
        caller = self.environ.items()
        child = {name: value for name, value in caller if name not in _RANKS and not name.startswith(_LAUNCHERS)}
        for name in _PATHS:
            if name in child:
                folders = [os.path.join(self.cwd, folder) for folder in child[name].split(os.pathsep) if folder]
                if name == "PYTHONPATH":
                    folders = [folder for folder in folders if os.path.normpath(folder) != os.path.normpath(self.cwd)]
                child[name] = os.pathsep.join(folders)
        child.update(
            OFFLINE,
            PYTHONSAFEPATH="1",
            PYTHONUTF8="1",
            OMP_NUM_THREADS="1",
            MKL_NUM_THREADS="1",
            TOKENIZERS_PARALLELISM="false",
            TRANSFORMERS_OFFLINE="1",
            DO_NOT_TRACK="1",
            TRANSFORMERS_VERBOSITY="error",
            WANDB_MODE="disabled",
            TORCHINDUCTOR_CACHE_DIR=os.path.join(self.scratch, "inductor"),
            TRITON_CACHE_DIR=os.path.join(self.scratch, "triton"),
            **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), self.scratch),
        )
        if device == "cpu":
            child.update(CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="")
        elif self.visible is not None:
            child["CUDA_VISIBLE_DEVICES"] = self.visible
        return child


class Task(NamedTuple):
    """One call of a payload script.

    ``script`` is its path in the folder of the scripts, ``job`` what it gets: ``device`` in it (default cpu) is cpu,
    cuda, or auto, which becomes cuda where torch sees such a device. ``needs`` are modules that are imported before it;
    without torch, or the device, the task ends so, and without another module its only record says so (``skip``, or
    ``error`` when it does not import). ``seconds`` is the limit of its processor time, and on the clock if it hardly
    computes: a busy machine does not end a task that would finish. ``memory_mib`` is the limit of its memory beside
    mapped files, ``gpu_memory_mib`` the limit of the device's memory (None: no limit).
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
) -> "list[ChildAnswer]":
    """Run the tasks, all for one device, in one child; one answer a task. Never raises for what the child does.

    ``heard`` gets, in another thread, the place of the task that is at work and its number of records so far; ``until``
    is called again and again, and returns whether to stop now.
    """
    conversation = Conversation([task.seconds for task in tasks], heard)
    request = {"folder": str(place.payload), "tasks": [{**task._asdict(), "job": dict(task.job)} for task in tasks]}
    result = run_child(
        [place.python, "-X", "faulthandler", "-B", "-u", str(PAYLOAD / "child.py")],
        Limits(sum(task.seconds for task in tasks), max(task.memory_mib for task in tasks), 32 << 20, PATIENCE),
        json.dumps(request).encode(),
        confined=False,
        environ=place.environment(tasks[0].job.get("device", "cpu")),
        cwd=place.scratch,
        on_line=conversation.take,
        until=lambda used: until() or conversation.is_late(used),
    )
    return conversation.answers(result, [task.memory_mib for task in tasks])


class ChildAnswer(NamedTuple):
    """The answer of one task.

    ``ending`` is one of :data:`ENDINGS`, with a ``detail`` in words; "unreached" when the child ended before its turn.
    ``begin`` is the child's line before the script began (python, torch, device; empty when it did not get there).
    ``died`` is whether the child ended in the middle of it. ``peak_mib`` is the largest memory, mapped files included;
    ``cpu_seconds`` its processor time, if the child lived to tell.
    """

    records: tuple[Mapping[str, Any], ...]
    ending: str
    detail: Message = NOTHING
    begin: Mapping[str, Any] = {}
    seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_mib: float | None = None
    died: bool = False


class _Lines:
    """The lines about one task, sorted into the first, the last, the records between, and garbage."""

    def __init__(self) -> None:
        self.begin: Mapping[str, Any] = {}
        self.end: Mapping[str, Any] = {}
        self.records: list[Mapping[str, Any]] = []
        self.garbage: list[str] = []

    def number(self, key: str) -> float | None:
        """Return a number of the last line; None if it has none."""
        value = self.end.get(key)
        return value if isinstance(value, (int, float)) else None


class Conversation:
    """The lines of one child: those up to an end are about one task. ``seconds`` are the limits of the tasks."""

    def __init__(self, seconds: Sequence[float], heard: Callable[[int, int], None]) -> None:
        self._seconds = seconds
        self._heard = heard
        self._by_task = [_Lines() for _ in seconds]
        self._at = 0
        self._since = time.monotonic()
        self._used = self._used_before = Usage()

    def is_late(self, used: Usage) -> bool:
        """Return whether the current task has exceeded its time, if the child has ``used`` this much since it began."""
        self._used = used
        elapsed, computed = time.monotonic() - self._since, used.seconds - self._used_before.seconds
        if self._at >= len(self._seconds) or elapsed <= self._seconds[self._at]:
            return False
        seconds = self._seconds[self._at]
        busy = computed + used.queue - self._used_before.queue
        return computed > seconds or busy < _IDLE * elapsed or elapsed > PATIENCE * seconds

    def take(self, line: bytes) -> bool:
        """Sort a line in; return whether more may come."""
        lines = self._by_task[min(self._at, len(self._by_task) - 1)]
        record: Any = None
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
        if not isinstance(record, dict):
            lines.garbage.append(line[:_GARBAGE_KEPT].decode("utf-8", "replace"))
            return len(lines.garbage) < _MOST_GARBAGE
        kind = record.get("kind")
        if kind == "begin":
            lines.begin = record
        elif kind == "end":
            lines.end = record
            self._since, self._used_before = time.monotonic(), self._used
            self._at += 1
        else:
            lines.records.append(record)
        self._heard(min(self._at, len(self._by_task) - 1), len(lines.records))
        return True

    def answers(self, result: ChildResult, memory_mib: Sequence[int]) -> list[ChildAnswer]:
        """Return one answer for each task after the child has ended."""
        answers = []
        for place, lines in enumerate(self._by_task):
            if place > self._at and result.status != "unstarted":
                answers.append(ChildAnswer((), "unreached"))
                continue
            ending, detail = _ending(result, lines, self._seconds[place], memory_mib[place])
            seconds = lines.number("seconds")
            peaks = [lines.number("peak_rss_mib"), None if lines.end else result.peak_mib]
            times = round(result.seconds if seconds is None else seconds, 2), lines.number("cpu_s")
            peak = max((peak for peak in peaks if peak is not None), default=None)
            died = result.status != "unstarted" and not lines.end
            answers.append(ChildAnswer(tuple(lines.records), ending, detail, lines.begin, *times, peak, died))
        return answers


def _ending(result: ChildResult, lines: _Lines, seconds: float, memory_mib: int) -> tuple[str, Message]:
    """Return the ending of a task, and details for a person."""
    after = Message("after {} observations", len(lines.records))
    if lines.garbage:
        return "garbage", Message(
            "{} lines that are no observation, such as {}", len(lines.garbage), repr(lines.garbage[0])
        )
    if lines.end:  # the process's later end is not this task's
        ending = lines.end.get("ending")
        if isinstance(ending, str) and ending in ENDINGS:
            return ending, Message(str(lines.end.get("detail", "")))
        return "garbage", Message("no ending is called {}", repr(str(ending)[:60]))
    if result.status == "output-limit":
        return "output-limit", Message("more output than anybody could read, {}", after)
    if result.status == "timeout":
        return "timeout", Message("not done in {} s, {}", f"{seconds:g}", after)
    if result.status == "memory":
        return "oom", Message("more than {} MiB of memory, {}", memory_mib, after)
    if result.code is None:
        return "failed", quoted(result.stderr_tail)
    return _by_exit_code(result.code, result, after)


def _by_exit_code(code: int, result: ChildResult, after: Message) -> tuple[str, Message]:
    import signal

    if code < 0:
        try:
            name = quoted(signal.Signals(-code).name)
        except ValueError:
            name = Message("signal {}", -code)
        if name == "SIGKILL":
            return "killed", Message("by SIGKILL {}, as the system does when memory runs out", after)
        # Where Python was, by the lines of its fault handler.
        frame = _FRAME.search(result.stderr_tail.partition("most recent call first")[2].replace("\\", "/"))
        place = (frame[3], frame[1].rpartition("/")[2], frame[2]) if frame else ()
        return "crash", Message("{} {}{}", name, after, Message(", in {} ({}:{})", *place) if frame else NOTHING)
    half = Message(", in the middle of a line") if result.stdout.strip() else NOTHING
    if code == 0:
        return "lost", Message("it ended {}{} without saying that it was done", after, half)
    last = next((line for line in reversed(result.stderr_tail.splitlines()) if line.strip()), "")
    return "failed", Message("exit code {} {}{}{}", code, after, half, f": {last[:300]}" if last else "")
