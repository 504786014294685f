"""A real virtual environment with real wheels, whole and broken: the same answer from inside and outside, never a
traceback."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pinned import pinned
from rewriting import rewrite
from sharing import once

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="hard-linked copies of a POSIX environment")]

ROOT = Path(__file__).resolve().parents[2]
#: What people train with.
WHEELS = ["torch==2.13.0", "transformers>=5,<6", "peft", "accelerate"]


def call(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    return subprocess.run(list(words), check=True, capture_output=True, text=True, **options)


def new(prefix: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Make an environment at ``prefix``; gives the tests' own pip, for it."""
    call(sys.executable, "-m", "venv", "--without-pip", str(prefix))
    return partial(call, sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The wheel of this checkout."""

    def make(folder: Path) -> str:
        options = ("-q", "--no-deps", "--no-build-isolation", "-w", str(folder))
        call(sys.executable, "-m", "pip", "wheel", *options, str(ROOT))
        (built,) = folder.glob("envdoctor-*.whl")
        return str(built)

    return once(tmp_path_factory, "wheel", make)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory, wheel: str) -> Path:
    """The environment, with envdoctor installed."""

    def make(folder: Path) -> Path:
        new(folder / "env")("install", *pinned(folder), "pip", *WHEELS, wheel)
        return folder / "env"

    return once(tmp_path_factory, "real", make)


@pytest.fixture
def copy(real: Path, tmp_path: Path) -> Path:
    """A copy that can be broken. Files are hard links: remove and re-create, never edit."""
    target = tmp_path / "copy"
    call("cp", "-al", str(real), str(target))
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
    arguments = ["--model", "THUDM/glm-4-9b-chat-hf", "--set", "recipe.batch_size=2", "--set", "recipe.dtype=bf16"]
    inside = subprocess.run(
        [str(real / "bin" / "envdoctor"), "check", "--no-config", "--format", "json", "-v", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=real,
    )
    outside = check(run, real, *arguments, fresh=True)
    within = json.loads(inside.stdout)
    assert findings(within) == findings(outside.json)
    assert within["not_checked"] == outside.json["not_checked"]
    assert inside.returncode == outside.code == 0
    assert within["matrix"]["source"] == "bundled" and outside.json["matrix"]["source"] == "checkout"
    assert outside.json["facts"]["pkg.torch"]["value"].startswith("2.13.0")
    assert within["facts"]["pkg.peft"] == outside.json["facts"]["pkg.peft"]


def test_a_healthy_environment_has_no_findings(run, real):
    report = check(run, real).json
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


@pytest.mark.parametrize(
    ("damage", "rule", "told"),
    [
        (torch_uninstalled, "torch-not-installed", ""),
        (library_deleted, "package-files-missing", "libtorch_cpu.so"),
        (metadata_cut_in_half, "", '"name": "peft"'),
        (two_dist_infos, "package-metadata-duplicated", '"name": "numpy"'),
        (metadata_is_a_folder, "", '"name": "accelerate"'),
    ],
)
def test_damage_is_a_finding_and_the_rest_is_read(run, copy, damage, rule, told):
    damage(site_of(copy))
    result = check(run, copy)
    assert any(rule in (one["id"], "") and told in json.dumps(one) for one in result.json["findings"])
    assert result.code == 1 or damage is not library_deleted
    assert damage is torch_uninstalled or result.json["facts"]["pkg.torch"]["value"].startswith("2.13.0")


@pytest.mark.skipif(shutil.which("pyenv") is None, reason="needs another Python: pyenv is not installed")
def test_a_python_3_8_environment_is_read_from_outside(run, tmp_path):
    versions = sorted(Path(call("pyenv", "root").stdout.strip()).glob("versions/3.8*"))
    if not versions:
        pytest.skip("pyenv has no Python 3.8")
    prefix = tmp_path / "old"
    call(str(versions[-1] / "bin" / "python"), "-m", "venv", str(prefix))
    pins = pinned(tmp_path, "transformers==4.46.3")
    call(str(prefix / "bin" / "python"), "-m", "pip", "install", "-q", *pins, "transformers==4.46.3")
    report = check(run, prefix).json
    assert report["facts"]["python.version"]["value"].startswith("3.8.")
    assert report["facts"]["pkg.transformers"]["value"] == "4.46.3"


@pytest.mark.parametrize("pins", ["transformers==4.46.3", ""])
def test_installing_envdoctor_changes_no_installed_version(tmp_path, wheel, pins):
    pip = new(tmp_path / "env")
    limits = pinned(tmp_path, pins)
    pip("install", *limits, pins or "transformers")
    before = json.loads(pip("list", "--format", "json").stdout)
    pip("install", *limits, "--dry-run", "--report", str(tmp_path / "plan.json"), wheel)
    plan = json.loads((tmp_path / "plan.json").read_text())
    added = {entry["metadata"]["name"].lower().replace("_", "-") for entry in plan["install"]}
    assert "envdoctor" in added
    assert not added & {entry["name"].lower().replace("_", "-") for entry in before}
