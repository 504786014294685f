"""The definitions of Python files, by their syntax trees, as records. Runs in a bounded child: nothing is imported or
executed."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, get_args, get_origin

from envdoctor.revision.code.parts import canonical
from envdoctor.source import definitions as syntax
from envdoctor.source.notebook import parse_code
from envdoctor.source.uses import TooMuch, Use, uses_of

#: How the name of a property's second function ends.
_ACCESSOR = re.compile(r"\.(setter|deleter|getter)$")
#: Where statements stand in another one, and the nodes that need not run them.
_INNER = ("body", "orelse", "finalbody", "handlers", "cases")
_PERHAPS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.For, ast.AsyncFor, ast.While),
    *(ast.Match, ast.ExceptHandler, ast.match_case),
)
_FAILED_IMPORT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_MAX_CALLS = 2000
#: What a statement may give a value, and a name; attributes, keywords and words in quotes are left out.
_TARGET = re.compile(r"[\w, ()*]+\Z")
NAME = re.compile(r"(?<![.\w'])[A-Za-z_]\w*(?!\w|'|=(?!=))")
#: What is unpacked from these is often not used.
_SIZES = re.compile(r"\.(?:size\(\)|shape\b)|get_batch_size|config\.")
#: What a statement changes: what it gives a value, goes through, or changes in place.
_CHANGES = re.compile(r"^[^=]* [-+*/|&@%]*= |^(?:async )?for .* in |(?<![\w.])\w+\.\w+_\(")
#: New statements of a function in which values take the place of names.
_MAX_INLINED = 30
#: The largest modeling file of transformers has 70,000 nodes.
_MAX_NODES = 300_000


class Parameter(NamedTuple):
    """``kind`` is ``positional``, ``normal``, ``*``, ``keyword`` or ``**``; ``default`` its text, None without one."""

    name: str
    kind: str
    default: str | None


class _CallSite(NamedTuple):
    """A call in a function's body: dotted name as written, its keywords as ``name=value``, and the other arguments."""

    name: str
    keywords: tuple[str, ...]
    arguments: tuple[str, ...] = ()


class Definition(NamedTuple):
    """A class, a function, or a name that is assigned to at module or class level.

    ``name`` is qualified by its classes; that of a property's setter ends in ``.setter``. ``text`` is the bases, the
    signature without annotations, or the value. ``meaning`` is a digest of what counts of the body (``canonical.py``).
    ``weight`` grows with the size. ``mentions`` are the names that it speaks of, ``lines`` its statements one by one,
    ``first`` and ``last`` its lines in the file. ``unbound`` are names that it reads and nothing binds. ``is_idle``
    marks a function about gradient checkpointing whose body cannot change anything.
    """

    name: str
    kind: str
    text: str
    meaning: str
    weight: int
    first: int
    last: int
    is_idle: bool = False
    decorators: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    calls: tuple[_CallSite, ...] = ()
    mentions: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    unbound: tuple[str, ...] = ()

    @property
    def sense(self) -> str:
        """Return equal for definitions that do the same, whatever they are called and wherever they stand."""
        return f"{self.kind} {self.text} {self.meaning} {' '.join(self.decorators)}"

    @property
    def leaf(self) -> str:
        """Return the last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """Return the class that it is in, empty outside of classes."""
        return _ACCESSOR.sub("", self.name).rpartition(".")[0]


class _Import(NamedTuple):
    """``name`` is dotted, with leading dots when relative. ``required``: loading the file always runs it; ``demanded``:
    transformers refuses to load the file when its package is not installed."""

    name: str
    required: bool
    demanded: bool


class _Statement(NamedTuple):
    """Any other statement of a module or class body."""

    scope: str
    meaning: str
    text: str


class FileCode(NamedTuple):
    """One parsed file. ``uses`` is what it takes of other packages; ``bound`` are the names that it gives a value
    anywhere, ``*`` for those of another module."""

    definitions: tuple[Definition, ...]
    imports: tuple[_Import, ...]
    sites: tuple[canonical.Site, ...]
    statements: tuple[_Statement, ...]
    uses: tuple[Use, ...] = ()
    bound: tuple[str, ...] = ()


#: Of a file that is not there.
NO_CODE = FileCode((), (), (), ())


def from_json(kind: Any, value: Any) -> Any:
    """Return the record of a kind, or a tuple of such, after it went through JSON as lists."""
    if get_origin(kind) is tuple:
        return tuple(from_json(get_args(kind)[0], item) for item in value)
    fields = getattr(kind, "__annotations__", None)
    return kind(*map(from_json, fields.values(), value)) if fields else value


def read_code(content: bytes, *, reaching: Mapping[str, str] = MappingProxyType({})) -> FileCode:
    """Parse one file; ``reaching`` are the names of the table ``reaching-calls``, with their kinds. Raises
    :class:`TooMuch`, and SyntaxError, RecursionError or MemoryError as ``ast.parse`` does."""
    tree, _, _ = parse_code(content)
    nodes = syntax.all_nodes(tree)
    if len(nodes) > _MAX_NODES:
        raise TooMuch
    imports, sites, uses = _imports(tree), canonical.sites_of(tree, nodes, reaching), uses_of(tree).uses
    canonical.erase(nodes)
    scopes = syntax.scopes_of(tree, ())
    bound = {"*"}.intersection(alias.name for alias in syntax.of_kind(nodes, ast.alias))
    bound |= {name for scope in scopes.values() for name in scope.bound}
    definitions: list[Definition] = []
    statements: list[_Statement] = []
    for scope, statement in _in_order(tree):
        definitions_here = list(_defined(scope, statement, scopes))
        definitions += definitions_here
        if not definitions_here:  # of a compound statement only its head counts, for what is inside comes by itself
            word, head = canonical.head_of(statement)
            head = head if word else [statement]
            meaning = f"{type(statement).__name__} {canonical.digest(head).meaning}"
            text = (f"{word} " if word else "") + ", ".join(map(canonical.short, head))
            statements.append(_Statement(scope.rstrip(".") or canonical.MODULE_LEVEL, meaning, text))
    everything: tuple[Sequence[Any], ...] = (definitions, imports, sites, statements, uses, sorted(bound))
    return FileCode(*map(tuple, everything))


def _in_order(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield statements of the module and its classes with their scope; those in conditions and the like as if they
    stood alone, and the condition without its body. Imports and what does nothing are left out."""
    waiting: list[tuple[str, ast.stmt]] = [("", statement) for statement in reversed(tree.body)]
    while waiting:
        scope, statement = waiting.pop()
        match statement:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.ClassDef(name=name, body=body):
                waiting += [(f"{scope}{name}.", child) for child in reversed(body)]
            case _ if canonical.head_of(statement)[0]:
                waiting += [(scope, child) for block in [*syntax.blocks(statement)][::-1] for child in reversed(block)]
        yield scope, statement


def _defined(scope: str, node: ast.stmt, scopes: Mapping[int, syntax.Scope]) -> Iterator[Definition]:
    """Yield the function, the class, or the names that a statement defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield _function(scope, node, scopes)
        case ast.ClassDef(name=name, bases=bases, keywords=keywords, decorator_list=decorators):
            text = f"({', '.join(map(canonical.exact, [*bases, *keywords]))})"
            head = canonical.digest([*bases, *keywords, *decorators])
            whole = canonical.digest([*bases, *keywords, *decorators, node.body])
            yield _definition(f"{scope}{name}", "class", text, node, whole._replace(nodes=head.nodes))
        case _:
            names, value = canonical.assigned(node)
            for name in names if value is not None else []:
                yield _definition(
                    f"{scope}{name}", "value", canonical.short(value or node), node, canonical.digest([value])
                )


def _definition(name: str, kind: str, text: str, node: ast.stmt, result: canonical.Digest) -> Definition:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return Definition(
        *(name, kind, text, *result[:2]),
        min([node.lineno, *(decorator.lineno for decorator in decorators)]),
        node.end_lineno or node.lineno,
        decorators=tuple(map(canonical.exact, decorators)),
        mentions=canonical.mentioned(result.nodes),
    )


def _function(scope: str, node: syntax.FunctionNode, scopes: Mapping[int, syntax.Scope]) -> Definition:
    marks = {*map(syntax.dotted, node.decorator_list)}
    setter = next((f".{kind}" for kind in ("setter", "deleter", "getter") if f"{node.name}.{kind}" in marks), "")
    text, parameters = _parameters(node.args)
    result = canonical.digest([node.body], canonical.local_names(node, scopes))
    calls = [
        _CallSite(
            syntax.dotted(inner.func),
            tuple(f"{word.arg}={canonical.exact(word.value)}" if word.arg else "**" for word in inner.keywords),
            tuple(map(canonical.exact, inner.args)),
        )
        for inner in list(syntax.of_kind(result.nodes, ast.Call))[:_MAX_CALLS]
    ]
    return _definition(f"{scope}{node.name}{setter}", "function", text, node, result)._replace(
        is_idle="gradient_checkpointing" in node.name
        and all(type(inner) is not ast.Raise and canonical.is_pure(inner) for inner in node.body),
        mentions=canonical.mentioned([*result.nodes, *syntax.all_nodes(node.args), *node.decorator_list]),
        parameters=tuple(parameters),
        calls=tuple(calls),
        lines=tuple(canonical.lines_of(node)),
        unbound=canonical.unbound(node, result.nodes, scopes),
    )


def _parameters(arguments: ast.arguments) -> tuple[str, list[Parameter]]:
    """Return ``(self, x, /, y=1, *, z=None)``, and each parameter of it."""
    defaults = filter(None, [*arguments.defaults, *arguments.kw_defaults])
    first, kind, words, parameters = len(arguments.posonlyargs), "normal", list[str](), list[Parameter]()
    for place, word in enumerate(syntax.parameter_words(arguments)):
        name, stars = word.strip("*="), "*" * word.count("*")
        default = canonical.exact(next(defaults)) if word.endswith("=") else None
        if name:
            parameters.append(Parameter(name, stars or ("positional" if place < first else kind), default))
        kind = "keyword" if stars else kind
        words += [word + (default or ""), *["/"] * (place + 1 == first)]
    return f"({', '.join(words)})", parameters


def _imports(tree: ast.Module) -> list[_Import]:
    """Return all imports by their dotted names. Required are those that run whenever the file is loaded: not in a
    function, under a condition, or in a ``try`` that a failed import does not leave. Demanded are those whose package
    transformers looks for before it loads the file (get_imports in its dynamic_module_utils.py): anywhere but in a
    ``try`` or under ``if is_…_available()``."""
    imports: dict[str, tuple[bool, bool]] = {}
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, True, True)]
    while waiting:
        node, required, demanded = waiting.pop()
        names = list[str]()
        always: tuple[str, ...] = () if isinstance(node, _PERHAPS) else _INNER
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=module, names=aliases, level=level):  # `from . import modeling` names a file
                names = ["." * level + (f"{module}." if module else "") + alias.name for alias in aliases]
            case ast.Try(handlers=handlers):
                kinds = [kind for handler in handlers if handler.type for kind in syntax.all_nodes(handler.type)]
                catches_all = any(handler.type is None for handler in handlers)
                survives = catches_all or not _FAILED_IMPORT.isdisjoint(syntax.names_in(kinds))
                always, demanded = ("finalbody",) if survives else ("body", "finalbody"), False
            case ast.If(test=test):
                calls = syntax.names_in(inner.func for inner in syntax.of_kind(syntax.all_nodes(test), ast.Call))
                demanded = demanded and not any(name.endswith("available") for name in calls)
        for name in names:
            before = imports.get(name, (False, False))
            imports[name] = (before[0] or required, before[1] or (demanded and not name.startswith(".")))
        for field in _INNER:
            waiting += [(inner, required and field in always, demanded) for inner in getattr(node, field, ())]
    return [_Import(name, *imports[name]) for name in sorted(imports)]


def names_of(lines: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the names that statements give a value, and the names that they read beside the assigned one."""
    bound, reads = set[str](), set[str]()
    for target, value in map(assigned, lines):
        names = {*NAME.findall(target)}
        reads |= {*NAME.findall(value)} - names
        bound |= names if not _SIZES.search(value) else set()
    return bound, reads


def assigned(line: str) -> tuple[str, str]:
    """Return what a statement gives a value, and the rest of it: all, where it gives none."""
    target, _, value = line.strip().partition(" = ")
    return (target, value) if value and _TARGET.match(target) else ("", line)


def inlined(lines: list[str], others: list[str]) -> list[str]:
    """Return statements with values instead of the names that ``others`` lack, where those have all of them so. A value
    of which something changes later stays, and so does one that is no sum of names and is not used at once."""
    there, known, is_cut = {*others}, {*NAME.findall("\n".join(others))}, "…" in "".join([*lines, *others])
    for line in [line for line in lines if line not in there and not is_cut][:_MAX_INLINED]:
        name, _, value = line.partition(" = ")
        if not value or not name.isidentifier() or name in known:
            continue
        place, word, text = lines.index(line), rf"(?<![.\w']){name}(?![\w'])", value.replace("\\", r"\\")
        alone = rf"(?:(?<=[(\[])|(?<=, )|(?<== )|(?<=return )){name}(?=[),\]]|$)"
        uses = {at: one for at, one in enumerate(lines) if at != place and re.search(word, one)}
        spelled = {at: re.sub(word, f"({text})", re.sub(alone, text, one)) for at, one in uses.items()}
        if not uses or min(uses) < place or not there.issuperset(spelled.values()):
            continue
        changes = [match[0] for one in lines[place + 1 :] for match in _CHANGES.finditer(one)]
        is_sum = {*"([."}.isdisjoint(value) and {*NAME.findall(" ".join(changes))}.isdisjoint(NAME.findall(value))
        if is_sum or [*uses] == [place + 1]:
            lines = [spelled.get(at, one) for at, one in enumerate(lines) if at != place]
    return lines
