"""A real virtual environment with real wheels, whole and broken: the same answer from inside and outside, never a
traceback."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from pinned import installing, pinned
from rewriting import rewrite
from sharing import once

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="hard-linked copies of a POSIX environment")]

#: What people train with.
WHEELS = ["torch==2.13.0", "transformers>=5,<6", "peft", "accelerate"]
OLD = "transformers==4.46.3"


def call(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    return subprocess.run([*map(str, words)], check=True, capture_output=True, text=True)


def install(prefix: Path, *wanted: str, pins: str = "", python: str = sys.executable) -> dict[str, str]:
    """Install into an environment, which is made for this Python where there is none; the versions that it has then."""
    if not prefix.exists():
        call(python, "-m", "venv", "--without-pip", prefix)
    call(*installing(prefix / "bin" / "python", *pinned(prefix, pins), *wanted))
    return {one.name: one.version for one in distributions(path=[str(site_of(prefix))])}


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory, built: Path) -> tuple[Path, dict[str, str], dict[str, str]]:
    """The environment, with envdoctor installed, and the versions before and after that."""

    def make(folder: Path) -> tuple[Path, dict[str, str], dict[str, str]]:
        prefix = folder / "env"
        return prefix, install(prefix, "pip", *WHEELS), install(prefix, *map(str, built.glob("*.whl")))

    return once(tmp_path_factory, "real", make)


@pytest.fixture
def copy(real: tuple[Path, Any, Any], tmp_path: Path) -> Path:
    """A copy that can be broken. Files are hard links: remove and re-create, never edit."""
    target = tmp_path / "copy"
    call("cp", "-al", str(real[0]), str(target))
    return target


def site_of(prefix: Path) -> Path:
    """Its site-packages."""
    (site,) = prefix.glob("lib/python3*/site-packages")
    return site


def findings(report: dict[str, Any]) -> list[str]:
    """What was found, without what depends on the path of the environment."""
    return sorted(f"{entry['id']} {entry['fingerprint']} {entry['message']}" for entry in report["findings"])


def check(run: Callable[..., Any], prefix: Path, *arguments: str, **options: Any) -> Any:
    """``check`` from outside."""
    about = ("--no-config", "--python", str(prefix / "bin" / "python"), "--format", "json", "-v")
    result = run("check", *about, *arguments, **options)
    assert "Traceback" not in result.err, result.err
    return result


def test_inside_and_outside_find_the_same(run, real):
    prefix = real[0]
    arguments = ["--model", "THUDM/glm-4-9b-chat-hf", "--set", "recipe.batch_size=2", "--set", "recipe.dtype=bf16"]
    inside = subprocess.run(
        [str(prefix / "bin" / "envdoctor"), "check", "--no-config", "--format", "json", "-v", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=prefix,
    )
    outside = check(run, prefix, *arguments, fresh=True)
    within = json.loads(inside.stdout)
    assert findings(within) == findings(outside.json)
    assert within["not_checked"] == outside.json["not_checked"]
    assert inside.returncode == outside.code == 0
    assert within["matrix"]["source"] == "bundled" and outside.json["matrix"]["source"] == "checkout"
    assert outside.json["facts"]["pkg.torch"]["value"].startswith("2.13.0")
    assert within["facts"]["pkg.peft"] == outside.json["facts"]["pkg.peft"]


def test_a_healthy_environment_has_no_findings(run, real):
    report = check(run, real[0]).json
    assert report["exit_code"] == 0
    assert findings(report) == []


def torch_uninstalled(site: Path) -> None:
    for path in site.glob("torch*"):
        if path.name.partition("-")[0] in ("torch", "torchgen"):
            shutil.rmtree(path)


def library_deleted(site: Path) -> None:
    (site / "torch" / "lib" / "libtorch_cpu.so").unlink()


def metadata_cut_in_half(site: Path) -> None:
    (info,) = site.glob("peft-*.dist-info")
    text = (info / "METADATA").read_text()
    rewrite(info / "METADATA", text[: text.index("Version:", text.index("Name:")) + 4].encode())


def two_dist_infos(site: Path) -> None:
    (info,) = site.glob("numpy-*.dist-info")
    left = site / "numpy-1.26.4.dist-info"
    shutil.copytree(info, left)
    text = (left / "METADATA").read_text(encoding="utf-8")
    version = info.name.removeprefix("numpy-").removesuffix(".dist-info")
    rewrite(left / "METADATA", text.replace(f"Version: {version}", "Version: 1.26.4", 1).encode())


def metadata_is_a_folder(site: Path) -> None:
    (info,) = site.glob("accelerate-*.dist-info")
    (info / "METADATA").unlink()
    (info / "METADATA").mkdir()


#: The rule that speaks of a damage, and what is told of it.
TOLD = {
    torch_uninstalled: ("torch-not-installed", ""),
    library_deleted: ("package-files-missing", "libtorch_cpu.so"),
    metadata_cut_in_half: ("", '"name": "peft"'),
    two_dist_infos: ("package-metadata-duplicated", '"name": "numpy"'),
    metadata_is_a_folder: ("", '"name": "accelerate"'),
}


@pytest.mark.parametrize("whole", [False, True], ids=["without torch", "with torch"])
def test_damage_is_a_finding_and_the_rest_is_read(run, copy, whole):
    damages = [damage for damage in TOLD if (damage is not torch_uninstalled) is whole]
    for damage in damages:
        damage(site_of(copy))
    result = check(run, copy)
    found = [(one["id"], json.dumps(one)) for one in result.json["findings"]]
    for damage in damages:
        rule, told = TOLD[damage]
        assert any(rule in (name, "") and told in text for name, text in found), damage.__name__
    assert not whole or result.code == 1
    assert not whole or result.json["facts"]["pkg.torch"]["value"].startswith("2.13.0")


@pytest.mark.skipif(shutil.which("pyenv") is None, reason="needs another Python: pyenv is not installed")
def test_a_python_3_8_environment_is_read_from_outside(run, tmp_path):
    versions = sorted(Path(call("pyenv", "root").stdout.strip()).glob("versions/3.8*"))
    if not versions:
        pytest.skip("pyenv has no Python 3.8")
    install(tmp_path / "old", OLD, pins=OLD, python=str(versions[-1] / "bin" / "python"))
    report = check(run, tmp_path / "old").json
    assert report["facts"]["python.version"]["value"].startswith("3.8.")
    assert report["facts"]["pkg.transformers"]["value"] == "4.46.3"


def test_installing_envdoctor_changes_no_installed_version(real, tmp_path, built):
    _, *versions = real
    old = [install(tmp_path / "env", *wanted, pins=OLD) for wanted in ([OLD], map(str, built.glob("*.whl")))]
    for before, after in (versions, old):
        assert "transformers" in before and "envdoctor" not in before
        assert "envdoctor" in after and before.items() <= after.items()
