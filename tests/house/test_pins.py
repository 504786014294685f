"""What the tests ask for is pinned, with hashes: a dependency that is new here needs new pins."""

import re
from pathlib import Path

import tomli
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def test_each_requirement_of_the_tests_has_a_pin_that_meets_it():
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    torch = (ROOT / "tests" / "torch-requirements.txt").read_text(encoding="utf-8")
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    extras = project["project"]["optional-dependencies"]
    asked += [*extras["test"], *extras["lint"], *re.findall(r"(?m)^[a-z].*$", torch)]
    folder = ROOT / "tests" / "requirements"
    pins = re.findall(r"(?m)^([a-z0-9-]+)==([^ ]+).*\\\n +--hash=sha256:", (folder / "tests.txt").read_text())
    pins += re.findall(r"(?m)^(torch)==(\S+)$", (folder / "torch.txt").read_text())
    for requirement in map(Requirement, asked):
        if requirement.name == "envdoctor":
            continue
        found = [version for name, version in pins if name == requirement.name.lower()]
        assert any(requirement.specifier.contains(one) for one in found), f"{requirement}: python tools/pin.py"
