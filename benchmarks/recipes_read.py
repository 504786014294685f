"""How well the recipes of others are read: python benchmarks/recipes_read.py MIRRORS [--only TEXT] [--say]

`recipe_labels.toml` names published files at a commit and what a person reads in each, with its line. MIRRORS is a
folder with a bare repository for each (`owner+name/repo`, or `owner+name`): `git clone --bare`. Every file is read
where it lies, in its tree at that commit, with the releases that the labels name. A fact is right, missing or wrong; a
value for what the script computes is wrong, too.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envdoctor.facts import ABSENT, NOT_GIVEN, Fact, Unknown, spell
from envdoctor.matrix import load_matrix, load_toml
from envdoctor.observe import ObservationError, read_recipe
from envdoctor.observe.recipe.formats import Formats

LABELS = Path(__file__).with_name("recipe_labels.toml")
#: What a tree needs for its recipes: code and configurations.
_KINDS = (b".py", b".sh", b".yaml", b".yml", b".json", b".slurm", b".ipynb", b".toml", b".env")


def tree(mirrors: Path, repo: str, commit: str, to: Path) -> Path:
    """Write the text files of a repository at a commit; a mirror may lack some."""
    folder = to / repo.replace("/", "+")
    if not folder.exists():
        bare = mirrors / repo.replace("/", "+")
        git = ["git", "--git-dir", str(bare / "repo" if (bare / "repo").is_dir() else bare)]
        listed = subprocess.run([*git, "ls-tree", "-r", "-z", commit], capture_output=True, check=True).stdout
        rows = [row.partition(b"\t") for row in listed.split(b"\0") if row.endswith(_KINDS)]
        names = {info.split()[2]: name.decode() for info, _, name in rows if info.startswith(b"100")}
        asked = b"\n".join(names) + b"\n"
        found = io.BytesIO(
            subprocess.run([*git, "cat-file", "--batch"], input=asked, capture_output=True, check=True).stdout
        )
        for name in names.values():
            *_, size = found.readline().split()
            if size != b"missing":
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found.read(int(size)))
                found.read(1)
    return folder


def said(path: Path, folder: Path, releases: dict[str, str], matrix: Any) -> dict[str, Fact] | str:
    """The facts of a recipe by their field, or why it is none."""
    formats = Formats.with_releases(matrix)

    def installed(key: str) -> Any:
        return releases.get(key.removeprefix("pkg."), NOT_GIVEN)

    try:
        recipe = read_recipe([str(path)], str(folder), formats, installed)
    except ObservationError as error:
        return str(error)
    found = {fact.key.removeprefix("recipe."): fact for fact in recipe.facts}
    if recipe.model is not None:
        found["model"] = recipe.model
    return found


def verdict(expected: str, fact: Fact | None) -> str:
    """Right, missing or wrong; ``?`` is expected of what a person cannot tell."""
    value = fact.value if fact is not None else NOT_GIVEN
    unknown = isinstance(value, Unknown)
    if expected == "?":
        return "right" if unknown else "wrong"
    if unknown:
        return "missing"
    text = "absent" if value is ABSENT else ", ".join(value) if isinstance(value, tuple) else spell(value)
    try:
        same = float(text) == float(expected)
    except ValueError:
        same = text.casefold() == expected.casefold()
    return "right" if same else "wrong"


def scored(mirrors: Path, only: str, say: bool) -> Iterator[tuple[str, Counter[str]]]:
    """The counts of every file, with its kind."""
    labels = load_toml(LABELS)
    matrix = load_matrix()
    with tempfile.TemporaryDirectory() as scratch:
        for item in labels["file"]:
            if only not in f"{item['draw']} {item['kind']} {item['repo']} {item['path']}":
                continue
            folder = tree(mirrors, item["repo"], item["commit"], Path(scratch))
            found = said(folder / item["path"], folder, labels["releases"], matrix)
            counts: Counter[str] = Counter()
            for field, (expected, place) in item["facts"].items():
                fact = found.get(field) if isinstance(found, dict) else None
                outcome = verdict(expected, fact)
                counts[outcome] += 1
                if say and outcome != "right":
                    got = f"{fact.value} | {fact.origin}" if fact is not None else "-"
                    print(f"{outcome:8}{item['repo']}/{item['path']}: {field} = {expected} ({place}), not {got}")
            if isinstance(found, str):
                counts["refused"] += 1
                print(f"refused {item['repo']}/{item['path']}: {found[:150]}")
            yield item["kind"], counts


def main() -> int:
    """Print the table by kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mirrors", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--say", action="store_true")
    asked = parser.parse_args()
    kinds: dict[str, Counter[str]] = {}
    for kind, counts in scored(asked.mirrors, asked.only, asked.say):
        kinds.setdefault(kind, Counter())["files"] += 1
        kinds[kind].update(counts)
    total: Counter[str] = sum(kinds.values(), Counter())
    print("| kind | files | facts | right | missing | wrong | refused |\n|---|---|---|---|---|---|---|")
    for kind, one in [*kinds.items(), ("all", total)]:
        facts = one["right"] + one["missing"] + one["wrong"]
        share = f"{one['right']} ({100 * one['right'] / facts:.0f} %)"
        print(f"| {kind} | {one['files']} | {facts} | {share} | {one['missing']} | {one['wrong']} | {one['refused']} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
