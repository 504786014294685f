"""The same packages get the same verdict in facts, a lock, a pasted list and ``--set``."""

import json
from pathlib import Path

import pytest

from envdoctor import check
from envdoctor.app import Sources

TARGET = {"python": "3.11", "platform": "linux-x86_64"}
NAMED = "extension-named-for-another-torch-release"
PAIRS = [
    ({"torch": "2.7.1", "vllm": "0.8.5"}, NAMED, "error"),
    ({"torch": "2.6.0", "xformers": "0.0.28.post3"}, NAMED, "error"),
    ({"torch": "2.6.0", "torchaudio": "2.4.0"}, "torchaudio-of-another-torch-release", "error"),
    (
        {"torch": "2.6.0", "torchaudio": "2.4.0", "transformers": "4.55.0"},
        "torchaudio-of-another-torch-release-beside-older-transformers",
        "warning",
    ),
    ({"torch": "2.6.0+cu124", "flash-attn": "2.7.3+cu12torch2.4cxx11abifalse"}, NAMED, "error"),
    (
        {"torch": "2.5.1+cu124", "flash-attn": "2.6.3+cu118torch2.5cxx11abifalse"},
        "extension-built-for-another-cuda",
        "error",
    ),
    (
        {"torch": "2.4.1", "flash-attn": "2.7.4.post1+cu12torch2.4cxx11abitrue"},
        "extension-named-for-the-new-abi-on-an-old-torch",
        "error",
    ),
    ({"torch": "2.6.0", "torchvision": "0.20.1"}, "torchvision-of-another-torch-release", "error"),
    ({"torch": "2.5.0", "xformers": "0.0.28.post3"}, "requirement-conflict", "warning"),  # a patch release works
    ({"numba": "0.60.0", "numpy": "2.3.0"}, "requirement-conflict", "warning"),
]


def sources(kind: str, packages: dict[str, str], folder: Path) -> Sources:
    file = folder / {"facts": "facts.json", "lock": "requirements.txt", "report": "list.txt"}.get(kind, "none")
    given = [f"pkg.{name}={version}" for name, version in packages.items()]
    if kind == "facts":
        file.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": dict(one.split("=", 1) for one in given)}))
    elif kind == "lock":
        file.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()))
    elif kind == "report":
        rows = "".join(f"{name:20}{version}\n" for name, version in packages.items())
        file.write_text(f"{'Package':20}Version\n{'-' * 19} -------\n{rows}")
    else:
        file.write_text('{"schema": "envdoctor.facts/1", "facts": {}}')
        return Sources(facts=str(file), target=TARGET, assignments=given, gpu=False)
    return Sources(**{kind: str(file)}, target=TARGET, gpu=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "packages", "rule", "severity"),
    [
        *((kind, *pair) for kind in ("facts", "lock") for pair in PAIRS),
        *((kind, *pair) for kind in ("report", "set") for pair in PAIRS[3:9:2]),
    ],
)
def test_what_was_built_or_made_for_another_release(matrix, tmp_path, kind, packages, rule, severity):
    report = check(sources(kind, packages, tmp_path), matrix=matrix)
    told = {one.id: one.severity for one in report.findings}
    if kind == "lock" and rule == "requirement-conflict":  # an installer refuses the list
        rule, severity = "list-contradicts-itself", "error"
    assert told.get(rule) == severity, told


@pytest.mark.parametrize("kind", ["facts", "report"])
@pytest.mark.parametrize(
    "packages",
    [
        {"torch": "2.8.0a0+5228986c39.nv25.6", "torchvision": "0.22.0a0+95f10a4e"},  # a container's own pair
        {"torch": "2.8.0", "vllm": "0.8.5+gabcdef1.d20250801.cu128"},  # built from its source
        {"torch": "2.8.0", "xformers": "0.0.29+1234abc.d20250501"},
        {"torch": "2.4.0+vendor2.29.0.6", "torchvision": "0.15.1+vendor2.29"},
    ],
)
def test_what_somebody_else_built_is_not_accused(matrix, tmp_path, kind, packages):
    report = check(sources(kind, packages, tmp_path), matrix=matrix)
    assert [one.id for one in report.findings if one.severity == "error"] == []
