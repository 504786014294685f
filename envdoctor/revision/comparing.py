"""Comparing two snapshots area by area, the facts that rules judge, and which commit brought a change."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Value
from envdoctor.matrix.matrix import Matrix
from envdoctor.revision.code import remote_code
from envdoctor.revision.comparer import Change, Compared, Comparer, Revisions
from envdoctor.revision.files import other_files
from envdoctor.revision.hub.online import Commit, HubSnapshot, open_hub
from envdoctor.revision.hub.opening import commits_between
from envdoctor.revision.hub.pickle_reading import Clock
from envdoctor.revision.hub.snapshot import Snapshot, SnapshotError, Unread, limited_to
from envdoctor.revision.settings import settings_files
from envdoctor.revision.template import chat_template
from envdoctor.revision.tokenizer import tokenizer_files
from envdoctor.revision.weights import tensors
from envdoctor.system.message import Message


def _settings(area: str) -> Comparer:
    return Comparer(area, partial(settings_files.compare, area), partial(settings_files.wants, area))


#: Every comparer, in the order of the areas.
COMPARERS = (
    Comparer("weights", tensors.compare, tensors.wants),
    _settings("config"),
    _settings("generation"),
    Comparer("tokenizer", tokenizer_files.compare, tokenizer_files.wants),
    Comparer("template", chat_template.compare, chat_template.wants),
    Comparer("code", remote_code.compare, remote_code.wants),
    _settings("preprocessor"),
    Comparer("files", other_files.compare, None),
    Comparer("files", other_files.compare_pickles, other_files.is_pickle_name),
    Comparer("licence", other_files.compare_licences, other_files.is_licence),
)


class Comparison(NamedTuple):
    """The area and the outcome of each comparer, in the order of the areas, and which listed files none may see."""

    parts: Sequence[tuple[str, Compared]]
    refused: tuple[Unread, ...] = ()

    @property
    def changes(self) -> list[Change]:
        """Return every change."""
        return [change for _, compared in self.parts for change in compared.changes]

    @property
    def listing(self) -> list[Change]:
        """Return every single difference where ``changes`` tells one cause once."""
        return [change for _, compared in self.parts for change in compared.listing]

    @property
    def amounts(self) -> Mapping[str, Mapping[str, Mapping[str, tuple[int, int, int]]]]:
        """Return what each side holds; see :class:`~envdoctor.revision.comparer.Compared`."""
        return {side: amounts for _, compared in self.parts for side, amounts in compared.amounts.items()}

    @property
    def unread(self) -> list[Unread]:
        """Return every part that could not be read or decided, once, and the listed files that cannot be trusted."""
        return list(dict.fromkeys([*(part for _, compared in self.parts for part in compared.unread), *self.refused]))

    def equal(self, area: str | None = None) -> list[str]:
        """Return what is equal, in words; in one area, or in all."""
        return [text for name, compared in self.parts if area in (None, name) for text in compared.equal]


def compare_snapshots(
    old: Snapshot,
    new: Snapshot,
    matrix: Matrix,
    *,
    areas: Collection[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    values: int | None = None,
) -> Comparison:
    """Compare these areas, or all. ``values``: how many bytes a Hub may be asked for to compare values of weights."""
    unsure = {part.path for part in (*old.refused, *new.refused)}
    if unsure:  # what one side cannot vouch for was neither added nor removed
        old, new = (limited_to(side, side.files.keys() - unsure) for side in (old, new))
    paths = sorted(old.files.keys() | new.files.keys())
    clock = Clock()
    parts: list[tuple[str, Compared]] = []
    for comparer in COMPARERS:
        if areas is None or comparer.area in areas:
            progress(Message("comparing {}", comparer.area))
            revisions = Revisions(old, new, matrix, clock, files_of(comparer, paths), values, progress)
            parts.append((comparer.area, comparer.compare(revisions)))
    return Comparison(parts, (*old.refused, *new.refused))


def files_of(comparer: Comparer, paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of the paths that the comparer compares."""
    if comparer.wants is not None:
        return tuple(filter(comparer.wants, paths))
    others = [other.wants for other in COMPARERS if other.area != comparer.area and other.wants is not None]
    return tuple(path for path in paths if not any(wants(path) for wants in others))


def change_facts(comparison: Comparison, origin: str) -> list[Fact]:
    """Return the ``change`` records, incomplete when a part could not be read, and the summary facts."""
    unread, incomplete = comparison.unread, None
    if unread:
        more = Message(" and {} more", len(unread) - 1) if len(unread) > 1 else ""
        incomplete = Message("{}: {}{}", *unread[0], more)
    rows: list[dict[str, Any]] = []
    for change in comparison.changes:
        columns = zip(change._fields[:-1], change[:-1], strict=True)  # all but the hunk
        rows.append({name: ABSENT if value is None else value for name, value in columns})
    facts: dict[str, Value] = {"change": Records(tuple(rows), incomplete)}
    facts |= {key: value for _, compared in comparison.parts for key, value in compared.facts.items()}
    return [Fact(key, value, origin, "revision") for key, value in facts.items()]


def effect_of(area: str, kind: str, matrix: Matrix) -> Mapping[str, str] | None:
    """Return by language why a kind of change has no effect on a run; None if table revision-kinds does not say so."""
    rows = matrix.rows("revision-kinds", "kind")
    return next((row["effect"] for row in rows if area in row["areas"] and kind in row["kinds"]), None)


#: One request lists the files of a commit: more commits than this are not walked.
_MOST_STEPS = 200

#: Area, kind, path and symbol of a change.
Wanted = tuple[str, str, str, str]


def attribute(
    old: Snapshot,
    new: Snapshot,
    questions: Iterable[Wanted],
    matrix: Matrix,
    *,
    progress: Callable[[str], None] = lambda text: None,
) -> Mapping[Wanted, Commit]:
    """Return the oldest commit after ``old`` whose own step shows each change; a change that only the whole way shows
    gets the last commit that touched its file, and a change without such a commit is left out. One request for each
    commit on the way, and the changed text files of the steps that matter. Raises :class:`SnapshotError` when the two
    are not revisions of one repository on a Hub, or too far apart."""
    if not isinstance(new, HubSnapshot) or old.revision is None:
        raise SnapshotError("--history needs two revisions of one repository on the Hub", kind="usage")
    repo = str(new.repo)
    newest_first, related = commits_between(new.access.hub, repo, old.revision, str(new.revision), _MOST_STEPS + 1)
    if not related:
        text = "{} is not among the {} commits before {}: their history cannot be walked"
        raise SnapshotError(text, old.label, _MOST_STEPS, new.label, kind="usage")
    pending, before = list(questions), old
    commits: dict[Wanted, Commit] = {}
    shown_before = set[Wanted]()
    for number, commit in enumerate(reversed(newest_first), 1):
        progress(Message("history: commit {} of {}", number, len(newest_first)))
        after = open_hub(repo, commit.id, new.access)
        oids = [{path: entry.oid for path, entry in side.files.items()} for side in (before, after)]
        touching = [change for change in pending if oids[0].get(change[2]) != oids[1].get(change[2])]
        concerned = [change for change in touching if change not in shown_before]
        commits |= dict.fromkeys(concerned, commit)
        for area in dict.fromkeys(change[0] for change in concerned):
            step = compare_snapshots(before, after, matrix, areas=[area])
            shown = {(change.area, change.kind, change.path, change.symbol) for change in step.changes}
            shown_before |= shown.intersection(concerned)
        before = after
    return {change: commits[change] for change in pending if change in commits}
