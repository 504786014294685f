"""Recordings of probe runs: everything that verdicts and rules need, as JSON lines that can be judged again anywhere.

The first line is the head (schema, suite, the facts of the environment without what identifies the machine), then one
line a child with its job, observations and ending, in the order in which they ended. Of folders only the last name, or
a word, is written: a recording is made to be handed on.

And experiments on released Python code: if the installed files are the released ones, CI's results hold without a run.
A result depends on the files of a few packages alone, not on card, kernel or build. The table released-experiments has
the results of ``tools/released_experiments.py`` with exact versions.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from envdoctor.experiments.probe.catalogue import PAYLOAD, SUITES, Job, Outcome
from envdoctor.facts.factset import FactSet
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.packages.package_damage import foreign_startup, is_compared
from envdoctor.system.documents import read_bounded
from envdoctor.system.files import because_of
from envdoctor.system.message import Message, MessageError, quoted
from envdoctor.system.target import ENDINGS

#: The experiments, and the packages whose code they run.
NAMES = (
    *("checkpointing", "eval-mode", "grad-accumulation", "lora", "model-code", "save-load"),
    *("trainer-evaluation", "trainer-training"),
)
PACKAGES = ("torch", "transformers", "accelerate", "peft")
#: Packages that replace code of others, when they are imported or called.
_PATCHING = ("unsloth", "unsloth-zoo", "liger-kernel")
_Rows = Callable[[str, str], Sequence[Mapping[str, Any]]]


class ReleasedResults(NamedTuple):
    """Experiments that need not run: the number of right cases of each (``clean``) for these ``versions``. If all run,
    ``why`` says what differs from the table; None if more was asked for."""

    clean: Mapping[str, int] = {}
    versions: str = ""
    why: Message | None = None


#: Nothing is left out, and nothing was looked up.
ALL_RUN = ReleasedResults()


def released(facts: FactSet, rows: _Rows, layout: Layout | None, payload: Path = PAYLOAD) -> ReleasedResults:
    """Return the known results of the installed packages. ``rows`` returns the rows of a table by its name."""
    installed = versions_of(facts)
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    experiments = digest_of(payload)
    alike = [row for row in rows("released-experiments", "combination") if row["experiments"] == experiments]
    row = next((row for row in alike if row["versions"] == installed), None)
    if row is None:
        return ReleasedResults(why=Message("no results are shipped for {}", versions))
    altered = tuple(str(entry["name"]) for entry in rows("installers", "installer"))
    doubt = touched(facts, layout, altered)
    return ReleasedResults(why=doubt) if doubt is not None else ReleasedResults(row["clean"], versions)


def versions_of(facts: FactSet) -> dict[str, str]:
    """Return the versions of the installed packages; of torch without the build, which changes no Python code."""
    versions = {name: facts.text(f"pkg.{name}") for name in PACKAGES}
    return {name: version.partition("+")[0] for name, version in versions.items() if version is not None}


def digest_of(payload: Path = PAYLOAD) -> str:
    """Return a digest of the experiments' own files: results of other files say nothing about these."""
    digest = hashlib.sha256()
    for path in sorted([*payload.glob("probes/*.py"), *payload.glob("probing/*.py")]):
        digest.update(f"{path.relative_to(payload).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def touched(facts: FactSet, layout: Layout | None, altered: tuple[str, ...]) -> Message | None:
    """Return why the code that would run may differ from the released one; None if it is the same."""
    patching = [name for name in _PATCHING if facts.known(f"pkg.{name}")]
    if patching:
        return Message("{} is installed, which replaces code of other packages", patching[0])
    damage, shadows = facts.records("package_damage"), facts.records("import_shadow")
    if layout is None or damage is None or shadows is None or damage.incomplete or shadows.incomplete:
        return Message("whether the installed files are those of the releases is not known")
    if startup := next(iter(foreign_startup(layout)), None):
        return Message("{} runs code when Python starts", startup)
    unlike = {str(item["package"]): item for records in (damage, shadows) for item in records}
    comparable = {
        str(item["name"])
        for item in facts.items("dist")
        if item.get("active") is True and is_compared(item, altered, layout.files)
    }
    for name in versions_of(facts):
        if name in unlike:
            return Message("files of {} are not those that were installed", name)
        if name not in comparable:
            return Message("the files of {} cannot be compared with a list of its release", name)
    return None


SCHEMA = "envdoctor.experiments-recording/1"
#: Bytes of a recording at most; a full run on every backend is 20 MB.
_LARGEST = 256 << 20
#: Numbers that JSON lacks are words, as the children write them.
_CONSTANTS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


class RecordingError(MessageError, ValueError):
    """The file is not a recording; the message names the line."""


class _Recording(NamedTuple):
    """A run that was recorded. ``facts`` is a document of the facts format, ``released`` has the experiments that were
    not run; ``head`` is the rest of the first line."""

    head: Mapping[str, Any]
    facts: Mapping[str, Any]
    outcomes: Sequence[Outcome]
    released: ReleasedResults = ALL_RUN


def write_head(file: IO[str], facts: Mapping[str, Any], **head: object) -> None:
    """Begin a recording."""
    _write(file, {"schema": SCHEMA, **head, "facts": facts})


def write_outcome(file: IO[str], outcome: Outcome, folders: Mapping[str, str] | None = None) -> None:
    """Add the outcome of one child, at once: a run that is cut short keeps its outcomes so far.

    ``folders`` are replaced by their words in every text.
    """
    model = outcome.job.model
    name = os.path.basename(os.path.normpath(model)) if model else None
    hidden = {**(folders or {}), **({os.path.normpath(model): name} if model and name else {})}
    hidden.update({os.path.realpath(folder): word for folder, word in list(hidden.items())})
    data = {**outcome._asdict(), "job": {**asdict(outcome.job), "model": name}}
    _write(file, _without(data, sorted(hidden.items(), key=lambda pair: -len(pair[0]))))


def _without(value: Any, folders: Sequence[tuple[str, str]]) -> Any:
    """Return the value; in all its texts, words replace these folders."""
    match value:
        case Mapping():
            return {_without(key, folders): _without(entry, folders) for key, entry in value.items()}
        case list() | tuple():
            return [_without(entry, folders) for entry in value]
        case str():
            for folder, word in folders:
                if len(folder) > 1 and folder in value:
                    value = re.sub(rf"(?<!\w){re.escape(folder)}(?![\w-])", word.replace("\\", r"\\"), value)
    return value


def read_recording(path: Path) -> _Recording:
    """Read a recording from its file. Raises :class:`RecordingError`."""
    try:
        content = read_bounded(path, _LARGEST)
        if content is None:
            raise RecordingError("{}: larger than {} MiB, not read", path, _LARGEST >> 20)
        lines = content.decode().splitlines()
    except OSError as error:
        raise RecordingError("{}: cannot be read: {}", path, because_of(error)) from None
    except UnicodeDecodeError:
        raise RecordingError("{}: not UTF-8 text", path) from None
    head = _object(path, 1, lines[0]) if lines else {}
    if head.get("schema") != SCHEMA:
        raise RecordingError('{}:1: not a recording of probes: "schema": "{}" is missing', path, SCHEMA)
    facts = head.pop("facts", None)
    if not isinstance(facts, dict):
        raise RecordingError("{}:1: facts: an object is expected", path)
    if head.get("suite", SUITES[0]) not in SUITES:
        raise RecordingError("{}:1: suite: one of {} is expected", path, ", ".join(SUITES))
    only = head.get("only", [])
    if not isinstance(only, list) or not all(isinstance(name, str) for name in only):
        raise RecordingError("{}:1: only: a list of names is expected", path)
    try:
        clean, versions, reason = head.get("released", ALL_RUN)
        counts = {str(name): int(_amount(cases, "released")) for name, cases in dict(clean).items()}
        released = ReleasedResults(counts, str(versions), quoted(str(reason)) if reason is not None else None)
    except (TypeError, ValueError):
        raise RecordingError("{}:1: released: what was not run is expected", path) from None
    outcomes = [_outcome(path, number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    return _Recording(head, facts, outcomes, released)


def _outcome(path: Path, number: int, line: str) -> Outcome:
    data = _object(path, number, line)
    try:
        observations = data["observations"]
        if not isinstance(observations, list) or not all(isinstance(entry, dict) for entry in observations):
            raise TypeError("observations are objects")
        for key in ("ending", "earlier"):
            if data.get(key) not in (*ENDINGS, *([] if key == "ending" else ["", None])):
                raise ValueError(Message("no ending is called {}", repr(data.get(key))))
        begin, peak, computed = (data.get(key) for key in ("begin", "peak_mib", "cpu_seconds"))
        return Outcome(
            _job(data["job"]),
            tuple(observations),
            data["ending"],
            quoted(str(data.get("detail", ""))),
            _amount(data.get("seconds", 0.0), "seconds"),
            _amount(peak, "peak_mib") if peak is not None else None,
            begin if isinstance(begin, dict) else {},
            _amount(computed, "cpu_seconds") if computed is not None else None,
            data.get("earlier") or "",
            quoted(str(data.get("earlier_detail", ""))),
            data.get("again") is True,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RecordingError("{}:{}: not what a child of a probe gave: {}", path, number, error) from None


def _job(data: Any) -> Job:
    """Return the job of a line. Raises TypeError and ValueError for values that a job cannot hold."""
    names = {field.name for field in fields(Job)}
    job = Job(**{key: value for key, value in data.items() if key in names})
    for kinds, keys in (
        ((str,), ("probe", "suite", "script")),
        ((str, type(None)), ("dtype", "backend", "model")),
        ((dict,), ("options", "recipe")),
        ((list, tuple), ("entries",)),
        ((int, type(None)), ("seed",)),
    ):
        for key in keys:
            if not isinstance(getattr(job, key), kinds):
                raise TypeError(f"{key} of a job cannot be {getattr(job, key)!r}"[:100])
    if job.device not in ("auto", "cpu", "cuda"):
        raise ValueError(Message("no device is called {}", repr(job.device)))
    for key in ("seconds", "memory_mib", *(["seed"] if job.seed is not None else [])):
        _amount(getattr(job, key), key)
    return replace(
        job, needs=tuple(map(str, job.needs)), entries=tuple(map(str, job.entries)), speeds=tuple(job.speeds)
    )


def _amount(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(Message("{} is not an amount", name))
    return float(value)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line, parse_constant=_CONSTANTS.__getitem__)
    except (ValueError, RecursionError) as error:
        raise RecordingError("{}:{}: not JSON: {}", path, number, error) from None
    if not isinstance(data, dict):
        raise RecordingError("{}:{}: an object is expected", path, number)
    return data


def _write(file: IO[str], data: Mapping[str, Any]) -> None:
    file.write(json.dumps(data, ensure_ascii=True) + "\n")
    file.flush()
