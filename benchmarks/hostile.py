"""What hostile inputs cost each reader: the slowest input, its number, and the largest memory of the whole run.

python benchmarks/hostile.py --count 20000 --seed 1
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from hostile_inputs import run


@click.command()
@click.option("--count", default=20_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    """Print a row for each reader, and every input that was no sentence for a user."""
    slowest: dict[str, tuple[float, int]] = {}
    tried: dict[str, int] = {}
    for seen in run(count, seed):
        tried[seen.kind] = tried.get(seen.kind, 0) + 1
        slowest[seen.kind] = max(slowest.get(seen.kind, (0.0, 0)), (seen.seconds, seen.number))
        if seen.escaped is not None:
            print(f"{seen.kind} {seen.number}: {type(seen.escaped).__name__}: {str(seen.escaped)[:200]}")
    for kind, (seconds, number) in slowest.items():
        print(f"{kind:45} {tried[kind]:6} inputs, slowest {seconds:7.3f} s (input {number})")
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
