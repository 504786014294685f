"""What hostile inputs cost each reader: the slowest input, its number, and the largest memory of the whole run.

python benchmarks/hostile.py --count 20000 --seed 1 --environments 1500 --libraries 5000

The tests take fewer of the same. Of 3,000 edited libraries none reached a line of the reader first after number 1,379;
of 700 edited environments 4 of 2,081 lines of envdoctor were reached first after number 500 (seed 1, 2026-11-29).
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "observe" / "binaries")]

import test_elf_file as libraries_of  # noqa: E402
import test_hostile_environment as environments_of  # noqa: E402
from hostile_inputs import run  # noqa: E402
from observing import write  # noqa: E402


@click.command()
@click.option("--count", default=20_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--environments", default=0, show_default=True, help="Edited environments.")
@click.option("--libraries", default=0, show_default=True, help="Edited ELF files.")
def main(count: int, seed: int, environments: int, libraries: int) -> None:
    """Print a row for each reader, and every input that was no sentence for a user."""
    with tempfile.TemporaryDirectory() as folder:
        packages = write(Path(folder) / "packages", environments_of.FILES)
        environments_of.look(packages)
        _edited(lambda edits: environments_of.bounded(packages, edits), environments_of.EDITS, environments, seed)
        _edited(lambda content: libraries_of.bounded(Path(folder), content), libraries_of.HOSTILE, libraries, seed)
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


def _edited(look: Callable[[Any], None], edits: Any, count: int, seed: int) -> None:
    """Look at so many edited ones; what fails is raised, made smaller."""
    if count:
        limits = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        seeded(seed)(limits(given(edits)(look)))()
        print(f"{count} edited, seed {seed}: each gave a value or a reason, in bounded memory")


if __name__ == "__main__":
    main()
