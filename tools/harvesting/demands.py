"""The versions of other packages that the code of a release demands itself, whatever its metadata says."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from envdoctor.versions import NotARequirement, NotASpecifier, read_requirement, satisfies
from harvesting.names import Names

__all__ = ["demands"]

#: Functions that demand a version, which their first argument says.
_DEMANDING = {"require_version", "require_version_core", "check_version", "_check_version"}
#: What transformers and diffusers check when they are imported, by a table of requirements in a module beside it.
_CHECKED = "pkgs_to_check_at_runtime"
_TABLE = "dependency_versions_table"


def demands(names: Names, module: str) -> set[str]:
    """Return the requirements that a module checks, as texts."""
    source = names.source(module)
    if not any(word.encode() in source for word in (*_DEMANDING, _CHECKED)):
        return set()
    texts: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _called(node) in _DEMANDING:
            texts.update(_constants(node.args[:1]))
        elif isinstance(node, ast.Assign) and _CHECKED in (getattr(target, "id", "") for target in node.targets):
            table = _table(names.source(f"{module.rpartition('.')[0]}.{_TABLE}"))
            texts.update(table.get(name, "") for name in _constants(getattr(node.value, "elts", ())))
    return {text.replace(" ", "") for text in texts if _is_demand(text)}


def _table(source: bytes) -> dict[str, str]:
    """Return the texts of the tables of a module, by their keys."""
    table: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                table.update(zip(_constants([key]), _constants([value]), strict=False))
    return table


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def _constants(nodes: Iterable[ast.expr | None]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _is_demand(text: str) -> bool:
    try:
        requirement = read_requirement(text)
        named = bool(requirement.specifiers) and requirement.name != "python"
        return named and satisfies("1", requirement.specifiers) is not None
    except (NotARequirement, NotASpecifier):
        return False
