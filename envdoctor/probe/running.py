"""Running probes: one bounded child a job, every observation kept as it comes, every way to end named."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.probe.catalogue import FIRST, PAYLOAD, Job
from envdoctor.probe.child_environment import child_environment
from envdoctor.sandbox.stream import StreamEnd, stream_child

if TYPE_CHECKING:
    import threading

__all__ = ["ENDINGS", "NO_TORCH", "UNUSABLE", "Outcome", "Place", "run_bundle", "run_jobs", "total_peak"]

#: Endings that say that torch cannot be used, whatever the probe, in the words of the child.
NO_TORCH = ("no-torch", "torch-broken", "torch-old")
#: Endings that say that no probe can run with this torch on this device.
UNUSABLE = (*NO_TORCH, "no-device")
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
#: Ways to end in a shared process that are told even when the job is done alone. Output and memory are limited for all
#: jobs of a process together: reaching those limits says nothing about the last one.
_TOLD_ONCE = ("timeout", "killed", "crash", "garbage", "failed", "lost")
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
    included; ``cpu_seconds`` what it computed, where it lived to tell. ``earlier`` is how a first try ended, in a
    process shared with other jobs, when this second one, alone, was done; ``earlier_detail`` says more."""

    job: Job
    observations: tuple[Mapping[str, Any], ...]
    ending: str
    detail: str = ""
    seconds: float = 0.0
    peak_mib: float | None = None
    begin: Mapping[str, Any] = {}
    cpu_seconds: float | None = None
    earlier: str = ""
    earlier_detail: str = ""

    @property
    def without_torch(self) -> bool:
        """Whether it ended because torch cannot be imported, or in the middle of importing it: so would the others."""
        return self.ending in NO_TORCH or (not self.begin and self.ending in ("timeout", "crash"))

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
    """Run all jobs, ``workers`` processes at a time, and return their outcomes in the order of the jobs.

    ``tell`` hears what is going on, ``keep`` each outcome as soon as its process has ended; both are called in this
    thread. An interrupt ends the children that run. Once torch cannot be imported, no further child tries.
    """
    import threading
    from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

    stop = threading.Event()
    bundles = _bundles(jobs)
    now: dict[int, str] = {}
    outcomes: dict[int, Outcome] = {}
    hopeless: list[Outcome] = []

    def one(number: int) -> list[Outcome]:
        def heard(job: Job, count: int) -> None:
            now[number] = f"{job.label}: {count}"

        asked = [jobs[place_of] for place_of in bundles[number]]
        if hopeless:
            return [_like(hopeless[0], job) for job in asked]
        found = run_bundle(asked, place, stop=stop, heard=heard)
        hopeless.extend(outcome for outcome in found if outcome.without_torch)
        return found

    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="probe") as pool:
        waiting: dict[Future[list[Outcome]], int] = {}
        try:
            waiting.update({pool.submit(one, number): number for number in range(len(bundles))})
            while waiting:
                done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    number = waiting.pop(future)
                    now.pop(number, None)
                    for place_of, outcome in zip(bundles[number], future.result(), strict=True):
                        outcomes[place_of] = outcome
                        if keep:
                            keep(outcome)
                if tell:
                    tell(f"{len(outcomes)} of {len(jobs)} done   {'   '.join(text for _, text in sorted(now.items()))}")
        except BaseException:
            stop.set()
            for future in waiting:
                future.cancel()
            raise
    return [outcomes[number] for number in sorted(outcomes)]


def _bundles(jobs: Sequence[Job]) -> list[list[int]]:
    """Places of the jobs that share a process. The context comes first, then what may take longest."""
    alone = [[number] for number, job in enumerate(jobs) if job.bundle is None]
    shared: dict[str, list[int]] = {}
    for number, job in enumerate(jobs):
        if job.bundle is not None:
            shared.setdefault(job.bundle, []).append(number)

    def rank(bundle: list[int]) -> tuple[bool, float]:
        return jobs[bundle[0]].probe != FIRST, -sum(jobs[number].seconds for number in bundle)

    return sorted([*alone, *shared.values()], key=rank)


def run_bundle(
    jobs: Sequence[Job],
    place: Place,
    *,
    stop: threading.Event | None = None,
    heard: Callable[[Job, int], None] | None = None,
) -> list[Outcome]:
    """Run jobs of one device one after another in one child; one outcome a job. Never raises for what the child does.

    When the child dies, the jobs that were not done get a child each: so that the one to blame is named, and no other.
    How the shared one ended is kept with the job that ran then. Where torch cannot be imported nothing is tried again.
    """
    answers = _Answers(jobs, heard)
    command = [place.python, "-X", "faulthandler", "-B", "-u", os.path.join(place.payload, "probe_child.py")]
    device = jobs[0].device
    end = stream_child(
        command,
        json.dumps({"jobs": [job.document() for job in jobs]}).encode(),
        answers.take,
        env=child_environment(
            place.environ, cwd=place.cwd, scratch=place.scratch, device=device, visible=place.visible
        ),
        cwd=place.scratch,
        seconds=sum(job.seconds for job in jobs),
        memory_mib=max(job.memory_mib for job in jobs),
        stop=stop,
        late=answers.late,
    )
    outcomes: list[Outcome] = []
    for number, (job, answer) in enumerate(zip(jobs, answers.by_job, strict=True)):
        outcome = _outcome(job, answer, end)
        hopeless = next((earlier for earlier in outcomes if earlier.without_torch), None)
        if answer.end or len(jobs) == 1 or (stop is not None and stop.is_set()):
            outcomes.append(outcome)
        elif hopeless is not None:
            outcomes.append(_like(hopeless, job))
        elif number == answers.at and end.status != "not-started":
            outcomes.append(outcome if outcome.without_torch else _again(outcome, place, stop, heard))
        else:
            outcomes += run_bundle([job], place, stop=stop, heard=heard)
    return outcomes


def _like(hopeless: Outcome, job: Job) -> Outcome:
    """The outcome of a job that was not tried, because that of another says how it would end."""
    return Outcome(job, (), hopeless.ending, hopeless.detail)


def _again(
    first: Outcome, place: Place, stop: threading.Event | None, heard: Callable[[Job, int], None] | None
) -> Outcome:
    """The job in a process of its own. When it is done there, how it ended at first is part of the result."""
    (second,) = run_bundle([first.job], place, stop=stop, heard=heard)
    if second.ending != "ok" or first.ending not in _TOLD_ONCE:
        return second
    return second._replace(earlier=first.ending, earlier_detail=first.detail)


def _outcome(job: Job, answer: _Answer, end: StreamEnd) -> Outcome:
    ending, detail = _ending(end, answer, job)
    seconds, computed, peak = (answer.end.get(key) for key in ("seconds", "cpu_s", "peak_rss_mib"))
    peaks = [value for value in (None if answer.end else end.peak_mib, peak) if isinstance(value, (int, float))]
    return Outcome(
        job,
        tuple(answer.observations),
        ending,
        detail,
        round(seconds if isinstance(seconds, (int, float)) else end.seconds, 2),
        max(peaks, default=None),
        answer.begin,
        computed if isinstance(computed, (int, float)) else None,
    )


class _Answer:
    """The lines about one job, sorted into the first, the last, what lies between, and garbage."""

    def __init__(self) -> None:
        self.begin: Mapping[str, Any] = {}
        self.end: Mapping[str, Any] = {}
        self.observations: list[Mapping[str, Any]] = []
        self.garbage: list[str] = []


class _Answers:
    """The lines of one child; those up to an end are about one job."""

    def __init__(self, jobs: Sequence[Job], heard: Callable[[Job, int], None] | None) -> None:
        self.jobs = jobs
        self.heard = heard
        self.by_job = [_Answer() for _ in jobs]
        self.at = 0
        self.since = time.monotonic()

    def late(self) -> bool:
        """Whether the job that runs now has taken more than its time."""
        return self.at < len(self.jobs) and time.monotonic() - self.since > self.jobs[self.at].seconds

    def take(self, line: bytes) -> bool:
        answer = self.by_job[min(self.at, len(self.by_job) - 1)]
        record: Any = None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            pass
        if not isinstance(record, dict):
            answer.garbage.append(line[:_GARBAGE_KEPT].decode("utf-8", "replace"))
            return len(answer.garbage) < _MOST_GARBAGE
        kind = record.get("kind")
        if kind == "begin":
            answer.begin = record
        elif kind == "end":
            answer.end = record
            self.since = time.monotonic()
            self.at += 1
        else:
            answer.observations.append(record)
        if self.heard:
            self.heard(self.jobs[min(self.at, len(self.jobs) - 1)], len(answer.observations))
        return True


def _ending(end: StreamEnd, answers: _Answer, job: Job) -> tuple[str, str]:
    """The name of how it ended, and details for a person."""
    after = f"after {len(answers.observations)} observations"
    if end.status == "not-started":
        return "failed", end.stderr_tail
    if answers.garbage:
        return "garbage", f"{len(answers.garbage)} lines that are no observation, such as {answers.garbage[0]!r}"
    if answers.end:  # what came of the process later is not this job's
        said = answers.end.get("ending")
        if isinstance(said, str) and said in ENDINGS:
            return said, str(answers.end.get("detail", ""))
        return "garbage", f"no ending is called {str(said)[:60]!r}"
    if end.status == "output-limit":
        return "output-limit", f"more output than anybody could read, {after}"
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
