"""Files and definitions that are the same under another name or in another place."""

from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.revision.code.parts.records import Definition, FileCode
from envdoctor.revision.comparer import Change

#: Smaller bodies are alike by chance.
_LIGHTEST = 20
_SHARED = 0.5


class FilePair(NamedTuple):
    """One file before and after; None where there is none. The paths differ when it was renamed."""

    old_path: str | None
    new_path: str | None
    old: FileCode | None
    new: FileCode | None

    @property
    def path(self) -> str:
        """The path to report: the new one if there is one."""
        return self.new_path or self.old_path or ""


def pair_files(old: dict[str, FileCode], new: dict[str, FileCode]) -> list[FilePair]:
    """Files by their path; a file that went and one that came are one when they share half of their definitions."""
    pairs = [FilePair(path, path, old[path], new[path]) for path in sorted(old.keys() & new.keys())]
    gone = {path: {one.name for one in old[path].definitions} for path in sorted(old.keys() - new.keys())}
    for path in sorted(new.keys() - old.keys()):
        names = {one.name for one in new[path].definitions}
        best = max(gone, key=lambda other: len(names & gone[other]), default=None)
        if best is not None and names and len(names & gone[best]) >= _SHARED * max(len(names), len(gone[best])):
            pairs.append(FilePair(best, path, old[best], new[path]))
            del gone[best]
        else:
            pairs.append(FilePair(None, path, None, new[path]))
    pairs += [FilePair(path, None, old[path], None) for path in gone]
    return sorted(pairs, key=lambda pair: pair.path)


def moved_definitions(
    gone: Sequence[tuple[str, Definition]], come: Sequence[tuple[str, Definition]]
) -> tuple[list[Change], set[tuple[str, str]], set[tuple[str, str]]]:
    """Definitions (with their paths) that went in one place and came in another with the same body.

    Returns the changes and what they explain: path and name in the old and in the new revision.
    """
    waiting: dict[str, list[tuple[str, Definition]]] = {}
    for path, one in gone:
        if one.kind != "value" and one.weight >= _LIGHTEST:
            waiting.setdefault(one.sense, []).append((path, one))
    changes: list[Change] = []
    from_there: set[tuple[str, str]] = set()
    to_here: set[tuple[str, str]] = set()
    for path, one in come:
        candidates = waiting.get(one.sense)
        if not candidates:
            continue
        same_name = [index for index, (_, other) in enumerate(candidates) if _leaf(other) == _leaf(one)]
        old_path, other = candidates.pop(same_name[0] if same_name else 0)
        from_there.add((old_path, other.name))
        to_here.add((path, one.name))
        before = other.name if old_path == path else f"{old_path}: {other.name}"
        changes.append(Change("code", "definition-moved", path, one.name, before, one.name))
    return changes, from_there, to_here


def _leaf(definition: Definition) -> str:
    return definition.name.rpartition(".")[2]
