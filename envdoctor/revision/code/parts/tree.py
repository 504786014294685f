"""The definitions of Python files, by their syntax trees. Runs in a bounded child: nothing is imported or executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from envdoctor.revision.code.parts.detectors import attention_choices, is_idle, sites_of
from envdoctor.revision.code.parts.imports import imports_of_tree
from envdoctor.revision.code.parts.records import MODULE_LEVEL, Call, Definition, FileCode, Parameter, Statement
from envdoctor.revision.code.parts.syntax import assigned, digest, exact, joined, short
from envdoctor.source.definitions import FunctionNode, all_nodes, dotted, parameters_of
from envdoctor.source.notebook import parse_code
from envdoctor.source.uses import TooMuch, uses_of

_CONTAINERS = (ast.If, ast.Try, ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While)
_ACCESSOR = re.compile(r"\.(setter|deleter|getter)$")
_MAX_CALLS = 2000
#: The largest modeling file of transformers has 70,000 nodes.
_MAX_NODES = 300_000


def read_code(content: bytes) -> FileCode:
    """Parse one file. Raises :class:`TooMuch`, and SyntaxError, RecursionError or MemoryError as ``ast.parse`` does."""
    tree, _, _ = parse_code(content)
    nodes = all_nodes(tree)
    if len(nodes) > _MAX_NODES:
        raise TooMuch
    definitions: list[Definition] = []
    statements: list[Statement] = []
    for scope, statement in _in_order(tree):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                definitions.append(_function(scope, statement))
            case ast.ClassDef():
                definitions.append(_class(scope, statement))
            case _:
                values = [*_values(scope, statement)]
                definitions += values
                statements += [] if values else [_statement(scope, statement)]
    definitions = _with_members(definitions, statements)
    imports = imports_of_tree(tree)
    parts = [f"{one.name} {one.sense} {one.annotations}" for one in definitions if "." not in one.name]
    parts += [one.meaning for one in statements if one.scope == MODULE_LEVEL]
    parts += [f"{one.name} {one.required} {one.demanded}" for one in imports]
    sites, uses = tuple(sites_of(tree, nodes)), tuple(uses_of(tree).uses)
    return FileCode(joined(parts), tuple(definitions), tuple(imports), sites, tuple(statements), uses)


def _with_members(definitions: list[Definition], statements: list[Statement]) -> list[Definition]:
    """Classes with the digests of all that is in them."""
    members: dict[str, list[tuple[str, str, int]]] = {}
    for statement in statements:
        members.setdefault(statement.scope, []).append((statement.meaning, "", 1))
    found: list[Definition] = []
    for one in reversed(definitions):  # what is inside a class comes after it
        if one.kind == "class":
            inner = members.pop(one.name, [])
            one = one._replace(
                meaning=joined([one.meaning, *(part[0] for part in inner)]),
                annotations=joined([one.annotations, *(part[1] for part in inner)]),
                weight=one.weight + sum(part[2] for part in inner),
            )
        scope, _, name = _ACCESSOR.sub("", one.name).rpartition(".")
        if scope:
            members.setdefault(scope, []).append((f"{name} {one.sense}", one.annotations, one.weight))
        found.append(one)
    return found[::-1]


def _in_order(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Statements of the module and its classes with their scope; those in conditions and the like as if they stood
    alone, and the condition without its body. Imports and what does nothing are left out."""
    waiting: list[tuple[str, ast.stmt]] = [("", statement) for statement in reversed(tree.body)]
    while waiting:
        scope, statement = waiting.pop()
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.ClassDef(name=name, body=body):
                waiting += [(f"{scope}{name}.", child) for child in reversed(body)]
            case _ if isinstance(statement, _CONTAINERS):
                bodies = [*statement.body, *getattr(statement, "orelse", ())]
                for handler in getattr(statement, "handlers", ()):
                    bodies += handler.body
                bodies += getattr(statement, "finalbody", ())
                waiting += [(scope, child) for child in reversed(bodies)]
        yield scope, statement


def _function(scope: str, node: FunctionNode) -> Definition:
    decorators = tuple(exact(decorator) for decorator in node.decorator_list)
    accessors = [f"{node.name}.{kind}" for kind in ("setter", "deleter", "getter")]
    setter = next((text.rpartition(".")[2] for text in decorators if text in accessors), "")
    starts = "init" in node.name or node.name.startswith("reset_")
    result = digest([node.body], creators_alike=starts, annotations=_annotations(node))
    parameters = tuple(_parameters(node.args))
    return Definition(
        f"{scope}{node.name}" + (f".{setter}" if setter else ""),
        "function",
        _signature(parameters),
        result.meaning,
        result.annotations,
        result.skeleton,
        result.weight,
        decorators,
        parameters,
        tuple(_call(inner) for inner in result.nodes if isinstance(inner, ast.Call))[:_MAX_CALLS],
        tuple(attention_choices(result.nodes)),
        "gradient_checkpointing" in node.name and is_idle(node),
    )


def _annotations(node: FunctionNode) -> list[ast.expr | None]:
    return [*(argument.annotation for argument in parameters_of(node.args)), node.returns]


def _call(node: ast.Call) -> Call:
    return Call(
        dotted(node.func), tuple(f"{word.arg}={exact(word.value)}" if word.arg else "**" for word in node.keywords)
    )


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    plain = [*arguments.posonlyargs, *arguments.args]
    missing: Sequence[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    for index, (argument, default) in enumerate(zip(plain, [*missing, *arguments.defaults], strict=True)):
        kind = "positional" if index < len(arguments.posonlyargs) else "normal"
        yield Parameter(argument.arg, kind, None if default is None else exact(default))
    if arguments.vararg:
        yield Parameter(arguments.vararg.arg, "*", None)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(argument.arg, "keyword", None if default is None else exact(default))
    if arguments.kwarg:
        yield Parameter(arguments.kwarg.arg, "**", None)


def _signature(parameters: Sequence[Parameter]) -> str:
    parts: list[str] = []
    for index, (name, kind, default) in enumerate(parameters):
        before = parameters[index - 1].kind if index else ""
        if before == "positional" and kind != "positional":
            parts.append("/")
        if kind == "keyword" and before not in ("keyword", "*"):
            parts.append("*")
        parts.append((kind if kind in ("*", "**") else "") + name + ("" if default is None else f"={default}"))
    if parameters and parameters[-1].kind == "positional":
        parts.append("/")
    return f"({', '.join(parts)})"


def _class(scope: str, node: ast.ClassDef) -> Definition:
    result = digest([*node.bases, *node.keywords, *node.decorator_list])
    bases = ", ".join(exact(part) for part in [*node.bases, *node.keywords])
    decorators = tuple(exact(decorator) for decorator in node.decorator_list)
    return Definition(
        f"{scope}{node.name}", "class", f"({bases})", result.meaning, result.annotations, "", result.weight, decorators
    )


def _values(scope: str, statement: ast.stmt) -> Iterator[Definition]:
    names, value = assigned(statement)
    if names and value is not None:
        text, result = short(value), digest([value])
        for name in names:
            yield Definition(f"{scope}{name}", "value", text, result.meaning, "", "", result.weight)


def _statement(scope: str, statement: ast.stmt) -> Statement:
    """One that defines nothing; of a compound statement only its head, for what is inside comes by itself."""
    head: list[ast.AST] = [statement]
    text = ""
    match statement:
        case ast.If(test=test):
            head, text = [test], "if "
        case ast.While(test=test):
            head, text = [test], "while "
        case ast.Try(handlers=handlers):
            head, text = [handler.type for handler in handlers if handler.type is not None], "try, except "
        case ast.With(items=items) | ast.AsyncWith(items=items):
            head, text = [*items], "with "
        case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
            head, text = [target, values], "for "
    meaning = digest(head).meaning
    return Statement(
        scope.rstrip(".") or MODULE_LEVEL,
        f"{type(statement).__name__} {meaning}",
        text + ", ".join(short(part) for part in head),
    )
