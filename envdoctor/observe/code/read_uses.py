"""What Python files and notebooks use, by their syntax trees. Runs in a bounded child.

It answers with ``uses``, ``mentioned`` and ``provided`` (``source/uses.py``; in place of its line a use has its
place, the line and the cell of a notebook), ``unread`` cells, and, asked for, ``methods``, ``attributes`` and
``siblings`` (``source/definitions.py``). ``own`` are the project's own modules.
"""

from collections.abc import Collection
from typing import Any

from envdoctor.source.definitions import attributes_of, methods_of, siblings_of
from envdoctor.source.notebook import parse_code
from envdoctor.source.uses import uses_of


def answer(content: bytes, own: Collection[str], *, notebook: bool, definitions: bool = False) -> dict[str, Any]:
    """Return what the parent is told of one file. Raises what :func:`parse_code` and :func:`uses_of` raise."""
    tree, place, unread = parse_code(content, notebook=notebook)
    uses = uses_of(tree, own)
    columns = {
        "uses": [(*use[:-1], place(use.line)) for use in uses.uses],
        "mentioned": sorted(uses.mentioned),
        "provided": sorted(uses.provided),
        "unread": unread,
    }
    if definitions:
        parts = {"methods": methods_of, "attributes": attributes_of, "siblings": siblings_of}
        columns |= {name: sorted(set(reader(tree))) for name, reader in parts.items()}
    return columns
