"""What a Python script hands to the calls that it makes: its statements are followed by their syntax, nothing is run.

Constants, dictionaries, dataclasses, arithmetic, functions of the script and its own options count: a branch that the
options do not take is left out, and what cannot be told stays open.
"""

import ast
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from envdoctor.observe.recipe.document import REST
from envdoctor.observe.recipe.script_calls import (
    Calls,
    Returned,
    ScriptTooLong,
    add_setting,
    mapping_of,
    same,
)
from envdoctor.observe.recipe.script_options import MOST_LINES, PERHAPS, Beside, Item, Loaded, ScriptObject, dotted
from envdoctor.source.definitions import functions_in, last_name, of_kind
from envdoctor.source.notebook import parse_code
from envdoctor.source.values import UNKNOWN, truth

_MOST_ROUNDS = 200
#: What scripts call tokens, and the length of the blocks that they cut.
_TOKENS = ("input_ids", "labels", "ids")
_LENGTHS = ("block_size", "max_length", "max_len", "max_seq_length", "seq_length", "context_length", "cutoff_len")


class _Script(Calls):
    """A script that is followed (:class:`Calls`). ``words`` are those behind its name in a command, None for one that
    is computed; ``names`` is a pattern of the calls that are told. Modules that it imports from ``beside`` it are
    followed, too."""

    def __init__(self, tree: ast.Module, words: Sequence[str | None], beside: Beside, names: str = ".*") -> None:
        super().__init__(words, beside, names)
        self._functions: list[tuple[Any, ast.ClassDef | None]] = []
        # Functions that a branch calls which is not taken, and those that are named where the script goes.
        self._passed, self._loaded = set[Any](), set[Any]()
        self._modules: dict[tuple[str, int, str], ScriptObject | None] = {}
        bound, constants = Counter[str](), set[str]()
        for node in ast.walk(tree):
            self._homes[node] = (self._globals, beside.folder)
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    bound[name] += 1
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
                    constants.add(name)
        self._constants = {name for name in constants if bound[name] == 1}
        with suppress(ScriptTooLong, Returned):
            self._block(tree.body, self._globals)
            # What nobody was seen to call may be called from elsewhere.
            while rest := [pair for pair in self._functions if self._waits(pair[0])]:
                for function, kind in rest:
                    if self._waits(function):
                        own = [self._instances.get(kind, ScriptObject())] if kind else []
                        self._enter(function, own, self._command(function))

    def _waits(self, function: Any) -> bool:
        return function not in self._entered and (function not in self._passed or function in self._loaded)

    # statements

    def _block(self, body: Sequence[ast.stmt], scope: dict[str, Any]) -> None:
        for statement in body:
            self.step()
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: dict[str, Any]) -> None:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                scope[name] = node
                self._functions.append((node, None))
                if scope is not self._globals:
                    self._closures[node] = scope
            case ast.ClassDef(name=name, body=body):
                scope[name] = node
                self._functions += [(method, node) for method in functions_in(body)]
            case ast.Assign(targets=targets, value=assigned):
                value = self.held(assigned, scope)
                for target in targets:
                    self.bind(target, value, scope)
            case ast.AnnAssign(target=target, value=given):
                if given is not None:
                    self.bind(target, self.value(given, scope), scope)
            case ast.AugAssign(target=target, value=assigned):
                self.value(assigned, scope)
                self.bind(target, UNKNOWN, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self._either(self._decided(test, body, orelse, scope), body, orelse, scope)
            case ast.For() | ast.AsyncFor():
                self._rounds(node, self.value(node.iter, scope), scope)
            case ast.While(test=test, body=body, orelse=orelse):
                self.value(test, scope)
                self._block([*body, *orelse], scope)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    value = self.value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, value, scope)
                self._block(body, scope)
            case ast.Try():
                self._block(node.body, scope)
                for handler in node.handlers:
                    self._either(None, handler.body, [], scope)
                self._block([*node.orelse, *node.finalbody], scope)
            case ast.Return(value=given):
                raise Returned(self.value(given, scope) if given is not None else None)
            case ast.Import(names=names):
                for alias in names:
                    module = self._module(alias.name, 0, node.lineno)
                    if module is not None and ("." not in alias.name or alias.asname):
                        scope[alias.asname or alias.name] = module
            case ast.ImportFrom():
                self._import_from(node, scope)
            case ast.Match(subject=subject, cases=cases):
                self.value(subject, scope)
                for case in cases:
                    self._either(None, case.body, [], scope)
            case _:
                self._inner(node, scope)

    def _rounds(self, node: ast.For | ast.AsyncFor, over: Any, scope: dict[str, Any]) -> None:
        """Follow a loop: over the fields of a class each round, over anything else one whose value is open."""
        match over:
            case [ScriptObject(), *_]:
                rounds = over[:_MOST_ROUNDS]
            case Loaded(name="model.parameters"):
                rounds = [over]
            case _:
                rounds = [UNKNOWN]
        for item in rounds:
            self.bind(node.target, item, scope)
            self._block(node.body, scope)
        self._block(node.orelse, scope)

    def _inner(self, node: ast.AST, scope: dict[str, Any]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, scope)

    def _import_from(self, node: ast.ImportFrom, scope: dict[str, Any]) -> None:
        """Bind what comes out of modules in the script's own folders."""
        module = self._module(node.module, node.level, node.lineno) if node.module else None
        for alias in node.names:
            inner = module.get(alias.name) if module is not None else None
            if alias.name == "*":
                scope.update({name: item.value for name, item in (module or {}).items() if name[:1] != "_"})
            elif inner is not None:
                scope[alias.asname or alias.name] = inner.value
            elif node.level or module is not None:
                name = f"{node.module}.{alias.name}" if node.module else alias.name
                below = self._module(name, node.level, node.lineno)
                scope.update({alias.asname or alias.name: below} if below is not None else {})

    def _module(self, name: str, level: int, line: int) -> ScriptObject | None:
        """Return the names of a module beside the script; its calls are told as they run."""
        key = (name, level, self._place if level else "")
        if key not in self._modules:
            self._modules[key] = None  # imports may go in circles
            source = self._beside.module(name, level, self._place)
            if source is not None:
                self._modules[key] = ScriptObject()  # its own statements may import what lies below it
                tree, place = source
                names: dict[str, Any] = {"__name__": name}
                for node in ast.walk(tree):
                    self._homes[node] = (names, place)
                own = len(self._functions)
                with self._at(tree), suppress(Returned):
                    self._block(tree.body, names)
                del self._functions[own:]
                self._modules[key] = ScriptObject({variable: Item(value, line) for variable, value in names.items()})
        return self._modules[key]

    def _either(
        self, truth: bool | None, body: Sequence[ast.stmt], otherwise: Sequence[ast.stmt], scope: dict[str, Any]
    ) -> None:
        """Follow one of two branches; both, if it is open which one: what they set differently is open afterwards."""
        if truth is not None:
            self._block(body if truth else otherwise, scope)
            return
        ends = []
        starts = [len(self.calls)]
        for branch in (body, otherwise):
            end = dict(scope)
            self._branches.append(len(self._born))
            try:
                self._block(branch, end)
            except Returned as returned:
                end["return"] = returned.value
            finally:
                self._branches.pop()
            ends.append(end)
            starts.append(len(self.calls))
        first, second = ends
        self._doubt(*starts)
        for name in {*first, *second}:
            left, right = first.get(name, UNKNOWN), second.get(name, UNKNOWN)
            if name in scope and left is not right and not same(left, right):
                scope[name] = UNKNOWN
            elif name != "return":
                scope[name] = left if name in first else right
        values = [end["return"] for end in ends if "return" in end]
        if len(values) == 2:
            raise Returned(values[0] if same(*values) else UNKNOWN)
        self._perhaps_returned += values

    def _doubt(self, start: int, middle: int, end: int) -> None:
        """Note of the calls in two branches that they may not be made, unless both make them."""
        both = {call[0] for call in self.calls[start:middle]} & {call[0] for call in self.calls[middle:end]}
        for at in range(start, end):
            name, settings, perhaps = self.calls[at]
            self.calls[at] = (name, settings, perhaps or name not in both)

    def _decided(
        self, test: ast.expr, body: Sequence[ast.AST], otherwise: Sequence[ast.AST], scope: dict[str, Any]
    ) -> bool | None:
        """Return the truth of a condition. Functions that are called where the script does not go, whatever a command
        may give besides, are noted."""
        truth = self.truth(self.value(test, scope))
        left_out = (otherwise if truth else body) if truth is not None and self._settled(test, scope) else ()
        for node in (inner for statement in left_out for inner in ast.walk(statement)):
            match node:
                case ast.Call(func=ast.Name() as callee):
                    self._passed |= _function(self._named(callee, scope))
        return truth

    def _settled(self, test: ast.AST, scope: dict[str, Any]) -> bool:
        """Return whether constants decide a condition, and options that were given: no default."""
        match test:
            case ast.Constant() | ast.unaryop() | ast.boolop() | ast.cmpop():
                return True
            case ast.Name(id=name):
                return name in self._constants
            case ast.Attribute(value=owner, attr=key) | ast.Subscript(value=owner, slice=ast.Constant(value=key)):
                base = mapping_of(self.value(owner, scope)) if dotted(owner) else {}
                return key in base and base[key].given
            case ast.UnaryOp() | ast.BoolOp() | ast.Compare():
                return all(self._settled(part, scope) for part in ast.iter_child_nodes(test))
        return False

    def truth(self, value: Any) -> bool | None:
        return None if isinstance(value, dict) else truth(value)

    def put(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Attribute(value=owner, attr=key, lineno=line):
                base = self.value(owner, scope)
                if isinstance(base, ScriptObject):
                    self._put(base, key, value, line)
                elif getattr(base, "name", "") == "model.parameters" and (key, value) == ("requires_grad", False):
                    self.frozen.add(base.call)
                elif name := base.name if isinstance(base, Loaded) else self.callee(owner, scope):
                    # tokenizer.padding_side = "left" says what tokenizer(padding_side="left") does
                    settings: list[Any] = []
                    add_setting(settings, key, value, line)
                    self.tell(name, settings)
            case ast.Subscript(value=owner, slice=place, lineno=line):
                match self.value(owner, scope), self.value(place, scope):
                    case dict() as base, key if key is UNKNOWN or isinstance(key, str):
                        self._put(base, REST if key is UNKNOWN else key, value, line)

    # expressions

    def value(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        """Evaluate an expression; its calls are told."""
        if type(node) in self._visits:
            value = super().value(node, scope)
            is_made = isinstance(value, list) and isinstance(getattr(node, "slice", node), (ast.Slice, ast.BinOp))
            return UNKNOWN if is_made else value  # of lists, which may have grown since
        self.step()
        if isinstance(node, ast.Constant):
            return node.value
        for loop in getattr(node, "generators", ()):
            self.value(loop.iter, scope)
            self.bind(loop.target, UNKNOWN, scope)
        self._inner(node, scope)
        return UNKNOWN

    def visit_Name(self, node: ast.Name, scope: dict[str, Any]) -> Any:
        if node.id == "__file__" and self._place:
            return os.path.join(self._place, "__file__")
        value = self._named(node, scope)
        self._loaded |= _function(value)
        return value

    def _named(self, node: ast.Name, scope: dict[str, Any]) -> Any:
        return scope.get(node.id, self._globals.get(node.id, UNKNOWN))

    def visit_Lambda(self, node: ast.Lambda, scope: dict[str, Any]) -> Any:
        own = (parameter.arg for parameter in of_kind(ast.walk(node.args), ast.arg))
        self.value(node.body, {**scope, **dict.fromkeys(own, UNKNOWN)})
        return UNKNOWN

    def visit_Attribute(self, node: ast.Attribute, scope: dict[str, Any]) -> Any:
        name = dotted(node)
        if name == "sys.argv":
            return ["", *(UNKNOWN if word is None else word for word in self.words)]
        if name.startswith("torch."):
            return name
        match self.value(node.value, scope):
            case ScriptObject() as base if node.attr in base:
                return base[node.attr].certain
            case Loaded(name=owner, call=call):
                return Loaded(f"{owner}.{node.attr}", call)
            case str() as path if node.attr == "parent":
                return os.path.dirname(path)
            case ast.ClassDef() as kind:
                return self._fields(kind, scope).get(node.attr, Item(UNKNOWN, 0)).value
        return UNKNOWN

    def visit_Subscript(self, node: ast.Subscript, scope: dict[str, Any]) -> Any:
        if isinstance(node.slice, ast.Slice) and (length := _cut_to(node.value, node.slice)) is not None:
            settings: list[Any] = []
            add_setting(settings, "max_length", self.value(length, scope), node.lineno)
            self.tell("tokenizer", settings)
        return super().visit_Subscript(node, scope)

    def item(self, base: Any, key: Any) -> Any:
        if isinstance(base, dict):
            return base[key].certain if isinstance(key, str) and key in base else UNKNOWN
        return super().item(base, key)

    def visit_Dict(self, node: ast.Dict, scope: dict[str, Any]) -> Any:
        items: dict[str, Item] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            name = self.value(key, scope) if key is not None else value
            if key is None and isinstance(value, dict):
                items.update(value)
            elif isinstance(name, str):
                items[name] = Item(value, item.lineno)
            elif name is UNKNOWN:  # {dtype_key: dtype}: any key may be there
                items[REST] = Item(UNKNOWN, item.lineno)
        return self._new(items)

    def visit_IfExp(self, node: ast.IfExp, scope: dict[str, Any]) -> Any:
        truth = self._decided(node.test, [node.body], [node.orelse], scope)
        if truth is not None:
            return self.value(node.body if truth else node.orelse, scope)
        starts, values = [len(self.calls)], list[Any]()
        for branch in (node.body, node.orelse):
            values.append(self.value(branch, scope))
            starts.append(len(self.calls))
        callees = (getattr(branch, "func", None) for branch in (node.body, node.orelse))
        if not any(_function(self._named(name, scope)) for name in callees if isinstance(name, ast.Name)):
            self._doubt(*starts)  # else: model = prepared(model) if training else model; who trains calls it
        match values:
            case dict() as first, dict() as other:
                both = {key: Item(PERHAPS, item.line) for key, item in {**other, **first}.items()}
                alike = {
                    key: item for key, item in first.items() if key in other and same(item.value, other[key].value)
                }
                return self._new({**both, **alike})
            case first, other:
                return first if same(first, other) else UNKNOWN

    def compared(self, left: Any, sign: ast.cmpop, right: Any) -> Any:
        is_plain = all(value is None or isinstance(value, (str, int, float, list)) for value in (left, right))
        return super().compared(left, sign, right) if is_plain else UNKNOWN

    def visit_Call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        name = self.callee(node.func, scope)
        function = self.value(node.func, scope)
        settings: list[Any] = []
        values: list[Any] = []
        keywords: dict[str, Item] = {}
        for number, argument in enumerate(node.args, 1):
            values.append(self.value(argument, scope))
            add_setting(settings, f"#{number}", values[-1], argument.lineno)
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            # **options: a mapping that is written out, as it stands
            add_setting(settings, keyword.arg or "", value, keyword.value.lineno)
            is_open = keyword.arg is None and not isinstance(value, dict)
            item = Item(UNKNOWN if is_open else value, keyword.value.lineno)
            keywords.update({keyword.arg or REST: item} if keyword.arg or is_open else value)
            if is_open:
                settings.append([REST, None, keyword.value.lineno, 1])
                if isinstance(function, ast.ClassDef):  # any of its fields may be in what is handed on
                    keywords.update(dict.fromkeys(self._fields(function, scope), Item(UNKNOWN, keyword.value.lineno)))
        self.step(len(settings) + len(keywords))
        self._hand_on(self._library(function, scope) if type(function) is ast.ClassDef else name, values, keywords)
        callee = function.name if isinstance(function, Loaded) else name or f"._.{getattr(node.func, 'attr', '')}"
        if type(function) is not ast.ClassDef:  # one of its own is told as what it is one of
            self.tell(callee, settings or [["#0", None, node.lineno, 0]])
        return self._result(node, function, values, keywords, scope)


def _function(value: Any) -> set[Any]:
    match value:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return {value}
    return set()


def _cut_to(cut: ast.expr, part: ast.Slice) -> ast.expr | None:
    """Return the length to which a slice cuts tokens, as ``tokenizer(max_length=…)`` does: ``input_ids[:2048]``, and
    ``t[i : i + block_size]`` of texts that are joined and cut into blocks."""
    name = cut.slice if isinstance(cut, ast.Subscript) else cut
    from_start = getattr(part.lower or ast.Constant(0), "value", None) == 0
    if from_start and (getattr(name, "id", None) or getattr(name, "value", None)) in _TOKENS:
        return part.upper
    match part.lower, part.upper:
        case ast.Name(id=start), ast.BinOp(left=ast.Name(id=again), op=ast.Add(), right=length) if start == again:
            return length if last_name(length) in _LENGTHS else None
    return None


_NOT_PLAIN = re.compile(r"(?i)lora|peft|adapter|requires_grad|prefix_?tuning|prompt_?tuning|freeze|exec\b|importlib")


def calls_of(
    content: bytes,
    *,
    notebook: bool,
    words: Sequence[str | None] = (),
    folder: str = "",
    libraries: Collection[str] = (),
    names: str = ".*",
    shown: str = "",
) -> list[Any]:
    """Return calls as ``[name, [[key, value, place, file, how, own], ...], perhaps]`` (:class:`Calls`), ``perhaps`` of
    those under a condition, ``file`` being that of a module beside the script, else empty. ``words`` are those behind
    the script's name in a command, ``folder`` is where it lies (``shown`` in paths), ``names`` a pattern of the calls
    that are told."""
    tree, place, _ = parse_code(content, notebook=notebook)
    beside = Beside(folder, libraries)
    script = _Script(tree, words, beside, names)
    for at in script.frozen - script.trained - script.references - {-1} if script.trained - {-1} else ():
        script.calls[at] = "frozen_model", [["frozen_model", "?", script.calls[at][1][0][2], 0, False]], False
    calls = [*_training(tree, beside), *script.calls]
    own = [os.path.normpath(os.path.join(shown, os.path.relpath(path, folder))) for path in beside.modules]

    def placed(number: int) -> tuple[tuple[int, ...], str]:
        module, line = divmod(number, MOST_LINES)
        return ((line,), own[module - 1]) if module else (place(line), "")

    placed_calls = [
        [name, [[key, value, *placed(line), *how] for key, value, line, *how in settings], perhaps]
        for name, settings, perhaps in calls
    ]
    return [*placed_calls, ["#modules", [[path, None, (1,), "", 0, False] for path in own], False]]


def _training(tree: ast.Module, beside: Beside) -> list[tuple[str, list[Any], bool]]:
    """Return a call ``training`` whose keys tell why the model may not be trained as a whole: modules that the script
    and the modules beside it import (``#torch``), and ``#adapters`` if they speak of adapters or frozen weights, or
    train nothing themselves; and a call ``own_batches`` if a loader of a Trainer's class takes no batch size."""
    others = dict[str, int]()
    adapters, trains, batches = 0, False, 0
    trees, visited = [(tree, beside.folder)], set[tuple[str, int, str]]()
    for inner, folder in trees:  # it grows
        for node in ast.walk(inner):
            words, line = "", getattr(node, "lineno", 1)
            match node:
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    level, module = getattr(node, "level", 0), getattr(node, "module", None)
                    words = " ".join(alias.name for alias in names)
                    whole = [f"{module}.{alias.name}" for alias in names if module] or [alias.name for alias in names]
                    modules = {name[: dot.start()]: False for name in whole for dot in re.finditer(r"\.|\Z", name)}
                    for name, needed in {**modules, **{module or alias.name: True for alias in names}}.items():
                        if (key := (name, level, folder if level else "")) not in visited:
                            visited.add(key)
                            source = beside.module(name, level, folder)
                            trees += [source] if source is not None and source not in trees else ()
                            top = f"#{'.' * level}{name.partition('.')[0]}"
                            others |= {top: line} if needed and source is None else {}
                case ast.FunctionDef(name="get_train_dataloader"):
                    names_used = {str(getattr(part, "attr", getattr(part, "arg", ""))) for part in ast.walk(node)}
                    may_be_other = any(isinstance(part, (ast.If, ast.IfExp, ast.BoolOp)) for part in ast.walk(node))
                    is_usual = node.name in names_used and not may_be_other
                    batches = batches if is_usual or any("batch_size" in name for name in names_used) else line
                case ast.Call(func=func):
                    trains = trains or last_name(func).endswith("Trainer") or getattr(func, "attr", "") == "backward"
                case ast.Name(id=words) | ast.Attribute(attr=words) | ast.keyword(arg=str(words)):
                    pass
                case ast.Constant(value=str(words)):
                    pass
            if not adapters and _NOT_PLAIN.search(words):
                adapters = line
    keys = {name: line for name, line in others.items() if name[1:] not in sys.stdlib_module_names}
    keys |= {"#adapters": adapters or 1} if adapters or not trains else {}
    own = [("own_batches", [["own_batches", "?", batches, 0, False]], False)] if batches else []
    return [("training", [[name, None, line, 0, False] for name, line in keys.items()], False), *own]
