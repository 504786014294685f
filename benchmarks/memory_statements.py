"""Statements of strangers about a run's memory beside what `envdoctor memory` says to a command that a user types.

    python benchmarks/memory_statements.py [memory_statements_2.toml] [--only qwen]

The file beside this one has them with their sources. Each command runs with the environment that has envdoctor, in a
folder that holds the statement's file alone. A verdict is wrong where "fits" or "does not fit" was said and the
opposite happened; "tight" is neither.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import tomllib

from envdoctor.cli.main import main as envdoctor

WORDS = {"fits": True, "does-not-fit": False}


def main() -> None:
    """Print a line a statement, then the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="memory_statements.toml")
    parser.add_argument("--only", default="", help="statements whose id begins so")
    options = parser.parse_args()
    only, text = options.only, Path(__file__).with_name(options.file).read_text(encoding="utf-8")
    verdicts: Counter[tuple[str, str]] = Counter()
    errors: list[float] = []
    inside = 0
    for statement in tomllib.loads(text)["statement"]:
        if not statement["id"].startswith(only):
            continue
        section = asked(statement)
        low, high = section.get("process_gib") or (0.0, 0.0)
        point, verdict = section.get("allocated_gib"), section.get("verdict") or ("open" if section else "none")
        right = {True: "right", False: "wrong", None: verdict}[
            None if verdict not in WORDS else WORDS[verdict] == statement["fits"]
        ]
        verdicts[statement.get("kind", "train"), right] += 1
        error = ""
        if "gib" in statement and point:
            errors.append(abs(point - statement["gib"]) / statement["gib"])
            inside += low <= statement["gib"] <= high
            error = f"  read {statement['gib']:.1f}, {(point / statement['gib'] - 1):+.0%}"
            error += "" if low <= statement["gib"] <= high else " OUTSIDE"
        print(f"{statement['id']:32} {right:8} {'fits' if statement['fits'] else 'OOM':5} ", end="")
        print(f"{low:6.1f} {point or 0.0:6.1f} {high:6.1f} of {section.get('free_gib') or 0.0:5.1f}{error}")
    for kind in ("train", "full", "serve"):
        print(kind, {word: number for (of, word), number in sorted(verdicts.items()) if of == kind})
    if errors:
        print(f"{len(errors)} figures: {inside} inside, median error {median(errors):.0%}")


def asked(statement: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section of memory that the report of a statement has; empty where it has none."""
    out, before = io.StringIO(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        if "file" in statement:
            (Path(folder) / statement["file"]).write_text(statement["text"], encoding="utf-8")
        os.chdir(folder)
        try:
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(io.StringIO()),
                contextlib.suppress(SystemExit),
            ):
                envdoctor(["memory", *statement["ask"], "--no-gpu", "--format", "json"])
        finally:
            os.chdir(before)
    try:
        return dict(json.loads(out.getvalue()).get("sections", {}).get("memory") or {})
    except ValueError:
        return {}


if __name__ == "__main__":
    main()
