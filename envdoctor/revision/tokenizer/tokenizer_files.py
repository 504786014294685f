"""Tokenizer files: special tokens and their ids, settings, vocabulary, merges.

Kinds of changes (``symbol`` is a token, a role such as ``eos_token``, or a key):

``special-role-changed``       bos_token, eos_token, pad_token, … is another token
``special-token-moved``        an added token has another id
``special-token-renamed``      an id that was one added token is another one
``special-token-added``, ``special-token-removed``
``special-flag-changed``       special, normalized, lstrip, rstrip or single_word of an added token
``special-token-listed``, ``-unlisted``, ``special-role-listed``, ``-unlisted``
                               came or went in a changed file, while something that was not read may hold it (an
                               unchanged file, or the vocabulary itself)
``extra-tokens-changed``       additional_special_tokens (extra_special_tokens)
``extra-tokens-list``          extra_special_tokens is a list now (the form of transformers 5)
``class-changed``, ``class-suffix-changed``
                               tokenizer_class; the second: only "Fast" came or went
``padding-side-changed``, ``truncation-side-changed``, ``add-bos-changed``, ``max-length-changed``, ``option-changed``
                               a key of the group of that name in table config-keys
``vocabulary-changed``, ``vocabulary-grown``, ``merges-changed``, ``merges-format-changed``, ``model-option-changed``
``pre-tokenizer-changed``, ``post-processor-changed``, ``decoder-changed``, ``truncation-changed``, ``padding-changed``
                               parts of tokenizer.json
``tokenizer-file-added``, ``tokenizer-file-removed``
``auto-map-changed``, ``key-added``, ``key-removed``, ``key-changed``, ``implicit``, ``noise``, ``repeated-key``
                               as in config
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.knowledge.matrix import Matrix
from envdoctor.models.json_object import JsonObject
from envdoctor.revision.comparer import Change, Compared, Revisions, outcome, read_json
from envdoctor.revision.settings.settings_files import Setting, compare_settings, flatten, names_of, repeated_keys
from envdoctor.revision.short_text import short, visible
from envdoctor.revision.template.parts.settings import ROLES
from envdoctor.revision.tokenizer.parts import vocabularies
from envdoctor.text.message import Message

# Added tokens of a tokenizer: which there are, at which ids, with which flags, and which play a part (eos, pad, …).

AREA = "tokenizer"
_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
_EXTRA = ("additional_special_tokens", "extra_special_tokens")
_MANY = 4
_NUMBER = re.compile(r"\d+")


class Token(NamedTuple):
    """An added token: its id (None when the file does not say) and those of its flags that are given."""

    number: int | None
    flags: Mapping[str, bool]


def collect(decoder: object, added: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]) -> dict[str, Token]:
    """Tokens by content, from added_tokens_decoder, added_tokens.json and added_tokens of tokenizer.json."""
    listed = decoder.items() if isinstance(decoder, Mapping) else ()
    rows: list[tuple[object, object]] = [(int(str(id)[:18]), entry) for id, entry in listed if str(id).isdecimal()]
    rows += [(entry.get("id"), entry) for entry in entries]
    rows += [(number, {"content": content}) for content, number in added.items()]
    tokens: dict[str, Token] = {}
    for row in rows:
        match row:
            case (int(number), {"content": str(content), **given}):
                flags = {name: flag for name in _FLAGS if isinstance(flag := given.get(name), bool)}
                known = tokens.get(content, Token(number, {}))
                tokens[content] = Token(known.number, {**flags, **known.flags})
    return tokens


def compare_tokens(
    path: str, one: Mapping[str, Token], two: Mapping[str, Token], doubt: str | None, certain: Collection[str]
) -> list[Change]:
    """The changes of the added tokens.

    ``doubt`` is a clause that says where a token that came or went may have been (or still be), because not everything
    that can hold tokens was read; the token is then only "listed" or "unlisted", unless it is one of ``certain``.
    """
    changes: list[Change] = []
    gone = {token.number: content for content, token in one.items() if content not in two}
    for content, token in two.items():
        if content in one:
            changes += _both(path, content, one[content], token)
        elif token.number in gone:
            was, now = _shown(gone[token.number]), _shown(content)
            detail = Message("id {}", token.number)
            changes.append(Change(AREA, "special-token-renamed", path, now, was, now, detail=detail))
        else:
            why = None if content in certain else doubt
            kind = "special-token-listed" if why else "special-token-added"
            changes.append(Change(AREA, kind, path, _shown(content), None, _said(token), detail=why))
    renamed = {gone[token.number] for content, token in two.items() if content not in one and token.number in gone}
    for content, token in one.items():
        if content not in two and content not in renamed:
            why = None if content in certain else doubt
            kind = "special-token-unlisted" if why else "special-token-removed"
            changes.append(Change(AREA, kind, path, _shown(content), _said(token), None, detail=why))
    return list(_grouped(changes))


def _both(path: str, content: str, before: Token, after: Token) -> Iterator[Change]:
    symbol = _shown(content)
    if before.number != after.number:
        ids = [Message("id {}", side.number) for side in (before, after)]
        yield Change(AREA, "special-token-moved", path, symbol, ids[0], ids[1])
    flags = [name for name in _FLAGS if {before.flags.get(name), after.flags.get(name)} == {True, False}]
    if flags:
        was, now = (", ".join(f"{name}={str(side.flags[name]).lower()}" for name in flags) for side in (before, after))
        yield Change(AREA, "special-flag-changed", path, symbol, was, now, detail=Message("id {}", after.number))


def _said(token: Token) -> str:
    return Message("id {}", token.number) + (", special" if token.flags.get("special") else "")


def _shown(content: str) -> str:
    return short(visible(content)) if content else '""'


def _grouped(changes: list[Change]) -> Iterator[Change]:
    """Tokens that differ only in a running number, changed in the same way, are one change."""
    groups: dict[tuple[str, str], list[Change]] = {}
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


def roles_of(config: Mapping[str, Any], special: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Role -> its token, or tokens, from tokenizer_config.json and, where that is silent, special_tokens_map.json."""
    roles: dict[str, tuple[str, ...]] = {}
    for table in (special, config):
        for role in ROLES:
            match table.get(role):
                case str(token) | {"content": str(token)}:
                    roles[role] = (token,)
    for tokens in (_texts(table.get(key)) for table in (special, config) for key in _EXTRA):
        if tokens:
            roles[_EXTRA[0]] = tokens
    return roles


def _texts(value: object) -> tuple[str, ...]:
    items = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    texts = [item.get("content") if isinstance(item, Mapping) else item for item in items]
    return tuple(sorted(text for text in texts if isinstance(text, str)))


def compare_roles(
    path: str, one: Mapping[str, tuple[str, ...]], two: Mapping[str, tuple[str, ...]], doubt: str | None
) -> Iterator[Change]:
    """``special-role-changed`` (eos_token is another token), or -listed / -unlisted when ``doubt`` says why."""
    for role in dict.fromkeys([*two, *one]):
        before, after = one.get(role), two.get(role)
        if before == after:
            continue
        if role == _EXTRA[0]:
            yield from _extra(path, before or (), after or (), doubt)
            continue
        was, now = (None if side is None else _shown(side[0]) for side in (before, after))
        if doubt and (before is None or after is None):
            kind = "special-role-listed" if before is None else "special-role-unlisted"
            yield Change(AREA, kind, path, role, was, now, detail=doubt)
        else:
            yield Change(AREA, "special-role-changed", path, role, was, now)


def _extra(path: str, one: tuple[str, ...], two: tuple[str, ...], doubt: str | None) -> Iterator[Change]:
    added, removed = [t for t in two if t not in one], [t for t in one if t not in two]
    clauses = [
        f"{what}: {', '.join(map(_shown, tokens[:4]))}{', …' if len(tokens) > 4 else ''}"
        for what, tokens in (("added", added), ("removed", removed))
        if tokens
    ]
    kind = "special-role-listed" if doubt and not one else "extra-tokens-changed"
    sizes = f"{len(one)} tokens", f"{len(two)} tokens"
    yield Change(AREA, kind, path, _EXTRA[0], *sizes, detail="; ".join(clauses))


_JSON = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
_CONFIG, _SPECIAL, _ADDED, _FILE = _JSON
#: Vocabularies and merges that are no JSON document of the tokenizers library.
_VOCABULARIES = (
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "spm.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "ice_text.model", "tekken.json"),
)
_MOST_FOLDERS = 10
#: Not settings, or compared elsewhere.
_APART = ("chat_template", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", *ROLES)
#: transformers writes int(1e30) for "no limit".
_NO_LIMIT = 10**15


def wants(path: str) -> bool:
    """Files of tokenizers, also in folders of their own; of tokenizer_config.json all but its chat template."""
    name = posixpath.basename(path).lower()
    return name in _JSON or name in _VOCABULARIES or name.endswith(".tiktoken")


def compare(revisions: Revisions) -> Compared:
    """The changes. Only files that differ are read, tokenizer.json included."""
    harmless = ("noise", "implicit", "class-suffix-changed")
    return outcome(_compare(revisions), "tokenizer" if revisions.files else None, harmless)


def _compare(revisions: Revisions) -> Iterator[Change | Unread]:
    changed: dict[str, list[str]] = {}
    for path in revisions.changed():
        changed.setdefault(posixpath.dirname(path), []).append(posixpath.basename(path))
    for number, (folder, names) in enumerate(sorted(changed.items())):
        if number < _MOST_FOLDERS:
            yield from _compare_folder(_Folder(revisions, folder, names))
        else:
            yield Unread(folder, Message("only {} tokenizers are compared", _MOST_FOLDERS))


class _Folder(NamedTuple):
    """One folder with tokenizer files (the root; diffusion models have several), and which files in it differ."""

    revisions: Revisions
    path: str
    changed: list[str]

    def at(self, name: str) -> str:
        return posixpath.join(self.path, name)

    def doubt(self, *names: str) -> str | None:
        """A clause about those of the files that are in both snapshots, known to be the same, and were not read."""
        quiet = [name for name in names if self.revisions.same(self.at(name))]
        return Message("{}, the same in both revisions, may hold it", " and ".join(quiet)) if quiet else None


def _compare_folder(folder: _Folder) -> Iterator[Change | Unread]:
    one, two = (_read(side, folder) for side in (folder.revisions.old, folder.revisions.new))
    for name in folder.changed:
        sizes = folder.revisions.sizes(folder.at(name))
        if name not in _JSON:
            yield from vocabularies.compare_vocabulary_file(folder.revisions, folder.at(name))
        elif None in sizes:
            kind = "tokenizer-file-added" if sizes[0] is None else "tokenizer-file-removed"
            yield Change(AREA, kind, folder.at(name), name, *sizes)
    if one.config is not None and two.config is not None:
        yield from _keys(folder.at(_CONFIG), one.config, two.config, folder.revisions.matrix)
    if one.file is not None and two.file is not None:
        yield from vocabularies.compare_files(folder.at(_FILE), one.file, two.file)
    yield from (*one.broken, *two.broken)
    if one.broken or two.broken:
        return  # what came or went cannot be told from what could not be read
    shown = folder.at(next((name for name in _JSON if name in folder.changed), folder.changed[0]))
    yield from compare_roles(shown, one.roles(), two.roles(), folder.doubt(_CONFIG, _SPECIAL))
    doubt = folder.doubt(_CONFIG, _ADDED, _FILE)
    if not doubt and None in (one.file, two.file) and not (one.tokens() and two.tokens()):
        # Before transformers 4.34 tokenizer_config.json did not list the tokens of the vocabulary.
        doubt = Message("one of the revisions lists no added tokens at all; its vocabulary or code may hold it")
    # added_tokens.json lists only what lies beyond the vocabulary.
    certain = {**_data(one.added), **_data(two.added)}
    yield from compare_tokens(shown, one.tokens(), two.tokens(), doubt, certain)


class _Side(NamedTuple):
    """The changed tokenizer files of one snapshot; None where there is none, it did not change, or it is ``broken``."""

    config: JsonObject | None
    special: JsonObject | None
    added: JsonObject | None
    file: vocabularies.TokenizerFile | None
    broken: list[Unread]

    def roles(self) -> dict[str, tuple[str, ...]]:
        return roles_of(_data(self.config), _data(self.special))

    def tokens(self) -> dict[str, Token]:
        entries = self.file.added if self.file is not None else []
        return collect(_data(self.config).get("added_tokens_decoder"), _data(self.added), entries)


def _data(file: JsonObject | None) -> Mapping[str, Any]:
    return file.data if file is not None else {}


def _read(snapshot: Snapshot, folder: _Folder) -> _Side:
    parts = [read_json(snapshot, folder.at(name)) if name in folder.changed else None for name in _JSON[:3]]
    file = vocabularies.read_tokenizer_file(snapshot, folder.at(_FILE)) if _FILE in folder.changed else None
    broken = [part for part in (*parts, file) if isinstance(part, Unread)]
    config, special, added = (None if isinstance(part, Unread) else part for part in parts)
    return _Side(config, special, added, None if isinstance(file, Unread) else file, broken)


def _keys(path: str, before: JsonObject, after: JsonObject, matrix: Matrix) -> Iterator[Change]:
    names = names_of(AREA, path, matrix)
    one, two = (flatten(_plain(side.data), names.aliases) for side in (before, after))
    for change in compare_settings(names, one, two):
        only_suffix = change.kind == "class-changed" and _without_suffix(one) == _without_suffix(two)
        yield change._replace(kind="class-suffix-changed") if only_suffix else change
    lists = [isinstance(side.data.get("extra_special_tokens"), list) for side in (before, after)]
    if lists == [False, True]:
        tokens = after.data["extra_special_tokens"]
        yield Change(AREA, "extra-tokens-list", path, "extra_special_tokens", None, short(tokens))
    yield from repeated_keys(names, before, after)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in _APART}
    limit = kept.get("model_max_length")
    if limit is None or (isinstance(limit, (int, float)) and limit > _NO_LIMIT):
        kept.pop("model_max_length", None)
    return kept


def _without_suffix(flat: Mapping[str, Setting]) -> str:
    setting = flat.get("tokenizer_class")
    return str(setting.value).removesuffix("Fast") if setting is not None else ""
