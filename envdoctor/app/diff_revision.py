"""``envdoctor diff-revision``: what changed between two revisions of a model, and does it matter to me?

With ``--list``, the commits to choose them from; and ``envdoctor pin``: which files of a model a project trains with.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.app.facts import Gathered, Sources, collect_facts, with_assignments, without_pin
from envdoctor.app.pins import pin_facts, pinned
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet, given_only
from envdoctor.facts.values import ABSENT, Fact
from envdoctor.judge.finding import Finding, Policy, Text
from envdoctor.judge.judging import Judgement, judge
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.observe.request import Target
from envdoctor.report import revision_section
from envdoctor.report.report import Notice, Report
from envdoctor.revision.comparing import Comparison, attribute, change_facts, compare_snapshots, effect_of
from envdoctor.revision.hub import snapshot as snapshots
from envdoctor.revision.hub.online import Access, HubSnapshot
from envdoctor.revision.hub.opening import Pair, from_cache, name_of, open_pair, open_side, open_snapshot, steps, two_of
from envdoctor.revision.hub.safetensors_header import LARGEST_HEADER
from envdoctor.system.message import Message, joined, said_by

#: Areas in which NEW is compared with OLD too.
_MENDED_AREAS = ("config", "generation", "tokenizer", "code")


@dataclass(frozen=True)
class RevisionRequest:
    """A request to compare. ``repo`` is ORG/NAME or a folder; without ``old`` and ``new`` the local cache's revision is
    compared with ``main``. ``timeout`` bounds all requests to the Hub together, in seconds; ``largest_header`` is the
    largest safetensors header that is read, in bytes. ``pin`` takes OLD from envdoctor-pins.json, ``tensors`` lists
    every changed tensor pattern. ``values`` compares the values of weights too, with at most that many bytes from the
    Hub; without it no weight is read."""

    repo: str
    old: str | None = None
    new: str | None = None
    offline: bool = False
    timeout: float = 60.0
    largest_header: int = LARGEST_HEADER
    history: bool = False
    pin: bool = False
    tensors: bool = False
    values: int | None = None
    environment: bool = True
    sources: Sources = field(default_factory=Sources)


def diff_revision(
    request: RevisionRequest,
    *,
    policy: Policy | None = None,
    matrix: Matrix | None = None,
    exit_zero: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Compare two revisions and judge the changes. No line of the model's code is run, and no weight is read unless
    ``request.values`` asks for it. Raises :class:`UsageProblem` and :class:`JobError`; a part that could not be read
    makes the report incomplete (exit code 3) and is never called unchanged."""
    run = Judging(policy, matrix, exit_zero)
    matrix = run.matrix
    tell = progress or (lambda text: None)
    sources = request.sources
    pin = pinned(snapshots.find_pins(sources.folder()), [request.repo], matrix.part("families", "organisations"))
    access = _access_of(request, matrix, tell)
    with told_as(None, snapshots.SnapshotError):
        old = request.old
        if request.pin:
            if old:
                raise UsageProblem("--pin takes OLD from {}: leave OLD out", snapshots.PINS)
            old = pin.revision if pin is not None else None
            if not old and pin is not None:
                text = "--pin: {} has no revisions; give OLD, or compare it with its pin: envdoctor check --model {}"
                raise UsageProblem(text, request.repo, request.repo)
            if not old:
                raise UsageProblem(
                    "--pin: {} pins no revision of {}; `envdoctor pin` writes it", snapshots.PINS, request.repo
                )
        pair = open_pair(request.repo, old, request.new, access)
    comparison = compare_snapshots(pair.old, pair.new, matrix, progress=tell, values=request.values)
    gathered = _environment(request, matrix)
    facts = given_only(gathered.facts)
    facts.drop("model.")
    name = pair.new.repo or pair.old.repo
    values = {f"revision.{side}": tree.revision or tree.label for side, tree in (("old", pair.old), ("new", pair.new))}
    values |= {"model.repo": name} if name else {}
    about = {**values, "revision.moved": pair.moved or ABSENT}
    facts.update(Fact(key, value, Message("the comparison"), "revision") for key, value in about.items())
    facts.update(pin_facts(pin, pair.new) if pin else without_pin(Message("no {}", snapshots.PINS)))
    facts.update(change_facts(comparison, f"{pair.old.label} -> {pair.new.label}"))
    facts = with_assignments(facts, sources, matrix)
    rules = matrix.only(lambda rule: rule.scope == "revision" or "pin.state" in set(rule.keys()))
    judgement = run.judged(facts, rules)
    back = _way_back(pair, comparison, facts, judgement, rules)
    findings = [*judgement.findings, *back]
    commits = _history(pair, findings, comparison, matrix, tell) if request.history else {}
    cost = revision_section.Cost(*access.cost, request.values)
    notices = [*gathered.notices, *run.of_rules(judgement), *(Notice("note", text) for text in pair.notes)]
    return run.report(
        "diff-revision",
        gathered.target,
        judgement,
        notices,
        incomplete=bool(comparison.unread),
        revision=_section(pair, cost, comparison, judgement, matrix)._replace(
            introduced=commits,
            tensors=tuple(comparison.listing) if request.tensors else None,
            mended=tuple(revision_section.Mended(f.id, f.message, commits.get(f.fingerprint)) for f in back),
        ),
    )


def _access_of(request: RevisionRequest, matrix: Matrix, notice: Callable[[str], None]) -> Access:
    """Return the access to snapshots of the command; ``notice`` is called at long waits."""
    limits = {name: getattr(request, name) for name in ("offline", "timeout", "largest_header")}
    return request.sources.access(matrix, **limits, notice=notice)


def _environment(request: RevisionRequest, matrix: Matrix) -> Gathered:
    """Return the environment that the changes are joined with, or an empty one to judge the changes alone."""
    because = Message("--no-environment")
    if request.environment:
        try:
            return collect_facts(request.sources._replace(gpu=False, model=None), matrix)
        except JobError as error:
            because = said_by(error)
    return Gathered(FactSet(), Target("none", "", because))


def _way_back(pair: Pair, comparison: Comparison, facts: FactSet, judgement: Judgement, rules: Matrix) -> list[Finding]:
    """Return the errors of a change from NEW to OLD whose places have no finding from OLD to NEW. Only files that were
    read already count, without weights and templates, which cost time."""
    areas = {change.area for change in comparison.changes} & set(_MENDED_AREAS)
    if not areas or comparison.unread:
        return []
    present = {(*revision_section.change_of(finding)[2:], finding.id) for finding in judgement.findings}
    ids = {finding.id for finding in judgement.findings}
    turned = facts.copy()
    turned.update(change_facts(compare_snapshots(pair.new, pair.old, rules, areas=areas), "NEW -> OLD"))
    findings = judge(turned, rules, Policy()).findings
    errors = [case for case in findings if case.severity == "error" and case.item and case.superseded_by is None]
    places = [((*revision_section.change_of(case)[2:], case.id), case) for case in errors]
    return [error for place, error in places if error.id not in ids and place not in present]


def _history(
    pair: Pair, findings: Sequence[Finding], comparison: Comparison, matrix: Matrix, tell: Callable[[str], None]
) -> dict[str, str]:
    """Return the commit that introduced the change behind each finding, by fingerprint; for a finding from NEW to OLD,
    the commit of the change at the same place."""
    at_place = {change[2:4]: change[:4] for change in comparison.changes}
    changes = set(at_place.values()) | {change[:4] for change in comparison.changes}
    about = {finding.fingerprint: revision_section.change_of(finding) for finding in findings if finding.item}
    by_finding = {name: change if change in changes else at_place.get(change[2:]) for name, change in about.items()}
    changed = {name: change for name, change in by_finding.items() if change is not None}
    with told_as(JobError, snapshots.SnapshotError):
        commits = attribute(pair.old, pair.new, changed.values(), matrix, progress=tell)
    titles: dict[str, str] = {}
    for name, commit in ((name, commits[change]) for name, change in changed.items() if change in commits):
        day = f" ({commit.date.date().isoformat()})" if commit.date else ""
        titles[name] = f"{commit.id[:7]}{day} {commit.title}"
    return titles


def _section(
    pair: Pair, cost: revision_section.Cost, comparison: Comparison, judgement: Judgement, matrix: Matrix
) -> revision_section.RevisionSection:
    """Return everything of the comparison that is not a finding."""
    weights, equal = judgement.facts.value("revision.weights"), comparison.equal("weights")
    errors = [f for f in judgement.findings if f.severity == "error" and f.ignored is None and f.superseded_by is None]
    kinds = dict.fromkeys((change.area, change.kind) for change in comparison.changes)
    excused = {kind: effect for kind in kinds if (effect := effect_of(*kind, matrix)) is not None}
    places = {revision_section.change_of(finding) for finding in judgement.findings}
    return revision_section.RevisionSection(
        weights=weights if isinstance(weights, str) else "unknown",
        weights_equal=equal[0] if equal else "",
        old=revision_section.Side(pair.old.label, pair.old.repo or None, pair.old.revision or None),
        new=revision_section.Side(pair.new.label, pair.new.repo or None, pair.new.revision or None),
        changes=tuple(comparison.changes),
        unread=tuple(comparison.unread),
        equal=tuple(comparison.equal()),
        amounts=comparison.amounts,
        introduced={},
        cost=cost,
        moved={"asked": pair.old.asked, "now": pair.moved} if pair.moved else None,
        pin=pair.old.revision if errors else None,
        unjudged=tuple(c for c in comparison.changes if c[:4] not in places and c[:2] not in excused),
        effects={" ".join(kind): Text(text["en"], text.get("zh")) for kind, text in excused.items()},
        documents=_texts(pair.old) != _texts(pair.new),
    )


def _texts(side: snapshots.Snapshot) -> set[tuple[str, str | None]]:
    """Return the texts about the model, which are not compared, with the oids of their bytes."""
    return {(path, entry.oid) for path, entry in side.files.items() if snapshots.is_text_about_the_model(path)}


#: Commits on a page: each costs one request.
_PAGE = 20


class _Row(NamedTuple):
    """A commit: its id, the day (of the commit; offline, of the last change of its folder in the cache), the author's
    title (offline: the refs to it), the changed files by kind (offline: the cached files), and whether the local cache
    has it. ``unread`` says why the files are unknown."""

    id: str
    day: str
    title: str
    files: Mapping[Message, list[str]]
    cached: bool
    unread: Message | None = None


class _CommitList(NamedTuple):
    """The commits of a repository, newest first, back to ``until`` as it was typed; ``following`` is the commit with
    which the next page begins."""

    repo: str
    offline: bool
    rows: list[_Row]
    following: str | None = None
    until: str | None = None


def list_commits(
    request: RevisionRequest, *, matrix: Matrix | None = None, progress: Callable[[str], None] | None = None
) -> _CommitList:
    """List a page of commits from NEW (or ``main``) back to OLD; offline, every commit of the local cache. Raises
    :class:`UsageProblem` and :class:`JobError`."""
    access = _access_of(request, matrix or load_matrix(), progress or (lambda text: None))
    with told_as(None, snapshots.SnapshotError):
        name = name_of(request.repo, access)
        if name.repo is None:
            raise UsageProblem("--list: {} is a folder, and a folder has no commits", request.repo)
        if access.offline:
            return _CommitList(name.repo, True, _cached(name.repo, access))
        old, new = two_of(request.old, request.new)
        newer = open_side(name.repo, new or name.revision, access)
        until = open_side(name.repo, old, access).revision if old else None
        if not isinstance(newer, HubSnapshot):
            raise UsageProblem("--list: {} is a folder, and a folder has no commits", newer.label)
        commits, following = steps(newer, until, _PAGE)
    repo = str(newer.repo)
    held = {commit.commit for commit in access.cached(name.repo, repo)}
    rows = []
    for commit, changed in commits:
        day, cached = commit.date.date().isoformat() if commit.date else "", commit.id in held
        kinds, reason = (
            ({}, changed.reason) if isinstance(changed, snapshots.Unread) else (snapshots.kinds_of(changed), None)
        )
        rows.append(_Row(commit.id, day, commit.title, kinds, cached, reason))
    return _CommitList(repo, False, rows, following, old)


def _cached(repo: str, access: Access) -> list[_Row]:
    from datetime import datetime, timezone

    rows = []
    for commit in access.cached(repo):
        snapshot, refs = from_cache(commit, repo, access), joined(commit.refs, ", ")
        day = datetime.fromtimestamp(commit.used, timezone.utc).date().isoformat()
        rows.append(_Row(commit.commit, day, refs, snapshots.kinds_of(snapshot.places), True, snapshot.lacking))
    if not rows:
        text = "{} is not in the local cache, and offline mode is on: give local folders, or leave offline mode"
        raise snapshots.SnapshotError(text, repo, kind="offline")
    return rows


class _Pinned(NamedTuple):
    """The new file of pins: its path and its text, and the pin of the model."""

    path: Path
    text: str
    pin: snapshots.Pin


def pin(
    repo: str,
    revision: str | None = None,
    *,
    sources: Sources | None = None,
    offline: bool = False,
    timeout: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> _Pinned:
    """Return the text of the working directory's file of pins with this model in it; write nothing. One request lists
    the oids. Raises :class:`UsageProblem` and :class:`JobError`, the latter also if a file of the snapshot has no oid:
    a pin with holes would later call a change unchanged."""
    sources = sources or Sources()
    path = snapshots.find_pins(sources.folder()) or os.path.join(sources.folder(), snapshots.PINS)
    access = sources.access(load_matrix(), offline=offline, timeout=timeout, notice=progress)
    with told_as(UsageProblem, snapshots.PinError), told_as(None, snapshots.SnapshotError):
        pins = snapshots.read_pins(path)
        snapshot = open_snapshot(repo, revision, access)
    entry, unread = snapshots.pin_of(snapshot)
    if unread:
        raise JobError("{}: {} cannot be pinned: {}", snapshot.label, unread[0].path, unread[0].reason)
    pins[entry.repo] = entry
    return _Pinned(Path(path), snapshots.pins_text(pins.values()), entry)
