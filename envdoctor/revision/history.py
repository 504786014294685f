"""Which commit brought a change: the steps between two revisions compared one by one, where the file changed."""

from collections.abc import Callable, Iterable, Mapping

from envdoctor.hub.commits import Commit, commits_between
from envdoctor.hub.online import HubSnapshot, open_hub
from envdoctor.hub.snapshot import Snapshot, SnapshotError
from envdoctor.knowledge.matrix import Matrix
from envdoctor.revision.comparing import compare_snapshots

#: One request lists the files of a commit: more commits than this are not walked.
_MOST_STEPS = 200

#: Area, kind, path and symbol of a change.
Wanted = tuple[str, str, str, str]


def attribute(
    old: Snapshot,
    new: Snapshot,
    wanted: Iterable[Wanted],
    matrix: Matrix,
    *,
    progress: Callable[[str], None] | None = None,
) -> Mapping[Wanted, Commit]:
    """The oldest commit after ``old`` whose own step shows each change; a change that only the whole way shows gets
    the last commit that touched its file, and one whose file no commit touched is left out.

    One request for each commit on the way, and the changed text files of the steps that matter. Raises
    :class:`SnapshotError` when the two are not revisions of one repository on a Hub, or too far apart.
    """
    if not isinstance(new, HubSnapshot) or old.revision is None:
        raise SnapshotError("--history needs two revisions of one repository on the Hub", kind="usage")
    repo = str(new.repo)
    newest_first, related = commits_between(new.access.hub, repo, old.revision, str(new.revision), _MOST_STEPS + 1)
    if not related:
        text = "{} is not among the {} commits before {}: their history cannot be walked"
        raise SnapshotError(text, old.label, _MOST_STEPS, new.label, kind="usage")
    pending = list(wanted)
    found: dict[Wanted, Commit] = {}
    touched: dict[Wanted, Commit] = {}
    before = old
    for number, commit in enumerate(reversed(newest_first), 1):
        if progress is not None:
            progress(f"history: commit {number} of {len(newest_first)}")
        after = open_hub(repo, commit.id, new.access)
        oids = [{path: entry.oid for path, entry in side.files.items()} for side in (before, after)]
        touching = [change for change in pending if oids[0].get(change[2]) != oids[1].get(change[2])]
        concerned = [change for change in touching if change not in found]
        for area in dict.fromkeys(change[0] for change in concerned):
            step = compare_snapshots(before, after, matrix, areas=[area])
            shown = {(change.area, change.kind, change.path, change.symbol) for change in step.changes}
            for change in concerned:
                if change[0] == area:
                    touched[change] = commit
                    if change in shown:
                        found[change] = commit
        before = after
    return {change: found.get(change, touched[change]) for change in pending if change in touched}
