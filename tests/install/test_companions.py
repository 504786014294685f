"""torchvision and torchaudio of another release or build than torch: the command that brings the right one."""

import pytest
from known import given, judged
from observing import shipped

INDEX = "--extra-index-url https://download.pytorch.org/whl/"


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        (
            {"pkg.torch": "2.13.0+cu126", "pkg.torchvision": "0.27.1"},
            f"python -m pip install torchvision==0.28.0+cu126 {INDEX}cu126",
        ),
        (
            {"pkg.torch": "2.13.0+cpu", "pkg.torchvision": "0.28.0+cu130"},
            f"python -m pip install torchvision==0.28.0+cpu {INDEX}cpu",
        ),
        (
            {"pkg.torch": "2.8.0", "torch.cuda": "12.8", "torch.hip": None, "pkg.torchvision": "0.22.1"},
            "python -m pip install torchvision==0.23.0",
        ),
    ],
    ids=["another release", "another build of the same release", "the build that the package index gives"],
)
def test_the_companion_that_belongs_to_torch_is_installed(facts, command):
    judgement = judged(given(facts, shipped().registry, ["pkg"]), shipped())
    commands = [fix.commands for finding in judgement.findings for fix in finding.fixes if finding.item]
    assert (command,) in commands


def test_a_build_that_was_never_released_is_not_offered():
    facts = {"pkg.torch": "2.15.0+cu132", "pkg.torchaudio": "2.11.0+cu130", "pkg.transformers": "5.23.0"}
    judgement = judged(given(facts, shipped().registry, ["pkg"]), shipped())
    finding = next(one for one in judgement.findings if one.item.get("package") == "torchaudio")
    build, uninstall = finding.fixes
    assert build.withheld == "torchaudio 2.11.0 has no build cu132"
    assert uninstall.commands == ("python -m pip uninstall -y torchaudio",)
