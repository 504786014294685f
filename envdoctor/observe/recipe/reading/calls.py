"""Keyword arguments of calls in a Python script or notebook, by its syntax tree. Runs in a bounded child."""

import ast
import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from envdoctor.observe.recipe.reading.script import Script
from envdoctor.observe.recipe.reading.script_files import Beside
from envdoctor.source.definitions import dotted
from envdoctor.source.notebook import parse_code

_NOT_PLAIN = re.compile(r"(?i)lora|peft|adapter|requires_grad|prefix_?tuning|prompt_?tuning|freeze|exec\b|importlib")


def calls_of(
    content: bytes,
    *,
    notebook: bool,
    words: Sequence[str | None] = (),
    folder: str = "",
    libraries: Collection[str] = (),
    names: str = ".*",
) -> list[Any]:
    """Return calls as ``[name, [[key, value, place, how], ...], perhaps]``: ``how`` is 1 for a computed value, 2 for a
    key that is given under a condition, ``perhaps`` the same of the call. ``words`` are those behind the script's name
    in a command, ``folder`` is where it lies, ``names`` a pattern of the calls that are told."""
    tree, place, _ = parse_code(content, notebook=notebook)
    beside = Beside(folder, libraries)
    script = Script(tree, words, beside, names)
    calls = _plain_training(tree, place, beside)
    for name, settings, perhaps in script.calls:
        calls.append([name, [[key, value, place(line), computed] for key, value, line, computed in settings], perhaps])
    return calls


def _plain_training(tree: ast.Module, place: Callable[[int], tuple[int, ...]], beside: Beside) -> list[Any]:
    """For a script that trains and says nothing of adapters or frozen weights, nor does a module beside it, a call of
    that name: its keys are the other modules that it imports, ``#torch``, without Python's own. Any of these may do
    both where nobody sees it."""
    modules: dict[str, int] = {}
    trains = False
    nodes = list(ast.walk(tree))
    for node in nodes:  # it grows
        words = ""
        match node:
            case ast.Import() | ast.ImportFrom():
                level, module = getattr(node, "level", 0), getattr(node, "module", None)
                for name in [one.name for one in node.names] if isinstance(node, ast.Import) else [module or ""]:
                    found = beside.module(name, level, beside.folder) if name else None
                    nodes += ast.walk(found[0]) if found is not None and name not in modules else ()
                    modules.setdefault("" if found is not None else "." * level + name, node.lineno)
                words = " ".join(one.name for one in node.names) if module else ""
            case ast.Call(func=func):
                trains = trains or dotted(func).endswith(("Trainer", ".backward"))
            case ast.Name(id=words) | ast.Attribute(attr=words):
                pass
            case ast.keyword(arg=str(words)) | ast.Constant(value=str(words)):
                pass
        if _NOT_PLAIN.search(words):
            return []
    tops = {name.partition(".")[0]: line for name, line in modules.items() if name}
    others = {name: line for name, line in tops.items() if name not in sys.stdlib_module_names}
    keys = [[f"#{name}", None, place(line), 0] for name, line in others.items()]
    return [["plain training", keys, False]] if trains and keys else []
