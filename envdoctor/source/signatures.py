"""Read from syntax trees what functions and classes can be called with, and how classes call their own methods; tell
whether a method can be called the way a base class calls the method that it overrides.

Parameters are texts: names that can be given by keyword, ``*`` for any number of positional arguments, ``**`` for any
keyword, and ``&module:Class`` for what that base class takes. They are None if something may hide the signature.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile

from envdoctor.source.definitions import (
    FunctionNode,
    dotted,
    functions_in,
    keyword_of,
    last_name,
    names_in,
    of_kind,
    parameter_words,
    statements,
    text_of,
)

#: Decorators that leave the parameters as they are, by the last part of their names.
_PLAIN = {
    *("abstractmethod", "classmethod", "staticmethod", "contextmanager", "asynccontextmanager", "lru_cache", "cache"),
    *("no_grad", "enable_grad", "inference_mode", "disable", "allow_in_graph", "ignore", "unused", "final", "override"),
    *("wraps", "deprecated", "experimental", "total_ordering", "runtime_checkable", "typechecked", "no_type_check"),
    *("_deprecate_arguments", "_deprecate_positional_args", "validate_hf_hub_args", "future_compatible", "export"),
    *("requires", "requires_backends", "require_peft_backend", "torchao_required", "deepspeed_required"),
    *("add_start_docstrings", "add_end_docstrings", "add_start_docstrings_to_model_forward", "auto_docstring"),
    *("add_code_sample_docstrings", "replace_return_docstrings", "is_documented_by", "document", "can_return_tuple"),
    *("merge_with_config_defaults", "check_model_inputs", "capture_outputs", "use_kernel_forward_from_hub"),
    *("register", "register_to_config", "apply_forward_hook", "delegate_to_executor", "cond_delegate_to_executor"),
    *("proxy_method_directly", "proxy_property_directly", "transmit_format", "fingerprint_transform", "retry"),
    *("on_main_process", "rank_zero_only", "rank_zero_experiment", "profiling_decorator", "instrument_w_nvtx"),
    *("_defaults_from_env_vars", "_no_grad_context", "_compiler_disable"),
}
#: Decorators that add keywords: the first text, or the names of their own keywords.
_MORE_KEYWORDS = {"deprecate_kwarg", "deprecated_kwargs"}
_DATACLASS = {"dataclass"}
_WITHOUT_PARAMETERS = {"object", "ABC", "Generic", "Protocol"}
_HIDING_BASES = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "ExplicitEnum", "TypedDict", "type"}
_DEEPEST = 20

Names = Mapping[str, str]


def parameters(tree: ast.Module, module: str, names: Names) -> dict[str, tuple[str, ...] | None]:
    """Return the parameters of every function, class and method (``Trainer.train``) of a module, sorted.

    ``names`` says where names of the module come from, as :class:`~envdoctor.source.offers.Offers` has it. A function
    that is defined in several branches takes what any of them takes.
    """
    signatures: dict[str, tuple[str, ...] | None] = {}
    for node in _definitions(tree.body):
        if isinstance(node, ast.ClassDef):
            _add(signatures, node.name, _of_class(node, module, names))
            for method in _methods(node):
                if not _is_property(method):
                    _add(signatures, f"{node.name}.{method.name}", _of_function(method, bound=True))
        else:
            _add(signatures, node.name, _of_function(node, bound=False))
    return signatures


def calls(tree: ast.Module, module: str, names: Names) -> dict[str, tuple[str, ...]]:
    """Return how classes call their own methods: for ``Trainer.compute_loss`` the ways (``2 num_items_in_batch=``:
    number of positional arguments, keywords), and for ``Trainer`` its base classes (``&module:Class``). Methods whose
    parameters the class inspects are left out: it may call them in several ways."""
    entries: dict[str, set[str]] = {}
    for node in _definitions(tree.body):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [_place(base, module, names) for base in node.bases]
        entries.setdefault(node.name, set()).update(f"&{base}" for base in bases if base is not None)
        own = {method.name for method in _methods(node) if not _is_property(method)}
        ways: list[tuple[str, str]] = []
        for inner in (inner for method in _methods(node) for inner in ast.walk(method)):
            match inner:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if way := way_of(inner):
                    ways.append((name, way))
            match inner:
                case ast.Call(func=func, args=[ast.Attribute(value=ast.Name(id="self"), attr=name), *_]):
                    own -= {name} if _last(func) == "signature" else set()  # ``inspect.signature(self.name)``
        for name, way in ways:
            if name in own:
                entries.setdefault(f"{node.name}.{name}", set()).add(way)
    return {name: tuple(sorted(several)) for name, several in entries.items() if several}


def accepts(
    place: str, keyword: str, lookup: Callable[[str], Collection[str] | None], *, deepest: int = _DEEPEST
) -> bool | None:
    """Return whether the class or function at a place (``module:Class``) takes a keyword; None if unknown.

    ``lookup`` gives the parameters of a place, None if they are unknown.
    """
    items = lookup(place)
    if items is None or not deepest:
        return None
    if keyword in items or "**" in items:
        return True
    answers = [accepts(item[1:], keyword, lookup, deepest=deepest - 1) for item in items if item.startswith("&")]
    return True if True in answers else None if None in answers else False


def bases_of(node: ast.ClassDef, module: str, names: Names) -> list[str | None]:
    """Return the origins of a class's base classes as ``module:Class``, without bases that take no arguments; None for
    an expression whose origin is unknown."""
    return [_place(base, module, names) for base in _bases(node)]


def way_of(call: ast.Call) -> str | None:
    """Return the way of a call: ``2 num_items_in_batch=``, number of positional arguments, keywords, and ``**`` if it
    may give others; None if the number is unknown."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    words = [f"{keyword.arg}=" for keyword in call.keywords if keyword.arg is not None]
    rest = ["**"] * any(keyword.arg is None for keyword in call.keywords)
    return " ".join([str(len(call.args)), *sorted(words), *rest])


def can_be_called(parameters: Sequence[str], call: str) -> bool:
    """Return whether a method with these parameters (without the bound one) accepts ``2 num_items_in_batch=``."""
    count, *keywords = call.split(" ")
    words = {keyword[:-1] for keyword in keywords if keyword.endswith("=")}
    names = {parameter.rstrip("=") for parameter in parameters if not parameter.startswith("*")}
    positional = list(takewhile(lambda parameter: not parameter.startswith("*"), parameters))
    takes_more = any(re.match(r"\*[^*]", parameter) for parameter in parameters)
    if int(count) > len(positional) and not takes_more:
        return False
    if any(parameter.startswith("**") for parameter in parameters):
        return True
    filled = {parameter.rstrip("=") for parameter in positional[: int(count)]}
    if words - names or words & filled:
        return False
    required = {parameter for parameter in parameters if not parameter.startswith("*") and not parameter.endswith("=")}
    return "**" in keywords or required <= filled | words


def spelled(method: str, call: str) -> str:
    """Return ``compute_loss(_, _, num_items_in_batch=_)`` for ``2 num_items_in_batch=``."""
    count, *keywords = call.split(" ")
    words = [*["_"] * min(int(count), 9), *(f"{keyword}_" for keyword in keywords)]
    return f"{method.rpartition('.')[2]}({', '.join(words)})"


def own_parameters(node: FunctionNode) -> tuple[str, ...] | None:
    """Return the parameters of a method without the bound one, as ``x``, ``x=``, ``*``, ``*args``, ``**kwargs``; None
    for a special method, or if decorators may change what it takes."""
    if (node.name.startswith("__") and node.name.endswith("__")) or added_by(node.decorator_list) != set():
        return None
    words = list(parameter_words(node.args))
    return tuple(words if "staticmethod" in names_in(node.decorator_list) else words[1:])


def _definitions(body: list[ast.stmt]) -> Iterator[FunctionNode | ast.ClassDef]:
    """Yield functions and classes of a module or class, in any branch."""
    return of_kind(statements(body), ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _methods(node: ast.ClassDef) -> Iterator[FunctionNode]:
    for method in functions_in(_definitions(node.body)):
        if "overload" not in map(_last, method.decorator_list):
            yield method


def _add(signatures: dict[str, tuple[str, ...] | None], name: str, items: set[str] | None) -> None:
    previous = signatures.get(name, ())
    signatures[name] = None if items is None or previous is None else tuple(sorted({*previous, *items}))


def _of_function(node: FunctionNode, *, bound: bool) -> set[str] | None:
    more = added_by(node.decorator_list)
    if more is None:
        return None
    arguments = node.args
    names = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
    if bound and "staticmethod" not in map(_last, node.decorator_list) and not arguments.posonlyargs:
        names = names[1:] if arguments.args else names
    stars = ["*"] * (arguments.vararg is not None) + ["**"] * (arguments.kwarg is not None)
    return {*names, *stars, *more}


def _of_class(node: ast.ClassDef, module: str, names: Names) -> set[str] | None:
    if any(_last(keyword.value) != "ABCMeta" for keyword in node.keywords if keyword.arg == "metaclass"):
        return None
    decorators = [decorator for decorator in node.decorator_list if _last(decorator) not in _DATACLASS]
    is_dataclass = len(decorators) < len(node.decorator_list)
    more = added_by(decorators)
    if more is None:
        return None
    for name in ("__init__", "__new__"):
        signatures = [_of_function(method, bound=True) for method in _methods(node) if method.name == name]
        if signatures:
            return {item for items in signatures for item in items or ()} | more if None not in signatures else None
    if any(isinstance(part, ast.Assign) and _last(part.targets[0]) in ("__init__", "__new__") for part in node.body):
        return None
    bases = _bases(node)
    if not _HIDING_BASES.isdisjoint(map(_last, bases)):
        return None
    if any(_last(base) == "NamedTuple" for base in bases):
        return {*_fields(node)} | more
    places = bases_of(node, module, names)
    if None in places:
        return None
    return {f"&{place}" for place in places} | (set(_fields(node)) if is_dataclass else set()) | more


def _bases(node: ast.ClassDef) -> list[ast.expr]:
    return [base for base in node.bases if _last(base) not in _WITHOUT_PARAMETERS]


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield the annotated fields that a dataclass takes."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=made):
                kind = ast.unparse(annotation)
                init = getattr(keyword_of(made, "init"), "value", None)
                if "ClassVar" not in kind and "KW_ONLY" not in kind and init is not False:
                    yield name


def added_by(decorators: list[ast.expr]) -> set[str] | None:
    """Return the keywords that decorators add to a function's own; None if one may hide the parameters."""
    more: set[str] = set()
    for decorator in decorators:
        name = _last(decorator)
        if name in _MORE_KEYWORDS and isinstance(decorator, ast.Call):
            texts = [*map(text_of, decorator.args[:1])]
            texts += [keyword.arg for keyword in decorator.keywords if name == "deprecated_kwargs"]
            more.update(filter(None, texts))
        elif name == "strict":  # of huggingface_hub: a dataclass whose values are checked
            more.update(["**"] if keyword_of(decorator, "accept_kwargs") is not None else [])
        elif name not in _PLAIN:
            return None
    return more


def _is_property(method: FunctionNode) -> bool:
    return any(_last(decorator) in ("property", "cached_property", "setter") for decorator in method.decorator_list)


def _last(node: ast.expr) -> str:
    """Return ``dataclass`` for ``dataclasses.dataclass(frozen=True)``, ``Generic`` for ``Generic[T]``."""
    match node:
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _last(inner)
    return last_name(node)


def _place(node: ast.expr, module: str, names: Names) -> str | None:
    """Return the origin of a base class, ``module:Class``; None for an expression whose origin is unknown."""
    match node:
        case ast.Subscript(value=inner):
            return _place(inner, module, names)
    root, *path = dotted(node).split(".")
    origin = names.get(root, "")
    if origin.startswith("module "):
        parts = [*origin.removeprefix("module ").split("."), *path]
    elif ":" in origin:
        parts = [*origin.replace(":", ".").split("."), *path]
    elif origin == "class" and not path:
        return f"{module}:{root}"
    else:
        return None
    return ".".join(parts[:-1]) + ":" + parts[-1] if len(parts) > 1 else None
