"""Experiments on released Python code: if the installed files are the released ones, CI's results hold without a run.

A result depends on the files of a few packages alone, not on card, kernel or build. The table released-experiments has
the results of ``tools/released_experiments.py`` with exact versions.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.experiments.probe.catalogue import PAYLOAD
from envdoctor.facts.factset import FactSet
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.packages.package_damage import foreign_startup, is_compared
from envdoctor.system.message import Message

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
