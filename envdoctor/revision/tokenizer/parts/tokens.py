"""Added tokens of a tokenizer: which there are, at which ids, with which flags, and which play a part (eos, pad, …)."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.revision.comparer import Change
from envdoctor.revision.short_text import short, visible
from envdoctor.revision.template.parts.settings import ROLES
from envdoctor.text.message import Message

_AREA = "tokenizer"
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
            changes.append(Change(_AREA, "special-token-renamed", path, now, was, now, detail=detail))
        else:
            why = None if content in certain else doubt
            kind = "special-token-listed" if why else "special-token-added"
            changes.append(Change(_AREA, kind, path, _shown(content), None, _said(token), detail=why))
    renamed = {gone[token.number] for content, token in two.items() if content not in one and token.number in gone}
    for content, token in one.items():
        if content not in two and content not in renamed:
            why = None if content in certain else doubt
            kind = "special-token-unlisted" if why else "special-token-removed"
            changes.append(Change(_AREA, kind, path, _shown(content), _said(token), None, detail=why))
    return list(_grouped(changes))


def _both(path: str, content: str, before: Token, after: Token) -> Iterator[Change]:
    symbol = _shown(content)
    if before.number != after.number:
        ids = [Message("id {}", side.number) for side in (before, after)]
        yield Change(_AREA, "special-token-moved", path, symbol, ids[0], ids[1])
    flags = [name for name in _FLAGS if {before.flags.get(name), after.flags.get(name)} == {True, False}]
    if flags:
        was, now = (", ".join(f"{name}={str(side.flags[name]).lower()}" for name in flags) for side in (before, after))
        yield Change(_AREA, "special-flag-changed", path, symbol, was, now, detail=Message("id {}", after.number))


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
            yield Change(_AREA, kind, path, role, was, now, detail=doubt)
        else:
            yield Change(_AREA, "special-role-changed", path, role, was, now)


def _extra(path: str, one: tuple[str, ...], two: tuple[str, ...], doubt: str | None) -> Iterator[Change]:
    added, removed = [t for t in two if t not in one], [t for t in one if t not in two]
    clauses = [
        f"{what}: {', '.join(map(_shown, tokens[:4]))}{', …' if len(tokens) > 4 else ''}"
        for what, tokens in (("added", added), ("removed", removed))
        if tokens
    ]
    kind = "special-role-listed" if doubt and not one else "extra-tokens-changed"
    sizes = (f"{len(one)} tokens", f"{len(two)} tokens")
    yield Change(_AREA, kind, path, _EXTRA[0], sizes[0], sizes[1], detail="; ".join(clauses))
