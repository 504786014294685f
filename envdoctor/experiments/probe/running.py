"""Run probes: jobs share a process if they may; if the process dies, find the job to blame."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.experiments.probe.catalogue import FIRST, Job
from envdoctor.system.message import NOTHING, Message
from envdoctor.system.target import NO_TORCH, ChildAnswer, Place, run_in_target

#: Endings after which no probe can run with this torch on this device.
UNUSABLE = (*NO_TORCH, "no-device")
#: Endings in a shared process that are kept even if the job ends well alone. Output and memory are limited for all jobs
#: of a process together: reaching those limits says nothing about the last job.
_TOLD_ONCE = ("timeout", "killed", "crash", "garbage", "failed", "lost")


class Outcome(NamedTuple):
    """The outcome of one job.

    ``observations`` carry probe, device, dtype and backend of the job. ``ending`` is one of
    :data:`~envdoctor.system.target.ENDINGS`, with a ``detail`` in words; ``begin``, ``seconds``, ``cpu_seconds`` and
    ``peak_mib`` are those of its answer. ``earlier`` is the ending of a first try in a process with other jobs, if this
    second try, alone, ended well; ``earlier_detail`` says more. ``again``: this is a repetition of a job with a failed
    case.
    """

    job: Job
    observations: tuple[Mapping[str, Any], ...]
    ending: str
    detail: Message = NOTHING
    seconds: float = 0.0
    peak_mib: float | None = None
    begin: Mapping[str, Any] = {}
    cpu_seconds: float | None = None
    earlier: str = ""
    earlier_detail: Message = NOTHING
    again: bool = False

    @property
    def without_torch(self) -> bool:
        """Return whether the import of torch failed or did not end: other jobs would end likewise."""
        return self.ending in NO_TORCH or (not self.begin and self.ending in ("timeout", "crash"))

    @property
    def device(self) -> str:
        """Return the device that the child chose, if the choice was left to it."""
        return str(self.begin.get("device", self.job.device))


def run_jobs(
    jobs: Sequence[Job],
    place: Place,
    *,
    workers: int = 1,
    again: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    keep: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run all jobs, ``workers`` processes at a time, and return their outcomes in the order of the jobs; ``again``
    marks them as those of jobs that had been done.

    ``tell`` hears what is going on, ``keep`` each outcome as soon as its process has ended; both are called in this
    thread. An interrupt ends the children that run. Once torch cannot be imported, no further child tries.
    """
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    bundles = _bundles(jobs)
    run = _Run(place)
    outcomes: dict[int, Outcome] = {}
    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="probe") as pool:
        try:
            waiting = {pool.submit(run.bundle, [jobs[number] for number in bundle]): bundle for bundle in bundles}
            while waiting:
                futures, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in futures:
                    for number, outcome in zip(waiting.pop(future), future.result(), strict=True):
                        outcomes[number] = outcome._replace(again=again)
                        keep(outcomes[number])
                tell(Message("{} of {} done   {}", len(outcomes), len(jobs), "   ".join(sorted(run.now.values()))))
        except BaseException:
            run.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [outcomes[number] for number in sorted(outcomes)]


def _bundles(jobs: Sequence[Job]) -> list[list[int]]:
    """Return the places of the jobs that share a process: the context first, then the longest."""
    shared: dict[object, list[int]] = {}
    for number, job in enumerate(jobs):
        shared.setdefault(number if job.alone else frozenset(job.needs), []).append(number)

    def rank(bundle: list[int]) -> tuple[bool, float]:
        return jobs[bundle[0]].probe != FIRST, -sum(jobs[number].seconds for number in bundle)

    return sorted(shared.values(), key=rank)


class _Run:
    """Processes that run at the same time; ``now`` is the present work of each thread, in words."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.stop = threading.Event()
        self.now: dict[int, str] = {}
        self._hopeless: Outcome | None = None

    def bundle(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs of one device one after another in one child; one outcome a job.

        When the child dies, each job that was not done gets a child of its own, so that only the job to blame fails.
        The ending of the shared child stays with the job that ran then.
        """
        if self._hopeless is not None and "torch" in jobs[0].needs:
            return [self._like_the_hopeless(job) for job in jobs]
        me = threading.get_ident()

        def heard(task: int, records: int) -> None:
            self.now[me] = f"{jobs[task].label}: {records}"

        tasks = [job.task() for job in jobs]
        answers = run_in_target(tasks, self.place, heard=heard, until=self.stop.is_set)
        self.now.pop(me, None)
        outcomes: list[Outcome] = []
        for job, answer in zip(jobs, answers, strict=True):
            outcome = outcome_of(job, answer)
            if outcome.without_torch:
                self._hopeless = outcome
            elif self._hopeless is not None and answer.ending == "unreached":
                outcome = self._like_the_hopeless(job)
            elif len(jobs) > 1 and not self.stop.is_set() and (answer.died or answer.ending == "unreached"):
                outcome = self._alone(outcome)
            outcomes.append(outcome)
        return outcomes

    def _alone(self, first: Outcome) -> Outcome:
        """Run the job in a process of its own. If it ends well there, the outcome has its first ending too."""
        (second,) = self.bundle([first.job])
        if second.ending != "ok" or first.ending not in _TOLD_ONCE:
            return second
        return second._replace(earlier=first.ending, earlier_detail=first.detail)

    def _like_the_hopeless(self, job: Job) -> Outcome:
        """Return the outcome of a job that is not tried, because it would end like another job."""
        assert self._hopeless is not None
        return Outcome(job, (), self._hopeless.ending, self._hopeless.detail)


def outcome_of(job: Job, answer: ChildAnswer) -> Outcome:
    """Return the outcome of a job from its task's answer, with the observations stamped."""
    stamp = {"probe": job.probe, "device": answer.begin.get("device", job.device)}
    stamp.update({name: value for name, value in (("dtype", job.dtype), ("backend", job.backend)) if value is not None})
    observations = tuple({**stamp, **record} for record in answer.records)
    ended = answer.ending, answer.detail, answer.seconds, answer.peak_mib, answer.begin, answer.cpu_seconds
    return Outcome(job, observations, *ended)
