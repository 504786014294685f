"""Record what real scripts use as facts: python tools/record_uses.py DIR

DIR holds the scripts of fixtures/scripts/sources.toml, each fetched from its ``url`` and called by its ``name`` (.py or
.ipynb). Written is fixtures/scripts/<name>.json, a facts file with ``use`` alone: names, keywords and lines of what
the ledger's packages give, no code.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envdoctor.facts import FactSet
from envdoctor.matrix import Matrix, load_matrix, load_toml
from envdoctor.observe import Request
from envdoctor.observe.code.use import use
from envdoctor.report import document

SCRIPTS = Path(__file__).resolve().parent.parent / "fixtures" / "scripts"


def recorded(script: Path, matrix: Matrix) -> str:
    """Return the facts file of one script: one use a line. Raises ``SystemExit`` if it cannot be read at all."""
    with tempfile.TemporaryDirectory() as alone:  # what lies beside a script would count as its own modules
        shutil.copy(script, alone)
        facts = FactSet(use.observe(Request({}, cwd=alone, code=(script.name,), rows=matrix.rows)))
    if not facts.value("code.files"):
        raise SystemExit(f"{script}: it cannot be read")
    uses: list[dict[str, Any]] = document(facts, matrix.registry)["facts"]["use"]  # type: ignore[index]
    kept = [use for use in uses if matrix.ledger.owner(use["module"]) is not None]
    lines = [json.dumps({key: cell for key, cell in use.items() if cell is not None}) for use in kept]
    return '{"schema": "envdoctor.facts/1", "facts": {"use": [\n' + ",\n".join(lines) + "\n]}}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the facts of every script that the folder holds, and name those that it lacks."""
    parser = argparse.ArgumentParser(description="Record what real scripts use as facts.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the scripts under their names")
    folder = parser.parse_args(arguments).folder
    matrix = load_matrix()
    for entry in load_toml(SCRIPTS / "sources.toml")["script"]:
        script = folder / (entry["name"] + Path(entry["path"]).suffix)
        if not script.is_file():
            print(f"{script.name}: missing")
            continue
        (SCRIPTS / f"{entry['name']}.json").write_text(recorded(script, matrix), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
