"""The repository's own Python code, compared by syntax tree. Nothing of it is imported or executed.

Only files that transformers loads are judged: from the auto_map along relative imports. Where nothing says what is
loaded, all are. ``symbol`` is the class and method, ``module level``, an imported name or an auto_map key. The kinds:

* ``training-code-changed``: a training step can reach it, and what it means is not known; if it is known, a kind of the
  table ``training-code``, with what only the old revision has before and what only the new one has after;
* ``code-broken``, ``code-mended``: transformers cannot load the new, the old file;
* ``gradient-checkpointing-noop``: switching it on reaches no module that asks for it, or sets and calls nothing;
  ``-fails``: checkpoint() gets keywords that it refuses; ``-mended``: one of the two in the old revision alone;
* ``signature-changed``: a call that the old one accepts may fail or mean something else; ``default-unused``:
  config.json sets it, or no training step calls it; ``call-refused``: a keyword that what is called, in the same file,
  has no parameter for; ``arguments-misplaced``: names by position that land in others; ``minor-only-gate``: a
  comparison with the second number of a version alone;
* ``exec-call-added`` and its like: ``detail`` says when it runs; that none was found is no proof that there is none;
* ``definition-…``: of what no training step reaches, or whole classes and functions: what speaks of these changed too;
* ``package-required``: new, and without it transformers does not load the file; ``file-not-loaded``: no auto_map leads
  to the file, which changed; ``transformers-window``: before and after are ranges such as ``>=4.36,<4.48``.

Conditions on transformers are necessary ones: names that must be importable (looked up in the ledger of released
packages), methods that must be there, the first release of a model type.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.lookup import Lacking, Symbol, answer
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.released_wheels import transformers_types
from envdoctor.observe.model.files import AUTO_MAP_FILES, entries
from envdoctor.revision.code.parts import loaded
from envdoctor.revision.code.parts.canonical import MINOR_ONLY, Site
from envdoctor.revision.code.parts.changes import FilePair, compare_file, moved_definitions, one_sided, pair_files
from envdoctor.revision.code.parts.loaded import CodeSide, LoadedEntry, NotPython, kind_of_file
from envdoctor.revision.code.parts.training import told
from envdoctor.revision.code.parts.tree import FileCode
from envdoctor.revision.comparer import Change, Compared, Revisions, differences, parted, read_json
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.system.message import Message, listed
from envdoctor.versions.releases import EVERY, Range, Releases, intersect, parse_ranges, spell_ranges

_MAX_OF_A_KIND = 100
_MAX_TEXT = 160
_MAX_ENTRIES = 200
_MAX_REFERENCE = 200
_TABLE = "transformers-demands"
_CONFIGS = ("config.json", "tokenizer_config.json")
_change = partial(Change, "code")


def wants(path: str) -> bool:
    """Return whether it is a Python file, or a configuration that says which of them transformers loads."""
    return path.endswith(".py") or path in AUTO_MAP_FILES


def compare(revisions: Revisions) -> Compared:
    """Return the changes of loaded ``*.py`` files and of the entries that name them, and one of each other file."""
    paths = [path for path in revisions.files if path.endswith(".py")]
    changed = revisions.changed(paths)
    configs = revisions.changed(AUTO_MAP_FILES)
    maps, blind = parted(_auto_map(revisions, path) for path in configs)
    entries = [one for _, before, _ in maps for one in before], [one for _, _, after in maps for one in after]
    snapshots = zip((revisions.old, revisions.new), entries, strict=True)
    sides = old, new = [CodeSide(snapshot, known, {}, {}, [], set()) for snapshot, known in snapshots]
    renamed = {entry.path for entry in {*new.entries} - {*old.entries} if not entry.away} & new.snapshot.files.keys()
    unread, equal = _parse(revisions, sides, {*changed, *renamed}, renamed)
    differ = [path for path in changed if path not in equal]
    judged = {*differ}
    if _asks_what_is_loaded(sides, differ):
        rest, unknown = parted(_auto_map(revisions, path) for path in AUTO_MAP_FILES if path not in configs)
        for _, was, now in rest:
            old.entries.extend(was)
            new.entries.extend(now)
        if not (blind or unknown):
            reached = loaded.loaded_files(sides, differ)
            judged = judged if reached is None else reached
    changes = [_change("file-not-loaded", path, path) for path in differ if path not in judged]
    for path, one in unread.items():
        if path in judged and path in old.texts.keys() | new.texts.keys() and not isinstance(one, NotPython):
            changes.append(_change("unparsable", path, path, detail=one.reason))
    for side in sides:
        codes = {path: one for path, one in side.codes.items() if path in judged | renamed}
        side.faults.extend(loaded.faults(side, codes))
    before, after = (dict(reversed(side.faults)) for side in sides)
    changes += [_change("code-broken", path, path, detail=after[path]) for path in after if path not in before]
    mended = [path for path in before if path not in after and path in new.snapshot.files]
    changes += [_change("code-mended", path, path, detail=before[path]) for path in mended]
    known = [{path: side.codes[path] for path in side.codes if path in judged - unread.keys()} for side in sides]
    pairs = pair_files(*known)
    changes += _within_bounds(told(_changes(pairs), pairs, revisions, sides))
    own = {path.removesuffix(".py") for path in new.snapshot.files}  # told as what the file cannot load without
    changes = [change for change in changes if change.kind != "package-required" or change.symbol not in own]
    changes += [change for one in maps for change in _map_changes(*one)]
    changes = sorted(changes, key=lambda change: change.path)
    settled = [path for path in paths if path not in differ and path not in unread]
    words = [Message("code ({} of {} Python files)", len(settled), len(paths))] if settled else []
    told_as_broken = {path for path in judged & new.marked if path not in before}
    silent = told_as_broken | ({*differ} - judged)
    parts = [one for path, one in unread.items() if path not in silent]
    parts += blind
    away = dict.fromkeys((entry.config, entry.away) for side in sides for entry in side.entries if entry.away)
    parts += [Unread(path, Message("the code that it names is in {}, and was not compared", it)) for path, it in away]
    window = _windows(revisions, sides, unread)
    return Compared((*changes, *window.changes), tuple(parts), window.facts, tuple(words))


def _parse(
    revisions: Revisions, sides: Sequence[CodeSide], chosen: Collection[str], needs: Collection[str]
) -> tuple[dict[str, Unread], set[str]]:
    """Return the unread files, and those with equal bytes, which are parsed only if in ``needs``; fill the sides."""
    paths = [sorted({*chosen} & side.snapshot.files.keys()) for side in sides]
    results_of = [parted(loaded.read_sources(side.snapshot, names)) for side, names in zip(sides, paths, strict=True)]
    unread = {one.path: one for _, refused in results_of for one in refused}
    equal = {source.path for source in {*results_of[0][0]} & {*results_of[1][0]}}
    skipped = equal - {*needs} | unread.keys()
    sources = [(side, one) for side, (contents, _) in zip(sides, results_of, strict=True) for one in contents]
    sources = [(side, one) for side, one in sources if one.path not in skipped]
    reaching = {name: row.get("kind", "") for row in revisions.matrix.rows("reaching-calls") for name in row["names"]}
    results = loaded.parse([source for _, source in sources], reaching)
    for (side, source), result in zip(sources, results, strict=True):
        side.texts[source.path] = source.lines
        match result:
            case FileCode():
                side.codes[source.path] = result
                continue
            case NotPython():
                side.marked.update([source.path] if loaded.CONFLICT_MARKS.search(source.content) else [])
                marks = Message("it holds the marks of a conflict")
                side.faults.append((source.path, marks if source.path in side.marked else result.reason))
        unread.setdefault(source.path, result)
    return unread, equal


def _asks_what_is_loaded(sides: Sequence[CodeSide], differ: Collection[str]) -> bool:
    """Return whether the configurations must be read: a changed file is not named like loaded ones, or another file has
    its kind, or a class is gone. Otherwise all files are judged, without a request for unchanged ones."""
    kinds = Counter(map(kind_of_file, {path for side in sides for path in side.snapshot.files}))
    before, after = ([part for code in side.codes.values() for part in code.definitions] for side in sides)
    gone = {part.name for part in before if part.kind == "class"} - {part.name for part in after}
    return bool(gone) or any(kind is None or kinds[kind] > 1 for kind in map(kind_of_file, differ))


def _changes(pairs: Sequence[FilePair]) -> list[Change]:
    changes, moved = moved_definitions(pairs)
    changes += _sites(pairs)
    for pair in pairs:
        if pair.old_path is None or pair.new_path is None:
            changes += one_sided(pair)
            continue
        if pair.old_path != pair.new_path:
            changes.append(_change("file-moved", pair.path, pair.path, pair.old_path, pair.new_path))
        changes_of_file = [*compare_file(pair, moved)]
        changes += changes_of_file
        if not changes_of_file and all(change.path != pair.path for change in changes):
            before, after = ([part.name for part in code.definitions] for code in (pair.old, pair.new))
            detail = None if before == after else Message("definitions in another order")
            changes.append(_change("formatting-only", pair.path, pair.path, detail=detail))
    return changes


def _sites(pairs: Sequence[FilePair]) -> Iterator[Change]:
    """Yield new places that reach beyond computing or ask for a version; one change for a kind in a function."""
    counts = Counter((site.kind, site.key) for pair in pairs for site in pair.old.sites)
    groups: dict[tuple[str, str, str], list[Site]] = {}
    for path, site in ((pair.path, site) for pair in pairs for site in pair.new.sites):
        counts[site.kind, site.key] -= 1
        if counts[site.kind, site.key] < 0:
            groups.setdefault((path, site.kind, site.scope), []).append(site)
    for (path, kind, scope), sites in groups.items():
        text = "; ".join(dict.fromkeys(site.text for site in sites))[:_MAX_TEXT]
        name = kind if kind == MINOR_ONLY else f"{kind}-added"
        at_load = any(site.at_load for site in sites)
        when = Message("runs as soon as the code is loaded") if at_load else Message("runs when {} does", scope)
        yield _change(name, path, scope, None, text, len(sites), None if sites[0].is_gate else when)


def _within_bounds(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield at most so many changes of a kind in a file; one more stands for the others."""
    count: Counter[tuple[str, str]] = Counter()
    for change in changes:
        count[change.path, change.kind] += 1
        if count[change.path, change.kind] <= _MAX_OF_A_KIND:
            yield change
    for (path, kind), number in count.items():
        if (rest := number - _MAX_OF_A_KIND) > 0:
            yield _change(kind, path, Message("{} more", rest), count=rest, detail=Message("not listed one by one"))


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
    entries_by_key: dict[str, LoadedEntry] = {}
    for key, text in entries(document.data) if document else ():
        repository, separator, _ = text.rpartition("--")
        away = repository[:_MAX_REFERENCE] if separator and repository.casefold() not in own else None
        entries_by_key[key] = LoadedEntry(path, key[:_MAX_REFERENCE], text[:_MAX_REFERENCE], away)
        if len(entries_by_key) > _MAX_ENTRIES:
            return Unread(path, Message("its auto_map has more than {} entries", _MAX_ENTRIES))
    return [*entries_by_key.values()]


def _map_changes(path: str, old: Sequence[LoadedEntry], new: Sequence[LoadedEntry]) -> Iterator[Change]:
    """Yield changed entries; those into another repository, which no revision pins, have a kind of their own."""
    sources = {entry.away for entry in old}
    changed = differences({item.key: item for item in old}, {item.key: item for item in new})
    for key, before, after in sorted(changed, key=lambda item: item[0]):
        away = after.away if after and after.away not in sources else None
        kind = "auto-map-other-repository" if away else "auto-map-changed"
        detail = Message("code of {}", away) if away else None
        yield _change(kind, path, key, before and before.text, after and after.text, detail=detail)


class _Demand(NamedTuple):
    """One condition: releases that meet it, and a clause that says what asks for them."""

    releases: str
    reason: Message
    path: str


def _windows(revisions: Revisions, sides: list[CodeSide], unread: Mapping[str, Unread]) -> Compared:
    """Return the windows of both sides as facts, and a change if they differ; ``unread`` are files without code."""
    paths = [path for path in revisions.changed() if path in _CONFIGS or kind_of_file(path)]
    windows: list[str | Unknown] = [Unknown(Message("neither the code nor the configuration changed"))] * 2
    demands_of = [parted(_demands(side, paths, unread, revisions.matrix)) for side in sides]
    for number, (demands, problems) in enumerate(demands_of if paths else ()):
        window: tuple[Range, ...] = EVERY
        for demand in demands:
            window = intersect(window, parse_ranges(demand.releases))
        problem = problems[0] if problems else None
        windows[number] = Unknown(Message("{}: {}", *problem)) if problem else spell_ranges(window)
    (before, old_problems), (after, new_problems) = demands_of
    was, now = windows
    compared = Compared(facts={"revision.transformers_old": was, "revision.transformers_new": now})
    if old_problems or new_problems or was == now:
        return compared
    reasons_before, asks = ({demand.reason for demand in demands} for demands in (before, after))
    news = [demand for demand in dict.fromkeys(after) if demand.reason not in reasons_before]
    dropped = [Message("no longer: {}", item.reason) for item in dict.fromkeys(before) if item.reason not in asks]
    path = (news or after or before)[0].path
    detail = listed([*(demand.reason for demand in news), *dropped], 3)
    change = Change("code", "transformers-window", path, "transformers", str(was), str(now), 1, detail)
    return compared._replace(changes=(change,))


def _demands(
    side: CodeSide, paths: list[str], unread: Mapping[str, Unread], matrix: Matrix
) -> Iterator[_Demand | Unread]:
    """Yield what the given files ask for: first the demands of configurations, then those of code."""
    present = [path for path in paths if path in side.snapshot.files]
    for path in present:
        document = read_json(side.snapshot, path) if path in _CONFIGS else None
        if isinstance(document, Unread):
            yield document
            return
        elif document is not None:
            yield from _config_demands(path, document.data, matrix)
    for path in present:
        if path in side.codes:
            yield from _import_demands(path, side.codes[path], matrix.ledger)
            yield from _method_demands(path, side.codes[path], matrix)
        elif path in unread:
            yield unread[path]


def _config_demands(path: str, data: Mapping[str, Any], matrix: Matrix) -> Iterator[_Demand]:
    own_code = path == "config.json" and isinstance(data.get("auto_map"), dict) and bool(data["auto_map"])
    kind = data.get("model_type")
    releases = transformers_types(matrix).releases(kind) if path == "config.json" and isinstance(kind, str) else None
    if releases and not own_code:
        yield _Demand(releases, Message("model type {} is registered in {}", str(kind)[:60], releases), path)
    for row in matrix.rows(_TABLE, "config"):
        value = data.get(row["key"])
        if row["file"] != path or value is None or row.get("without") in data or own_code:
            continue
        if "values" not in row or value in row["values"]:
            setting = f"{row['key']} = {value}" if "values" in row else row["key"]
            yield _Demand(row["releases"], Message("{} is understood by {}", setting, row["releases"]), path)


def _method_demands(path: str, code: FileCode, matrix: Matrix) -> Iterator[_Demand]:
    for definition in code.definitions:
        owner, _, method = definition.name.rpartition(".")
        names = {parameter.name for parameter in definition.parameters}
        open_ended = any(parameter.kind == "**" for parameter in definition.parameters)
        for row in matrix.rows(_TABLE, "method"):
            fits = method == row["name"] and fnmatchcase(owner.rpartition(".")[2], row["class"])
            if fits and row["lacks"] not in names and not open_ended:
                what = Message("{} takes no {}", definition.name, row["lacks"])
                yield _Demand(row["releases"], Message("{}, which works with {}", what, row["releases"]), path)
    if any(site.is_gate for site in code.sites):
        return
    defined = {definition.leaf for definition in code.definitions}
    for call in (call for definition in code.definitions for call in definition.calls):
        function = call.name.rpartition(".")[2]
        keywords = {keyword.partition("=")[0] for keyword in call.keywords}
        for row in matrix.rows(_TABLE, "call"):
            wanted = row.get("keyword")
            if function == row["name"] and function not in defined and (wanted is None or wanted in keywords):
                shown = f"{function}({wanted}=…)" if wanted else function
                yield _Demand(row["releases"], Message("{} is in {}", shown, row["releases"]), path)


def _import_demands(path: str, code: FileCode, ledger: Ledger) -> Iterator[_Demand]:
    """Yield what a file imports whenever it is loaded, unless all releases have it. A name that no release has may be
    newer: then its module counts. The last release that was read of each minor (``4.36``) stands for all."""
    released = ledger.package("transformers")
    if released is None:
        return
    minors = {".".join(version.split(".")[:2]): version for version in released.read}
    demands: dict[str, str | None] = {}
    for use in code.uses:
        if use.module.partition(".")[0] != "transformers" or use.guarded or use.within or use.branch:
            continue
        symbol = Symbol(use.module, use.name, use.keyword)
        having = _having(ledger, released, symbol, minors)
        having = having if having.yes else _having(ledger, released, Symbol(use.module), minors)
        what = f"{use.dotted}({use.keyword}=)" if use.keyword else use.dotted
        demands[what] = having.specifier
    for what, releases in demands.items():
        if releases:
            yield _Demand(releases, Message("{} is in {}", what, releases), path)


def _having(ledger: Ledger, released: Released, symbol: Symbol, minors: Mapping[str, str]) -> Releases:
    """Return the releases that have it. A release that cannot tell is like the one before it."""
    answers: list[bool] = []
    for version in minors.values():
        lacking = answer(ledger, released, symbol, version, lambda _: None)
        unsure = isinstance(lacking, Unknown)
        answers.append(answers[-1] if unsure and answers else not isinstance(lacking, Lacking))
    return Releases.of(list(minors), answers)
