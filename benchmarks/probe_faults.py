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

from trials import CAUSES, trial  # noqa: E402

FOUND, RIGHT = 34, 30


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--fault", action="append", help="only these; all without")
    options = parser.parse_args()
    faults = options.fault or list(CAUSES)
    found: dict[str, tuple[str, ...]] = {}
    print("| fault | what is said | cause |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="probe-faults-") as scratch:
        seen = trial(options.python, Path(scratch), faults, options.suite)
    for name, result in seen.items():
        if name in CAUSES:
            found[name] = result.rules
            said = "right" if result.is_right(name) else "not found" if not result.rules else f"is {CAUSES[name]}"
        else:
            said = "right" if not result.rules else "named without a fault"
        print(f"| {name} | {', '.join(result.rules)} | {said} |")
    named = sum(bool(rules) for rules in found.values())
    right = sum(result.is_right(name) for name, result in seen.items() if name in CAUSES)
    false = [name for name, result in seen.items() if name not in CAUSES and result.rules]
    seconds = sum(result.seconds for result in seen.values())
    print(f"\n{named} of {len(faults)} found, {right} by their right cause alone, {len(false)} named without a fault;")
    print(f"{seconds:.0f} CPU seconds")
    return int(bool(false) or (len(faults) == len(CAUSES) and (named < FOUND or right < RIGHT)))


if __name__ == "__main__":
    sys.exit(main())
