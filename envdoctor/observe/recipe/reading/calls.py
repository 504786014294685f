"""Keyword arguments of calls in a Python script or notebook, by its syntax tree. Runs in a bounded child."""

from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.source.notebook import NotANotebook, parse_notebook

_MOST = 5000
_NOT_PLAIN = re.compile(r"(?i)lora|peft|adapter|requires_grad|prefix_?tuning|prompt_?tuning|freeze|exec\b|importlib")
_DEEPEST = 6


def main() -> None:
    """Answer the script on stdin with one line of JSON: calls as ``[name, [[key, value, place, computed], ...]]``, or
    text: why it cannot be read."""
    warnings.simplefilter("ignore")
    content = sys.stdin.buffer.read()
    notebook = content[:1] == b"n"
    sys.stdout.write(json.dumps(calls_of(content[1:], notebook=notebook)) + "\n")


def calls_of(content: bytes, *, notebook: bool) -> list[Any] | str:
    """See :func:`main`."""
    try:
        if notebook:
            book = parse_notebook(content)
            return _calls(book.tree, lambda line: "cell {}:{}".format(*book.place(line)))
        return _calls(ast.parse(content), str)
    except SyntaxError as error:
        return f"is not Python that can be parsed (line {error.lineno or 1})"
    except NotANotebook:
        return "is not a notebook of nbformat 3 or 4"
    except (RecursionError, MemoryError, ValueError, LookupError):
        return "is not Python source that can be read"


def _calls(tree: ast.Module, place: Callable[[int], str]) -> list[Any]:
    # A name that is assigned once, anywhere, has that value.
    assigned: dict[str, list[ast.expr]] = {}
    found: list[ast.Call] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.Call) and (node.keywords or node.args):
            found.append(node)
    names = {name: values[0] for name, values in assigned.items() if len(values) == 1}
    calls = _plain_training(tree, place)
    for call in found[:_MOST]:
        name = _dotted(call.func)
        if name:
            settings: list[Any] = []
            for number, argument in enumerate(call.args, 1):
                _add(settings, f"#{number}", argument, place, names)
            for keyword in call.keywords:
                # **options: a mapping that is written out, as it stands
                _add(settings, keyword.arg or "", keyword.value, place, names)
            calls.append([name, settings[:_MOST]])
    return calls


def _plain_training(tree: ast.Module, place: Callable[[int], str]) -> list[Any]:
    """For a script that trains and says nothing of adapters or frozen weights, a call of that name: its keys are the
    modules that it imports, ``#torch``, without Python's own. Any of these may do both where nobody sees it."""
    modules: dict[str, int] = {}
    trains = False
    for node in ast.walk(tree):
        words = ""
        if isinstance(node, ast.Import):
            modules.update((one.name, node.lineno) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules["." * node.level + (node.module or "")] = node.lineno
            words = " ".join(one.name for one in node.names)
        elif isinstance(node, ast.Call):
            called = _dotted(node.func) or f".{getattr(node.func, 'attr', '')}"
            trains = trains or called.endswith(("Trainer", ".backward"))
        elif isinstance(node, (ast.Name, ast.Attribute, ast.keyword, ast.Constant)):
            said = next((getattr(node, name) for name in ("id", "attr", "arg", "value") if hasattr(node, name)), "")
            words = said if isinstance(said, str) else ""
        if _NOT_PLAIN.search(words):
            return []
    tops = {name.partition(".")[0]: line for name, line in modules.items()}
    others = {name: line for name, line in tops.items() if name not in sys.stdlib_module_names}
    keys = [[f"#{name}", None, place(line), False] for name, line in others.items()]
    return [["plain training", keys]] if trains and keys else []


def _add(
    settings: list[Any],
    key: str,
    node: ast.expr,
    place: Callable[[int], str],
    names: Mapping[str, ast.expr],
    *,
    depth: int = 0,
) -> None:
    """The value, or of a mapping (also ``dict(...)``) the values in it; one that is computed stays out."""
    line = node.lineno
    if isinstance(node, ast.Name):
        node = names.get(node.id, node)
    pairs: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = [(str(key.value), value) for key, value in zip(node.keys, node.values, strict=True) if _text(key)]  # type: ignore[union-attr]
    elif isinstance(node, ast.Call) and _dotted(node.func) == "dict":
        pairs = [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    if pairs and depth < _DEEPEST and len(settings) < _MOST:
        for name, value in pairs:
            _add(settings, f"{key}.{name}" if key else name, value, place, names, depth=depth + 1)
        return
    if key:
        literal = _literal(node)
        settings.append([key, literal[0] if literal else None, place(line), not literal])


def _literal(node: ast.expr) -> list[Any]:
    """The value, in a list; nothing for one that is computed."""
    dotted = _dotted(node)
    if dotted.startswith("torch."):
        return [dotted]
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    if isinstance(value, (list, tuple, set)):
        return [[item for item in value if isinstance(item, (str, int, float, bool))]]
    return [value] if value is None or isinstance(value, (str, int, float, bool)) else []


def _text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _dotted(node: ast.expr) -> str:
    """``AutoModel.from_pretrained``; empty for what is no plain name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < 10:
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""
