"""Compiling the matrix for the wheel: an index of conditions, the texts apart, one file a table, and the ledger as it
is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envdoctor.knowledge.matrix import MatrixError, load_source
from envdoctor.knowledge.rules import Rule
from envdoctor.knowledge.toml_files import load_toml

__all__ = ["compile_matrix"]


def compile_matrix(source: Path, target: Path) -> None:
    """Write ``index.json``, ``texts.jsonl``, tables and ledger of ``source`` (a matrices folder) into ``target``.

    A wheel never carries a rule that cannot be evaluated: raises :class:`MatrixError` for a broken one.
    """
    matrix = load_source(source, source="checkout")
    if matrix.broken:
        first = matrix.broken[0]
        raise MatrixError(f"{first.origin}: {'; '.join(first.problems)}")
    target.mkdir(parents=True, exist_ok=True)
    entries: list[list[Any]] = []
    offset = 0
    with open(target / "texts.jsonl", "wb") as texts:
        for rule in matrix.rules:
            line = _dump(rule.texts)
            texts.write(line + b"\n")
            entries.append(_entry(rule, [offset, len(line)]))
            offset += len(line) + 1
    index = {
        "schema": 1,
        "version": matrix.version,
        "registry": load_toml(source / "facts.toml"),
        "rules": entries,
    }
    # Every run reads it whole. In ASCII alone it is half as large in memory, and quicker to take apart.
    (target / "index.json").write_text(json.dumps(index, default=str, separators=(",", ":")), encoding="ascii")
    for path in (*source.glob("*.toml"), *(source / "tables").glob("*.toml")):
        if path.name != "facts.toml":
            (target / f"{path.stem}.json").write_bytes(_dump(load_toml(path)))
    (target / "ledger").mkdir(exist_ok=True)
    for path in (source / "ledger").glob("*.txt"):
        (target / "ledger" / path.name).write_bytes(path.read_bytes())


def _entry(rule: Rule, texts: list[int]) -> list[Any]:
    return list(rule._replace(texts=texts))


def _dump(data: object) -> bytes:
    return json.dumps(data, default=str, separators=(",", ":"), ensure_ascii=False).encode()
