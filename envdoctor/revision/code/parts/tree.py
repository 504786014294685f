"""The definitions of Python files, by their syntax trees. Runs in a bounded child: nothing is imported or executed."""

import ast
from collections.abc import Iterator, Sequence

from envdoctor.revision.code.parts.canonical import erase, lines_of, local_names, mentioned
from envdoctor.revision.code.parts.detectors import is_idle, sites_of
from envdoctor.revision.code.parts.records import (
    ACCESSOR,
    MODULE_LEVEL,
    Call,
    Definition,
    FileCode,
    Import,
    Parameter,
    Statement,
)
from envdoctor.revision.code.parts.syntax import assigned, digest, exact, joined, short
from envdoctor.source.definitions import (
    FunctionNode,
    all_nodes,
    blocks,
    dotted,
    elements,
    names_in,
    parameter_words,
    parameters_of,
)
from envdoctor.source.notebook import parse_code
from envdoctor.source.uses import TooMuch, uses_of

_CONTAINERS = (ast.If, ast.Try, ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_PERHAPS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.If, *_LOOPS, ast.Match, ast.ExceptHandler, ast.match_case)
_FAILED_IMPORT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_MAX_CALLS = 2000
#: The largest modeling file of transformers has 70,000 nodes.
_MAX_NODES = 300_000


def read_code(content: bytes) -> FileCode:
    """Parse one file. Raises :class:`TooMuch`, and SyntaxError, RecursionError or MemoryError as ``ast.parse`` does."""
    tree, _, _ = parse_code(content)
    nodes = all_nodes(tree)
    if len(nodes) > _MAX_NODES:
        raise TooMuch
    imports, sites, uses, bound = _imports(tree), tuple(sites_of(tree, nodes)), tuple(uses_of(tree).uses), _bound(nodes)
    erase(nodes)
    definitions: list[Definition] = []
    statements: list[Statement] = []
    for scope, statement in _in_order(tree):
        found = list(_defined(scope, statement))
        definitions += found
        statements += [] if found else [_statement(scope, statement)]
    definitions = _with_members(definitions, statements)
    parts = [f"{one.name} {one.sense} {one.annotations}" for one in definitions if "." not in one.name]
    parts += [one.meaning for one in statements if one.scope == MODULE_LEVEL]
    parts += [f"{one.name} {one.required} {one.demanded}" for one in imports]
    return FileCode(joined(parts), tuple(definitions), tuple(imports), sites, tuple(statements), uses, bound)


def _bound(nodes: list[ast.AST]) -> tuple[str, ...]:
    """The names that are given a value anywhere, sorted."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name.partition(".")[0])
    return tuple(sorted(found))


def _with_members(definitions: list[Definition], statements: list[Statement]) -> list[Definition]:
    """Classes with the digests of all that is in them."""
    members: dict[str, list[tuple[str, str, int]]] = {}
    for statement in statements:
        members.setdefault(statement.scope, []).append((statement.meaning, "", 1))
    found: list[Definition] = []
    for one in reversed(definitions):  # what is inside a class comes after it
        if one.kind == "class":
            own = (one.meaning, one.annotations, one.weight)
            meanings, annotations, weights = zip(own, *members.pop(one.name, []), strict=True)
            one = one._replace(meaning=joined(meanings), annotations=joined(annotations), weight=sum(weights))
        if one.owner:
            name = ACCESSOR.sub("", one.name).rpartition(".")[2]
            members.setdefault(one.owner, []).append((f"{name} {one.sense}", one.annotations, one.weight))
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
                waiting += [(scope, child) for block in [*blocks(statement)][::-1] for child in reversed(block)]
        yield scope, statement


def _defined(scope: str, node: ast.stmt) -> Iterator[Definition]:
    """The function, the class, or the names that a statement defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield _function(scope, node)
        case ast.ClassDef(name=name, bases=bases, keywords=keywords, decorator_list=decorators):
            parts = [*bases, *keywords, *decorators]
            made = _definition(
                f"{scope}{name}", "class", f"({', '.join(map(exact, [*bases, *keywords]))})", node, parts
            )
            yield made._replace(decorators=tuple(map(exact, decorators)))
        case _:
            names, value = assigned(node)
            for name in names if value is not None else []:
                yield _definition(f"{scope}{name}", "value", short(value or node), node, [value])


def _definition(name: str, kind: str, text: str, node: ast.stmt, parts: Sequence[ast.AST | None]) -> Definition:
    meaning, annotations, weight, nodes = digest(parts)
    last = node.end_lineno or node.lineno
    return Definition(name, kind, text, meaning, annotations, weight, node.lineno, last, mentions=mentioned(nodes))


def _function(scope: str, node: FunctionNode) -> Definition:
    decorators = tuple(map(exact, node.decorator_list))
    accessors = [f"{node.name}.{kind}" for kind in ("setter", "deleter", "getter")]
    setter = next((text.rpartition(".")[2] for text in decorators if text in accessors), "")
    annotations = [*(argument.annotation for argument in parameters_of(node.args)), node.returns]
    result = digest([node.body], annotations=annotations, names=local_names(node))
    return Definition(
        f"{scope}{node.name}" + (f".{setter}" if setter else ""),
        "function",
        _signature(node.args),
        *result[:3],
        min([node.lineno, *(one.lineno for one in node.decorator_list)]),
        node.end_lineno or node.lineno,
        "gradient_checkpointing" in node.name and is_idle(node),
        decorators,
        tuple(_parameters(node.args)),
        tuple(_call(inner) for inner in result.nodes if isinstance(inner, ast.Call))[:_MAX_CALLS],
        mentioned([*result.nodes, *all_nodes(node.args), *node.decorator_list]),
        tuple(lines_of(node)),
    )


def _call(node: ast.Call) -> Call:
    keywords = (f"{word.arg}={exact(word.value)}" if word.arg else "**" for word in node.keywords)
    return Call(dotted(node.func), tuple(keywords))


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    plain = [*arguments.posonlyargs, *arguments.args]
    missing: Sequence[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    for index, (argument, default) in enumerate(zip(plain, [*missing, *arguments.defaults], strict=True)):
        kind = "positional" if index < len(arguments.posonlyargs) else "normal"
        yield Parameter(argument.arg, kind, exact(default) if default else None)
    if arguments.vararg:
        yield Parameter(arguments.vararg.arg, "*", None)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(argument.arg, "keyword", exact(default) if default else None)
    if arguments.kwarg:
        yield Parameter(arguments.kwarg.arg, "**", None)


def _signature(arguments: ast.arguments) -> str:
    """``(self, x, /, y=1, *, z=None)``."""
    defaults = filter(None, [*arguments.defaults, *arguments.kw_defaults])
    words = [f"{word}{exact(next(defaults))}" if word.endswith("=") else word for word in parameter_words(arguments)]
    if arguments.posonlyargs:
        words.insert(len(arguments.posonlyargs), "/")
    return f"({', '.join(words)})"


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
    meaning = f"{type(statement).__name__} {digest(head).meaning}"
    return Statement(scope.rstrip(".") or MODULE_LEVEL, meaning, text + ", ".join(map(short, head)))


def _imports(tree: ast.Module) -> list[Import]:
    """All imports by their dotted names.

    Required are those that run whenever the file is loaded: not in a function, under a condition, or in a ``try`` that
    a failed import does not leave. Demanded are those whose package transformers looks for before it loads the file
    (get_imports in its dynamic_module_utils.py): anywhere but in a ``try`` or under ``if is_…_available()``.
    """
    found: dict[str, tuple[bool, bool]] = {}
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, True, True)]
    while waiting:
        node, required, demanded = waiting.pop()
        names: list[str] = []
        match node:
            case ast.Import(names=taken):
                names = [alias.name for alias in taken]
            case ast.ImportFrom(module=None, names=taken, level=level):  # `from . import modeling` names a file
                names = ["." * level + alias.name for alias in taken]
            case ast.ImportFrom(module=module, names=taken, level=level):
                names = [f"{'.' * level}{module}.{alias.name}" for alias in taken]
            case _:
                demanded = demanded and not _asks_for_package(node)
                waiting += [(statement, runs, demanded) for statement, runs in _inner(node, required)]
        for name in names:
            before = found.get(name, (False, False))
            found[name] = (before[0] or required, before[1] or (demanded and not name.startswith(".")))
    return [Import(name, *found[name]) for name in sorted(found)]


def _asks_for_package(node: ast.AST) -> bool:
    """``try``, or ``if is_flash_attn_2_available():``, also as a part of the condition."""
    match node:
        case ast.Try():
            return True
        case ast.If(test=test):
            called = names_in(inner.func for inner in all_nodes(test) if isinstance(inner, ast.Call))
            return any(name.endswith("available") for name in called)
    return False


def _inner(node: ast.AST, required: bool) -> list[tuple[ast.AST, bool]]:
    """Statements inside the node, and whether they run whenever the node is reached."""
    parts = {field: getattr(node, field, ()) for field in ("body", "orelse", "finalbody", "handlers", "cases")}
    always = set() if isinstance(node, _PERHAPS) else {*parts}
    match node:
        case ast.Try(handlers=handlers):
            kinds = [kind for handler in handlers for kind in elements(handler.type)]
            survives = None in kinds or not _FAILED_IMPORT.isdisjoint(names_in(kinds))
            always = {"finalbody"} if survives else {"body", "finalbody"}
    return [(inner, required and field in always) for field, statements in parts.items() for inner in statements]
