"""Run the experiments on released code in environments, and write what they gave into the table released-experiments.

    python tools/released_experiments.py PYTHON [PYTHON ...]

Each PYTHON has torch, transformers, accelerate and peft as they were released: an environment in which a file differs
from its list, or something patches them, is refused. Once for a release of one of them, and after a change of an
experiment, which makes the rows of before count no more. Runs on the CPU, with seed 0.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from envdoctor.app import Sources, collect_facts
from envdoctor.app.probe import ProbeRequest, probe
from envdoctor.experiments.probe.recording import NAMES, digest_of, touched, versions_of
from envdoctor.matrix import load_toml, read_source

MATRICES = Path(__file__).resolve().parents[1] / "matrices"
TABLE = MATRICES / "tables" / "released-experiments.toml"


def row(python: str) -> dict[str, Any]:
    """What the experiments give in one environment. Raises SystemExit where its code is not that of the releases."""
    matrix = read_source(MATRICES, source="checkout")
    sources = Sources(python=python, cache=False)
    gathered = collect_facts(sources, matrix)
    altered = tuple(str(one["name"]) for one in matrix.rows("installers", "installer"))
    if (why := touched(gathered.facts, gathered.layout, altered)) is not None:
        raise SystemExit(f"{python}: {why}")
    section = probe(ProbeRequest(only=NAMES, device="cpu", seed=0, sources=sources), matrix=matrix).probe
    assert section is not None
    counts = {name: Counter[str]() for name in NAMES}
    for child in section["probes"]:
        if child["name"] in counts:
            counts[child["name"]].update(child["counts"])
            counts[child["name"]].update([child["ending"]] if child["ending"] != "ok" else [])
    worst = {group.name: f"{group.verdict} {group.signature}" for group in reversed(section["groups"])}
    versions = versions_of(gathered.facts)
    return {
        "name": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "versions": versions,
        "experiments": digest_of(),
        "clean": {name: seen["pass"] for name, seen in counts.items() if seen["pass"] and not set(seen) - {"pass"}},
        "findings": dict(sorted(worst.items())),
    }


def written(rows: Iterable[Mapping[str, Any]], head: str) -> str:
    """Return the table as text: its head, and a combination after the other by its name."""
    parts = [re.sub(r"(?m)^as_of = .*$", f"as_of = {date.today()}", head.rstrip() + "\n")]
    for one in sorted(rows, key=lambda one: str(one["name"])):
        lines = ["[[combination]]", f"name = {json.dumps(one['name'])}"]
        for key in ("versions", "clean", "findings"):
            inside = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in one[key].items())
            lines.append(f"{key} = {{ {inside} }}" if inside else f"{key} = {{}}")
        lines += [f"experiments = {json.dumps(one['experiments'])}", 'level = "observed"']
        lines.append(f'source = "pkg:pypi/transformers@{one["versions"]["transformers"]}"')
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def main() -> int:
    """Run them and write the table; rows of other experiments than today's go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="+")
    head = TABLE.read_text(encoding="utf-8").partition("[[combination]]\n")[0]
    rows = {one["name"]: one for one in load_toml(TABLE)["combination"] if one["experiments"] == digest_of()}
    for python in parser.parse_args().python:
        seen = row(python)
        rows[seen["name"]] = seen
        print(f"{seen['name']}: {sum(seen['clean'].values())} right; {seen['findings'] or 'nothing wrong'}")
        TABLE.write_text(written(rows.values(), head), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
