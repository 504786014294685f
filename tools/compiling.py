"""Compile the matrix for the wheel: an index of conditions (a line a scope), the texts apart, one file a table, and the
ledger as it is."""

import json
from pathlib import Path
from typing import Any

from envdoctor.matrix.matrix import FORM, MatrixError, load_source, load_toml

#: The schemas for linting private rules where envdoctor is installed.
_SCHEMAS = ("rule", "conditions", "common")


def compile_matrix(source: Path, target: Path) -> None:
    """Write ``index.jsonl``, ``texts.jsonl``, tables and ledger of ``source`` (a matrices folder) into ``target``.

    A wheel never carries a rule that cannot be evaluated: raises :class:`MatrixError` for a broken one.
    """
    matrix = load_source(source, source="checkout")
    if matrix.broken:
        first = matrix.broken[0]
        raise MatrixError("{}: {}", first.origin, "; ".join(first.problems))
    target.mkdir(parents=True, exist_ok=True)
    scopes: dict[str, list[list[Any]]] = {}
    offset = 0
    with open(target / "texts.jsonl", "wb") as texts:
        for rule in matrix.rules:
            line = _dump(rule.texts)
            texts.write(line + b"\n")
            scopes.setdefault(rule.scope, []).append(list(rule._replace(texts=[offset, len(line)])))
            offset += len(line) + 1
    for path in (*source.glob("*.toml"), *(source / "tables").glob("*.toml")):
        if path.name != "facts.toml":
            (target / f"{path.stem}.json").write_bytes(_dump(load_toml(path)))
    for path in (*(source / "ledger").glob("*.[tx]*"), *(source / "schema" / f"{name}.json" for name in _SCHEMAS)):
        if path.is_file():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(path.read_bytes())
    files = sorted(path for path in target.rglob("*") if path.is_file() and path.name != "index.jsonl")
    index = {
        "schema": FORM,
        "version": matrix.version,
        "registry": load_toml(source / "facts.toml"),
        "scopes": list(scopes),
        "files": {path.relative_to(target).as_posix(): path.stat().st_size for path in files},
    }
    # Every run reads it. In ASCII alone it is half as large in memory, and quicker to take apart.
    lines = (json.dumps(part, default=str, separators=(",", ":")) + "\n" for part in (index, *scopes.values()))
    (target / "index.jsonl").write_text("".join(lines), encoding="ascii")


def _dump(data: object) -> bytes:
    return json.dumps(data, default=str, separators=(",", ":"), ensure_ascii=False).encode()
