"""One run of the experiments: the context, then the wishes on the device that it found, then what failed once more.
Jobs share a process if they may; if the process dies, the job to blame is found."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from envdoctor.experiments.probe.catalogue import FIRST, UNUSABLE, Job, Outcome, Probe, outcome_of
from envdoctor.experiments.probe.verdict import Verdict, float_of, judge, params_of, text_of, twin_of
from envdoctor.facts.values import Records, Unknown, Value
from envdoctor.system.asking import processors
from envdoctor.system.message import Message
from envdoctor.system.target import Place, run_in_target

#: Two children at once need this much memory free beside what they are allowed, in MiB.
_SPARE_MIB = 1024
#: A job that took longer is not done again, in seconds.
_LONGEST_AGAIN = 120.0

#: Endings in a shared process that are kept even if the job ends well alone. Output and memory are limited for all jobs
#: of a process together: reaching those limits says nothing about the last job.
_TOLD_ONCE = ("timeout", "killed", "crash", "garbage", "failed", "lost")

#: Verdicts that are doubted until a second run repeats them.
DOUBTED = ("fail", "error")
_UNLIKE = "unlike-answers"
#: Numbers of the same input that differ by more than this share are two answers. Between processes of one healthy
#: machine, those of a CPU do not differ at all; atomics of a GPU change the last digits.
_APART = 0.1
_MEASURED = ("o", "dq", "dk", "dv", "d0", "d1", "d2", "dx", "dw", "relative", "difference", "e1", "eN")


class Wishes(NamedTuple):
    """What to run: the chosen ``probes`` (``by_name`` or those of the ``suite``), on ``device`` auto, cpu or
    cuda, with the folder of a model, the facts of the recipe without their prefix, the import statements
    (``entries``), and the ``seed`` of all inputs."""

    probes: Sequence[Probe]
    by_name: bool = False
    suite: str = "quick"
    device: str = "auto"
    model: str | None = None
    recipe: Mapping[str, Any] = {}
    entries: Sequence[str] = ()
    seed: int | None = None


class Session(NamedTuple):
    """The outcomes of a run. ``device`` is cpu or cuda, None if torch cannot be used at all; then ``unusable`` is the
    outcome that says so. ``environment`` has the records of the context probe, by case. ``seconds`` is the time of the
    whole run; for a recording, the time of its children together."""

    outcomes: Sequence[Outcome]
    device: str | None
    unusable: Outcome | None
    environment: Mapping[str, Mapping[str, Any]]
    seconds: float


def run_session(
    context: Probe,
    wishes: Wishes,
    place: Place,
    *,
    cpu_for_sure: bool = False,
    workers: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
    keep: Callable[[Outcome], None] = lambda outcome: None,
) -> Session:
    """Run the experiments. The context comes first and alone, because it says whether torch works and which device
    there is; when that can only be the CPU (``cpu_for_sure``), it runs beside the others. ``workers`` processes at a
    time; None leaves it to cores and memory. A failed job runs again, in a new process and once more in the same: a
    faulty machine gives two answers, a faulty program repeats its own."""
    started = time.monotonic()
    run = partial(run_jobs, place=place, tell=tell, keep=keep)
    first = context.jobs(wishes.suite, "cpu" if cpu_for_sure else wishes.device, by_name=True, seed=wishes.seed)
    if cpu_for_sure:
        jobs = [*first, *_jobs(wishes, "cpu")]
        outcomes = run(jobs, workers=workers or _workers(jobs))
    else:
        outcomes = run(first)
        session = session_of(outcomes)
        if session.device is None:
            outcomes += run([job for job in _jobs(wishes, "cpu") if "torch" not in job.needs])
        else:
            emulated = session.environment.get("device", {}).get("bf16") is False
            jobs = _jobs(wishes, session.device, emulated=emulated)
            outcomes += run(jobs, workers=workers or (_workers(jobs) if session.device == "cpu" else 1))
    doubted = _jobs_again(outcomes)
    if doubted:
        last = [replace(job, begun=True) for job in doubted]
        outcomes += run([*reversed(doubted), *last], again=True, workers=workers or 1)
    return session_of(outcomes)._replace(seconds=time.monotonic() - started)


def _jobs_again(outcomes: Sequence[Outcome]) -> list[Job]:
    """Return the jobs with a failed case that are short enough to repeat, now in one process with others: a fault of
    every n-th call then strikes elsewhere; in the last run also if a job makes a multiple of n calls."""
    return [
        replace(outcome.job, alone=False)
        for outcome in outcomes
        if outcome.ending == "ok" and outcome.seconds <= _LONGEST_AGAIN and not outcome.job.entries
        if any(case.verdict.verdict in DOUBTED for case in cases_of([outcome]))
    ]


def _jobs(wishes: Wishes, device: str, *, emulated: bool = False) -> list[Job]:
    """Return the jobs of the wishes on a device, without the context.

    On a card where bf16 is ``emulated`` (V100, T4) training runs fp16: so do these, unless the recipe says bf16.
    """
    settings: dict[str, Any] = {name: getattr(wishes, name) for name in ("model", "recipe", "entries", "seed")}
    jobs = [
        job
        for probe in wishes.probes
        if probe.name != FIRST
        for job in probe.jobs(wishes.suite, device, by_name=wishes.by_name, **settings)
    ]
    if emulated and wishes.recipe.get("dtype") != "bf16":
        halves = (replace(job, dtype="fp16") if job.dtype == "bf16" else job for job in jobs)
        return list({job.label: job for job in halves}.values())
    return jobs


def session_of(outcomes: Sequence[Outcome]) -> Session:
    """Return the session of these outcomes, also from a recording."""
    before_torch = (outcome for outcome in outcomes if outcome.job.probe == FIRST and not outcome.begin)
    dead = [outcome for outcome in before_torch if outcome.ending != "ok"]
    unusable = next((outcome for outcome in outcomes if outcome.ending in UNUSABLE or outcome in dead), None)
    devices = [outcome.device for outcome in outcomes if outcome.device in ("cpu", "cuda")]
    environment: dict[str, Mapping[str, Any]] = {}
    for outcome in outcomes:
        for observation in outcome.observations:
            if observation.get("kind") == "environment":
                environment.setdefault(str(observation.get("case")), observation)
    device = devices[0] if devices and unusable is None else None
    return Session(outcomes, device, unusable, environment, sum(outcome.seconds for outcome in outcomes))


def in_use(session: Session, gpus: Value, accelerators: Value) -> bool | Unknown:
    """Return whether training here would use the probed device: only then may its results fail a run.

    ``gpus`` and ``accelerators`` are the facts of the machine. Beside an accelerator the CPU is not the device in use,
    whether torch can use that accelerator or not. If the driver was not asked, a machine without a trace of one trains
    on its CPU.
    """
    if session.device != "cpu":
        return session.device == "cuda"
    if session.environment.get("build", {}).get("accelerators"):
        return False
    if isinstance(gpus, Records) and len(gpus):
        return False
    kinds = set(accelerators) if isinstance(accelerators, tuple) else None
    if kinds and kinds != {"nvidia"}:
        return False
    match gpus:
        case Unknown() if kinds == set():
            return True
        case Unknown(reason=reason) | Records(incomplete=str() as reason):
            return Unknown(Message("whether there is a GPU is not known: {}", reason))
    return True


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


def _workers(jobs: Sequence[Job]) -> int:
    """Return how many children run at a time on a CPU: each has one thread, so two cores run two if memory allows."""
    needed = 2 * max((job.memory_mib for job in jobs), default=0) + _SPARE_MIB
    free = _free_mib()
    return 2 if processors() >= 2 and free is not None and free >= needed else 1


def _free_mib() -> int | None:
    """Return the free memory in MiB, by the system and the container's limit; None if unknown."""
    sizes: list[int] = []
    with suppress(OSError, ValueError):  # no limit, or no such file
        with open("/proc/meminfo") as file:
            sizes += [int(line.split()[1]) >> 10 for line in file if line.startswith("MemAvailable")]
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as current:
            sizes.append((int(most.read()) - int(current.read())) >> 20)
    return min(sizes, default=None)


class JudgedCase(NamedTuple):
    """One observation with its verdict."""

    observation: Mapping[str, Any]
    verdict: Verdict

    def param(self, name: str) -> str | None:
        """Return a parameter of the case as text."""
        return text_of(params_of(self.observation), name)

    @property
    def title(self) -> str:
        """Return the case in a line: its name, or its parameters."""
        name = self.observation.get("case")
        if isinstance(name, str) and name:
            return name[:300]
        return " ".join(f"{key}={value}" for key, value in params_of(self.observation).items())[:300]


def cases_of(outcomes: Iterable[Outcome]) -> list[JudgedCase]:
    """Return every observation that is a case, judged, in the order in which they came.

    A case that failed in one run and gave another answer to the same input in another is "unlike-answers", as are all
    failed cases of its job.
    """
    once = [outcome for outcome in outcomes if not outcome.again]
    repeated: dict[_Same, list[JudgedCase]] = {}
    for outcome in outcomes:
        for same, case in _keyed_cases(outcome) if outcome.again else ():
            repeated.setdefault(same, []).append(case)
    cases = _judge_cases([observation for outcome in once for observation in outcome.observations])
    if not repeated and not any("again" in case.observation for case in cases):
        return cases
    names = [same for outcome in once for same, _ in _keyed_cases(outcome)]
    doubted = [
        _doubted(case, [*_other_answer(case), *repeated.get(same, ())]) for same, case in zip(names, cases, strict=True)
    ]
    shaken = {same[0] for same, case in zip(names, doubted, strict=True) if case.verdict.signature == _UNLIKE}
    return [_shaken(case) if same[0] in shaken else case for same, case in zip(names, doubted, strict=True)]


_Same = tuple[str, str, str, int]


def _judge_cases(observations: Sequence[Mapping[str, Any]]) -> list[JudgedCase]:
    """Return the observations that are cases, judged; one that fails only with padding is named after the mask.

    A padded batch takes another path through attention than a batch of equal lengths (an explicit mask instead of
    ``is_causal``). So a wrong padded case (``params.padding`` other than "none") whose twin, equal in all other
    parameters, is clean with equal lengths (``params.padding`` "none") is "mask-differs" or "mask-nan".
    """
    cases = [JudgedCase(entry, verdict) for entry in observations if (verdict := judge(entry)) is not None]
    equal = [case for case in cases if case.param("padding") == "none" and case.verdict.verdict == "pass"]
    clean = {twin_of(case.observation) for case in equal}
    for place, (entry, verdict) in enumerate(cases):
        padded = verdict.signature.startswith("batch-") and cases[place].param("padding") not in (None, "none")
        if padded and twin_of(entry) in clean:
            word = verdict.signature.replace("batch-", "mask-", 1)
            why = Message("{}; a batch of equal lengths, which needs no mask, is right", verdict.why)
            cases[place] = JudgedCase(entry, verdict._replace(signature=word, why=why))
    return cases


def _keyed_cases(outcome: Outcome) -> list[tuple[_Same, JudgedCase]]:
    """Return the cases of a job, each with the key that it has in every run of that job."""
    count: Counter[tuple[str, str, str]] = Counter()
    pairs = []
    for case in _judge_cases(outcome.observations):
        name = (outcome.job.label, case.title, str(case.observation.get("dtype")))
        count[name] += 1
        pairs.append(((*name, count[name]), case))
    return pairs


def _other_answer(case: JudgedCase) -> list[JudgedCase]:
    """Return the case with the answer of its operation's second call, if that answer was another."""
    match case.observation.get("again"):
        case {**again}:
            return _judge_cases([{**case.observation, **{str(key): value for key, value in again.items()}}])
    return []


def _doubted(case: JudgedCase, others: Sequence[JudgedCase]) -> JudgedCase:
    """Return the case; its verdict is "unlike-answers" if the same input gave a right and a wrong answer."""
    wrong = next((answer for answer in (case, *others) if answer.verdict.verdict in DOUBTED), None)
    other = next((answer for answer in others if _unlike(case, answer)), None)
    if wrong is None or other is None:
        return case
    texts = [answer.verdict.why or Message("what is right") for answer in (case, other)]
    reason = Message("the same input gave: {}; and again: {}: suspect hardware, a race or clocks", *texts)
    return case._replace(verdict=Verdict("fail", _UNLIKE, wrong.verdict.tensors, None, reason))


def _shaken(case: JudgedCase) -> JudgedCase:
    """Return the case; its verdict changes if other cases of its job gave two answers."""
    if case.verdict.verdict not in DOUBTED or case.verdict.signature == _UNLIKE:
        return case
    reason = Message("{}; other cases of this experiment gave two answers to the same input", case.verdict.why)
    return case._replace(verdict=Verdict("fail", _UNLIKE, case.verdict.tensors, None, reason))


def _unlike(case: JudgedCase, other: JudgedCase) -> bool:
    """Return whether two results of the same input are two answers: another verdict, or numbers that are far apart.

    An exception of Python does not count as an answer: a program may raise only until something has been made.
    """
    first, second = case.verdict, other.verdict
    if "error" in (first.signature, second.signature):
        return False
    if (first.verdict in DOUBTED, first.signature) != (second.verdict in DOUBTED, second.signature):
        return first.verdict in DOUBTED or second.verdict in DOUBTED
    before, after = _measures(case), _measures(other)
    pairs = [(before[name], after[name]) for name in _MEASURED]
    return any(abs(value - again) > _APART * max(value, again) for value, again in pairs)


def _measures(case: JudgedCase) -> dict[str, float]:
    """Return the measured values by name."""
    observation = case.observation
    ratios = observation.get("ratio")
    fields = {**(ratios if isinstance(ratios, dict) else {}), **observation}
    return {name: float_of(fields.get(name)) for name in _MEASURED}
