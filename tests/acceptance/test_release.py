"""What is released: it builds, its metadata is valid, and it installs and runs in every Python that is here."""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.version import Version
from uv import find_uv_bin

from envdoctor import __version__
from envdoctor.matrix import load_toml

ROOT = Path(__file__).resolve().parents[2]
NAN = ROOT / "fixtures/environments/glm4-batch-nan.json"
PROJECT = load_toml(ROOT / "pyproject.toml")["project"]


def uv(*words: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([find_uv_bin(), *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done


@pytest.mark.slow
def test_it_builds_with_valid_metadata(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with ZipFile(wheel) as file:
        names = file.namelist()
        (path,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(file.read(path), validate=True)
    assert str(metadata.version) == __version__ and metadata.description_content_type == "text/markdown"
    assert not [name for name in names if not name.startswith(("envdoctor/", f"envdoctor-{__version__}.dist-info/"))]
    with tarfile.open(sdist) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    assert {"pyproject.toml", "matrices/facts.toml", "tests/conftest.py", "LICENSE"} <= held


@pytest.mark.slow
def test_it_installs_and_runs_in_every_python_that_is_here(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    listed = json.loads(uv("python", "list", "--only-installed", "--output-format", "json").stdout)
    pythons = {one["version"].rpartition(".")[0]: one["path"] for one in listed if one["implementation"] == "cpython"}
    told = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name}
    tried = {version: path for version, path in pythons.items() if version in told}
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in tried
    for version, path in tried.items():
        home = tmp_path / version
        uv("venv", "--quiet", "--python", path, home)
        uv("pip", "install", "--quiet", "--python", home / "bin" / "python", wheel)
        words = [home / "bin" / "python", "-W", "error", "-m", "envdoctor", "check", "--facts", NAN]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "error[torch-2-5-0-glm4-batch-nan]" in done.stdout, (version, done.stderr)


@pytest.mark.slow
def test_it_runs_from_a_checkout_without_being_installed() -> None:
    done = uv("tool", "run", "--quiet", "--from", ROOT, "envdoctor", "check", "--facts", NAN)
    assert done.returncode == 1 and "error[torch-2-5-0-glm4-batch-nan]" in done.stdout, done.stderr


def test_the_recipe_of_conda_asks_for_what_the_project_asks_for() -> None:
    recipe = yaml.safe_load((ROOT / "examples/conda/recipe.yaml").read_text(encoding="utf-8"))
    asked = [Requirement(text) for text in PROJECT["dependencies"]]
    expected = {f"{one.name.lower()} {one.specifier}" for one in asked} | {f"python {PROJECT['requires-python']}"}
    assert {text.replace("_", "-") for text in recipe["requirements"]["run"]} == expected
    assert recipe["context"]["version"] == __version__ and recipe["about"]["license"] == PROJECT["license"]
    scripts = {f"{name} = {target}" for name, target in PROJECT["scripts"].items()}
    assert set(recipe["build"]["python"]["entry_points"]) == scripts


def test_a_tag_publishes_the_version_that_it_names(tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    (step,) = [one for one in workflow["jobs"]["build"]["steps"] if one.get("name") == "The tag is the version"]
    command = step["run"].replace(".venv/bin/python", sys.executable)
    for tag, code in ((f"v{__version__}", 0), ("v9.9", 1)):
        environ = {"GITHUB_REF_NAME": tag}
        assert subprocess.run(["bash", "-c", command], cwd=ROOT, env=environ, check=False).returncode == code


def test_the_version_is_the_one_of_the_changelog() -> None:
    (heading, *_) = re.findall(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert Version(heading) == Version(__version__)
