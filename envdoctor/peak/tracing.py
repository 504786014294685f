"""Traces from a bounded child of the target's interpreter, or from envdoctor's own cache."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from envdoctor.system.cache import CacheFolder
from envdoctor.system.message import Message, as_message, unpacked
from envdoctor.system.target import PAYLOAD, ChildAnswer, Place, Task, run_in_target

_SECONDS = 240.0
_MEMORY_MIB = 4000
_LARGEST = 4 << 20
_MOST_KEPT = 200


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


class TraceSource(Protocol):
    """Where traces come from."""

    def run(self, jobs: Sequence[Mapping[str, Any]]) -> list[Trace | str]:
        """Return a trace for each job, or a sentence that says why it has no trace."""


class Changed(NamedTuple):
    """Traces of ``source`` after a ``change``, and its sentences as they are."""

    source: TraceSource
    change: Callable[[Trace, Job], Trace]

    def run(self, jobs: Sequence[Job]) -> list[Trace | str]:
        """Return a trace for each job, or a sentence that says why it has no trace."""
        traces = zip(jobs, self.source.run(jobs), strict=True)
        return [one if isinstance(one, str) else self.change(one, job) for job, one in traces]


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
            before, after = (max(size for size, *_ in one["segments"].values()) for one in (point, points[-1]))
            points[-1]["held_bytes"] = point["held_bytes"] * after / before
    return trace._replace(points=tuple(points))


class FirstOf(NamedTuple):
    """Asks ``second`` for what ``first`` has not."""

    first: TraceSource
    second: TraceSource

    def run(self, jobs: Sequence[Mapping[str, Any]]) -> list[Trace | str]:
        """Return the first source's trace for each job, else the second's, else why the first has no trace."""
        found = self.first.run(jobs)
        left = [place for place, one in enumerate(found) if isinstance(one, str)]
        for place, one in zip(left, self.second.run([jobs[place] for place in left]), strict=True):
            found[place] = one if isinstance(one, Trace) else found[place] or one
        return found


class Tracer:
    """Runs jobs at ``place``; without one it knows what is in the cache alone. ``versions`` are those of the packages
    that decide; where one is not known, or names no released code, nothing is taken from the cache or kept there."""

    def __init__(self, place: Place | None, versions: Mapping[str, str | None], cache: str | None) -> None:
        self._place = place
        self._versions = versions
        released = all(version and "dev" not in version and "+git" not in version for version in versions.values())
        self._cache = CacheFolder(cache if released else None, "memory", _MOST_KEPT)
        self._code = b"".join(path.read_bytes() for path in sorted(Path(PAYLOAD, "tracing").glob("*.py")))
        self._told: dict[str, Trace] = {}

    def run(self, jobs: Sequence[Mapping[str, Any]]) -> list[Trace | str]:
        """Return a trace for each job, or a sentence that says why it has no trace."""
        found: dict[int, Trace | str] = {}
        for place, key in enumerate(map(self._key, jobs)):
            kept = None if key in self._told else self._cache.read(key, _LARGEST)
            if kept is not None and isinstance(trace := _trace(_records(kept)), Trace):
                self._told[key] = trace
            if key in self._told:
                found[place] = self._told[key]
        left = [place for place in range(len(jobs)) if place not in found]
        known = [place for place in left if self._place is None or jobs[place].get("untraced")]
        found.update(dict.fromkeys(known, ""))
        left = [place for place in left if place not in known]
        if self._place is not None and left:
            needs = [("torch", "transformers", *(["peft"] if jobs[place]["lora"] else [])) for place in left]
            tasks = [
                Task("tracing/trace.py", dict(jobs[place]), modules, seconds=_SECONDS, memory_mib=_MEMORY_MIB)
                for place, modules in zip(left, needs, strict=True)
            ]
            for place, answer in zip(left, run_in_target(tasks, self._place), strict=True):
                found[place] = self._taken(jobs[place], answer)
        return [found[place] for place in range(len(jobs))]

    def _taken(self, job: Mapping[str, Any], answer: ChildAnswer) -> Trace | str:
        if answer.ending != "ok":
            return Message("the model could not be traced: {}: {}", answer.ending, answer.detail)
        trace = _trace(answer.records)
        if isinstance(trace, Trace):
            self._told[self._key(job)] = trace
            self._cache.write(self._key(job), "\n".join(map(json.dumps, answer.records)).encode())
        return trace

    def _key(self, job: Mapping[str, Any]) -> str:
        """Return the key of the job, the code that it runs, and the code of the trace."""
        asked = json.dumps([job, self._versions], sort_keys=True).encode()
        return hashlib.sha256(asked + self._code).hexdigest() + ".jsonl"


def _records(kept: memoryview) -> list[Mapping[str, Any]]:
    """Return the records of an entry; none if anything else stands in it."""
    try:
        records = [json.loads(line) for line in bytes(kept).splitlines()]
    except (ValueError, RecursionError):
        return []
    return records if all(isinstance(record, dict) for record in records) else []


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
