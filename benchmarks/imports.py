"""What fails when it is imported, and does `check` say so? Environments are broken at random; the real import judges.

    python benchmarks/imports.py [--seed 1] [--count 200] [--from 0] [--keep DIR] [--uv UV]
                                 [--truth-only] [--versions] [--bar PERCENT]
    python benchmarks/imports.py --keep DIR --build SEED NUMBER FOLDER

Two stacks are built from real wheels (pip and uv with their configured index). In each case one to three packages are
replaced by releases drawn at random (`import_cases.py`), every statement of the table entry-statements about an
installed package is really run (`import_runs.py`), and `envdoctor check --path` is asked about the folder
(`import_verdicts.py`); with ``--versions`` it is asked about the versions alone, in a facts file. Results are printed
as Markdown. What was drawn and what the imports said is kept in ``--keep``, so that a run goes on where it ended;
``--build`` makes the environment of one case. With ``--bar`` the exit code is 1
when less of the failing statements are named, or an error is told about one that works.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from import_asking import Asking
from import_cases import STACKS, Bench, Case, Workshop, site_of
from import_runs import Interpreters
from import_verdicts import Verdict, owners_of, verdict, versions_alone


class Judged(NamedTuple):
    """A case with its truth and what was said of it (None when it was not asked)."""

    case: Case
    hidden: bool
    verdict: Verdict | None


def main() -> int:
    """Draw, import, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200, help="cases")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first case")
    parser.add_argument("--keep", type=Path, help="a folder for stacks, wheels and results")
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--truth-only", action="store_true", help="run the imports, do not ask envdoctor")
    parser.add_argument("--versions", action="store_true", help="ask about the versions alone")
    parser.add_argument("--bar", type=float, help="least percentage of failing statements that are named")
    parser.add_argument("--build", nargs=3, metavar=("SEED", "NUMBER", "FOLDER"), help="make one environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        workshop = Workshop((options.keep or Path(scratch)).resolve(), options.uv)
        if options.build:
            case = workshop.draw(int(options.build[0]), int(options.build[1]))
            workshop.build(case, Path(options.build[2]))
            print(case)
            return 0
        numbers = range(options.first, options.first + options.count)
        found = []
        for judged in run(workshop, options.seed, numbers, not options.truth_only, options.versions):
            print(summary(judged), file=sys.stderr, flush=True)
            found.append(judged)
    print(table(found))
    return int(options.bar is not None and not passes([case.verdict for case in found if case.verdict], options.bar))


def passes(said: Sequence[Verdict], bar: float) -> bool:
    """Whether enough is named and nothing false is told."""
    failed, named = sum(one.failed for one in said), sum(len(one.named) for one in said)
    return named * 100 >= bar * failed and not any(one.false for one in said)


def run(workshop: Workshop, seed: int, numbers: Sequence[int], ask: bool, versions: bool) -> Iterator[Judged]:
    """The cases one after another."""
    bench = Bench(workshop, workshop.home / f"bench-{seed}-{numbers[0]}")
    interpreters = Interpreters(workshop, bench)
    asking = {stack: Asking(bench.folder) for stack in STACKS}
    for number in numbers:
        case = workshop.draw(seed, number)
        path = workshop.home / f"seed-{seed}" / f"{number:03}-truth.json"
        if not path.exists():
            path.write_text(json.dumps(interpreters.truth(case), indent=1))
        truth: dict[str, Any] = json.loads(path.read_text())
        said = None
        if ask and versions:
            site = site_of(workshop.stack(case.stack))
            facts = bench.folder / "facts.json"
            versions_alone(site, case.pins, facts)
            said = verdict(truth["results"], asking[case.stack].report("--facts", str(facts)), owners_of(site))
        elif ask:
            with bench.mounted(case) as tree:
                site = site_of(tree)
                said = verdict(truth["results"], asking[case.stack].report("--path", str(site)), owners_of(site))
        yield Judged(case, truth["met"], said)
    interpreters.close()
    for process in asking.values():
        process.close()
    shutil.rmtree(bench.folder)


def summary(judged: Judged) -> str:
    """One line."""
    said = judged.verdict
    what = f": {said.failed} of {said.tried} fail, {len(said.named)} named, {len(said.false)} false" if said else ""
    return f"{judged.case}{' (hidden)' if judged.hidden else ''}{what}"


def table(cases: Sequence[Judged]) -> str:
    """The counts, the misses with their causes, and the false errors."""
    lines = [
        "| | environments | with a failing import | statements | failing | named | false errors |",
        "|---|---|---|---|---|---|---|",
        counts("all", cases),
        counts("all declared requirements met", [case for case in cases if case.hidden]),
        "",
        "Misses by cause:",
        "",
    ]
    causes: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        for miss in case.verdict.misses if case.verdict else ():
            cause = (miss.error[:200], miss.place)
            causes[cause] += 1
            where.setdefault(cause, []).append(f"{case.case.seed}-{case.case.number} `{miss.statement}`")
    for (error, place), number in causes.most_common():
        places = list(dict.fromkeys(where[error, place]))
        lines.append(f"- {number} × `{error}` ({place}): {', '.join(places[:3])}")
    lines += ["", "Errors about imports that work:", ""]
    lines += [f"- {case.case}: {text}" for case in cases if case.verdict for text in case.verdict.false]
    lines += ["", "Errors that name no statement, where everything imports:", ""]
    lines += [f"- {case.case}: {text}" for case in cases if case.verdict for text in case.verdict.beside]
    return "\n".join(lines)


def counts(title: str, cases: Sequence[Judged]) -> str:
    """A row of the table."""
    said = [case.verdict for case in cases if case.verdict]
    failed, named = sum(one.failed for one in said), sum(len(one.named) for one in said)
    cells = [
        title,
        len(cases),
        sum(bool(one.failed) for one in said),
        sum(one.tried for one in said),
        failed,
        f"{named} ({100 * named / max(1, failed):.0f} %)",
        sum(len(one.false) for one in said),
    ]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
