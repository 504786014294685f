"""Digests and short texts of syntax trees. Nothing here recurses: hostile trees are deep."""

import ast
import json
from collections.abc import Iterable
from hashlib import sha1
from typing import NamedTuple

from envdoctor.source.definitions import dotted, names_in

_CREATORS = """
    empty empty_like ones ones_like zeros zeros_like full full_like rand rand_like randn randn_like eye
    uniform_ normal_ trunc_normal_ constant_ ones_ zeros_ eye_ xavier_uniform_ xavier_normal_ kaiming_uniform_
    kaiming_normal_ orthogonal_ sparse_ fill_ zero_
"""
#: Functions that make new values: exchanging one for another in an initialiser changes what a model starts from.
CREATORS = frozenset(_CREATORS.split())

_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
#: The fields of each kind of node that mean something, last one first.
_FIELDS = {
    kind: [field for field in reversed(kind._fields) if field not in _SKIPPED_FIELDS]
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_ANNOTATION_FIELDS = frozenset({"annotation", "returns"})
_EVERYWHERE, _NOT_IN_SKELETON, _ANNOTATION = 0, 1, 2
_MAX_NODES = 150
_MAX_TEXT = 160


class Digest(NamedTuple):
    """Digests of some nodes (see ``Definition``), how many tokens they have, and all nodes in the order of the text."""

    meaning: str
    annotations: str
    skeleton: str
    weight: int
    nodes: list[ast.AST]


def digest(
    roots: Iterable[ast.AST | list[ast.stmt] | None],
    *,
    creators_alike: bool = False,
    annotations: Iterable[ast.AST | None] = (),
) -> Digest:
    """Docstrings, other constants that stand alone and ``pass`` count as nothing; ``annotations`` are further roots."""
    tokens: list[tuple[int, str]] = []
    nodes: list[ast.AST] = []
    waiting: list[tuple[object, int]] = [(root, _EVERYWHERE) for root in roots]
    waiting = [*((note, _ANNOTATION) for note in annotations), *reversed(waiting)]
    while waiting:
        item, part = waiting.pop()
        if isinstance(item, ast.AST):
            token = type(item).__name__
            nodes.append(item)
            if isinstance(item, ast.Call):
                creates = creators_alike and dotted(item.func).rpartition(".")[2] in CREATORS
                hidden = max(part, _NOT_IN_SKELETON)
                waiting += [(item.keywords, hidden), (item.args, part), (item.func, hidden if creates else part)]
            else:
                for field in _FIELDS[type(item)]:
                    inner = _ANNOTATION if field in _ANNOTATION_FIELDS else part
                    waiting.append((getattr(item, field, None), inner))
        elif isinstance(item, list):
            kept = [entry for entry in reversed(item) if not _is_nothing(entry)]
            token = f"[{len(kept)}"
            waiting += [(entry, part) for entry in kept]
        else:
            token = f"{item:x}" if type(item) is int else repr(item)  # the decimal text of a huge number is refused
        tokens.append((part, token))
    meaning = [token for part, token in tokens if part != _ANNOTATION]
    notes, skeleton = ([token for part, token in tokens if part == wanted] for wanted in (_ANNOTATION, _EVERYWHERE))
    return Digest(joined(meaning), joined(notes), joined(skeleton), len(meaning), nodes)


def _is_nothing(entry: object) -> bool:
    return isinstance(entry, ast.Pass) or (isinstance(entry, ast.Expr) and isinstance(entry.value, ast.Constant))


def joined(tokens: Iterable[str]) -> str:
    """One digest of several texts."""
    return sha1(json.dumps(list(tokens)).encode(), usedforsecurity=False).hexdigest()


def short(node: ast.AST) -> str:
    """The node as source text, one line of at most 160 characters; ``…`` stands for what is too large."""
    return _spelled(node)[0]


def exact(node: ast.AST) -> str:
    """Like :func:`short`, but different for every meaning: what was cut off is told apart by its digest."""
    text, whole = _spelled(node)
    return text if whole else f"{text}#{digest([node]).meaning[:12]}"


def _spelled(node: ast.AST) -> tuple[str, bool]:
    """The text, and whether it is all of the node."""
    for count, _ in enumerate(ast.walk(node)):
        if count > _MAX_NODES:
            return "…", False
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        return "…", False
    whole = len(text) <= _MAX_TEXT
    text = text if whole else text[: _MAX_TEXT - 1] + "…"
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
