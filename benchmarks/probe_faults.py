"""How many of 39 planted faults do the experiments find, and by their right cause?

    python benchmarks/probe_faults.py --python PATH [--suite quick] [--fault NAME ...]

Faults that a stranger planted, and ten more (``tests/probe/trials.py``), one after another in one process of PATH,
which needs torch, transformers, accelerate and peft. A fault is a patch of torch, transformers or peft that the
experiments do not know. Prints the rules that spoke of each; exit code 1 when fewer than 34 are found, fewer than 30 by
their right cause alone, or anything is said without a fault. About 10 CPU seconds a fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "probe"), str(ROOT / "tests" / "support")]

from trials import CAUSES, HEALTHY, Found, trial  # noqa: E402

FOUND, RIGHT = 34, 30


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--fault", action="append", help="only these; all without")
    options = parser.parse_args()
    results: dict[str, Found] = {}
    print("| fault | what is said | cause |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="probe-faults-") as scratch:
        for name, found in trial(options.python, Path(scratch), options.fault or (), options.suite):
            results[name] = found
            print(f"| {name} | {', '.join(found.rules)} | {_said(name, found)} |", flush=True)
    words = [_said(name, found) for name, found in results.items() if name in CAUSES]
    named, right = len(words) - words.count("not found"), words.count("right")
    false = [name for name, found in results.items() if name in HEALTHY and found.rules]
    print(f"\n{named} of {len(words)} found, {right} by their right cause alone, {len(false)} named without a fault;")
    print(f"{sum(found.seconds for found in results.values()):.0f} CPU seconds")
    return int(bool(false) or (not options.fault and (named < FOUND or right < RIGHT)))


def _said(name: str, found: Found) -> str:
    """What to call it."""
    if name in HEALTHY:
        return "named without a fault" if found.rules else "right"
    if not found.rules:
        return "not found"
    return "right" if found.rules == (CAUSES[name],) else f"it is {CAUSES[name]}"


if __name__ == "__main__":
    sys.exit(main())
