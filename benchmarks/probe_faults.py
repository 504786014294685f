"""How many planted faults do the experiments find, and by their right cause?

    python benchmarks/probe_faults.py --python PATH [--set trials] [--suite quick] [--fault NAME ...]

39 faults, of them 29 that a stranger planted (``--set trials``, ``tests/probe/trials.py``), or 50 of another stranger
(``--set strangers``, ``tests/probe/strangers.py``), of them ten that come and go, or 20 of a third, drawn from bug
trackers (``--set second``, the same file), or 25 of a fourth, drawn from them too (``--set third``,
``tests/probe/third.py``), a fifth or a sixth (``--set fourth``, ``fifth``: files of these names), of them five that
come and go, one after another in one process of PATH, which needs torch, transformers, accelerate and peft. A fault is
a patch of one of these, which the experiments do not know. Prints the rules that spoke of each, and the shares with
their 95 % interval (Wilson);
exit code 1 when fewer are found, or fewer by their right cause alone, than the set asks for (34 and 30 of 39; 80 % and
65 % of 40 and of 20, and all that come and go), or anything is said without a fault. About 10 CPU seconds a fault.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "probe"), str(ROOT / "tests" / "support")]

import fifth  # noqa: E402
import fourth  # noqa: E402
import third  # noqa: E402
from strangers import (  # noqa: E402
    CAUSES,
    FLAKY,
    MACHINE,
    SECOND,
    SECOND_MACHINE,
    of_set,
    second_strangers,
    strangers,
)
from trials import CAUSES as TRIED  # noqa: E402
from trials import HEALTHY, Found, trial  # noqa: E402


def _rows(rows: ModuleType) -> tuple[Any, dict[str, Any]]:
    """The same of a set whose faults are rows of a module."""
    return partial(of_set, rows.CAUSES, rows.FLAKY), {
        "faults": (rows.CAUSES, 16, 13),
        "of them of machine, kernel or build": (rows.MACHINE, 0, 0),
        "of them of released code": ({name: rows.CAUSES[name] for name in rows.CAUSES.keys() - rows.MACHINE}, 0, 0),
        "that come and go": (rows.FLAKY, 5, 5),
    }


#: Of each set: what runs it; of each of its kinds: the causes, and how many must be found and be told by their cause.
SETS = {
    "trials": (trial, {"faults": (TRIED, 34, 30)}),
    "strangers": (
        strangers,
        {
            "faults": (CAUSES, 32, 26),
            "of them of machine, kernel or build": (MACHINE, 0, 0),
            "of them of released code": ({name: CAUSES[name] for name in CAUSES.keys() - MACHINE}, 0, 0),
            "that come and go": (FLAKY, 10, 10),
        },
    ),
    "second": (
        second_strangers,
        {
            "faults": (SECOND, 16, 13),
            "of them of machine, kernel or build": (SECOND_MACHINE, 0, 0),
            "of them of released code": ({name: SECOND[name] for name in SECOND.keys() - SECOND_MACHINE}, 0, 0),
        },
    ),
    **{name: _rows(rows) for name, rows in (("third", third), ("fourth", fourth), ("fifth", fifth))},
}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--set", default="trials", choices=SETS)
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--fault", action="append", help="only these; all without")
    options = parser.parse_args()
    runner, kinds = SETS[options.set]
    causes: dict[str, str | tuple[str, ...]] = {
        name: cause for of_kind, *_ in kinds.values() for name, cause in of_kind.items()
    }
    said: dict[str, str] = {}
    seconds = 0.0
    print("| fault | what is said | cause |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="probe-faults-") as scratch:
        for name, found in runner(options.python, Path(scratch), options.fault or (), options.suite):
            said[name] = _said(name, found, causes)
            seconds += found.seconds
            print(f"| {name} | {', '.join(found.rules)} | {said[name]} |", flush=True)
    print("\n| faults | found | by their right cause alone |\n|---|---|---|")
    short = False
    for kind, (of_kind, wanted, wanted_right) in kinds.items():
        words = [said[name] for name in of_kind if name in said]
        named, right = len(words) - words.count("not found"), words.count("right")
        print(f"| {len(words)} {kind} | {_share(named, len(words))} | {_share(right, len(words))} |")
        short |= named < wanted or right < wanted_right
    false = sum(word == "named without a fault" for word in said.values())
    print(f"\n{false} named without a fault; {seconds:.0f} CPU seconds")
    return int(bool(false) or (not options.fault and short))


def _share(part: int, whole: int) -> str:
    """The count with its share and the 95 % interval of Wilson (1927)."""
    if not whole:
        return "0"
    z, share = 1.96, part / whole
    middle = (share + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z / (1 + z * z / whole) * math.sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole))
    return f"{part}: {share:.0%} ({middle - half:.0%} to {middle + half:.0%})"


def _said(name: str, found: Found, causes: dict[str, str | tuple[str, ...]]) -> str:
    """What to call it: right if nothing but causes of it were named."""
    if name in HEALTHY:
        return "named without a fault" if found.rules else "right"
    if not found.rules:
        return "not found"
    right = (causes[name],) if isinstance(causes[name], str) else causes[name]
    return "right" if set(found.rules) <= set(right) else f"it is {' or '.join(right)}"


if __name__ == "__main__":
    sys.exit(main())
