"""What of a function counts for what it computes: statements without log lines, annotations, texts of errors, and
devices that follow another tensor, keywords in one order, local names by the order in which they are bound; digests and
short texts of that. Runs in the bounded child; nothing here recurses, for hostile trees are deep.

And detectors on one tree: places that reach beyond computing, and version gates. They read what is written, so they can
be misled on purpose: that nothing was found is no proof of harmlessness."""

import ast
import builtins
import json
import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha1
from itertools import compress
from types import MappingProxyType
from typing import NamedTuple

from envdoctor.source.definitions import (
    FunctionNode,
    Scope,
    all_nodes,
    blocks,
    dotted,
    inner_parts,
    keyword_of,
    last_name,
    names_in,
    of_kind,
    parameters_of,
    scopes_of,
    text_of,
)

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


#: The scope of what belongs to no class and no function.
MODULE_LEVEL = "module level"
#: Kinds of places that ask for a version: its second number alone, or anything else of it.
MINOR_ONLY, VERSION_GATE = "minor-only-gate", "version-gate"
#: Kinds of places that reach beyond computing, where their arguments decide; the table ``reaching-calls`` has more.
_EXEC, _FILE_WRITE, _PICKLE, _DYNAMIC_IMPORT = "exec-call", "file-write", "pickle-load", "dynamic-import"
_OPENERS = frozenset({"open", "builtins.open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"})
_WRITING_METHODS = frozenset({"write_text", "write_bytes", "extractall", "symlink_to", "hardlink_to", "unlink"})
_INNER_PARTS = frozenset({"__globals__", "__builtins__", "__subclasses__"})
_FAULT_ENDINGS = ("Error", "Exception", "Warning", "Timeout", "Expired")
_SAFE_LOADERS = frozenset({"SafeLoader", "CSafeLoader", "BaseLoader"})
_ASKS_VERSION = re.compile(r"is_\w+_(?:version|or_higher|or_later|or_newer)\Z|is_\w+?_greater_or_equal")
#: The version of a package in the text of an expression; Python's own is left out.
_VERSION = re.compile(
    r"(?<!\bsys\.)\b__version__|\bbase_version\b|\b(?:version|version\.parse|parse_version|\w{0,20}Version)\("
    r"|\b(?!\w{0,20}python)\w{0,40}version\w{0,20}(?:\([^()]{0,60}\))?\.split\('\.'"
)
#: One of its numbers, by name or by place.
_NUMBER = re.compile(r"\.(major|minor)\b|\.(?:release|split\('\.'[^)]{0,9}\))(?:\[:\d\])?\){0,4}\[(\d)\]")
_PLACES = {"major": "0", "minor": "1"}
_SECOND = {"1"}
_NAME = re.compile(r"(?<![.\w'])[A-Za-z_]\w*(?!\w|=[^=])")
_LONGEST = 1000


class Site(NamedTuple):
    """A place that can do something beyond computing, or that asks for a version. ``kind`` as in changes without
    ``-added``; ``key`` is equal for places that do the same; ``at_load``: it runs as soon as the file is loaded."""

    kind: str
    scope: str
    key: str
    text: str
    at_load: bool

    @property
    def is_gate(self) -> bool:
        """Return whether the place asks for a version."""
        return self.kind in (MINOR_ONLY, VERSION_GATE)


def sites_of(tree: ast.Module, nodes: list[ast.AST], reaching: Mapping[str, str]) -> list[Site]:
    """Return calls and references that reach beyond computing, and version gates, in the order of the file; ``nodes``
    are all nodes of the tree, ``reaching`` maps the names that reach to their kinds, empty for harmless ones."""
    sites: list[Site] = []
    names, versions = _Names(tree, nodes, reaching), _Versions(nodes)
    # Of what is still to be visited: node, scope, whether it runs at load, whether the major version was looked at.
    waiting: list[tuple[ast.AST, str, bool, bool]] = [(tree, "", True, False)]
    while waiting:
        node, scope, at_load, has_major = waiting.pop()
        waits = False
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                scope, waits = f"{scope}.{name}".lstrip("."), type(node) is not ast.ClassDef
            case ast.Lambda():
                waits = True
            case ast.BoolOp() | ast.If() | ast.IfExp():
                has_major = has_major or versions.asks_major(node)
            case ast.Assign() | ast.AnnAssign() if at_load:
                scope = ".".join(filter(None, (scope, *assigned(node)[0][:1])))
        kind, goes_on = names.kind_of(node)
        for sort in filter(None, (versions.gate(node, has_major), kind)):
            sites.append(Site(sort, scope or MODULE_LEVEL, _key(sort, node), short(node), at_load))
        parts = inner_parts(node) if goes_on is None else ((child, True) for child in goes_on)
        waiting += [(child, scope, at_load and not (within and waits), has_major) for child, within in parts][::-1]
    return sites


def _key(kind: str, node: ast.AST) -> str:
    """Return equal keys for places that do the same: the text, for files only the function and its constants."""
    match node:
        case ast.Call(func=func, args=args, keywords=keywords) if kind == _FILE_WRITE:
            parts = [part for argument in (*args, *(word.value for word in keywords)) for part in all_nodes(argument)]
            constants = [ascii(part.value) for part in of_kind(parts, ast.Constant)]
            return " ".join([dotted(func), *constants])[:4096]
    return short(node) if kind in (MINOR_ONLY, VERSION_GATE) else exact(node)


class _Names:
    """What the names of a file stand for (``np`` for ``numpy``, ``run`` for ``subprocess.run``, ``o`` after ``o = os``;
    one that is bound twice for both), and what can be done by them."""

    def __init__(self, tree: ast.Module, nodes: list[ast.AST], reaching: Mapping[str, str]) -> None:
        self._reaching = reaching
        self._targets: dict[str, set[str]] = {}
        scopes = scopes_of(tree, (), standard=True).values()
        for name, targets in ((name, targets) for scope in scopes for name, targets in scope.bound.items()):
            if names := {target.dotted for target in targets if target}:
                self._targets.setdefault(name, set()).update(names)
        for node in nodes:
            match node:
                case ast.Assign(value=ast.Name() | ast.Attribute() as original) if self._is_imported(dotted(original)):
                    for name in assigned(node)[0]:
                        self._targets.setdefault(name, set()).update(self._resolved(dotted(original)))

    def _is_imported(self, name: str) -> bool:
        return name.partition(".")[0] in self._targets

    def _resolved(self, name: str) -> list[str]:
        """Return everything that a dotted name can stand for; the name itself if it was not imported."""
        root, dot, rest = name.partition(".")
        return [target + dot + rest for target in sorted(self._targets.get(root, ()))] or [name]

    def _first(self, name: str, rest: str = "") -> str:
        return next(filter(None, (self._name_kind(path + rest) for path in self._resolved(name))), "")

    def kind_of(self, node: ast.AST) -> tuple[str, list[ast.AST] | None]:
        """Return what the node can do, and which nodes below are still to be looked at (None: all)."""
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                name = dotted(func)
                kind = next(filter(None, (self._call_kind(path, node) for path in self._resolved(name))), "")
                before = [] if name and not name.startswith(".") else [getattr(func, "value", func) if name else func]
                return kind or self._reached(node), [*before, *args, *keywords]
            case ast.Name(ctx=ast.Store() | ast.Del()):
                return "", []
            case ast.Attribute() | ast.Name():
                name = dotted(node)
                if name.startswith("."):
                    return self._name_kind(name), None
                # Without a call, `compile` and `code` are ordinary names of variables; `eval` and what is imported not.
                is_known = self._is_imported(name) or name in ("eval", "exec", "__import__", "__builtins__")
                return self._first(name) if is_known else "", []
            case ast.ImportFrom(module=module, names=[ast.alias(name="*")], level=0):
                return self._name_kind(f"{module}.*"), []
        return "", None

    def _reached(self, call: ast.Call) -> str:
        """Return the kind that ``getattr`` reaches: of ``os.system``, or with a computed name of a dangerous module."""
        match call:
            case ast.Call(func=ast.Name(id="getattr" | "vars"), args=[owner, *keys]):
                module = dotted(owner)
                if not (self._is_imported(module) or module == "__builtins__"):
                    return ""
                if keys and isinstance(keys[0], ast.Constant):
                    return self._first(module, f".{keys[0].value!s}")
                dangerous = {"os", "builtins", "subprocess", "ctypes", "sys"}
                return "" if dangerous.isdisjoint(self._resolved(module)) else _EXEC
        return ""

    def _name_kind(self, name: str) -> str:
        """Return what a dotted name can do; empty for harmless or unknown names, constants and exceptions."""
        last = name.rpartition(".")[2]
        if last in _INNER_PARTS:
            return _EXEC
        if name not in self._reaching and (last.isupper() or last.endswith(_FAULT_ENDINGS)):
            return ""
        while name and name not in self._reaching:
            name = name.rpartition(".")[0]
        return self._reaching.get(name, "")

    def _call_kind(self, name: str, call: ast.Call) -> str:
        """Return what a call can do, by its resolved name and its arguments."""

        def given(word: str, *place: int) -> ast.expr | None:
            placed = [argument for at in place for argument in call.args[at : at + 1]]
            return next(filter(None, (keyword_of(call, word), *placed)), None)

        _, dot, last = name.rpartition(".")
        kind, is_method = self._name_kind(name), name.startswith(".")
        if name == "torch.load" and getattr(given("weights_only"), "value", None) is True:
            return ""
        if name in ("yaml.load", "yaml.load_all") and last_name(given("Loader", 1)) in _SAFE_LOADERS:
            return ""
        if kind:
            return kind
        if name == "numpy.load":
            return _PICKLE if _is_set(given("allow_pickle")) else ""
        if _is_set(given("trust_remote_code")):
            return _DYNAMIC_IMPORT
        if name in _OPENERS or (last == "open" and is_method):
            mode = given("mode", 0 if is_method else 1)
            if not isinstance(mode, ast.Constant):  # a computed mode may open for writing
                return _FILE_WRITE if mode is not None and not is_method else ""
            # `image.open("picture.png")` is a method of something else than a path: its argument is no mode.
            letters = text_of(mode) or ""
            writes = len(letters) <= 4 and not {*"wax+"}.isdisjoint(letters) and {*letters} <= {*"rwaxbtU+"}
            return _FILE_WRITE if writes else ""
        return _FILE_WRITE if last in _WRITING_METHODS and dot else ""


def _is_set(value: ast.expr | None) -> bool:
    """Return whether an argument was given that may be anything but False or None."""
    return value is not None and not (isinstance(value, ast.Constant) and value.value in (False, None))


class _Versions:
    """Which comparisons ask for a version: by their texts, in which names that hold one are written out."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self._known: dict[str, str] = {}
        self._is_spoken_of = any("ersion" in last_name(node) for node in nodes)
        assignments = [node for node in of_kind(nodes, ast.Assign) if self._is_spoken_of]
        tests = (ast.Compare, ast.BoolOp, ast.IfExp)
        holding = [one for one in assignments if not (isinstance(one.value, tests) or _is_question(one.value))]
        texts = [(one, exact(one.value, MAX_LINE)) for one in holding]
        for _ in range(2):  # once for `parts = v.split(".")`, once for `minor = int(parts[1])`
            for target, text in ((target, self._spelled(text)) for one, text in texts for target in one.targets):
                match target:
                    case ast.Name(id=name) if _VERSION.search(text):
                        self._known[name] = text
                    case ast.Tuple(elts=items) | ast.List(elts=items) if _VERSION.search(text):
                        self._known |= {name: f"{text}[{place}]" for place, name in enumerate(names_in(items[:2]))}

    def _spelled(self, text: str) -> str:
        return _NAME.sub(lambda match: self._known.get(match[0], match[0]), text)[:_LONGEST]

    def gate(self, node: ast.AST, has_major: bool) -> str:
        """Return the kind of gate that the node is, or ""; ``has_major``: code around it asks for the first number."""
        parts = self._compared(node)
        if parts == _SECOND and not has_major:
            return MINOR_ONLY
        return VERSION_GATE if parts or _is_question(node) else ""

    def _compared(self, node: ast.AST) -> Collection[str]:
        """Return which numbers of a version a comparison looks at; an empty text for all of them."""
        text = self._spelled(exact(node, MAX_LINE)) if self._is_spoken_of and isinstance(node, ast.Compare) else ""
        chosen = {_PLACES.get(match[1], match[2]) for match in _NUMBER.finditer(text)}
        return (chosen or {""}) if _VERSION.search(text) else ()

    def asks_major(self, node: ast.BoolOp | ast.If | ast.IfExp) -> bool:
        """Return whether a condition compares the first number or the whole version."""
        tests = node.values if isinstance(node, ast.BoolOp) else [node.test]
        return any({*self._compared(inner)} - _SECOND for test in tests for inner in all_nodes(test))


def _is_question(node: ast.AST) -> bool:
    """Return whether a node is a call like ``is_transformers_version(">=", "4.42")``."""
    return isinstance(node, ast.Call) and _ASKS_VERSION.match(dotted(node.func).rpartition(".")[2]) is not None
