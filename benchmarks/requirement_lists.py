"""Judge published requirement lists at first sight, and compare with what uv says of them.

    python benchmarks/requirement_lists.py draw MIRRORS --seed 1 --count 20 > drawn.toml
    python benchmarks/requirement_lists.py judge MIRRORS drawn.toml --envdoctor "python -m envdoctor" > judged.toml

MIRRORS is a folder of bare clones, ``OWNER+NAME/repo`` each (``git clone --bare https://github.com/OWNER/NAME``). Drawn
are lists that name torch or transformers, one a repository. ``judge`` writes each list to a scratch folder with the
files beside it and, unless ``--no-code`` is given, the Python files below, resolves it with uv for Python 3.11 on
Linux, and judges both the list and what uv resolved it to. The lists' text is not kept: a row has repository, commit
and path, and the Python where it is not 3.11. Those of draws 3 to 7 were drawn and labelled otherwise: by hand, with
uv, pip and imports (``evidence``), before envdoctor saw them.

label    refused: uv finds no set (with its reason); unresolved: uv could not tell; broken: envdoctor finds an error in
         the set that uv resolved; sound: it finds none
         (rows that have a label keep it)
verdict  the errors and warnings that envdoctor gives of the list itself, and its exit code
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomllib

_LISTS = r"(?:.*/)?(?:requirements[^/]*\.txt|environment[^/]*\.ya?ml|Dockerfile[^/]*|pyproject\.toml)"
_STACK = r"(?im)^[^#\n]*\b(?:torch|pytorch|transformers)\b"
_TARGET = ("--target-platform", "linux-x86_64", "--target-python")
_UV = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_31", "--no-header", "--no-annotate", "-q")
_SECONDS = 150
_MOST_CODE = 300


def _git(repo: Path, *words: str) -> bytes:
    return subprocess.run(["git", f"--git-dir={repo}", *words], capture_output=True, check=True).stdout


def draw(mirrors: Path, seed: int, count: int, skip: set[str]) -> list[dict[str, str]]:
    """Return a list of each of ``count`` repositories, drawn by the seed; none of the repositories of ``skip``."""
    repos = [folder for folder in sorted(mirrors.iterdir()) if (folder / "repo").exists() and folder.name not in skip]
    chance, rows = random.Random(seed), []
    chance.shuffle(repos)
    for folder in repos:
        try:
            commit = _git(folder / "repo", "rev-parse", "HEAD").decode().strip()
            names = _git(folder / "repo", "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()
        except subprocess.CalledProcessError:
            continue
        lists = [name for name in names if re.fullmatch(_LISTS, name)]
        chance.shuffle(lists)
        for name in lists:
            text = _git(folder / "repo", "show", f"HEAD:{name}").decode("utf-8", "replace")
            if re.search(_STACK, text):
                rows.append({"repository": folder.name.replace("+", "/", 1), "commit": commit, "path": name})
                break
        if len(rows) == count:
            break
    return rows


def judge(mirrors: Path, row: dict[str, Any], envdoctor: list[str], code: bool) -> dict[str, object]:
    """Return the row with label and verdict; with ``code`` the repository's Python files lie beside the list."""
    repo = mirrors / row["repository"].replace("/", "+", 1) / "repo"
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(row["path"]).parent)
        under = [] if folder == "." else [f"{folder}/"]
        names = _git(repo, "ls-tree", "--name-only", row["commit"], *under).decode().splitlines()
        for name in names:
            if re.search(r"\.(?:txt|toml|ya?ml|in|cfg)$|Dockerfile", name):
                data = subprocess.run(
                    ["git", f"--git-dir={repo}", "show", f"{row['commit']}:{name}"], check=False, capture_output=True
                )
                Path(scratch, Path(name).name).write_bytes(data.stdout)
        if code:
            listed = _git(repo, "ls-tree", "-r", "--name-only", row["commit"], *under).decode("utf-8", "replace")
            for name in [name for name in listed.splitlines() if name.endswith(".py") and '"' not in name][:_MOST_CODE]:
                place = Path(scratch, name.removeprefix(under[0] if under else ""))
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(_git(repo, "show", f"{row['commit']}:{name}"))
        name = Path(row["path"]).name
        verdict = _verdict(envdoctor, name, scratch, row.get("python", "3.11"))
        label, why, errors = row.get("label") or "not-resolved", row.get("why", ""), row.get("resolved_errors", [])
        if "label" not in row and name.endswith((".txt", ".toml")):
            label, why, errors = _truth(envdoctor, name, scratch)
    return {**row, "label": label, "why": why, "resolved_errors": errors, **verdict}


def _truth(envdoctor: list[str], name: str, scratch: str) -> tuple[str, str, list[str]]:
    try:
        done = subprocess.run(
            ["uv", "pip", "compile", name, *_UV, "-o", "resolved.txt"],
            capture_output=True, check=False, text=True, cwd=scratch, timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "unresolved", "no answer in time", []
    if done.returncode:
        said = " ".join(done.stderr.split())[:400]
        refused = re.search("No solution found|No matching|Failed to build|no version", said) is not None
        return ("refused" if refused else "unresolved"), said, []
    found = _verdict(envdoctor, "resolved.txt[whole]", scratch)
    return ("broken" if found["errors"] else "sound"), "", list(found["errors"])


def _verdict(envdoctor: list[str], name: str, scratch: str, python: str = "3.11") -> dict[str, object]:
    done = subprocess.run(
        [*envdoctor, "check", "--lock", name, *_TARGET, python, "--format", "json"],
        capture_output=True, check=False, text=True, cwd=scratch, timeout=_SECONDS,
    )  # fmt: skip
    try:
        findings = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError):
        return {"exit": done.returncode, "errors": [], "warnings": [], "said": done.stderr.strip()[-300:]}
    shown = [finding for finding in findings if not finding.get("superseded_by")]
    by = {level: sorted({f["id"] for f in shown if f["severity"] == level}) for level in ("error", "warning")}
    return {"exit": done.returncode, "errors": by["error"], "warnings": by["warning"]}


def main() -> None:
    """Draw or judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "judge"))
    parser.add_argument("mirrors", type=Path)
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--skip", type=Path, action="append", default=[], help="rows whose repositories are left out")
    parser.add_argument("--envdoctor", default="envdoctor")
    parser.add_argument("--no-code", action="store_true", help="the lists alone, without the Python files below")
    given = parser.parse_args()
    if given.what == "draw":
        skipped = [row for path in given.skip for row in tomllib.loads(path.read_text())["list"]]
        skip = {row["repository"].replace("/", "+", 1) for row in skipped}
        rows = draw(given.mirrors, given.seed, given.count, skip)
    else:
        rows = tomllib.loads(given.rows.read_text())["list"]
    for row in rows:
        is_judged, envdoctor = given.what == "judge", shlex.split(given.envdoctor)
        shown = judge(given.mirrors, row, envdoctor, not given.no_code) if is_judged else row
        print("[[list]]", *(f"{key} = {json.dumps(value)}" for key, value in shown.items()), "", sep="\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
