"""The licence, and files that belong to no other area: which came, went or changed. They are not read unless nothing
else can tell.

``file-read-by-code``: the repository's Python files name it. ``documentation-changed``: pictures, notebooks, text and
.gitattributes, added and removed ones too. ``licence-field-…``: symbol is the field of README.md, ``license``.

Of pickles: which came, whether safetensors went, and what new ones would import when they are loaded. ``pickle-added``:
after is ``loaded by default``, ``beside safetensors`` or ``other file``. ``safetensors-removed``: it is what is loaded
instead, or nothing. ``unsafe-global-added``: it is ``runs code`` or ``not on torch's list``. A file with a pickle's
name and other first bytes is told as another file.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

from envdoctor.revision.comparer import Change, Compared, Revisions, differences, outcome, parted, short
from envdoctor.revision.hub.pickle_reading import COMPUTED_NAME, Checkpoint, read_checkpoint
from envdoctor.revision.hub.snapshot import Snapshot, Unread, is_text_about_the_model
from envdoctor.revision.weights.parts.layouts import SetKey, main_set, weight_paths, weight_sets
from envdoctor.system.message import Message, listed

_LIMIT = 16 << 20
#: Beside what is about the model: other text, which no loader reads.
_DOCUMENTATION = (".txt", ".rst", ".ipynb", ".html", ".css")
_README = "README.md"
_LICENCES = ("licen", "copying", "notice", "use_policy", "usage_policy")
_LONGEST_LICENCE, _MOST_LICENCES = 4 << 20, 20
_FRONT = 64 << 10
_FIELDS = ("license", "license_name", "license_link")
#: Read line by line: a YAML reader would follow the aliases of a hostile file, and one scalar is all that is wanted.
_FIELD = re.compile(rf"^({'|'.join(_FIELDS)})[ \t]*:(.*)", re.MULTILINE)
_ITEMS = re.compile(r"^[ \t]*-(.+)", re.MULTILINE)


def compare(revisions: Revisions) -> Compared:
    """Return the changes of other files, in the order of the paths."""
    count = len(revisions.files)
    return outcome(_compare(revisions), Message("{} other files", count) if count else None)


def _compare(revisions: Revisions) -> Iterator[Change | Unread]:
    code: tuple[str, ...] | Unread | None = ()  # read once, and only where it matters
    for path in revisions.changed():
        state = revisions.state(path)
        pair = revisions.read(path, _LIMIT) if state == "unknown" else None
        if isinstance(pair, Unread):
            yield pair
        elif pair is None or pair[0] != pair[1]:
            about = is_text_about_the_model(path) or path.lower().endswith(_DOCUMENTATION)
            if code == () and not about:
                code = revisions.code() or None
                if isinstance(code, Unread):
                    yield code
            is_named = type(code) is tuple and any(posixpath.basename(path) in text for text in code)
            kind = "file-read-by-code" if is_named else f"file-{'changed' if pair else state}"
            yield Change("files", "documentation-changed" if about else kind, path, path, *revisions.sizes(path))


def is_licence(path: str) -> bool:
    """Return whether it is a licence's text, or README.md, where only the declared fields are compared."""
    name = posixpath.basename(path).lower()
    return path == _README or (any(word in name for word in _LICENCES) and not name.endswith((".py", ".safetensors")))


def compare_licences(revisions: Revisions) -> Compared:
    """Return the changes. Licence files are read only to see whether more than blanks and line breaks changed."""
    listed = _README in revisions.changed() and _cards(revisions)
    name = Message("licence (of README.md by the Hub's list)") if listed else Message("licence")
    return outcome(_compare_licences(revisions), name if revisions.files else None)


def _cards(revisions: Revisions) -> list[dict[str, str]]:
    """Return what both lists give of README.md; nothing unless one of two lists of a Hub gives any of it."""
    cards = [card for card in (revisions.old.card, revisions.new.card) if card is not None]
    fields: list[dict[str, str]] = []
    for card in cards if len(cards) == 2 and any(cards) else ():
        lists = [(name, values if isinstance(values := card.get(name), list) else [values]) for name in _FIELDS]
        texts = [(name, ", ".join(item for item in values if isinstance(item, str))) for name, values in lists]
        fields.append({name: short(text) for name, text in texts if text})
    return fields


def _compare_licences(revisions: Revisions) -> Iterator[Change | Unread]:
    changed = revisions.changed()
    for path in changed[_MOST_LICENCES:][:1]:
        yield Unread(path, Message("only {} files of this kind are compared", _MOST_LICENCES))
    for path in changed[:_MOST_LICENCES]:
        cards = _cards(revisions) if path == _README else []
        pair = (None, None) if cards else revisions.read(path, _LONGEST_LICENCE)
        if isinstance(pair, Unread):
            yield pair
        elif path == _README:
            for name, before, after in differences(*(cards or map(_front_matter, pair))):
                yield _change("field", path, name, before, after)
        elif None in pair or (pair[0] or b"").split() != (pair[1] or b"").split():
            yield _change("text", path, path, *revisions.sizes(path))


def _change(part: str, path: str, symbol: str, before: str | None, after: str | None) -> Change:
    how = "added" if before is None else "removed" if after is None else "changed"
    return Change("licence", f"licence-{part}-{how}", path, symbol, before, after)


def _front_matter(content: bytes | None) -> dict[str, str]:
    text = (content or b"")[:_FRONT].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}
    front = text[4:].partition("\n---")[0]
    fields = {}
    for match in _FIELD.finditer(front):
        value = match[2].strip("\"' \t")
        if not value:  # a list of licences on the lines below
            block = re.match(r"(?:\n[ \t]*-[^\n]*)+", front[match.end() :])
            value = ", ".join(item.strip("\"' \t") for item in _ITEMS.findall(block[0])) if block else ""
        if value:
            fields[match[1]] = short(value)
    return fields


_EXTENSIONS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
_MOST_GLOBALS = 20
_RUNS_CODE = "runs code"
_NOT_LISTED = "not on torch's list"

Names = Mapping[str, Collection[str]]
Sets = Mapping[SetKey, tuple[str, ...]]


def is_pickle_name(path: str) -> bool:
    """Return whether the file's name is a pickle's."""
    return path.lower().endswith(_EXTENSIONS)


def compare_pickles(revisions: Revisions) -> Compared:
    """Return the changes. Each added or changed file is read to the end of its pickle if that can be understood."""
    old, new = revisions.old, revisions.new
    before, after = weight_sets(old), weight_sets(new)
    here = [path for path in revisions.changed() if path in new.files]
    read = {path: read_checkpoint(new, path, revisions.clock) for path in here}
    others = {path for path, found in read.items() if not isinstance(found, Unread) and not found.is_pickle}
    changes, unread = parted(_globals(revisions, read))
    changes_of_files = [*_added(old, new, before, after, others), *_safetensors_removed(before, after)]
    # Files that only have a pickle's name, except weights, which the comparer of weights tells.
    gone = {path for path in revisions.changed() if path not in new.files}
    for path in sorted((others | gone) - weight_paths(new).keys() - weight_paths(old).keys()):
        changes_of_files.append(Change("files", f"file-{revisions.state(path)}", path, path, *revisions.sizes(path)))
    return Compared((*changes_of_files, *changes), unread)


def _added(old: Snapshot, new: Snapshot, before: Sets, after: Sets, others: Collection[str]) -> Iterator[Change]:
    """Yield one change for each set of weights, and one for each other file."""
    main, beside = main_set(after), any(key.format == "safetensors" for key in after)
    rest = new.files.keys() - old.files.keys() - {*others}
    for key, files in after.items():
        if key.format == "pickled" and not {*files} <= {*others}:
            rest -= {*files}
            if key not in before:
                how = "loaded by default" if key == main else "beside safetensors" if beside else "other file"
                yield Change("files", "pickle-added", files[0], key.stem, None, how, len(files))
    for path in filter(is_pickle_name, sorted(rest)):
        yield Change("files", "pickle-added", path, posixpath.basename(path), None, "other file")


def _safetensors_removed(before: Sets, after: Sets) -> Iterator[Change]:
    was, now = main_set(before), main_set(after)
    if was is None or was.format != "safetensors" or was in after or (now and now.format == "safetensors"):
        return
    instead = listed(after[now], 2) if now is not None else None
    files = before[was]
    yield Change("files", "safetensors-removed", files[0], was.stem, listed(files, 2), instead, len(files))


def _verdict(name: str, safe: Names, unsafe: Names) -> str | None:
    """Return :data:`RUNS_CODE`, :data:`NOT_LISTED`, or None for a global that torch loads without being asked."""
    if name == COMPUTED_NAME:
        return _RUNS_CODE
    module, _, attribute = name.rpartition(".")
    if attribute in safe.get(module, ()):
        return None
    while module:
        if not {"*", name[len(module) + 1 :].partition(".")[0]}.isdisjoint(unsafe.get(module, ())):
            return _RUNS_CODE
        module = module.rpartition(".")[0]
    return _NOT_LISTED


def _globals(revisions: Revisions, read: Mapping[str, Checkpoint | Unread]) -> Iterator[Change | Unread]:
    """Yield unsafe globals that no pickle of the same name has in the old revision."""
    old = revisions.old
    parts = (revisions.matrix.part("pickle-globals", part) for part in ("safe", "runs-code"))
    safe, unsafe = (part.get("names", {}) for part in parts)
    files: dict[tuple[bool, str], list[str]] = {}  # what runs code comes first
    for path, checkpoint in read.items():
        if isinstance(checkpoint, Unread):
            yield checkpoint
            continue
        if not checkpoint.all_globals:
            yield Unread(path, Message("not all of its pickle was looked at: {}", checkpoint.problem))
        verdicts = {name: _verdict(name, safe, unsafe) for name in checkpoint.globals}
        bad = [(verdict != _RUNS_CODE, name) for name, verdict in verdicts.items() if verdict is not None]
        before = read_checkpoint(old, path, revisions.clock) if bad and path in old.files else None
        for key in bad:
            if before is None or isinstance(before, Unread) or key[1] not in before.globals:
                files.setdefault(key, []).append(path)
    more = len(files) - _MOST_GLOBALS
    for number, ((mild, name), paths) in enumerate(sorted(files.items())[: _MOST_GLOBALS + 1]):
        detail, verdict = listed(paths, 3) if len(paths) > 1 else None, _NOT_LISTED if mild else _RUNS_CODE
        change = Change("files", "unsafe-global-added", paths[0], name[:200], None, verdict, len(paths), detail)
        rest = change._replace(symbol=Message("{} more globals", more), count=more, detail=None)
        yield change if number < _MOST_GLOBALS else rest
