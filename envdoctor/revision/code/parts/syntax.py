"""Digests and short texts of syntax trees. Nothing here recurses: hostile trees are deep."""

import ast
import json
from collections.abc import Iterable, Mapping
from hashlib import sha1
from types import MappingProxyType
from typing import NamedTuple

from envdoctor.source.definitions import names_in

_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
#: The fields of each kind of node that mean something, last one first.
_FIELDS = {
    kind: [field for field in reversed(kind._fields) if field not in _SKIPPED_FIELDS]
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_ANNOTATION_FIELDS = frozenset({"annotation", "returns"})
_MAX_NODES = 150
_MAX_TEXT = 160


class Digest(NamedTuple):
    """Digests of some nodes (see ``Definition``), how many tokens they have, and all nodes in the order of the text."""

    meaning: str
    annotations: str
    weight: int
    nodes: list[ast.AST]


def digest(
    roots: Iterable[ast.AST | list[ast.stmt] | None],
    *,
    annotations: Iterable[ast.AST | None] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> Digest:
    """Docstrings, other constants that stand alone and ``pass`` count as nothing; ``annotations`` are further roots,
    and ``names`` what some names are called instead."""
    tokens: list[tuple[bool, str]] = []
    nodes: list[ast.AST] = []
    waiting: list[tuple[object, bool]] = [(root, False) for root in roots]
    waiting = [*((note, True) for note in annotations), *reversed(waiting)]
    while waiting:
        item, notes = waiting.pop()
        if isinstance(item, ast.Name) and item.id in names:
            token = names[item.id]
            nodes.append(item)
        elif isinstance(item, ast.AST):
            token = type(item).__name__
            nodes.append(item)
            for field in _FIELDS[type(item)]:
                waiting.append((getattr(item, field, None), notes or field in _ANNOTATION_FIELDS))
        elif isinstance(item, list):
            kept = [entry for entry in reversed(item) if not _is_nothing(entry)]
            token = f"[{len(kept)}"
            waiting += [(entry, notes) for entry in kept]
        else:
            token = f"{item:x}" if type(item) is int else repr(item)  # the decimal text of a huge number is refused
        tokens.append((notes, token))
    meaning, notes_only = ([token for part, token in tokens if part == wanted] for wanted in (False, True))
    return Digest(joined(meaning), joined(notes_only), len(meaning), nodes)


def _is_nothing(entry: object) -> bool:
    return isinstance(entry, ast.Pass) or (isinstance(entry, ast.Expr) and isinstance(entry.value, ast.Constant))


def joined(tokens: Iterable[str]) -> str:
    """One digest of several texts."""
    return sha1(json.dumps(list(tokens)).encode(), usedforsecurity=False).hexdigest()


def short(node: ast.AST) -> str:
    """The node as source text, one line of at most 160 characters; ``…`` stands for what is too large."""
    return _spelled(node, _MAX_TEXT)[0]


def exact(node: ast.AST, longest: int = _MAX_TEXT) -> str:
    """Like :func:`short`, but different for every meaning: what was cut off is told apart by its digest."""
    text, whole = _spelled(node, longest)
    return text if whole else f"{text}#{digest([node]).meaning[:12]}"


def _spelled(node: ast.AST, longest: int) -> tuple[str, bool]:
    """The text, and whether it is all of the node."""
    for count, _ in enumerate(ast.walk(node)):
        if count > max(_MAX_NODES, longest):
            return "…", False
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        return "…", False
    whole = len(text) <= longest
    text = text if whole else text[: longest - 1] + "…"
    return text.encode("utf-8", "replace").decode("utf-8"), whole


def assigned(statement: ast.AST) -> tuple[list[str], ast.expr | None]:
    """The plain names a statement assigns to, and the value; no names when any of its targets is something else."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            names = [*names_in(targets)]
            return (names if len(names) == len(targets) else []), value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [name], value
    return [], None
