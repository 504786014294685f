"""Running probes: one bounded child a job, every observation kept as it comes, every way to end named."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.probe.catalogue import PAYLOAD, Job
from envdoctor.probe.child_environment import child_environment
from envdoctor.sandbox.stream import StreamEnd, stream_child

if TYPE_CHECKING:
    import threading

__all__ = ["ENDINGS", "UNUSABLE", "Outcome", "Place", "run_job", "run_jobs", "total_peak"]

#: Endings that say that no probe can run with this torch, in the words of the child.
UNUSABLE = ("no-torch", "torch-broken", "torch-old", "no-device")
#: Every way in which a child can end. Only ``ok`` says that all was observed that was to be observed.
ENDINGS = (
    "ok",
    "timeout",
    "killed",
    "crash",
    "oom",
    "sticky",
    "garbage",
    "output-limit",
    "failed",
    "lost",
    *UNUSABLE,
)
_GARBAGE_KEPT = 200
_MOST_GARBAGE = 100
_FRAME = re.compile(r'File "[^"]*?([^"/\\]+)", line (\d+) in (\S+)')


class Place(NamedTuple):
    """Where children run: the target ``python``, the caller's environment variables and working directory, the folder
    ``scratch`` for their files, and which devices they may see (None: as in ``environ``)."""

    python: str
    environ: Mapping[str, str]
    cwd: str
    scratch: str
    visible: str | None = None
    payload: Path = PAYLOAD


class Outcome(NamedTuple):
    """What one child gave. ``begin`` is what it said of torch before the probe began (empty when it did not get there);
    ``ending`` one of :data:`ENDINGS`, with a ``detail`` in words; ``peak_mib`` its largest memory, mapped files
    included."""

    job: Job
    observations: tuple[Mapping[str, Any], ...]
    ending: str
    detail: str = ""
    seconds: float = 0.0
    peak_mib: float | None = None
    begin: Mapping[str, Any] = {}

    @property
    def device(self) -> str:
        """The device that the child found when it was left to it to choose."""
        return str(self.begin.get("device", self.job.device))


def run_jobs(
    jobs: Sequence[Job],
    place: Place,
    *,
    workers: int = 1,
    tell: Callable[[str], None] | None = None,
    keep: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run all jobs, ``workers`` at a time, and return their outcomes in the order of the jobs.

    ``tell`` hears what is going on, ``keep`` each outcome as soon as it is there; both are called in this thread.
    An interrupt ends the children that run.
    """
    import threading
    from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

    stop = threading.Event()
    counts: dict[int, int] = {}
    outcomes: dict[int, Outcome] = {}

    def one(number: int) -> Outcome:
        def heard(count: int) -> None:
            counts[number] = count

        counts[number] = 0
        return run_job(jobs[number], place, stop=stop, heard=heard)

    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="probe") as pool:
        try:
            waiting: dict[Future[Outcome], int] = {pool.submit(one, number): number for number in range(len(jobs))}
            while waiting:
                done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    number = waiting.pop(future)
                    counts.pop(number, None)
                    outcomes[number] = future.result()
                    if keep:
                        keep(outcomes[number])
                if tell:
                    running = [f"{jobs[number].label}: {count}" for number, count in sorted(counts.copy().items())]
                    tell(f"{len(outcomes)} of {len(jobs)} done   {'   '.join(running)}")
        except BaseException:
            stop.set()
            for future in waiting:
                future.cancel()
            raise
    return [outcomes[number] for number in sorted(outcomes)]


def run_job(
    job: Job,
    place: Place,
    *,
    stop: threading.Event | None = None,
    heard: Callable[[int], None] | None = None,
) -> Outcome:
    """Run one child to its end. Never raises for what it does."""
    answers = _Answers(heard)
    command = [place.python, "-X", "faulthandler", "-B", "-u", os.path.join(place.payload, "probe_child.py")]
    end = stream_child(
        command,
        json.dumps(job.document()).encode(),
        answers.take,
        env=child_environment(
            place.environ, cwd=place.cwd, scratch=place.scratch, device=job.device, visible=place.visible
        ),
        cwd=place.scratch,
        seconds=job.seconds,
        memory_mib=job.memory_mib,
        stop=stop,
    )
    ending, detail = _ending(end, answers, job)
    said = answers.end.get("peak_rss_mib")
    peaks = [value for value in (end.peak_mib, said) if isinstance(value, (int, float))]
    return Outcome(
        job,
        tuple(answers.observations),
        ending,
        detail,
        round(end.seconds, 2),
        max(peaks, default=None),
        answers.begin,
    )


class _Answers:
    """The lines of one child, sorted into the first, the last, what lies between, and garbage."""

    def __init__(self, heard: Callable[[int], None] | None) -> None:
        self.heard = heard
        self.begin: Mapping[str, Any] = {}
        self.end: Mapping[str, Any] = {}
        self.observations: list[Mapping[str, Any]] = []
        self.garbage: list[str] = []

    def take(self, line: bytes) -> bool:
        record: Any = None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            pass
        if not isinstance(record, dict):
            self.garbage.append(line[:_GARBAGE_KEPT].decode("utf-8", "replace"))
            return len(self.garbage) < _MOST_GARBAGE
        kind = record.get("kind")
        if kind == "begin":
            self.begin = record
        elif kind == "end":
            self.end = record
        else:
            self.observations.append(record)
            if self.heard:
                self.heard(len(self.observations))
        return True


def _ending(end: StreamEnd, answers: _Answers, job: Job) -> tuple[str, str]:
    """The name of how it ended, and details for a person."""
    after = f"after {len(answers.observations)} observations"
    if end.status == "not-started":
        return "failed", end.stderr_tail
    if answers.garbage:
        return "garbage", f"{len(answers.garbage)} lines that are no observation, such as {answers.garbage[0]!r}"
    if end.status == "output-limit":
        return "output-limit", f"more output than anybody could read, {after}"
    said = answers.end.get("ending")
    if isinstance(said, str) and said in ENDINGS:
        return said, str(answers.end.get("detail", ""))
    if end.status == "timeout":
        return "timeout", f"not done in {job.seconds:g} s, {after}"
    if end.status == "memory":
        return "oom", f"more than {job.memory_mib} MiB of memory, {after}"
    return _by_exit_code(end, after)


def _by_exit_code(end: StreamEnd, after: str) -> tuple[str, str]:
    import signal

    code = end.code or 0
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        if name == "SIGKILL":
            return "killed", f"by SIGKILL {after}, as the system does when memory runs out"
        return "crash", f"{name} {after}{_frame(end.stderr_tail)}"
    half = ", in the middle of a line" if end.rest.strip() else ""
    if code == 0:
        return "lost", f"it ended {after}{half} without saying that it was done"
    last = next((line for line in reversed(end.stderr_tail.splitlines()) if line.strip()), "")
    return "failed", f"exit code {code} {after}{half}" + (f": {last[:300]}" if last else "")


def _frame(tail: str) -> str:
    """Where Python was, by the lines that its fault handler left: ``, in forward (modeling.py:12)``."""
    found = _FRAME.search(tail.partition("most recent call first")[2])
    return f", in {found.group(3)} ({found.group(1)}:{found.group(2)})" if found else ""


def total_peak(outcomes: Iterable[Outcome]) -> float | None:
    """The largest memory of any child in MiB."""
    return max((outcome.peak_mib for outcome in outcomes if outcome.peak_mib is not None), default=None)
