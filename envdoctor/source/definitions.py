"""Read nodes of a syntax tree, and what a Python file defines and takes: functions, attributes, modules beside it; and
the import that a name stands for by Python's scopes, none for a name that anything else binds."""

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

Kind = TypeVar("Kind", bound=ast.AST)
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


def of_kind(nodes: Iterable[ast.AST | None], *kinds: type[Kind]) -> Iterator[Kind]:
    """Yield the nodes of these classes."""
    return (node for node in nodes if isinstance(node, kinds))


def names_in(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    """Yield the plain names among nodes."""
    return (node.id for node in of_kind(nodes, ast.Name))


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
    return of_kind(nodes, ast.FunctionDef, ast.AsyncFunctionDef)


def parameters_of(arguments: ast.arguments) -> list[ast.arg]:
    """Return every parameter, with those behind ``*`` and ``**`` at the end."""
    stars = filter(None, (arguments.vararg, arguments.kwarg))
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]


def defaults_of(arguments: ast.arguments) -> dict[str, ast.expr]:
    """Return the default of each parameter that has one."""
    names = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    return defaults | {parameter.arg: default for parameter, default in pairs if default is not None}


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


#: The kind of scope that a node opens.
_OPENS: Mapping[type, str] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), "function"),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "comprehension"),
    ast.ClassDef: "class",
}
#: Never a distribution's.
_STANDARD = sys.stdlib_module_names | {"__main__", "distutils", "imp", "asynchat", "asyncore", "smtpd"}


class AssignmentTarget(NamedTuple):
    """The target of an import: a module, or below it ``name``, which may be a module too."""

    module: str
    name: str = ""

    @property
    def dotted(self) -> str:
        """Return ``transformers.Trainer``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class Scope:
    """The names that one function, class, comprehension or file binds, each to its imports; None is anything else."""

    __slots__ = ("_elsewhere", "bound", "kind", "parent")

    def __init__(self, kind: str, parent: "Scope | None") -> None:
        self.kind, self.parent = kind, parent
        self.bound: dict[str, list[AssignmentTarget | None]] = {}
        self._elsewhere: dict[str, Scope] = {}

    def bind(self, name: str, target: AssignmentTarget | None = None) -> None:
        """Add a meaning of a name; two equal ones are kept, or the first two different ones."""
        meanings = self._elsewhere.get(name, self).bound.setdefault(name, [])
        if len(meanings) < 2 or (meanings[-1] == meanings[0] != target):
            meanings.append(target)

    def declare(self, names: Collection[str], holder: "Scope | None") -> None:
        """Declare names that are bound further out: in ``holder``, or in the file."""
        outermost = self
        while outermost.parent is not None:
            outermost = outermost.parent
        self._elsewhere.update(dict.fromkeys(names, holder or outermost))

    def holder(self) -> "Scope":
        """Return the scope in which ``:=`` binds."""
        return self if self.kind != "comprehension" or self.parent is None else self.parent.holder()

    def is_one_definition(self, name: str) -> bool:
        """Return whether the name has one meaning here, and that is not an import."""
        return self._meanings(name) == [None]

    def is_ambiguous(self, name: str) -> bool:
        """Return whether the name has several meanings in this very scope."""
        meanings = self.bound.get(name, ())
        return len(meanings) > 1 and (None in meanings or len(set(meanings)) > 1)

    def find(self, name: str) -> AssignmentTarget | None:
        """Return the one import that the name stands for here; None if it may stand for anything else."""
        first, *others = self._meanings(name) or [None]
        is_single = first is not None and all(other and other.dotted == first.dotted for other in others)
        return first if is_single else None

    def _meanings(self, name: str) -> list[AssignmentTarget | None]:
        scope: Scope | None = self
        while scope is not None and (name not in scope.bound or (scope is not self and scope.kind == "class")):
            scope = scope.parent
        return scope.bound[name] if scope is not None else []


def scopes_of(tree: ast.Module, own: Collection[str], *, standard: bool = False) -> Mapping[int, Scope]:
    """Return the scopes by the ``id`` of the node that opens each. Imports of modules ``own``, of the standard library
    (unless ``standard``) and relative ones are bound to None."""
    scopes: dict[int, Scope] = {id(tree): Scope("module", None)}
    stack: list[tuple[ast.AST, Scope]] = [(tree, scopes[id(tree)])]
    while stack:
        node, scope = stack.pop()
        kind, inside = _OPENS.get(type(node)), scope
        if kind is not None:
            inside = scopes[id(node)] = Scope(kind, scope)
        _bind(node, scope, inside, own, standard)
        stack += [(child, inside if within else scope) for child, within in inner_parts(node)][::-1]
    return scopes


def inner_parts(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the children of a node, each with whether it lies in the scope that the node opens."""
    parts: tuple[Sequence[ast.AST], Sequence[ast.AST]]
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            parts = function_parts(node), body
        case ast.Lambda(body=value):
            parts = function_parts(node), [value]
        case ast.ClassDef(body=body):
            parts = class_parts(node), body
        case _:
            parts = ((), children(node)) if _OPENS.get(type(node)) else (children(node), ())
    return ((child, within) for within in (False, True) for child in parts[within])


def class_parts(node: ast.ClassDef) -> list[ast.expr]:
    """Return the parts of a class that are evaluated outside of it."""
    return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]


def function_parts(node: FunctionNode | ast.Lambda, *, hints: bool = True) -> list[ast.AST]:
    """Return the parts of a function that are evaluated at its definition; with ``hints``, its annotations too."""
    arguments = node.args
    parts: list[ast.AST] = [*getattr(node, "decorator_list", ()), *arguments.defaults]
    parts += [default for default in arguments.kw_defaults if default is not None]
    if hints:
        nodes = (*(parameter.annotation for parameter in parameters_of(arguments)), getattr(node, "returns", None))
        parts += [annotation for annotation in nodes if annotation is not None]
    return parts


def _bind(node: ast.AST, scope: Scope, inside: Scope, own: Collection[str], standard: bool) -> None:
    match node:
        case ast.Name(ctx=ast.Load()):
            return  # most nodes
        case ast.Import(names=aliases):
            for alias in aliases:
                top = alias.name.partition(".")[0]
                name, module = (alias.asname, alias.name) if alias.asname else (top, top)
                scope.bind(name, AssignmentTarget(module) if standard or is_foreign(top, own) else None)
        case ast.ImportFrom(module=source, names=aliases, level=level):
            foreign = not level and source is not None and (standard or is_foreign(source, own))
            for alias in (entry for entry in aliases if entry.name != "*"):
                target = AssignmentTarget(str(source), alias.name) if foreign else None
                scope.bind(alias.asname or alias.name, target)
        case ast.NamedExpr(target=ast.Name(id=name)):
            scope.holder().bind(name)
        case (
            (ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name))
            | (ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)))
            | (ast.Name(id=str(name)) | ast.MatchMapping(rest=str(name)))
        ):
            scope.bind(name)
        case ast.Global(names=names):
            scope.declare(names, None)
        case ast.Nonlocal(names=names):
            scope.declare(names, scope.parent)
    match node:
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments) | ast.Lambda(args=arguments):
            for parameter in parameters_of(arguments):
                inside.bind(parameter.arg)


def is_foreign(module: str, own: Collection[str]) -> bool:
    """Return whether a module belongs to a distribution: neither to the project nor to the standard library."""
    top = module.partition(".")[0]
    return top not in own and top not in _STANDARD
