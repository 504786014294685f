"""What need not run: experiments on released code, where CI saw this combination and nobody touched its files."""

import hashlib
import os
import venv
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dists import install
from fakes import payload
from observing import shipped

from envdoctor.app import Sources, collect_facts
from envdoctor.experiments import find_probes
from envdoctor.experiments.probe.recording import NAMES, PACKAGES, ReleasedResults, digest_of, released

VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0", "accelerate": "1.15.0", "peft": "0.21.2"}
CLEAN = {"lora": 15, "eval-mode": 5}


def put(site: Path, name: str, version: str) -> Path:
    """A package as pip installs it, with the digest of its file."""
    code = b"answer = 42\n"
    info = install(site, name, version, files={f"{name}/__init__.py": code})
    (info / "INSTALLER").write_text("pip\n")
    digest = urlsafe_b64encode(hashlib.sha256(code).digest()).decode().rstrip("=")
    lines = [f"{name}/__init__.py,sha256={digest},{len(code)}", f"{info.name}/INSTALLER,,", f"{info.name}/RECORD,,"]
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    return info


@pytest.fixture
def known(tmp_path: Path) -> Callable[..., ReleasedResults]:
    """What is known of an environment with these packages, once this was done to its folder of packages."""
    home = payload(tmp_path, lora="pass")

    def ask(do: Callable[[Path], Any] = lambda site: None, row: dict[str, Any] | None = None) -> ReleasedResults:
        target = tmp_path / "target"
        venv.create(target, with_pip=False)
        (site,) = target.glob("lib/python*/site-packages")
        for name, version in VERSIONS.items():
            put(site, name, f"{version}+cpu" if name == "torch" else version)
        do(site)
        seen = {"versions": VERSIONS, "experiments": digest_of(home), "clean": CLEAN, **(row or {})}
        rows = {"released-experiments": [seen], "installers": shipped().rows("installers", "installer")}
        gathered = collect_facts(Sources(python=str(target), cache=False, cwd=tmp_path), shipped())
        return released(gathered.facts, lambda name, part: rows[name], gathered.layout, home)

    return ask


def test_what_ci_saw_of_the_same_files_is_known(known: Callable[..., ReleasedResults]) -> None:
    named = "torch 2.13.0, transformers 5.23.0, accelerate 1.15.0, peft 0.21.2"
    assert known() == ReleasedResults(CLEAN, named, None)


def write(name: str, text: str = "import os\n") -> Callable[[Path], Any]:
    return lambda site: (site / name).write_text(text)


def with_its_module(site: Path) -> None:
    """As virtualenv has it; without the module Python leaves the line out."""
    write("_virtualenv.py")(site)
    write("_virtualenv.pth", "import _virtualenv")(site)


def without_digests(site: Path) -> None:
    (record,) = site.glob("peft-*/RECORD")
    record.write_text(record.read_text().replace("sha256=", "").replace(",", ",,", 1))


@pytest.mark.parametrize(
    ("do", "why"),
    [
        (write("peft/__init__.py", "answer = 43\n"), "files of peft are not those that were installed"),
        (lambda site: os.remove(site / "transformers/__init__.py"), "files of transformers are not those"),
        (without_digests, "the files of peft cannot be compared with a list of its release"),
        (lambda site: next(site.glob("peft-*/RECORD")).unlink(), "the files of peft cannot be compared"),
        (write("accelerate-1.15.0.dist-info/INSTALLER", "conda\n"), "the files of accelerate cannot be compared"),
        (write("patch.pth"), "patch.pth runs code when Python starts"),
        (write("sitecustomize.py"), "sitecustomize.py runs code when Python starts"),
        (with_its_module, "_virtualenv.pth runs code when Python starts"),
        (lambda site: put(site, "liger_kernel", "0.6.0"), "liger-kernel is installed, which replaces code"),
    ],
)
def test_code_that_may_be_another_is_run(
    known: Callable[..., ReleasedResults], do: Callable[[Path], Any], why: str
) -> None:
    result = known(do)
    assert not result.clean
    assert result.why is not None and why in result.why


@pytest.mark.parametrize(
    "row", [{"versions": {**VERSIONS, "peft": "0.21.1"}}, {"experiments": "0" * 16}, {"versions": {"torch": "2.13.0"}}]
)
def test_nothing_is_known_of_other_versions_and_other_experiments(
    known: Callable[..., ReleasedResults], row: dict[str, Any]
) -> None:
    result = known(row=row)
    assert (result.clean, result.why) == (
        {},
        "no results are shipped for torch 2.13.0, transformers 5.23.0, accelerate 1.15.0, peft 0.21.2",
    )


def test_what_tools_of_packaging_write_is_no_patch(known: Callable[..., ReleasedResults]) -> None:
    def do(site: Path) -> None:
        write("_virtualenv.pth", "import _virtualenv")(site)
        write("_virtualenv.py", '"""Patches that are applied at runtime to the virtual environment."""\n')(site)

    assert known(do).clean == CLEAN


def test_the_table_speaks_of_experiments_that_there_are_and_of_their_packages() -> None:
    probes = find_probes()
    assert set(NAMES) <= set(probes)
    rows = shipped().rows("released-experiments", "combination")
    assert rows
    for row in rows:
        assert set(row["versions"]) == set(PACKAGES)
        assert set(row["clean"]) | set(row["findings"]) <= set(NAMES)
        assert not set(row["clean"]) & set(row["findings"])
