"""Write ``matrices/schema/conditions.json``, the conditions that a rule may have, from ``matrices/facts.toml``.

    python tools/refresh_schema.py

Editors complete the keys of a clause by it, with what each means.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envdoctor.facts import FactSpec, Registry
from envdoctor.matrix import load_toml

MATRICES = Path(__file__).resolve().parents[1] / "matrices"
TARGET = MATRICES / "schema" / "conditions.json"
_NAMES = {"pkg.*": "[a-z0-9]+(-[a-z0-9]+)*", "env.*": "[A-Za-z_][A-Za-z0-9_]*"}


def conditions() -> str:
    """Return the schema as text: a line a fact, or a column of a list with or without any() and all()."""
    registry = Registry.from_mapping(load_toml(MATRICES / "facts.toml"))
    plain: dict[str, Any] = {}
    patterns: dict[str, Any] = {}
    for spec in registry:
        if spec.key in _NAMES:
            patterns[f"^{spec.key[:-1]}{_NAMES[spec.key]}$".replace(".", r"\.", 1)] = _property(spec)
        else:
            plain[spec.key] = _property(spec)
        for name, column in spec.columns.items():
            for key in (f"{spec.key}.{name}", f"any({spec.key}.{name})", f"all({spec.key}.{name})"):
                plain.setdefault(key, _property(column))
    parts = [
        '"$schema": "http://json-schema.org/draft-07/schema#"',
        '"title": "A clause of a rule (written by tools/refresh_schema.py)"',
        '"type": "object"',
        '"minProperties": 1',
        '"additionalProperties": false',
        f'"patternProperties": {_lines(patterns)}',
        f'"properties": {_lines(plain)}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _property(spec: FactSpec) -> dict[str, Any]:
    return {"description": f"{spec.type}: {spec.meaning}"}


def _lines(properties: dict[str, Any]) -> str:
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in properties.items())
    return "{\n" + ",\n".join(lines) + "\n}"


if __name__ == "__main__":
    TARGET.write_text(conditions(), encoding="utf-8")
