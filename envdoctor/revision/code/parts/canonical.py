"""What of a function counts for what it computes: statements without log lines, annotations, texts of errors, and
devices that follow another tensor, keywords in one order, local names by the order in which they are bound; digests and
short texts of that. Runs in the bounded child; nothing here recurses, for hostile trees are deep."""

import ast
import builtins
import json
from collections.abc import Mapping, Sequence
from hashlib import sha1
from itertools import compress
from types import MappingProxyType
from typing import NamedTuple

from envdoctor.source.definitions import FunctionNode, Scope, all_nodes, blocks, dotted, names_in, parameters_of

#: Statements of a function, and characters of one, that are compared line by line.
MAX_LINES = 1500
MAX_LINE = 400
_LONGEST_NAME = 60
_LOGGERS = frozenset({"logger", "logging", "warnings", "log", "_logger", "LOGGER", "print"})
_QUESTIONS = """
    isinstance issubclass hasattr getattr callable len str repr type format print bool int float id dir vars size dim
    numel get keys join item items shape is_compiling is_tracing get_rank tolist sum mean max min any all
    nonzero squeeze get_seq_length"""
#: Calls, by their last name, that change nothing.
QUIET = frozenset(_QUESTIONS.split())
#: Calls that read names by another way than their spelling.
LOOKS_AT_NAMES = frozenset({"locals", "vars", "eval", "exec", "dir", "globals"})
#: What needs no binding, and names that interpreters add.
_STANDING = frozenset({*vars(builtins), "__file__", "__path__", "__class__", "exit", "quit"})
_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores", "annotation", "returns"})
#: The fields of each kind of node that mean something, last one first.
_FIELDS = {
    kind: [field for field in reversed(kind._fields) if field not in _SKIPPED_FIELDS]
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_MAX_NODES, _MAX_TEXT = 150, 160


def _is_log_call(node: ast.AST) -> bool:
    """Return whether the node calls a logger, ``warnings``, ``print`` or a method that warns by its name."""
    name = dotted(node.func) if isinstance(node, ast.Call) else ""
    return name.partition(".")[0] in _LOGGERS or name.rpartition(".")[2].startswith("warn_")


def erase(nodes: list[ast.AST]) -> None:
    """Take out of a tree, given as its nodes with parents first, what does not count. The tree is changed."""
    for node in reversed(nodes):
        match node:
            case ast.Call(keywords=keywords):  # a device that is another tensor's, or a name's for one; "cpu" is not
                names = [dotted(word.value).rpartition(".")[2] if word.arg == "device" else "" for word in keywords]
                node.keywords = [word for word, name in zip(keywords, names, strict=True) if name != "device"]
                if len(node.keywords) > 1 and all(is_pure(word.value) for word in node.keywords):
                    node.keywords.sort(key=lambda word: (word.arg is None, word.arg or ""))
            case ast.Raise(exc=ast.Call() as error) if is_pure(error):
                error.args, error.keywords = [], []
            case ast.Assert(msg=ast.expr() as text) if is_pure(text):
                node.msg = None
            case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
                marks = [dotted(getattr(decorator, "func", decorator)).rpartition(".")[2] for decorator in decorators]
                keeps = [not (name.endswith(("docstring", "docstrings")) or name == "wraps") for name in marks]
                node.decorator_list = [*compress(decorators, keeps)]
        for field, value in list(vars(node).items()):
            match value:
                case list():
                    setattr(node, field, [_plain(entry) for entry in value if not _does_nothing(entry)])
                case ast.AST():
                    setattr(node, field, _plain(value))


def _plain(node: ast.AST) -> ast.AST:
    """Return the node without an annotation: ``a = 1`` for ``a: int = 1``."""
    match node:
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
            return ast.copy_location(ast.Assign([target], value), node)
    return node


def _does_nothing(node: ast.AST) -> bool:
    """Return whether the node alone changes nothing: a constant, a log line, a pure condition around nothing."""
    match node:
        case ast.Expr(value=ast.Call() as call):
            return _is_log_call(call) and is_pure(call)
        case ast.If(test=test, body=[], orelse=[]):
            return is_pure(test)
        case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.AnnAssign(target=ast.Name(), value=None):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):  # transformers takes a class by its name
            return True
    return False


def is_pure(node: ast.AST) -> bool:
    """Return whether code can change nothing but local names: it only calls questions, texts and errors."""
    for inner in all_nodes(node):
        match inner:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                return False
            case ast.NamedExpr() | ast.Await() | ast.Yield() | ast.YieldFrom() | ast.Global() | ast.Nonlocal():
                return False
            case ast.Call(func=func) if not _is_log_call(inner):
                last = dotted(func).rpartition(".")[2]
                if last not in QUIET and not last.endswith(("Error", "Exception", "Warning", "Implemented")):
                    return False
    return True


def local_names(function: FunctionNode, scopes: Mapping[int, Scope]) -> Mapping[str, str]:
    """Return the names that a function binds in its own scope, each with its replacement by order. A parameter keeps
    its name, for callers use it; and so does a name that an inner function or class binds too, one of ``global``, and
    every name where the function asks for its names."""
    nodes = all_nodes(function)
    if not LOOKS_AT_NAMES.isdisjoint(names_in(nodes)):
        return {}
    inner = [scope for scope in map(scopes.get, map(id, nodes[1:])) if scope and scope.kind != "comprehension"]
    fixed = {item.arg for item in parameters_of(function.args)}.union(*(scope.bound for scope in inner))
    return {name: f"\0{place}" for place, name in enumerate(scopes[id(function)].bound) if name not in fixed}


def unbound(function: FunctionNode, nodes: Sequence[ast.AST], scopes: Mapping[int, Scope]) -> tuple[str, ...]:
    """Return the names that a function of these nodes reads and nothing of its file binds; none where it asks for names
    or expects that one is missing."""
    names, scope, around = {*names_in(nodes)}, scopes[id(function)].parent, list[Scope]()
    inner = (scopes[id(node)].bound for node in [function, *nodes] if id(node) in scopes)
    while scope is not None:
        around, scope = [*around, *([scope] if scope.kind != "class" else [])], scope.parent
    quiet = not names.isdisjoint({"NameError", *LOOKS_AT_NAMES})
    unknown = sorted(names - _STANDING.union(*inner))
    return tuple(name for name in unknown if not (quiet or any(name in space.bound for space in around)))


def lines_of(function: FunctionNode) -> list[str]:
    """Return the statements one by one, conditions and loops by their heads, each behind a blank a level."""
    lines = [f"@{exact(item, MAX_LINE)}" for item in function.decorator_list]
    waiting: list[tuple[str, ast.stmt | str]] = [("", item) for item in reversed(function.body)]
    while waiting and len(lines) < MAX_LINES:
        indent, item = waiting.pop()
        text, below = (item, []) if isinstance(item, str) else _parts(item)
        lines.append(indent + text)
        for place, block in reversed([*enumerate(below)]):
            waiting += [(f"{indent} ", inner) for inner in reversed(block)]
            waiting += [(f"{indent} ", f"block {place}")] if place and block else []
    return lines[:MAX_LINES]


def _parts(statement: ast.stmt) -> tuple[str, list[list[ast.stmt]]]:
    """Return the statement, or its head and its blocks."""
    word, nodes = head_of(statement)
    match statement:
        case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
            word, nodes = f"def {name}", [args]
        case ast.ClassDef(name=name, bases=bases):
            word, nodes = f"class {name}", [*bases]
        case _ if not any(blocks(statement)):
            return exact(statement, MAX_LINE), []
    text = ", ".join(exact(node, MAX_LINE) for node in nodes)
    return f"{word or type(statement).__name__.lower()} {text}", [*blocks(statement)]


def head_of(statement: ast.stmt) -> tuple[str, list[ast.AST]]:
    """Return the word that a compound statement begins with, and what is evaluated before its blocks."""
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return type(statement).__name__.lower(), [test]
        case ast.Try(handlers=handlers):
            return "try, except", [handler.type for handler in handlers if handler.type is not None]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return "with", [*items]
        case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
            return "for", [target, values]
    return "", []


def mentioned(nodes: list[ast.AST]) -> tuple[str, ...]:
    """Return the names and attributes in the code, and quoted words that can be names, sorted."""
    words: set[str] = set()
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                words.add(name)
            case ast.Constant(value=str(name)) if len(name) < _LONGEST_NAME and name.isidentifier():
                words.add(name)
    return tuple(sorted(words))


class Digest(NamedTuple):
    """The digest of some nodes (see ``Definition``), how many tokens they have, and all in the order of the text."""

    meaning: str
    weight: int
    nodes: list[ast.AST]


def digest(roots: Sequence[ast.AST | list[ast.stmt] | None], names: Mapping[str, str] = MappingProxyType({})) -> Digest:
    """Return the digest of a tree after :func:`erase`; ``names`` are what some names are called instead."""
    tokens, nodes, waiting = list[str](), list[ast.AST](), list[object](reversed(roots))
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.AST):
            nodes.append(item)
            new_name = names.get(item.id) if isinstance(item, ast.Name) else None
            token = new_name or type(item).__name__
            waiting += [getattr(item, field, None) for field in (() if new_name else _FIELDS[type(item)])]
        elif isinstance(item, list):
            token = f"[{len(item)}"
            waiting += reversed(item)
        else:
            token = f"{item:x}" if type(item) is int else repr(item)  # the decimal text of a huge number is refused
        tokens.append(token)
    meaning = sha1(json.dumps(tokens).encode(), usedforsecurity=False).hexdigest()
    return Digest(meaning, len(tokens), nodes)


def short(node: ast.AST) -> str:
    """Return the node as source text, one line of at most 160 characters; ``…`` stands for what is too large."""
    return _spelled(node, _MAX_TEXT)[0]


def exact(node: ast.AST, longest: int = _MAX_TEXT) -> str:
    """Spell the node like :func:`short`, but differently for every meaning: a digest stands for what was cut off."""
    text, whole = _spelled(node, longest)
    return text if whole else f"{text}#{digest([node]).meaning[:12]}"


def _spelled(node: ast.AST, longest: int) -> tuple[str, bool]:
    """Return the text, and whether it is all of the node."""
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
    """Return the plain names that a statement assigns to, and the value; no names if it has any other target."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            names = [*names_in(targets)]
            return (names if len(names) == len(targets) else []), value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [name], value
    return [], None
