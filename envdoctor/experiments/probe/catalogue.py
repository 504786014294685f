"""The experiments, read as text from ``payload/probes`` and never imported here; their jobs and outcomes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.system.message import NOTHING, Message, MessageError, did_you_mean
from envdoctor.system.target import NO_TORCH, PAYLOAD, ChildAnswer, Task

__all__ = ["FIRST", "PAYLOAD", "SUITES", "CatalogueError", "Job", "Probe", "choose", "find_probes", "has_probe"]

#: From the shortest to the longest.
SUITES = ("quick", "full", "long")
#: A suite of its own beside these: the experiments on the card itself.
CARD = "card"
#: Runs first in every session: its record describes the device of every other result.
FIRST = "context"

_RESERVED = ("dtype", "backend", "devices", "seconds", "options")
_OF_JOBS = ("needs", "alone", "memory_mib", "gpu_memory_mib")
_SECONDS = {"cpu": 60.0, "cuda": 120.0}
#: A probe that is done in this time shares a process with others; it does so on a limit of its own only.
_QUICK_SECONDS = 60.0
#: What a first import of torch may take on top, from a network disk.
_IMPORT_SECONDS = 30.0
_MEMORY_MIB = 1500
#: Of the device, beside the context: what a probe may take at most.
_GPU_MEMORY_MIB = 8192

#: Endings after which no probe can run with this torch on this device.
UNUSABLE = (*NO_TORCH, "no-device")


class CatalogueError(MessageError, ValueError):
    """A probe's file cannot be used, or the probe does not exist; the message names it."""


@dataclass(frozen=True)
class Job:
    """A probe on one device, in one dtype, with one backend.

    ``script`` is the file in the payload, with the name of the function. ``seconds`` is its time limit; ``memory_mib``
    its memory beside mapped files, ``gpu_memory_mib`` that of the device (None: no limit). ``recipe`` holds the facts
    of the recipe without their prefix (``{"dtype": "bf16"}``), ``entries`` the import statements of a probe that runs
    these. Inputs are drawn from ``seed`` (None: unknown, as in old recordings; the child then takes 0). Jobs that
    import the same modules (``needs``) share a process, so that torch is imported once. Jobs that measure the process
    itself or may bring it down run ``alone``. ``speeds`` are the published speeds of cards (table ``gpu-speeds``). A
    ``begun`` job first runs to its first observation, which is dropped: its calls then come at other times.
    """

    probe: str
    device: str
    suite: str
    dtype: str | None = None
    backend: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ("torch",)
    seconds: float = 60.0
    memory_mib: int = _MEMORY_MIB
    gpu_memory_mib: int | None = _GPU_MEMORY_MIB
    alone: bool = False
    speeds: Sequence[Mapping[str, Any]] = ()
    entries: tuple[str, ...] = ()
    script: str = ""
    seed: int | None = None
    begun: bool = False

    @cached_property
    def label(self) -> str:
        """Return the job in words: ``attention bf16 default``."""
        spelled = [str(value) if isinstance(value, str) else f"{key}={value}" for key, value in self.options.items()]
        return " ".join(word for word in (self.probe, self.dtype, self.backend, *spelled) if word)

    def task(self) -> Task:
        """Return the task for the child."""
        names = ("device", "suite", "dtype", "backend", "model", "options", "recipe", "entries", "speeds")
        job = {**{name: getattr(self, name) for name in names}, "seed": self.seed or 0}
        if self.begun:
            job["begun"] = True
        return Task(self.script, job, self.needs, self.seconds, self.memory_mib, self.gpu_memory_mib)


class Outcome(NamedTuple):
    """The outcome of one job.

    ``observations`` carry probe, device, dtype and backend of the job. ``ending`` is one of
    :data:`~envdoctor.system.target.ENDINGS`, with a ``detail`` in words; ``begin``, ``seconds``, ``cpu_seconds`` and
    ``peak_mib`` are those of its answer. ``earlier`` is the ending of a first try in a process with other jobs, if this
    second try, alone, ended well; ``earlier_detail`` says more. ``again``: the job had a failed case before.
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


def outcome_of(job: Job, answer: ChildAnswer) -> Outcome:
    """Return the outcome of a job from its task's answer, with the observations stamped."""
    stamp = {"probe": job.probe, "device": answer.begin.get("device", job.device)}
    stamp.update({name: value for name, value in (("dtype", job.dtype), ("backend", job.backend)) if value is not None})
    observations = tuple({**stamp, **record} for record in answer.records)
    ended = answer.ending, answer.detail, answer.seconds, answer.peak_mib, answer.begin, answer.cpu_seconds
    return Outcome(job, observations, *ended)


@dataclass(frozen=True)
class Probe:
    """One experiment, as its file declares it by name in the literal ``PROBES``.

    ``settles`` are the names by which rules ask for it (by default its own name), ``attention`` the implementation of
    attention that it runs (sdpa, flash-attn; "backend" if that names it), ``suites`` its jobs by suite, each
    as its differences from ``usual``; ``seconds`` the limit of one job by device, ``cuda_memory_mib`` the memory limit
    on a GPU if it differs. ``entries``: it runs import statements of installed packages.
    """

    name: str
    title: str
    settles: tuple[str, ...]
    suites: Mapping[str, Sequence[Mapping[str, Any]]]
    seconds: Mapping[str, float]
    usual: Job
    attention: str | None = None
    cuda_memory_mib: int | None = None
    entries: bool = False

    def jobs(
        self, suite: str, device: str, *, by_name: bool = False, entries: Sequence[str] = (), **settings: Any
    ) -> list[Job]:
        """Return the jobs of a suite on a device, with ``settings``: ``model``, ``recipe`` and ``seed``.

        A probe without a list for a longer suite runs that of the next shorter one; ``by_name``, it runs its shortest
        list if it is in no suite up to this one. The suite ``card`` has only the probes that name it.
        """
        upto = (CARD,) if suite == CARD else SUITES[: SUITES.index(suite) + 1]
        names = [*reversed(upto), *(SUITES[len(upto) * (suite != CARD) :] if by_name else ())]
        selection = next((self.suites[name] for name in names if self.suites.get(name)), ())
        limit = self.seconds["cpu" if device == "cpu" else "cuda"]
        first_import = _IMPORT_SECONDS if "torch" in self.usual.needs else 0.0
        if device == "cuda" and self.cuda_memory_mib:
            settings["memory_mib"] = self.cuda_memory_mib
        return [
            replace(
                self.usual,
                device=device,
                suite=suite,
                dtype=entry.get("dtype"),
                backend=entry.get("backend"),
                options={**entry.get("options", {}), **{key: entry[key] for key in entry if key not in _RESERVED}},
                seconds=float(entry.get("seconds", limit)) + first_import,
                entries=tuple(entries) if self.entries else (),
                **settings,
            )
            for entry in selection
            if device == "auto" or device in entry.get("devices", (device,))
        ]


def find_probes(payload: Path = PAYLOAD) -> dict[str, Probe]:
    """Return all probes by name, ``context`` first and then in alphabetical order. Raises :class:`CatalogueError`."""
    files = [path for path in (payload / "probes").glob("*.py") if path.name != "__init__.py"]
    probes = [probe for path in files for probe in _read(path)]
    return {probe.name: probe for probe in sorted(probes, key=lambda probe: (probe.name != FIRST, probe.name))}


def has_probe(name: str, payload: Path = PAYLOAD) -> bool:
    """Return whether a file declares this probe, without parsing it: for a report that mentions the probe."""
    texts = (path.read_text("utf-8") for path in (payload / "probes").glob("*.py"))
    return any("\nPROBES = " in text and f'\n    "{name}": {{' in text for text in texts)


def choose(probes: Mapping[str, Probe], names: Iterable[str]) -> list[Probe]:
    """Return the probes that have, or settle, these names. Raises :class:`CatalogueError`."""
    selection: list[Probe] = []
    for name in names:
        matches = [probe for probe in probes.values() if name == probe.name or name in probe.settles]
        if not matches:
            hint = did_you_mean(name, probes, Message("`envdoctor probe --list` names them"))
            raise CatalogueError("there is no probe {}; {}", repr(name[:60]), hint)
        selection += [probe for probe in matches if probe not in selection]
    return selection


def _read(path: Path) -> list[Probe]:
    """Return the probes that a file declares."""
    import ast

    try:
        for node in ast.parse(path.read_bytes(), str(path)).body:
            match node:
                case ast.Assign([ast.Name("PROBES")], value):
                    return [_probe(name, path, entry) for name, entry in ast.literal_eval(value).items()]
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CatalogueError("{}: {}: {}", path, type(error).__name__, error) from None
    raise CatalogueError("{}: it declares no PROBES", path)


def _rows(entry: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the jobs of an entry, whose dtype or backend may be a list."""
    listed = {key: entry[key] for key in ("dtype", "backend") if isinstance(entry.get(key), list)}
    return [{**entry, **dict(zip(listed, combination, strict=True))} for combination in product(*listed.values())]


def _probe(name: str, path: Path, literal: Mapping[str, Any]) -> Probe:
    suites = literal.get("suites", {"quick": [{}]})
    if set(suites) - {*SUITES, CARD}:
        raise ValueError(f"suites are {', '.join((*SUITES, CARD))}")
    suites = {suite: [row for entry in entries for row in _rows(entry)] for suite, entries in suites.items()}
    if "quick" in suites:
        suites = {"full": suites["quick"], **suites}
    seconds = {**_SECONDS, **literal.get("seconds", {})}
    usual: dict[str, Any] = {"alone": seconds["cpu"] > _QUICK_SECONDS}
    usual |= {key: literal[key] for key in _OF_JOBS if key in literal}
    usual["needs"] = tuple(literal.get("needs", ("torch",)))
    columns: dict[str, Any] = {
        **{key: literal[key] for key in literal if key not in _OF_JOBS},
        "settles": tuple(literal.get("settles", (name,))),
        "suites": {suite: suites[suite] for suite in (*SUITES, CARD) if suite in suites},
        "seconds": seconds,
    }
    script = f"probes/{path.name}:{name.replace('-', '_')}"
    return Probe(name, usual=Job(name, "cpu", SUITES[0], script=script, **usual), **columns)
