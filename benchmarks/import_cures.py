"""Does the first offered command make the import work? The failing environments of `imports.py`, cured for real.

    python benchmarks/import_cures.py --keep DIR [--seed 2] [--from 0] [--count 60] [--uv UV] [--bar PERCENT]

For every case in DIR (that `imports.py --keep DIR` has drawn and tried) in which a statement fails, the environment is
built anew from hard links, `envdoctor check --python` is asked, the commands of its plan are run (without a plan those
of the first error's first fix that has any), and every statement that failed is really run again. Cases are tried until
``--count`` have been. Printed as Markdown: what works then, what fails still and why, and where no command was offered.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fixes import checked, ran
from import_cases import Case, Workshop, site_of
from import_runs import QUIET, RECORD

#: What became of a case, by the order in which it is printed.
OUTCOMES = ("works", "still fails", "command failed", "no command", "no error")


def main() -> int:
    """Cure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", type=Path, required=True, help="the folder of imports.py")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first case")
    parser.add_argument("--count", type=int, default=60, help="failing cases")
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--bar", type=float, help="least percentage that works afterwards")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(options.uv).resolve().parent}{os.pathsep}{os.environ['PATH']}"
    workshop = Workshop(options.keep.resolve(), options.uv)
    outcomes = []
    for case, statements in failing(workshop, options.seed, options.first):
        if len(outcomes) == options.count:
            break
        path = workshop.home / f"seed-{case.seed}" / f"{case.number:03}-cure.json"
        if not path.exists():
            found = cured(workshop, case, statements, workshop.home / f"cure-{options.seed}-{options.first}")
            path.write_text(json.dumps(found, indent=1))
        outcomes.append((case, json.loads(path.read_text())))
        print(f"{case}: {outcomes[-1][1]['outcome']}", file=sys.stderr, flush=True)
    print(table(outcomes))
    works = sum(found["outcome"] == "works" for _, found in outcomes)
    return int(options.bar is not None and works * 100 < options.bar * len(outcomes))


def failing(workshop: Workshop, seed: int, first: int) -> Iterator[tuple[Case, list[str]]]:
    """The cases that were tried and in which something fails, with what fails."""
    for path in sorted((workshop.home / f"seed-{seed}").glob("*-truth.json")):
        number = int(path.name.partition("-")[0])
        results: Mapping[str, Any] = json.loads(path.read_text())["results"]
        failed = [statement for statement, found in results.items() if found and found.get("outcome") == "fails"]
        if failed and number >= first:
            yield workshop.draw(seed, number), failed


def cured(workshop: Workshop, case: Case, statements: Sequence[str], folder: Path) -> dict[str, Any]:
    """Build, ask, run what is offered, import again."""
    shutil.rmtree(folder, ignore_errors=True)
    workshop.build(case, folder)
    report = checked(folder)
    shown = [one for one in report["findings"] if one["severity"] == "error" and "superseded_by" not in one]
    found: dict[str, Any] = {"errors": [one["id"] for one in shown]}
    offered = (report.get("plan") or {}).get("commands") or next(
        (fix["commands"] for one in shown for fix in one["fixes"] if fix["commands"]), []
    )
    found["commands"] = [command.replace(str(folder), "ENV") for command in offered]
    if not shown or not offered:
        return {**found, "outcome": "no command" if shown else "no error"}
    for command in offered:
        failure = ran(command)
        if failure:
            return {**found, "outcome": "command failed", "why": failure[-300:]}
    left = tried(folder, statements)
    return {**found, "outcome": "still fails" if left else "works", "left": left}


def tried(environment: Path, statements: Sequence[str]) -> list[str]:
    """The statements that fail, each with its error."""
    command = [str(environment / "bin" / "python"), "-I", "-c", RECORD, str(site_of(environment)), *statements]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **QUIET})
    try:
        failed: list[str] = json.loads(done.stdout)[1]
    except (ValueError, IndexError):
        return [f"the interpreter ended with {done.returncode}: {done.stderr[-200:]}"]
    return failed


def table(outcomes: Sequence[tuple[Case, Mapping[str, Any]]]) -> str:
    """The counts, and what was not cured."""
    counts = Counter(found["outcome"] for _, found in outcomes)
    lines = ["| outcome | environments |", "|---|---|"]
    lines += [f"| {outcome} | {counts[outcome]} of {len(outcomes)} |" for outcome in OUTCOMES if counts[outcome]]
    lines += ["", "Not cured:", ""]
    for case, found in outcomes:
        if found["outcome"] != "works":
            why = found.get("why") or "; ".join(found.get("left", [])[:2])
            offered = " && ".join(found["commands"]) or "nothing"
            lines.append(f"- {case}: {found['outcome']}; {', '.join(found['errors'][:3])}; offered `{offered}`; {why}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
