"""What Python files and notebooks use, by their syntax trees. Runs in a bounded child.

The child reads frames (``sandbox/frames.py``): first JSON with, for each file, whether it is a notebook, which modules
are the project's own, and whether its definitions are asked for; then the files. It answers each file with one line of
JSON as soon as it is read: ``uses``, ``mentioned`` and ``provided`` (``source/uses.py``; in place of its line a use has
a place, ``12`` or ``cell 3:2``), ``unread`` cells, and, asked for, ``methods``, ``attributes`` and ``siblings``
(``source/definitions.py``); or the ``problem`` (syntax, deep, large, text, many, notebook) with its place.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from collections.abc import Callable, Collection
from typing import Any

from envdoctor.sandbox.frames import frames
from envdoctor.source.definitions import attributes_of, methods_of, siblings_of
from envdoctor.source.notebook import NotANotebook, parse_notebook
from envdoctor.source.uses import Found, TooMuch, uses_of

_OPERATORS = b".([+-*/%@&|^<>"
_MAX_OPERATORS = 20_000


def main() -> None:
    """Answer the frames on stdin, line by line: what was read before a file that ends the child is not lost."""
    warnings.simplefilter("ignore")  # invalid escapes and the like are the author's business
    given = frames(sys.stdin.buffer.read())
    for (notebook, own, definitions), content in zip(json.loads(next(given)), given, strict=True):
        told = answer(content, own, notebook=notebook, definitions=definitions)
        sys.stdout.write(json.dumps(told, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def answer(content: bytes, own: Collection[str], *, notebook: bool, definitions: bool = False) -> dict[str, Any]:
    """What the parent is told of one file."""
    # Before 3.11 the interpreter has no limit here: 100,000 operators in one expression overrun an 8 MiB stack.
    if sys.version_info < (3, 11) and len(content) - len(content.translate(None, _OPERATORS)) > _MAX_OPERATORS:
        return {"problem": "large", "place": "1"}
    try:
        if notebook:
            book = parse_notebook(content)
            unread = [f"cell {cell}:{line}" for cell, line in book.unread]
            return _told(uses_of(book.tree, own), lambda line: "cell {}:{}".format(*book.place(line)), unread)
        tree = ast.parse(content)
        return _told(uses_of(tree, own), str, []) | (_defined(tree) if definitions else {})
    except SyntaxError as error:
        return {"problem": "syntax", "place": str(error.lineno or 1)}
    except NotANotebook:
        return {"problem": "notebook", "place": "1"}
    except (RecursionError, MemoryError):
        return {"problem": "deep", "place": "1"}
    except TooMuch:
        return {"problem": "many", "place": "1"}
    except (ValueError, LookupError):
        return {"problem": "text", "place": "1"}


def _defined(tree: ast.Module) -> dict[str, Any]:
    parts = {"methods": methods_of, "attributes": attributes_of, "siblings": siblings_of}
    return {name: sorted(set(read(tree))) for name, read in parts.items()}


def _told(found: Found, place: Callable[[int], str], unread: list[str]) -> dict[str, Any]:
    uses = [(*use[:-1], place(use.line)) for use in found.uses]
    return {
        "uses": uses,
        "mentioned": sorted(found.mentioned),
        "provided": sorted(found.provided),
        "unread": unread,
    }
