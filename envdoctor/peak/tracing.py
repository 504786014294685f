"""Traces from a bounded child of the target's interpreter, or from envdoctor's own cache."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from envdoctor.peak.section import MemoryProblem
from envdoctor.peak.sizes import of_language, size_of
from envdoctor.system.cache import CacheFolder
from envdoctor.system.message import Message, as_message, unpacked
from envdoctor.system.target import PAYLOAD, Place, Task, run_in_target

_SECONDS = 240.0
_MEMORY_MIB = 4000
_LARGEST = 4 << 20
_MOST_KEPT = 200
#: Modules without which there is no trace.
_NEEDS = ("torch", "transformers")


Job = Mapping[str, Any]


class Trace(NamedTuple):
    """What one job gave: ``model`` (depth, parameters, …), and its points: layers, tokens, and by segment of the step
    the live bytes by what they hold, with the operation at the most. Where it comes from shipped coefficients,
    ``release`` is the transformers that they are of, ``near`` the form that was taken where none is about the job, and
    ``residuals`` are, by measure, the published readings ``residuals_of`` such runs as shares of the live bytes.
    ``apart`` are bytes that may be there too, ``absent`` bytes that may not be there, and ``halfway`` those that by a
    framework's own code are not there and that readings show half of."""

    model: Mapping[str, Any]
    points: tuple[Mapping[str, Any], ...]
    release: str = ""
    near: str = ""
    residuals_of: str = ""
    residuals: Mapping[str, Any] = {}
    apart: float = 0.0
    absent: float = 0.0
    halfway: float = 0.0


#: Where traces come from: it returns a trace for each job, or a sentence that says why it has no trace.
TraceSource: TypeAlias = Callable[[Sequence[Job]], list[Trace | str]]


def changed(source: TraceSource, change: Callable[[Trace, Job], Trace | str]) -> TraceSource:
    """Return the traces of ``source`` after a ``change``, and its sentences as they are."""

    def run(jobs: Sequence[Job]) -> list[Trace | str]:
        traces = zip(jobs, source(jobs), strict=True)
        return [trace if isinstance(trace, str) else change(trace, job) for job, trace in traces]

    return run


def with_terms(trace: Trace, change: Callable[[Mapping[str, float]], Mapping[str, float]]) -> Trace:
    """Return the trace with the terms of each segment changed; what the allocator holds changes as the peak does."""
    points = []
    for point in trace.points:
        segments = {}
        for name, (_, operation, terms) in point["segments"].items():
            new = change(terms)
            segments[name] = [sum(new.values()), operation, new]
        points.append({**point, "segments": segments})
        if "held_bytes" in point:
            before, after = (max(size for size, *_ in at["segments"].values()) for at in (point, points[-1]))
            points[-1]["held_bytes"] = point["held_bytes"] * after / before
    return trace._replace(points=tuple(points))


def of_vocabulary(source: TraceSource, most: int) -> TraceSource:
    """Return traces of ``source`` that have apart what logits take more, and embeddings where other weights are packed,
    if the vocabulary is ``most`` tokens."""

    def change(trace: Trace, job: Job) -> Trace:
        config = of_language(job["config"])
        hidden, now = size_of(config, "hidden_size"), size_of(config, "vocab_size")
        (*_, point) = sorted(trace.points, key=lambda point: (point["layers"], point["tokens"]))
        sizes = [(size, terms.get("logits and loss", 0.0)) for size, _, terms in point["segments"].values()]
        added = max(most - now, 0)
        more = max(size + added / now * logits for size, logits in sizes) - max(size for size, _ in sizes)
        return trace._replace(apart=trace.apart + more + (2.0 * added * hidden if job["quantized"] else 0.0))

    return changed(source, change)


def first_of(first: TraceSource, second: TraceSource) -> TraceSource:
    """Return the first source's trace for each job, else the second's, else why the first has no trace."""

    def run(jobs: Sequence[Job]) -> list[Trace | str]:
        traces = first(jobs)
        places = [place for place, trace in enumerate(traces) if isinstance(trace, str)]
        for place, trace in zip(places, second([jobs[place] for place in places]), strict=True):
            traces[place] = trace if isinstance(trace, Trace) else traces[place] or trace
        return traces

    return run


def rehearsed(shipped: TraceSource, predict: Callable[[TraceSource], object]) -> list[Job]:
    """Return the jobs that ``predict`` asks a tracer for, if traces are as the coefficients of ``shipped`` say."""
    jobs = list[Job]()

    def as_traced(trace: Trace, job: Job) -> Trace:
        jobs.append(job)
        return trace if job.get("untraced") else Trace(trace.model, trace.points)

    with suppress(MemoryProblem):
        predict(changed(shipped, as_traced))
    return jobs


class Tracer:
    """Runs jobs at ``place``; without one it knows what is in the cache alone. ``versions`` are those of the packages
    that decide; where one is not known, or names no released code, nothing is taken from the cache or kept there.
    ``foreseen`` returns jobs that may come later: the first child traces them too, because to import torch and
    transformers takes longer than to trace three of them."""

    def __init__(
        self,
        place: Place | None,
        versions: Mapping[str, str | None],
        cache: str | None,
        foreseen: Callable[[], Sequence[Job]] = tuple,
    ) -> None:
        self._place, self._versions, self._foreseen = place, versions, foreseen
        released = all(version and "dev" not in version and "+git" not in version for version in versions.values())
        self._cache = CacheFolder(cache if released else None, "memory", _MOST_KEPT)
        self._code = b"".join(path.read_bytes() for path in sorted(Path(PAYLOAD, "tracing").glob("*.py")))
        self._answers: dict[str, Trace | str] = {}

    def run(self, jobs: Sequence[Job]) -> list[Trace | str]:
        """Return a trace for each job, or a sentence that says why it has no trace."""
        if self._place is not None and self._missing(jobs):
            foreseen, self._foreseen = self._foreseen(), tuple
            self._trace(self._missing([*jobs, *foreseen]), self._place)
        return [self._answer(job) for job in jobs]

    def _answer(self, job: Job) -> Trace | str:
        """Return what is known of the job, its lengths together."""
        whole = Trace({}, ())
        for tokens in job["tokens"]:
            trace = "" if job.get("untraced") else self._known(job, tokens) or ""
            if isinstance(trace, str):
                return trace
            whole = trace._replace(points=whole.points + trace.points)
        return whole

    def _missing(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs of which nothing is known, each once and with the lengths that are missing."""
        missing: dict[str, dict[str, Any]] = {}
        for job in jobs:
            lengths = [] if job.get("untraced") else [n for n in job["tokens"] if self._known(job, n) is None]
            if lengths:
                before = missing.setdefault(self._key(job, 0), {**job, "tokens": []})["tokens"]
                before += [tokens for tokens in lengths if tokens not in before]
        return [*missing.values()]

    def _known(self, job: Job, tokens: int) -> Trace | str | None:
        """Return what this process or the cache knows of the job at one length."""
        key = self._key(job, tokens)
        kept = None if key in self._answers else self._cache.read(key, _LARGEST)
        if kept is not None:
            self._answers[key] = _trace(json.loads(bytes(kept)))
        return self._answers.get(key)

    def _trace(self, jobs: Sequence[Job], place: Place) -> None:
        """Trace the jobs in one child, and keep what it says; of those that it did not reach nothing."""
        tasks = [
            Task("tracing/trace.py", job, _NEEDS + (("peft",) if job["lora"] else ()), _SECONDS, _MEMORY_MIB)
            for job in jobs
        ]
        for job, answer in zip(jobs, run_in_target(tasks, place), strict=True):
            for tokens in job["tokens"]:
                records = [record for record in answer.records if record.get("tokens", tokens) == tokens]
                if answer.ending == "ok":
                    trace = _trace(records)
                else:
                    trace = Message("the model could not be traced: {}: {}", answer.ending, answer.detail)
                if isinstance(trace, Trace):
                    self._cache.write(self._key(job, tokens), json.dumps(records).encode())
                if answer.ending != "unreached":
                    self._answers[self._key(job, tokens)] = trace

    def _key(self, job: Job, tokens: int) -> str:
        """Return the key of the job at one length, the code that it runs, and the code of the trace."""
        own = {name: value for name, value in job.items() if name not in ("tokens", "untraced")}
        text = json.dumps([own, tokens, self._versions], sort_keys=True).encode()
        return hashlib.sha256(text + self._code).hexdigest() + ".json"


def _trace(records: Sequence[Mapping[str, Any]]) -> Trace | str:
    cases: dict[object, list[Mapping[str, Any]]] = {}
    for record in records:
        if record.get("case") == "refused":
            return as_message(unpacked(record.get("refusal")))
        if record.get("case") == "needs":
            return str(record.get("skip") or record.get("error"))
        cases.setdefault(record.get("case"), []).append(record)
    known = "model" in cases and "point" in cases
    return Trace(cases["model"][0], tuple(cases["point"])) if known else Message("the trace gave no numbers")
