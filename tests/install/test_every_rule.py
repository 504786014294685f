"""Every rule that offers other releases: its first fix is offered beside the usual companions, and leaves no error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from known import derived, given, judged
from observing import shipped

from envdoctor.facts.change import change
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact
from envdoctor.judge.judging import errors_of
from envdoctor.knowledge.rules import Rule
from envdoctor.versions.pep440 import base_release, is_named_by

MATRIX = shipped()
PIN = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9-]*)[=>]=([0-9][0-9a-z.]*(?:\+[a-z0-9.]+)?)")


def with_constraints() -> Iterator[Rule]:
    for rule in MATRIX.rules:
        fixes = MATRIX.texts(rule)["fix"]
        if rule.status == "active" and fixes and fixes[0]["kind"] == "constraint":
            yield rule


def matching(rule: Rule) -> Iterator[Mapping[str, Any]]:
    yield from (test for test in MATRIX.texts(rule)["test"] if test["expect"] == "match")


def installed(test: Mapping[str, Any]) -> FactSet:
    """The facts of a rule's own test, with torchvision and torchaudio of torch's release and their metadata."""
    values = dict(test["facts"])
    for item in values.get("torch_companion", []):
        values.setdefault(f"pkg.{item['package']}", item["version"])
    torch = values.get("pkg.torch")
    release = base_release(torch) if isinstance(torch, str) else None
    row = next((row for row in MATRIX.rows("torch-builds") if release and is_named_by(release, row["key"])), None)
    dists = list(values.get("dist", []))
    for name in ("torchvision", "torchaudio") if row else ():
        if f"pkg.{name}" not in values and isinstance(row.get(name), str):
            tag = torch.partition("+")[2]
            values[f"pkg.{name}"] = row[name] + (f"+{tag}" if re.fullmatch(r"cu\d+|cpu", tag) else "")
            dists.append({"name": name, "version": values[f"pkg.{name}"], "requires": [f"torch=={release}"]})
    if row and "cu" not in torch.partition("+")[2] and "torch.cuda" not in values and "+" not in torch:
        values["torch.cuda"] = row.get("pypi_cuda", "absent")
    if dists:
        values["dist"] = dists
    return given(values, MATRIX.registry, test["complete"])


def after(facts: FactSet, commands: tuple[str, ...]) -> FactSet:
    """The facts when what the commands name is installed, of a range the lowest release."""
    pins = [Fact(f"pkg.{name}", version, "the command", "given") for name, version in PIN.findall(" ".join(commands))]
    assert pins, commands
    return derived(change(facts, pins, MATRIX.registry), MATRIX)


@pytest.mark.parametrize("rule", list(with_constraints()), ids=lambda rule: rule.id)
def test_the_first_fix_is_offered_and_leaves_no_error(rule: Rule) -> None:
    reasons = []
    for test in matching(rule):
        facts = installed(test)
        findings = [finding for finding in judged(facts, MATRIX).findings if finding.id == rule.id]
        if not findings:
            reasons.append("the rule does not apply beside the companions")
            continue
        first = findings[0].fixes[0]
        if first.withheld is not None:
            reasons.append(f"withheld: {first.withheld}")
            continue
        left = errors_of(after(facts, first.commands), MATRIX)[0]
        if not left:
            return
        reasons.append(f"left: {left}")
    pytest.fail("\n".join(reasons))
