"""Reading a lock as ``--lock`` does, for tests: its facts by key, and its notes."""

from pathlib import Path
from typing import NamedTuple

from observing import shipped

from envdoctor.app import target_facts
from envdoctor.facts import FactSet, Unknown, Value
from envdoctor.observe import SOURCES, Ask

LOCKS = Path(__file__).resolve().parents[2] / "fixtures" / "locks"
_LINUX = {"python": "3.12", "platform": "linux-x86_64"}


class Opened(NamedTuple):
    """What was read; ``notes`` are those on what was not too, ``taken`` those on what an install takes."""

    facts: FactSet
    notes: tuple[str, ...]
    taken: tuple[str, ...] = ()

    def version(self, name: str) -> Value:
        """The version of a package."""
        return self.facts.value(f"pkg.{name}")

    def reason(self, name: str) -> str:
        """Why its version is not known."""
        value = self.version(name)
        assert isinstance(value, Unknown), value
        return value.reason

    def requires(self, name: str) -> Value:
        """What it requires."""
        found = [item for item in self.facts.value("dist") if item["name"] == name]  # type: ignore[union-attr]
        assert len(found) == 1
        return found[0]["requires"]

    def place(self, name: str) -> int:
        """The line that names it."""
        return int(self.facts.get(f"pkg.{name}").origin.rpartition(":")[2])


def opened(given: str | Path, cwd: Path | None = None, until: str = "", **target: str) -> Opened:
    """The lock for a target: Python 3.12 on Linux unless another one, or ``platform=""`` for none, is given."""
    matrix = shipped()
    stated = {name: text for name, text in {**_LINUX, **target}.items() if text}
    ask = Ask({}, str(cwd or LOCKS), matrix, lambda: FactSet(target_facts(stated, matrix.registry)), until)
    lock = SOURCES["lock"].open(str(given), ask)
    taken = tuple(note for note in lock.notes if note.startswith(("versions of", "which releases")))
    return Opened(lock.facts, (*lock.unread, *(note for note in lock.notes if note not in taken)), taken)
