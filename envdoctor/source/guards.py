"""What a script has provided for: uses whose failure it catches, or that it makes only where something is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.source.definitions import all_nodes, elements, last_name

#: A condition about versions, availability or attributes, by the names in it; ``torch.cuda.is_available()`` is none.
_ASKS = re.compile(
    r"version|(?<!\Ais_)available|installed|hasattr|find_spec|type_checking|signature|supports?_|importable"
    r"|\A_?(?:has|have)_|__dataclass_fields__|\Adir\Z|\Agetattr\Z|_(?:ge|gt|le|lt)_?\d|\Ais_(?:new|old|legacy)_",
    re.IGNORECASE,
)
_BROAD = {"Exception", "BaseException"}
_LEAVING = {"exit", "quit", "_exit", "abort"}


class Guard(NamedTuple):
    """Which failures do not stop the script: of an import, of an attribute, of a call with a keyword. ``optional``: the
    code may not run at all, so that nothing that fails in it is known to fail."""

    imports: bool = False
    attributes: bool = False
    keywords: bool = False
    optional: bool = False

    def joined(self, other: Guard) -> Guard:
        """Both guards, one inside the other."""
        return Guard(*(mine or its for mine, its in zip(self, other, strict=True)))

    def covers(self, kind: str) -> bool:
        """Whether it covers a use of this kind (module, name, attribute, keyword, override)."""
        caught = {"module": self.imports, "name": self.imports, "attribute": self.attributes, "keyword": self.keywords}
        return self.optional or caught.get(kind, False)


NOTHING = Guard()


def caught(node: ast.Try) -> Guard:
    """What the handlers of a ``try`` catch, those left out that only end the script with other words."""
    guard = NOTHING
    for handler in node.handlers:
        if not _ends_script(handler.body):
            guard = guard.joined(_of_errors([last_name(kind) for kind in elements(handler.type)]))
    return guard


def suppressed(node: ast.With | ast.AsyncWith) -> Guard:
    """What ``with contextlib.suppress(ImportError)`` catches."""
    guard = NOTHING
    for item in node.items:
        match item.context_expr:
            case ast.Call(func=func, args=kinds) if last_name(func) == "suppress":
                guard = guard.joined(_of_errors([last_name(kind) for kind in kinds]))
    return guard


def asks_what_is_there(test: ast.expr) -> bool:
    """Whether a condition asks for a version, for what is installed, or for an attribute."""
    return any(name and _ASKS.search(name) for name in map(last_name, all_nodes(test)))


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether what follows runs only when this block does not, and its not running is no failure."""
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Continue, ast.Break))


def _of_errors(names: Sequence[str]) -> Guard:
    broad = any(name == "" or name in _BROAD for name in names)
    return Guard(
        broad or "ImportError" in names or "ModuleNotFoundError" in names,
        broad or "AttributeError" in names,
        broad or "TypeError" in names,
    )


def _ends_script(body: Sequence[ast.stmt]) -> bool:
    match body:
        case [*_, ast.Raise()]:
            return True
        case [*_, ast.Expr(value=ast.Call(func=func))]:
            return last_name(func) in _LEAVING
    return False
