"""Judge a rule's fixes by its own tests: each must end the match of one of them, and the first leave no error."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envdoctor.facts.values import Fact
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.finding import Policy
from envdoctor.judge.judging import errors_of, judge
from envdoctor.judge.selftest import RuleCase, facts_of
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule
from envdoctor.remedy.candidates import torch_row
from envdoctor.remedy.fixes import offer_alone, with_fixes
from envdoctor.versions.pep440 import base_release

_PIN = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9-]*)[=>]=([0-9][0-9a-z.]*(?:\+[a-z0-9.]+)?)")


def check_fixes(rule: Rule, cases: Iterable[RuleCase], matrix: Matrix) -> Iterator[str]:
    """Yield each fix that, applied to environments that match, never ends the match. ``cases`` are the rule's tests."""
    matching = [case.facts for case in cases if case.got == "match"]
    offered = [offer_alone(rule, facts, matrix) for facts in matching]
    for number, fix in enumerate(matrix.texts(rule)["fix"] if matching else ()):
        reasons = [fixes[number].withheld for fixes in offered]
        # A fix may help only some of the environments that a rule covers; one that never helps is wrong.
        if all(reasons):
            yield f"fix {number + 1} ({fix['summary'].get('en', '')}) never helps: {reasons[0]}"


def check_first_fix(rule: Rule, cases: Iterable[RuleCase], matrix: Matrix) -> Iterator[str]:
    """Yield why a first fix that installs something never cures. It cures if, for some matching test with the usual
    torchvision and torchaudio, it is offered and leaves no error of any rule."""
    fixes = matrix.texts(rule)["fix"]
    if rule.status != "active" or not fixes or fixes[0]["kind"] != "constraint":
        return
    reasons = []
    for case in (case for case in cases if case.got == "match"):
        reason = _not_cured(rule, case.test, matrix)
        if reason is None:
            return
        reasons.append(f"test {case.number}: {reason}")
    yield f"fix 1 never cures: {'; '.join(reasons)}"


def _not_cured(rule: Rule, test: Mapping[str, Any], matrix: Matrix) -> str | None:
    facts = facts_of({**test, "facts": _with_companions(test["facts"], matrix)}, matrix)
    judgement = judge(facts, matrix, Policy())
    own = judgement._replace(findings=tuple(finding for finding in judgement.findings if finding.id == rule.id))
    if not own.findings:
        return "the rule does not apply beside torchvision and torchaudio"
    first = with_fixes(own, matrix).findings[0].fixes[0]
    if first.withheld is not None:
        return f"withheld: {first.withheld}"
    # The facts after the commands: of a range the lowest release is installed.
    pairs = _PIN.findall(" ".join(first.commands))
    pins = [Fact(f"pkg.{name}", version, "the command", "given") for name, version in pairs]
    errors = errors_of(with_facts(facts, pins, matrix), matrix)[0]
    return f"leaves {', '.join(problem.rule_id for problem in errors)}" if errors else None


def _with_companions(facts: Mapping[str, Any], matrix: Matrix) -> dict[str, Any]:
    """Return the facts with the torchvision and torchaudio of torch's release, and their requirements."""
    values = dict(facts)
    for item in values.get("torch_companion", []):
        values.setdefault(f"pkg.{item['package']}", item["version"])
    torch = values.get("pkg.torch")
    release = base_release(torch) if isinstance(torch, str) else None
    row = torch_row(release, matrix) if release else None
    if row is None or not isinstance(torch, str):
        return values
    tag = torch.partition("+")[2]
    dists = list(values.get("dist", []))
    for name in ("torchvision", "torchaudio"):
        if f"pkg.{name}" not in values and isinstance(row.get(name), str):
            values[f"pkg.{name}"] = row[name] + (f"+{tag}" if re.fullmatch(r"cu\d+|cpu", tag) else "")
            dists.append({"name": name, "version": values[f"pkg.{name}"], "requires": [f"torch=={release}"]})
    if "torch.cuda" not in values and not tag:
        values["torch.cuda"] = row.get("pypi_cuda", "absent")
    return {**values, "dist": dists} if dists else values
