"""Judge every test that the rules had at another commit, by that commit and by this checkout, and print what differs.

    python benchmarks/rule_cases.py COMMIT

Compared are the verdict of the rule, and where it applies the severity, whether it fails the gate, and the first fix
that is offered, all by the whole matrix. A rule that is retired is compared with the one that stands for it now.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 2


def main(commit: str) -> int:
    """Print one line a difference and a count. Return 0 when there is none."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(before), commit], cwd=ROOT, check=True)
        try:
            cases = Path(folder) / "cases.json"
            cases.write_text(json.dumps(list(_cases(before))))
            # One after the other: each uses all processors.
            old, new = (_judged(tree, cases) for tree in (before, ROOT))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(before)], cwd=ROOT, check=True)
        different = [
            (case, one, other)
            for case, one, other in zip(json.loads(cases.read_text()), old, new, strict=True)
            if one != other
        ]
    for case, one, other in different:
        print(f"{case['rule']}: {json.dumps(case['facts'])}\n  before {one}\n  now    {other}")
    print(f"{len(old)} tests, {Counter(one['verdict'] for one in old)}: {len(old) - len(different)} the same")
    return 1 if different else 0


def _cases(tree: Path) -> Any:
    import tomllib

    for path in sorted((tree / "matrices" / "rules").glob("*/*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for test in data.get("test", ()):
            yield {"rule": path.stem, "facts": test["facts"], "complete": test.get("complete", [])}
        for test in data.get("tests", ()):
            facts = next(test[word] for word in ("match", "no", "unknown") if word in test)
            yield {"rule": path.stem, "facts": facts, "complete": test.get("complete", [])}


def _judged(tree: Path, cases: Path) -> list[dict[str, Any]]:
    """What the envdoctor of a tree says of the cases."""

    def part(number: int) -> list[dict[str, Any]]:
        command = [sys.executable, __file__, "--judge", str(tree), str(cases), str(number)]
        run = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True)
        found: list[dict[str, Any]] = json.loads(run.stdout)
        return found

    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = list(pool.map(part, range(PROCESSES)))
    total = sum(map(len, parts))
    return [parts[number % PROCESSES][number // PROCESSES] for number in range(total)]


def judge_part(tree: str, cases: str, number: int) -> None:
    """Run in a child with the envdoctor of ``tree``: print the answers to every second case."""
    sys.path.insert(0, tree)
    # Modules, not doors: the other commit may have none.
    from envdoctor.judge.derivations import derive
    from envdoctor.judge.evaluate import evaluate
    from envdoctor.judge.finding import Policy
    from envdoctor.judge.judging import judge
    from envdoctor.matrix.matrix import load_matrix
    from envdoctor.observe.documents.facts_file import SCHEMA, facts_of_document
    from envdoctor.remedy.fixes import with_fixes

    matrix = load_matrix()
    answers: list[dict[str, Any]] = []
    for case in json.loads(Path(cases).read_text())[number::PROCESSES]:
        retired = matrix.retired(case["rule"])
        rule = matrix.find(retired.now if retired and retired.now else case["rule"])
        document = {"schema": SCHEMA, "facts": case["facts"], "complete": case["complete"]}
        facts = facts_of_document(document, "its facts", matrix.registry)
        derive(facts, matrix)
        assert rule is not None, case["rule"]
        answer: dict[str, Any] = {"verdict": evaluate(rule, facts, matrix.registry).holds}
        if answer["verdict"]:
            judgement = judge(facts, matrix, Policy())
            only = judgement._replace(findings=tuple(one for one in judgement.findings if one.id == rule.id))
            answer["findings"] = [
                [finding.severity, finding.gate, finding.superseded_by is None, _first_fix(finding)]
                for finding in with_fixes(only, matrix).findings
            ]
        answers.append(answer)
    print(json.dumps(answers))


def _first_fix(finding: Any) -> Any:
    for fix in finding.fixes:
        if not fix.withheld:
            return [fix.kind, fix.constraints, fix.uninstall, fix.set, fix.env, fix.commands]
    return None


if __name__ == "__main__":
    if sys.argv[1:2] == ["--judge"]:
        judge_part(*sys.argv[2:4], int(sys.argv[4]))
    else:
        sys.exit(main(*sys.argv[1:]))
