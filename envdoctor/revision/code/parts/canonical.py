"""What of a function counts for what it computes: statements without log lines, annotations, texts of errors, and
devices that follow another tensor; and local names by the order in which they are bound. Runs in the bounded child."""

import ast
from collections.abc import Mapping

from envdoctor.revision.code.parts.syntax import exact
from envdoctor.source.definitions import FunctionNode, all_nodes, blocks, children, dotted, names_in, parameters_of

#: Statements of a function, and characters of one, that are compared line by line.
MAX_LINES = 1500
MAX_LINE = 400
_LONGEST_NAME = 60
_LOGGERS = frozenset({"logger", "logging", "warnings", "log", "_logger", "LOGGER", "print"})
_QUESTIONS = """
    isinstance issubclass hasattr getattr callable len str repr type format print bool int float id dir vars size dim
    numel get keys join item items shape is_compiling is_tracing get_rank"""
#: Calls, by their last name, that change nothing.
QUIET = frozenset(_QUESTIONS.split())
_DOC_DECORATORS = ("docstring", "docstrings", "add_end_docstrings", "auto_docstring", "wraps")
_LOOKS_AT_NAMES = frozenset({"locals", "vars", "eval", "exec", "dir", "globals"})


def is_log_call(node: ast.AST) -> bool:
    """Whether the node calls a logger, ``warnings``, ``print`` or a method that warns by its name."""
    name = dotted(node.func) if isinstance(node, ast.Call) else ""
    return name.partition(".")[0] in _LOGGERS or name.rpartition(".")[2].startswith("warn_")


def erase(nodes: list[ast.AST]) -> None:
    """Take out of a tree, given as its nodes with parents first, what does not count. The tree is changed."""
    for node in reversed(nodes):
        match node:
            case ast.Call(keywords=keywords):
                node.keywords = [word for word in keywords if word.arg != "device" or not _follows(word.value)]
            case ast.Raise(exc=ast.Call() as error) if _is_pure(error):
                error.args, error.keywords = [], []
            case ast.Assert(msg=ast.expr() as text) if _is_pure(text):
                node.msg = None
            case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
                node.decorator_list = [one for one in decorators if not _documents(one)]
        for field, value in list(vars(node).items()):
            match value:
                case list():
                    setattr(node, field, [_plain(entry) for entry in value if not _is_nothing(entry)])
                case ast.AST():
                    setattr(node, field, _plain(value))


def _plain(node: ast.AST) -> ast.AST:
    """The node, or what it stands for: ``a = 1`` for ``a: int = 1``."""
    match node:
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
            return ast.copy_location(ast.Assign([target], value), node)
    return node


def _follows(device: ast.expr) -> bool:
    """Whether a device is that of another tensor, or a name for one; ``"cpu"`` is not."""
    return isinstance(device, (ast.Attribute, ast.Name)) and dotted(device).rpartition(".")[2] == "device"


def _documents(decorator: ast.expr) -> bool:
    name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2]
    return name.endswith(_DOC_DECORATORS[:2]) or name in _DOC_DECORATORS


def _is_nothing(node: ast.AST) -> bool:
    """A log line, a declaration without a value, or a condition around nothing, that changes nothing itself."""
    match node:
        case ast.Expr(value=ast.Call() as call):
            return is_log_call(call) and _is_pure(call)
        case ast.If(test=test, body=[], orelse=[]):
            return _is_pure(test)
        case ast.AnnAssign(target=ast.Name(), value=None):
            return True
    return False


def _is_pure(node: ast.AST) -> bool:
    """Whether nothing in an expression can change anything: only questions, texts and errors are called."""
    for inner in all_nodes(node):
        match inner:
            case ast.NamedExpr() | ast.Await() | ast.Yield() | ast.YieldFrom():
                return False
            case ast.Call(func=func) if not is_log_call(inner):
                last = dotted(func).rpartition(".")[2]
                if last not in QUIET and not last.endswith(("Error", "Exception", "Warning", "Implemented")):
                    return False
    return True


def local_names(function: FunctionNode) -> Mapping[str, str]:
    """The names that a function binds in its own scope, with what they are called instead: by their order.

    A parameter keeps its name, for callers use it; and so does a name that is one elsewhere too (of an inner function,
    a caught error, ``global``), and every name where the function asks for its names.
    """
    nodes = all_nodes(function)
    if not _LOOKS_AT_NAMES.isdisjoint(names_in(nodes)):
        return {}
    fixed: set[str] = set()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                fixed |= {name, *(one.arg for one in parameters_of(args))}
            case ast.Lambda(args=args):
                fixed |= {one.arg for one in parameters_of(args)}
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                fixed |= {*names}
            case ast.ClassDef(name=name):
                fixed.add(name)
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name) if name:
                fixed.add(name)
            case ast.alias(name=name, asname=asname):
                fixed.add(asname or name.partition(".")[0])
    bound: dict[str, str] = {}
    waiting: list[ast.AST] = [*reversed(function.body)]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name not in fixed:
                bound.setdefault(name, f"\0{len(bound)}")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                pass
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass
            case _:
                waiting += reversed(children(node))
    return bound


def lines_of(function: FunctionNode) -> list[str]:
    """Return the statements one by one, conditions and loops by their heads, each behind a blank a level."""
    found = [f"@{exact(one, MAX_LINE)}" for one in function.decorator_list]
    waiting: list[tuple[str, str, list[ast.stmt]]] = [("", "", function.body)]
    while waiting and len(found) < MAX_LINES:
        indent, head, block = waiting.pop()
        found += [indent + head] if head else []
        for number, statement in enumerate(block):
            text, blocks_below = _parts(statement)
            found += [indent + text] if text else []
            if blocks_below:
                waiting.append((indent, "", block[number + 1 :]))
                below = [
                    (f"block {place}" if place else "", inner) for place, inner in enumerate(blocks_below) if inner
                ]
                for title, inner in reversed(below):
                    waiting.append((f"{indent} ", title, inner))
                break
    return found[:MAX_LINES]


def _parts(statement: ast.stmt) -> tuple[str, list[list[ast.stmt]]]:
    """The statement, or its head and its blocks; nothing for a text or ``pass``."""
    word = type(statement).__name__.lower()
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return "", []
        case ast.If(test=test) | ast.While(test=test):
            nodes: list[ast.AST] = [test]
        case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
            nodes = [target, values]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            nodes = [*items]
        case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
            nodes, word = [args], f"def {name}"
        case ast.ClassDef(name=name, bases=bases):
            nodes, word = [*bases], f"class {name}"
        case _ if not any(blocks(statement)):
            return exact(statement, MAX_LINE), []
        case _:
            nodes = []
    return f"{word} {', '.join(exact(node, MAX_LINE) for node in nodes)}", list(blocks(statement))


def mentioned(nodes: list[ast.AST]) -> tuple[str, ...]:
    """Names and attributes that code speaks of, and words in quotes that can be one, sorted."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                found.add(name)
            case ast.Constant(value=str(name)) if len(name) < _LONGEST_NAME and name.isidentifier():
                found.add(name)
    return tuple(sorted(found))
