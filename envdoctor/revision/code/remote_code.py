"""The repository's own Python code, compared by syntax tree. Nothing of it is imported or executed.

Only files that transformers loads are judged: from the auto_map along relative imports. Where nothing says what is
loaded, all are.

Kinds of changes (``symbol`` is the class and method, ``module level``, an imported name or an auto_map key; those that
a rule does not name say what happened and have no effect on training):

``training-code-changed``                a training step can reach it, and what it means is not known
the kinds of the table ``training-code`` what it means is known; before is what only the old revision has, after what
                                         only the new one has
``code-broken``, ``code-mended``         transformers cannot load the new (the old) file; ``detail`` says why
``gradient-checkpointing-noop``          switching it on reaches no module that asks for it, or sets and calls nothing
``gradient-checkpointing-fails``         checkpoint() gets keywords that it refuses
``gradient-checkpointing-mended``        one of the two in the old revision alone
``gradient-checkpointing-hook-removed``  _set_gradient_checkpointing is gone from a class that stays
``gradient-checkpointing-flag-changed``  supports_gradient_checkpointing
``attention-class-added``, ``attention-class-removed``
``attention-default-changed``            _supports_sdpa and the like, or a default of an attention parameter
``signature-changed``                    a call that the old signature accepts may fail or mean something else
``signature-extended``                   only optional parameters more, or names that a configuration takes anyway
``default-changed``, ``default-unused``  of a parameter; unused: config.json sets it, or no training step calls it
``call-refused``                         a keyword that what is called, in the same file, has no parameter for
``minor-only-gate``                      a comparison with the second number of a version alone
``version-gate-added``                   any other comparison with a version
``network-call-added``, ``exec-call-added``, ``file-write-added``, ``pickle-load-added``, ``dynamic-import-added``
                                         a call of, or a reference to, what reaches beyond computing; ``detail`` says
                                         when it runs. That none was found is no proof that there is none
``definition-added``, ``definition-removed``, ``definition-changed``, ``definition-moved``
                                         of what no training step reaches, but for whole classes and functions: what
                                         speaks of these changed as well
``annotations-changed``
``import-added``, ``import-removed``
``package-required``                     transformers does not load the file without a package, which is new
``auto-map-changed``, ``auto-map-other-repository``
``file-added``, ``file-removed``, ``file-moved``
``file-not-loaded``                      no auto_map leads to the file, which changed
``formatting-only``                      only comments, layout, log lines, local names or the order of definitions
``unparsable``                           no syntax tree here; the file is unread as well
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from envdoctor.observe.model.files import AUTO_MAP_FILES, entries
from envdoctor.revision.code.parts.changes import (
    FilePair,
    checkpointing,
    compare_file,
    moved_definitions,
    one_sided,
    pair_files,
)
from envdoctor.revision.code.parts.detectors import MINOR_ONLY, Site
from envdoctor.revision.code.parts.loaded import (
    CodeSide,
    LoadedEntry,
    NotPython,
    faults,
    kind_of_file,
    loaded_files,
    parse,
    read_sources,
)
from envdoctor.revision.code.parts.training import Judged, causes, told
from envdoctor.revision.code.parts.tree import FileCode
from envdoctor.revision.comparer import Change, Compared, Revisions, differences, parted, read_json
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.system.message import Message

AREA = "code"
_MAX_OF_A_KIND = 100
_MAX_TEXT = 160
_MAX_ENTRIES = 200
_MAX_REFERENCE = 200


def wants(path: str) -> bool:
    """Return whether it is a Python file, or a configuration that says which of them transformers loads."""
    return path.endswith(".py") or path in AUTO_MAP_FILES


def compare(revisions: Revisions) -> Compared:
    """Return the changes of the ``*.py`` files that are loaded and of the auto_map entries that name them, in the order
    of the files; other files have one change each."""
    paths = [path for path in revisions.files if path.endswith(".py")]
    changed = revisions.changed(paths)
    configs = revisions.changed(AUTO_MAP_FILES)
    maps, blind = parted(_auto_map(revisions, path) for path in configs)
    named = [one for _, before, _ in maps for one in before], [one for _, _, after in maps for one in after]
    snapshots = zip((revisions.old, revisions.new), named, strict=True)
    sides = old, new = [CodeSide(snapshot, known, {}, {}, [], set()) for snapshot, known in snapshots]
    renamed = {entry.path for entry in {*new.entries} - {*old.entries} if not entry.away} & new.snapshot.files.keys()
    unread, equal = _parse(revisions, sides, {*changed, *renamed}, renamed)
    differ = [path for path in changed if path not in equal]
    loaded = None
    if _asks_what_is_loaded(sides, differ):
        rest, unknown = parted(_auto_map(revisions, path) for path in AUTO_MAP_FILES if path not in configs)
        for _, was, now in rest:
            old.entries.extend(was)
            new.entries.extend(now)
        if not (blind or unknown):
            loaded = loaded_files(sides, differ, partial(_more, new.snapshot))
    judged = {*differ} if loaded is None else loaded
    changes = [Change(AREA, "file-not-loaded", path, path) for path in differ if path not in judged]
    for path, one in unread.items():
        if path in judged and path in old.texts.keys() | new.texts.keys() and not isinstance(one, NotPython):
            changes.append(Change(AREA, "unparsable", path, path, detail=one.reason))
    for side in sides:
        side.faults.extend(faults(side, {path: one for path, one in side.codes.items() if path in judged | renamed}))
    before, after = (dict(reversed(side.faults)) for side in sides)
    broken = [("code-broken", path, reason) for path, reason in after.items() if path not in before]
    gone = before.keys() - new.snapshot.files.keys()  # what is not there any more was not mended
    broken += [("code-mended", path, reason) for path, reason in before.items() if path not in {*after, *gone}]
    changes += [Change(AREA, kind, path, path, detail=reason) for kind, path, reason in broken]
    known = [{path: side.codes[path] for path in side.codes if path in judged - unread.keys()} for side in sides]
    pairs = pair_files(*known)
    names = {entry.name for side in sides for entry in side.entries}
    basis = Judged(pairs, (old.texts, new.texts), causes(revisions.matrix), names, partial(_settings, revisions))
    changes += _within_bounds(told(_changes(pairs), basis))
    own = {path.removesuffix(".py") for path in new.snapshot.files}  # told as what the file cannot load without
    changes = [change for change in changes if change.kind != "package-required" or change.symbol not in own]
    changes += [change for one in maps for change in _map_changes(*one)]
    changes = sorted(changes, key=lambda change: change.path)
    settled = [path for path in paths if path not in differ and path not in unread]
    words = [Message("code ({} of {} Python files)", len(settled), len(paths))] if settled else []
    known_as_broken = {path for path in judged & new.marked if path not in before}
    parts = [
        one for path, one in unread.items() if path not in known_as_broken and (path in judged or path not in differ)
    ]
    parts += [part for part in blind if part.path in configs]
    away = dict.fromkeys((entry.config, entry.away) for side in sides for entry in side.entries if entry.away)
    parts += [Unread(path, Message("the code that it names is in {}, and was not compared", it)) for path, it in away]
    return Compared(tuple(changes), tuple(parts), equal=tuple(words))


def _parse(
    revisions: Revisions, sides: Sequence[CodeSide], wanted: Collection[str], needed: Collection[str]
) -> tuple[dict[str, Unread], set[str]]:
    """Read and parse both sides of the files; return the unread ones and the ones with equal bytes, which are parsed
    only if they are ``needed``."""
    read = [read_sources(side.snapshot, sorted({*wanted} & side.snapshot.files.keys())) for side in sides]
    unread = {one.path: one for _, refused in read for one in refused}
    equal = {source.path for source in {*read[0][0]} & {*read[1][0]}}
    skipped = equal - {*needed} | unread.keys()
    sources = [(side, one) for side, (found, _) in zip(sides, read, strict=True) for one in found]
    sources = [(side, one) for side, one in sources if one.path not in skipped]
    reaching = {name: row.get("kind", "") for row in revisions.matrix.rows("reaching-calls") for name in row["names"]}
    for (side, source), result in zip(sources, parse([source for _, source in sources], reaching), strict=True):
        side.texts[source.path] = source.lines
        match result:
            case FileCode():
                side.codes[source.path] = result
                continue
            case NotPython():
                side.marked.update([source.path] if source.has_conflict_marks else [])
                marks = Message("it holds the marks of a conflict")
                side.faults.append((source.path, marks if source.path in side.marked else result.reason))
        unread.setdefault(source.path, result)
    return unread, equal


def _asks_what_is_loaded(sides: Sequence[CodeSide], differ: Collection[str]) -> bool:
    """Return whether the configurations must be read: a changed file is not named like loaded ones, or another file has
    its kind, or a class is gone. Otherwise all files are judged, without a request for unchanged ones."""
    kinds = Counter(map(kind_of_file, {path for side in sides for path in side.snapshot.files}))
    if any(kind is None or kinds[kind] > 1 for kind in map(kind_of_file, differ)):
        return True
    after = {definition.name for code in sides[1].codes.values() for definition in code.definitions}
    classes = {one.name for code in sides[0].codes.values() for one in code.definitions if one.kind == "class"}
    return bool(classes - after)


def _more(snapshot: Snapshot, paths: Sequence[str]) -> dict[str, FileCode]:
    """Return the code of files that are the same on both sides."""
    sources, _ = read_sources(snapshot, [path for path in paths if path in snapshot.files])
    codes = zip(sources, parse(sources), strict=True)
    return {source.path: code for source, code in codes if isinstance(code, FileCode)}


def _settings(revisions: Revisions) -> set[str]:
    """Return the keys of config.json that both sides set."""
    sides = (revisions.new,) * 2 if revisions.same("config.json") else (revisions.old, revisions.new)
    read = [read_json(side, "config.json") for side in sides]
    found = [{*one.data} if one and not isinstance(one, Unread) else set[str]() for one in read]
    return found[0] & found[1]


def _changes(pairs: Sequence[FilePair]) -> list[Change]:
    moved = moved_definitions(pairs)
    changes = [*moved.changes, *_sites(pairs)]
    for pair in pairs:
        if pair.old_path is None or pair.new_path is None:
            changes += one_sided(pair)
            continue
        if pair.old_path != pair.new_path:
            changes.append(Change(AREA, "file-moved", pair.path, pair.path, pair.old_path, pair.new_path))
        found = [*compare_file(pair, moved), *checkpointing(pair)]
        changes += found
        if not found and all(change.path != pair.path for change in changes):
            detail = None if pair.old.meaning == pair.new.meaning else Message("definitions in another order")
            changes.append(Change(AREA, "formatting-only", pair.path, pair.path, detail=detail))
    return changes


def _sites(pairs: Sequence[FilePair]) -> Iterator[Change]:
    """Yield places that reach beyond computing or ask for a version and that no old file has; one change for all of a
    kind in one function."""
    known = Counter((site.kind, site.key) for pair in pairs for site in pair.old.sites)
    groups: dict[tuple[str, str, str], list[Site]] = {}
    for pair in pairs:
        for site in pair.new.sites:
            if known[site.kind, site.key] > 0:
                known[site.kind, site.key] -= 1
            else:
                groups.setdefault((pair.path, site.kind, site.scope), []).append(site)
    for (path, kind, scope), sites in groups.items():
        text = "; ".join(dict.fromkeys(site.text for site in sites))[:_MAX_TEXT]
        name = kind if kind == MINOR_ONLY else f"{kind}-added"
        at_load = any(site.at_load for site in sites)
        when = Message("runs as soon as the code is loaded") if at_load else Message("runs when {} does", scope)
        yield Change(AREA, name, path, scope, None, text, len(sites), None if sites[0].is_gate else when)


def _within_bounds(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield at most so many changes of a kind in a file; one more stands for the others."""
    count: Counter[tuple[str, str]] = Counter()
    for change in changes:
        count[change.path, change.kind] += 1
        if count[change.path, change.kind] <= _MAX_OF_A_KIND:
            yield change
    for (path, kind), number in count.items():
        rest = number - _MAX_OF_A_KIND
        if rest > 0:
            detail = Message("not listed one by one")
            yield Change(AREA, kind, path, Message("{} more", rest), count=rest, detail=detail)


def _auto_map(revisions: Revisions, path: str) -> tuple[str, list[LoadedEntry], list[LoadedEntry]] | Unread:
    """Return the path of a configuration, and its entries, old and new."""
    new = _entries(revisions.new, path)
    old = new if revisions.same(path) else _entries(revisions.old, path)
    if isinstance(old, Unread):
        return old
    return new if isinstance(new, Unread) else (path, old, new)


def _entries(snapshot: Snapshot, path: str) -> list[LoadedEntry] | Unread:
    """Return the entries of one side by key (``AutoModel``, ``AutoTokenizer.0``); none without file or auto_map."""
    document = read_json(snapshot, path)
    if isinstance(document, Unread):
        return document
    own = {name.casefold() for name in (snapshot.repo, snapshot.asked) if name}
    loaded: dict[str, LoadedEntry] = {}
    for key, text in entries(document.data) if document else ():
        repository, separator, _ = text.rpartition("--")
        away = repository[:_MAX_REFERENCE] if separator and repository.casefold() not in own else None
        loaded[key] = LoadedEntry(path, key[:_MAX_REFERENCE], text[:_MAX_REFERENCE], away)
        if len(loaded) > _MAX_ENTRIES:
            return Unread(path, Message("its auto_map has more than {} entries", _MAX_ENTRIES))
    return [*loaded.values()]


def _map_changes(path: str, old: Sequence[LoadedEntry], new: Sequence[LoadedEntry]) -> Iterator[Change]:
    """Yield changed entries, with their kind if they point into a repository that no old entry named: a revision does
    not pin what is there."""
    known = {entry.away for entry in old}
    changed = differences({one.key: one for one in old}, {one.key: one for one in new})
    for key, before, after in sorted(changed, key=lambda one: one[0]):
        away = after.away if after and after.away not in known else None
        kind = "auto-map-other-repository" if away else "auto-map-changed"
        detail = Message("code of {}", away) if away else None
        yield Change(AREA, kind, path, key, before and before.text, after and after.text, detail=detail)
