"""Tokenizer files: special tokens and their ids, settings, vocabulary, merges.

``symbol`` is a token, a role such as ``eos_token``, or a key. Keys have the kinds of table config-keys, parts of
tokenizer.json one each (``_STEPS``). Of the others:

* ``special-token-moved``: an added token has other ids; ``-renamed``: an id that was one added token is another one;
* ``special-token-listed``, ``-unlisted``, ``special-role-listed``, ``-unlisted``: came or went in a changed file, while
  something that was not read may hold it: an unchanged file, or the vocabulary itself;
* ``extra-tokens-changed``: names, tokens and order of additional_special_tokens or extra_special_tokens;
  ``extra-tokens-list``: the latter is a list now, the form of transformers 5;
* ``class-suffix-changed``: of the tokenizer_class only "Fast" came or went;
* ``tokenizer-file-added``, ``tokenizer-file-removed``: of the first and the last file nothing else is told.
"""

import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.model.files import JsonObject
from envdoctor.revision import comparer
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.revision.settings.settings_files import compare_settings, flatten, names_of, repeated_keys
from envdoctor.system.message import Message

_JSON = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
_CONFIG, _SPECIAL, _ADDED, _FILE = _JSON
#: Vocabularies and merges that are no JSON document of the tokenizers library.
_VOCABULARIES = (
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "spm.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "ice_text.model", "tekken.json"),
)
_MOST_FOLDERS = 10
#: The largest tokenizer.json of the Hub's well-known models has about 34 MB (gemma-3).
_LIMIT = 64 << 20
_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
_EXTRA = ("additional_special_tokens", "extra_special_tokens")
#: Not settings, or compared elsewhere.
_APART = ("chat_template", "added_tokens_decoder", *_EXTRA)
#: transformers writes int(1e30) for "no limit".
_NO_LIMIT = 10**15
_STEPS = {
    **dict.fromkeys(("normalizer", "pre_tokenizer"), "pre-tokenizer-changed"),
    **{"post_processor": "post-processor-changed", "decoder": "decoder-changed"},
    **{"truncation": "truncation-changed", "padding": "padding-changed"},
}
_MANY = 4
_NUMBER = re.compile(r"\d+")
_change = partial(comparer.Change, "tokenizer")


def wants(path: str) -> bool:
    """Return whether the file is a tokenizer's, also in a folder of its own; chat templates are compared elsewhere."""
    name = posixpath.basename(path).lower()
    return name in _JSON or name in _VOCABULARIES or name.endswith(".tiktoken")


def compare(revisions: comparer.Revisions) -> comparer.Compared:
    """Return the changes. Only files that differ are read, tokenizer.json included."""
    harmless = ("noise", "implicit", "class-suffix-changed")
    return comparer.outcome(_compare(revisions), "tokenizer" if revisions.files else None, harmless)


def _compare(revisions: comparer.Revisions) -> Iterator[comparer.Change | Unread]:
    changed: dict[str, list[str]] = {}
    for path in revisions.changed():
        changed.setdefault(posixpath.dirname(path), []).append(posixpath.basename(path))
    folders = sorted(changed.items())
    for folder, names in folders[:_MOST_FOLDERS]:
        yield from _compare_folder(_Folder(revisions, folder, names))
    for folder, _ in folders[_MOST_FOLDERS:]:
        yield Unread(folder, Message("only {} tokenizers are compared", _MOST_FOLDERS))


class _Folder(NamedTuple):
    """One folder with tokenizer files (the root; diffusion models have several), and which files in it differ."""

    revisions: comparer.Revisions
    path: str
    changed: list[str]

    def at(self, name: str) -> str:
        return posixpath.join(self.path, name)

    def doubt(self, *names: str) -> str | None:
        """Return a clause about the files that are known to be the same in both snapshots, and so were not read."""
        quiet = [name for name in names if self.revisions.same(self.at(name))]
        return Message("{}, the same in both revisions, may hold it", " and ".join(quiet)) if quiet else None

    def everywhere(self, *names: str) -> bool:
        """Return whether each snapshot has one of the files here; without names, any file of a tokenizer."""
        here = [self.at(name) for name in names]
        paths = here or [path for path in self.revisions.files if posixpath.dirname(path) == self.path]
        return all(not side.files.keys().isdisjoint(paths) for side in (self.revisions.old, self.revisions.new))


def _compare_folder(folder: _Folder) -> Iterator[comparer.Change | Unread]:
    for name in folder.changed:
        sizes = folder.revisions.sizes(folder.at(name))
        if None in sizes:
            kind = "tokenizer-file-added" if sizes[0] is None else "tokenizer-file-removed"
            yield _change(kind, folder.at(name), name, *sizes)
        elif name not in _JSON:
            yield from _compare_vocabulary_file(folder.revisions, folder.at(name), name)
    if not folder.everywhere():
        return  # a tokenizer that came or went as a whole
    old, new = (_read(side, folder) for side in (folder.revisions.old, folder.revisions.new))
    if _CONFIG in old.tables and _CONFIG in new.tables:
        yield from _keys(folder.at(_CONFIG), old.tables[_CONFIG], new.tables[_CONFIG], folder.revisions.matrix)
    if old.file is not None and new.file is not None:
        yield from _compare_files(folder.at(_FILE), old.file, new.file)
    if broken := old.broken + new.broken:
        yield from broken
        return  # what came or went cannot be told from what could not be read
    shown = folder.at(next((name for name in _JSON if name in folder.changed), folder.changed[0]))
    doubt = folder.doubt(_CONFIG, _SPECIAL)
    if not doubt and not folder.everywhere(_CONFIG, _SPECIAL):
        doubt = Message("one of the revisions has no file that names it; its vocabulary or code may hold it")
    roles = [*_compare_roles(shown, old.roles(), new.roles(), doubt)]
    yield from roles
    doubt = folder.doubt(_CONFIG, _ADDED, _FILE)
    if not doubt and None in (old.file, new.file) and not (old.tokens() and new.tokens()):
        # Before transformers 4.34 tokenizer_config.json did not list the tokens of the vocabulary.
        doubt = Message("one of the revisions lists no added tokens at all; its vocabulary or code may hold it")
    # added_tokens.json lists only what lies beyond the vocabulary.
    certain = {**old.data(_ADDED), **new.data(_ADDED)}
    role_changes = {change[:6] for change in roles}
    tokens = _grouped(_compare_tokens(shown, old.tokens(), new.tokens(), doubt, certain))
    yield from (change for change in tokens if change[:6] not in role_changes)


class _Token(NamedTuple):
    """A token: the ids and the flags that the files give."""

    numbers: tuple[int, ...] = ()
    flags: Mapping[str, bool] = {}

    @property
    def ids(self) -> str:
        """Return ``id 5``, or ``id 5, 7`` for several."""
        return Message("id {}", ", ".join(map(str, self.numbers)))


#: Name (of an extra token that has one), content and flags.
_Entry: TypeAlias = tuple[str | None, str, Mapping[str, bool]]


class _TokenizerFile(NamedTuple):
    """What is compared of one tokenizer.json: ``parts`` are the steps around the model and its options, by kind and
    name, ``scores`` those of a unigram model, whose ids are positions. ``form`` is the type of a merge: a list of two
    tokens (tokenizers >= 0.20), or one text."""

    added: list[Mapping[str, Any]]
    parts: Mapping[tuple[str, str], Any]
    vocabulary: Mapping[str, Any]
    scores: list[tuple[str, float]]
    merges: list[list[str]]
    form: type | None


class _Side(NamedTuple):
    """The changed tokenizer files of one snapshot by name, and the ``broken`` ones, which could not be read."""

    tables: Mapping[str, JsonObject]
    file: _TokenizerFile | None
    broken: tuple[Unread, ...]

    def data(self, name: str) -> Mapping[str, Any]:
        return self.tables[name].data if name in self.tables else {}

    def roles(self) -> dict[str, list[_Entry]]:
        """Return the tokens of each role, from tokenizer_config.json, else special_tokens_map.json."""
        roles: dict[str, list[_Entry]] = {}
        for table in (self.data(_SPECIAL), self.data(_CONFIG)):
            pairs = [(role, _entries([value])) for role, value in table.items() if _is_role(role, value)]
            roles |= {role: entries for role, entries in pairs if entries}
            for key in _EXTRA:
                entries = _entries(table.get(key))
                roles |= {_EXTRA[0]: entries} if entries else {}
        return roles

    def tokens(self) -> dict[str, _Token]:
        """Return tokens by content, from added_tokens_decoder, added_tokens of tokenizer.json, added_tokens.json."""
        decoder = self.data(_CONFIG).get("added_tokens_decoder")
        listed = decoder.items() if isinstance(decoder, Mapping) else ()
        rows: list[tuple[object, object]] = [(int(str(id)[:18]), entry) for id, entry in listed if str(id).isdecimal()]
        rows += [(entry.get("id"), entry) for entry in (self.file.added if self.file else ())]
        rows += [(number, {"content": content}) for content, number in self.data(_ADDED).items()]
        tokens: dict[str, _Token] = {}
        for row in rows:
            match row:
                case (int(number), {"content": str(content), **given}):
                    token = tokens.get(content, _Token())
                    numbers = tuple(sorted({*token.numbers, number}))
                    tokens[content] = _Token(numbers, {**_flags(given), **token.flags})
        return tokens


def _flags(entry: Mapping[Any, Any]) -> dict[str, bool]:
    return {name: flag for name in _FLAGS if type(flag := entry.get(name)) is bool}


def _is_role(key: str, value: object) -> bool:
    """Return whether the key names a token: eos_token, and image_token of processors, but not add_bos_token."""
    return key.endswith("_token") and (value is None or bool(_entries([value])))


def _entries(value: object) -> list[_Entry]:
    """Return tokens; those of a list in their order, those of a table by name."""
    items: list[tuple[str | None, object]] = [(None, item) for item in value] if isinstance(value, list) else []
    items += sorted(value.items()) if isinstance(value, dict) else []
    entries: list[_Entry] = []
    for name, item in items:
        match item:
            case str(content):
                entries.append((name, content, {}))
            case {"content": str(content), **given}:
                entries.append((name, content, _flags(given)))
    return entries


def _read(snapshot: Snapshot, folder: _Folder) -> _Side:
    parts = {name: comparer.read_json(snapshot, folder.at(name)) for name in _JSON[:3] if name in folder.changed}
    file = _read_tokenizer_file(snapshot, folder.at(_FILE)) if _FILE in folder.changed else None
    tables = {name: part for name, part in parts.items() if isinstance(part, JsonObject)}
    return _Side(tables, None if isinstance(file, Unread) else file, comparer.parted([*parts.values(), file])[1])


def _read_tokenizer_file(snapshot: Snapshot, path: str) -> _TokenizerFile | Unread | None:
    """Return the file in a snapshot; None without one, unread if it is too large, hostile or malformed."""
    document = comparer.read_json(snapshot, path, _LIMIT)
    if document is None or isinstance(document, Unread):
        return document
    model, added = document.data.get("model"), document.data.get("added_tokens") or []
    if not isinstance(model, dict):
        return Unread(path, Message("its model is not a table"))
    if not isinstance(added, list) or not all(isinstance(entry, dict) for entry in added):
        return Unread(path, Message("its added_tokens are not a list of tables"))
    vocabulary, scores = _vocabulary(model.get("vocab"))
    listed = [] if model.get("merges") is None else model["merges"]
    merges = (
        [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in listed] if isinstance(listed, list) else [[]]
    )
    if vocabulary is None or not all(isinstance(pair, list) and [*map(type, pair)] == [str, str] for pair in merges):
        return Unread(path, Message("its vocabulary or its merges are not in a form that is known"))
    options = {key: value for key, value in model.items() if value and key not in ("vocab", "merges")}
    parts = {("model-option-changed", f"model.{key}"): value for key, value in options.items()}
    parts |= {(kind, key): document.data.get(key) for key, kind in _STEPS.items()}
    return _TokenizerFile(added, parts, vocabulary, scores, merges, type(listed[-1]) if listed else None)


def _vocabulary(vocab: object) -> tuple[dict[str, Any] | None, list[tuple[str, float]]]:
    """Return the id of each token, and the scores."""
    if vocab is None or isinstance(vocab, dict):
        return vocab or {}, []
    tokens: dict[str, Any] = {}
    scores: list[tuple[str, float]] = []
    for number, entry in enumerate(vocab if isinstance(vocab, list) else [None]):
        match entry:
            case [str(token), int(score) | float(score)]:
                tokens.setdefault(token, number)
                scores.append((token, float(score)))
            case _:
                return None, []
    return tokens, scores


def _keys(path: str, before: JsonObject, after: JsonObject, matrix: Matrix) -> Iterator[comparer.Change]:
    names = names_of("tokenizer", path, matrix)
    old, new = (flatten(_plain(side.data), names.aliases) for side in (before, after))
    classes = [str(side["tokenizer_class"].value) if "tokenizer_class" in side else "" for side in (old, new)]
    for change in compare_settings(names, old, new):
        only_suffix = change.kind == "class-changed" and len({name.removesuffix("Fast") for name in classes}) == 1
        yield change._replace(kind="class-suffix-changed") if only_suffix else change
    lists = [isinstance(side.data.get(_EXTRA[1]), list) for side in (before, after)]
    if lists == [False, True]:
        yield _change("extra-tokens-list", path, _EXTRA[1], None, comparer.short(after.data[_EXTRA[1]]))
    yield from repeated_keys(names, before, after)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in config.items() if key not in _APART and not _is_role(key, value)}
    limit = rest.get("model_max_length")
    if limit is None or (type(limit) in (int, float) and limit > _NO_LIMIT):
        rest.pop("model_max_length", None)
    return rest


def _compare_roles(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any], doubt: str | None
) -> Iterator[comparer.Change]:
    """Yield ``special-role-changed`` (eos_token is another token), or -listed / -unlisted if ``doubt`` says why."""
    for role, before, after in comparer.differences(old, new):
        was, now = ([(name, content) for name, content, _ in side or ()] for side in (before, after))
        flags = {content: flags_now for _, content, flags_now in before or ()}
        for _, content, flags_now in after or ():
            yield from _flag_change(path, content, flags.get(content, {}), flags_now)
        if was == now:
            continue
        sided = doubt is not None and not (was and now)
        kind = "special-role-changed" if not sided else "special-role-unlisted" if was else "special-role-listed"
        if role == _EXTRA[0]:
            kind = kind if kind == "special-role-listed" else "extra-tokens-changed"
            after = Message("{} tokens ({})", len(now), _extra_news(was, now))
            yield _change(kind, path, role, Message("{} tokens", len(was)), after)
        else:
            shown = [comparer.short(side[0][1]) if side else None for side in (was, now)]
            yield _change(kind, path, role, shown[0], shown[1], detail=doubt if sided else None)


def _extra_news(was: list[tuple[str | None, str]], now: list[tuple[str | None, str]]) -> str:
    """Return which tokens came and went, else which names have other tokens, else that the order is another one."""
    clauses = []
    for state, side, other in (("added", now, was), ("removed", was, now)):
        others = {content for _, content in other}
        if tokens := [comparer.short(content) for _, content in side if content not in others]:
            clauses.append(f"{state}: {', '.join(tokens[:4])}{', …' if len(tokens) > 4 else ''}")
    names = [
        f"{comparer.short(str(name))}: {' -> '.join('absent' if one is None else comparer.short(one) for one in pair)}"
        for name, *pair in comparer.differences(dict(was), dict(now))
        if name is not None
    ]
    return "; ".join(clauses or names[:4]) or Message("in another order")


def _compare_tokens(
    path: str, old: Mapping[str, _Token], new: Mapping[str, _Token], doubt: str | None, certain: Collection[str]
) -> Iterator[comparer.Change]:
    """Yield the changes of the added tokens. ``doubt`` is a clause that says where a token that came or went may have
    been (or still be), because not everything that can hold tokens was read; the token is then only "listed" or
    "unlisted", unless it is one of ``certain``."""
    removed = {number: content for content, token in old.items() if content not in new for number in token.numbers}
    renamed: set[str] = set()
    for content, before, after in comparer.differences(old, new):
        reason = None if content in certain else doubt
        if before and after:
            if before.numbers != after.numbers:
                yield _change("special-token-moved", path, comparer.short(content), before.ids, after.ids)
            yield from _flag_change(path, content, before.flags, after.flags, after.ids)
        elif after:
            former = next((removed[number] for number in after.numbers if number in removed), None)
            if former is None:
                kind = "special-token-listed" if reason else "special-token-added"
                yield _change(kind, path, comparer.short(content), None, _said(after), detail=reason)
            else:
                renamed.add(former)
                was, now = comparer.short(former), comparer.short(content)
                yield _change("special-token-renamed", path, now, was, now, detail=after.ids)
        elif before and content not in renamed:
            kind = "special-token-unlisted" if reason else "special-token-removed"
            yield _change(kind, path, comparer.short(content), _said(before), None, detail=reason)


def _flag_change(
    path: str, content: str, old: Mapping[str, bool], new: Mapping[str, bool], where: str | None = None
) -> Iterator[comparer.Change]:
    """Yield ``special-flag-changed`` for the flags that both sides give, and give differently."""
    flags = [name for name in _FLAGS if {old.get(name), new.get(name)} == {True, False}]
    if flags:
        was, now = (", ".join(f"{name}={str(side[name]).lower()}" for name in flags) for side in (old, new))
        yield _change("special-flag-changed", path, comparer.short(content), was, now, detail=where)


def _said(token: _Token) -> str:
    return token.ids + (", special" if token.flags.get("special") else "")


def _grouped(changes: Iterable[comparer.Change]) -> Iterator[comparer.Change]:
    """Yield the changes; tokens that differ only in a running number and changed alike become one change."""
    groups: dict[tuple[str, str], list[comparer.Change]] = {}
    for change in changes:
        groups.setdefault((change.kind, _NUMBER.sub("{i}", change.symbol)), []).append(change)
    for (_, pattern), members in groups.items():
        if len(members) < _MANY:
            yield from members
            continue
        first, last = members[0], members[-1]
        before = f"{first.before} … {last.before}" if first.before and last.before else None
        after = f"{first.after} … {last.after}" if first.after and last.after else None
        yield first._replace(symbol=pattern, before=before, after=after, count=len(members))


def _compare_files(path: str, old: _TokenizerFile, new: _TokenizerFile) -> Iterator[comparer.Change]:
    """Yield the changes between two tokenizer.json files, without those of the added tokens."""
    yield from _compare_vocabularies(path, "model.vocab", old.vocabulary, new.vocabulary)
    if old.vocabulary.keys() == new.vocabulary.keys() and old.scores != new.scores:
        yield _change("vocabulary-changed", path, "model.vocab", "scores", "other scores")
    yield from _compare_merges(path, "model.merges", old.merges, new.merges)
    if old.merges == new.merges and old.form is not new.form:
        was, now = ("texts" if side.form is str else "pairs of tokens" for side in (old, new))
        yield _change("merges-format-changed", path, "model.merges", was, now)
    for (kind, symbol), before, after in comparer.differences(old.parts, new.parts):
        yield _change(kind, path, symbol, *_step(before, after))


def _step(before: object, after: object) -> tuple[str | None, str | None]:
    if before is None or after is None:
        return None if before is None else _name(before), None if after is None else _name(after)
    first, second = (json.dumps(side, sort_keys=True, ensure_ascii=False) for side in (before, after))
    return (first, second) if max(len(first), len(second)) <= comparer.LONGEST else comparer.around(first, second)


def _name(step: object) -> str:
    kind = step.get("type") if isinstance(step, Mapping) else None
    return comparer.short(kind if isinstance(kind, str) else step)


def _compare_vocabularies(
    path: str, symbol: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[comparer.Change]:
    """Yield ``vocabulary-grown`` if tokens were only added, else ``vocabulary-changed`` (removed or other ids)."""
    added = [token for token in new if token not in old]
    removed = [token for token in old if token not in new]
    moved = [token for token, number in old.items() if token in new and new[token] != number]
    clauses = [
        f"{len(tokens):,} {what} ({', '.join(map(comparer.short, tokens[:3]))}{', …' if len(tokens) > 3 else ''})"
        for what, tokens in (("added", added), ("removed", removed), (Message("with other ids"), moved))
        if tokens
    ]
    if clauses:
        kind = "vocabulary-changed" if removed or moved else "vocabulary-grown"
        was, now = (f"{len(side):,} entries" for side in (old, new))
        count = len(added) + len(removed) + len(moved)
        yield _change(kind, path, symbol, was, now, count, "; ".join(clauses))


def _compare_merges(path: str, symbol: str, old: Sequence[object], new: Sequence[object]) -> Iterator[comparer.Change]:
    if old != new:
        yield _change("merges-changed", path, symbol, f"{len(old):,} merges", f"{len(new):,} merges")


def _compare_vocabulary_file(revisions: comparer.Revisions, path: str, name: str) -> Iterator[comparer.Change | Unread]:
    """Yield the change of a file that both sides have: tokenizer.model, vocab.json, vocab.txt, merges.txt and the like.
    Text formats are read; the others are told apart by object id and size alone."""
    readable = name in ("vocab.json", "vocab.txt", "merges.txt")
    differs = revisions.state(path) == "changed" and not readable
    pair = (b"", b"") if differs else revisions.read(path, _LIMIT)
    if isinstance(pair, Unread):
        yield pair
        return
    before, after = (content or b"" for content in pair)
    if before == after and not differs:
        return
    if name == "merges.txt":
        yield from _compare_merges(path, name, *map(_merges_in, (before, after)))
    elif name == "vocab.txt":
        lines = (content.decode("utf-8", "replace").split("\n") for content in (before, after))
        tokens = [{token.rstrip("\r"): number for number, token in enumerate(side) if token} for side in lines]
        yield from _compare_vocabularies(path, name, *tokens)
    elif name == "vocab.json":
        sides, broken = comparer.parted(comparer.parse_json(content, path) for content in (before, after))
        yield from broken[:1] or _compare_vocabularies(path, name, *(side.data for side in sides))
    else:
        was, now = revisions.sizes(path)
        yield _change("vocabulary-changed", path, name, was, f"{now} with other content" if was == now else now)


def _merges_in(content: bytes) -> list[bytes]:
    first, *others = (line.rstrip(b"\r") for line in content.split(b"\n"))
    return [*filter(None, [b"" if first.startswith(b"#") else first, *others])]
