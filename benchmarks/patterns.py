"""What the proof that patterns are linear is worth: every pattern, pumped by texts out of its own parse tree.

python benchmarks/patterns.py --size 20000
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from pattern_growth import pumps, work
from patterns import Pattern, patterns, supplied

_TAILS = ("", "\0", "\n!", " =")


@click.command()
@click.option("--size", default=20_000, show_default=True)
@click.option("--worst", default=20, show_default=True)
def main(size: int, worst: int) -> None:
    """Print the patterns that took longest for a character, with twice the size beside it."""
    rows = []
    for pattern in [*patterns()[0], *supplied()]:
        compiled = re.compile(pattern.text, pattern.flags)
        texts = {pump: front for front, pump in pumps(pattern.text, pattern.flags, pattern.how)}
        if texts:
            tries = ((front, pump, tail) for pump, front in texts.items() for tail in _TAILS)
            slowest = max((_seconds(compiled, pattern, *text, size), *text) for text in tries)
            twice = _seconds(compiled, pattern, *slowest[1:], 2 * size)
            rows.append((slowest[0] / size * 1e9, twice / slowest[0], work(*pattern[1:]), pattern.place, slowest[1:]))
    print("ns a character, times for twice the size, characters looked at by the proof")
    for nanoseconds, ratio, proved, place, text in sorted(rows, key=lambda row: row[0], reverse=True)[:worst]:
        print(f"{nanoseconds:9.0f} {ratio:5.1f} {proved:5.0f} {place} {text!r:.120}")


def _seconds(compiled: re.Pattern, pattern: Pattern, front: str, pump: str, tail: str, size: int) -> float:
    text = front + pump * (size // len(pump)) + tail
    subject = text.encode("latin-1") if isinstance(pattern.text, bytes) else text
    ask = compiled.findall if pattern.how == "search" else getattr(compiled, pattern.how)
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        ask(subject)
        took.append(time.perf_counter() - begin)
    return min(took)


if __name__ == "__main__":
    main()
