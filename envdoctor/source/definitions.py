"""Read nodes of a syntax tree, and what a Python file defines and takes: functions, attributes, modules beside it."""

import ast
from collections.abc import Iterable, Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
#: Of Python 3.11.
TryStar: type[ast.Try] = getattr(ast, "TryStar", ast.Try)


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements inside a statement, branch by branch."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported, in any branch; not those of functions and classes."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for block in blocks(statement):
            yield from statements(block)


def last_name(node: ast.AST | None) -> str:
    """Return ``cuda`` for ``torch.cuda``; an empty text unless it is a dotted name."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes right below, in the order of the text."""
    # vars() holds children, lists of them, names and positions; ast.iter_child_nodes takes four times as long.
    nodes: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, ast.AST):
            nodes.append(value)
        elif type(value) is list:
            nodes += [entry for entry in value if isinstance(entry, ast.AST)]
    return nodes


def all_nodes(tree: ast.AST) -> list[ast.AST]:
    """Return the tree's nodes, parents first."""
    nodes = [tree]
    for node in nodes:
        nodes += children(node)
    return nodes


def chain(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """Return the root of ``torch.nn.Linear``, and the names behind it."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return node, names[::-1]


def dotted(node: ast.AST) -> str:
    """Return ``torch.nn.Linear``; ``.view`` for a method of anything but a name; empty for other expressions."""
    root, names = chain(node)
    return ".".join([getattr(root, "id", ""), *names])


def names_in(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    """Yield the plain names among nodes."""
    return (node.id for node in nodes if isinstance(node, ast.Name))


def text_of(node: ast.AST | None) -> str | None:
    """Return the text of a literal; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
    return None


def texts_in(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    """Yield the literal texts among nodes."""
    return (text for text in map(text_of, nodes) if text is not None)


def functions_in(nodes: Iterable[ast.AST]) -> Iterator[FunctionNode]:
    """Yield the functions among nodes."""
    return (node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def parameters_of(arguments: ast.arguments) -> list[ast.arg]:
    """Return every parameter, with those behind ``*`` and ``**`` at the end."""
    stars = filter(None, (arguments.vararg, arguments.kwarg))
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]


def keyword_of(call: ast.AST | None, name: str) -> ast.expr | None:
    """Return the value that a call gives to a keyword; None for no call."""
    return next((keyword.value for keyword in getattr(call, "keywords", ()) if keyword.arg == name), None)


def elements(node: ast.expr | None) -> list[ast.expr | None]:
    """Return the items of a tuple or list, else the node itself: what ``except (A, B)`` and ``except A`` catch."""
    return [*node.elts] if isinstance(node, (ast.Tuple, ast.List)) else [node]


def is_generator(function: ast.FunctionDef) -> bool:
    """Return whether a function, or one inside it, yields."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))


def methods_of(tree: ast.Module | ast.ClassDef, scope: str = "") -> Iterator[str]:
    """Yield ``Class.method(self, a, /, *args, b, **kwargs)`` and ``name(a)``: functions of the module and of its
    classes, in any branch; parameters without defaults and annotations."""
    for statement in statements(tree.body):
        match statement:
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                words = [word.rstrip("=") for word in parameter_words(args)]
                if args.posonlyargs:
                    words.insert(len(args.posonlyargs), "/")
                yield f"{scope}{name}({', '.join(words)})"
            case ast.ClassDef(name=name):
                yield from methods_of(statement, f"{scope}{name}.")


def attributes_of(tree: ast.Module) -> Iterator[str]:
    """Yield every attribute that is read, without the object that it is read from."""
    for node in all_nodes(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield name


def siblings_of(tree: ast.Module) -> Iterator[str]:
    """Yield the modules beside the file that it imports relatively, at any place."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=None, level=1, names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=1):
                yield module.partition(".")[0]


def parameter_words(arguments: ast.arguments) -> Iterator[str]:
    """Yield parameters as ``x``, ``x=``, ``*``, ``*args``, ``**kwargs``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    yield from (arg.arg if number < required else f"{arg.arg}=" for number, arg in enumerate(positional))
    if arguments.vararg is not None:
        yield f"*{arguments.vararg.arg}"
    elif arguments.kwonlyargs:
        yield "*"
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield arg.arg if default is None else f"{arg.arg}="
    if arguments.kwarg is not None:
        yield f"**{arguments.kwarg.arg}"
