"""Which environment is judged when nothing is said, and what the first line of the report says of it."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from dists import install

pytestmark = pytest.mark.skipif(os.name == "nt", reason="builds POSIX virtual environments")


def make(prefix: Path, **packages: str) -> Path:
    """A virtual environment with packages of these versions."""
    venv.create(prefix, with_pip=False, symlinks=True)
    (site,) = prefix.glob("lib/python3*/site-packages")
    for name, version in packages.items():
        (install(site, name, version) / "INSTALLER").write_text("pip\n")
    return prefix


def without_seconds(text: str) -> list[str]:
    """The lines of a report without the time it took."""
    return re.sub(r"in [0-9.]+ s", "in 0 s", text).splitlines()


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment such as `uv tool install envdoctor` makes: it belongs to the tool, not to the user."""
    prefix = make(tmp_path_factory.mktemp("tools") / "envdoctor")
    (prefix / "uv-receipt.toml").write_text('[tool]\nrequirements = [{ name = "envdoctor" }]\n')
    (site,) = prefix.glob("lib/python3*/site-packages")
    here = Path(__file__).resolve().parents[2]
    paths = [str(here), *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "envdoctor.pth").write_text("\n".join(paths) + "\n")
    return prefix


def told(tool: Path, cwd: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """What the tool's envdoctor says, started in ``cwd``."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **environ}
    command = [str(tool / "bin" / "python"), "-m", "envdoctor", *words, "--no-config"]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done


def check(tool: Path, cwd: Path, **environ: str) -> str:
    """The report of the tool's envdoctor, started in ``cwd``."""
    return told(tool, cwd, "check", **environ).stdout


@pytest.mark.parametrize(
    ("place", "version", "environ"),
    [
        ("mine", "2.4.1", {"VIRTUAL_ENV": "{}"}),
        ("conda", "2.4.0", {"CONDA_PREFIX": "{}"}),
        (".venv", "2.6.0", {}),
        ("onpath", "2.7.0", {"PATH": "{}/bin:/usr/bin:/bin"}),
    ],
)
def test_a_tool_environment_looks_at_the_one_in_use(tool, tmp_path, place, version, environ):
    """At the active virtual environment, at Conda's, at the project's ``.venv``, at Python on the PATH."""
    mine = make(tmp_path / "project" / place, torch=version)
    text = check(tool, tmp_path / "project", **{name: text.format(mine) for name, text in environ.items()})
    assert text.startswith(f"Environment  {mine} ") and f"torch {version}" in text
    assert next(iter(environ), ".venv") in text.split("\n\n")[0]


@pytest.mark.parametrize("path", ["{}/bin", ""])
def test_an_error_is_not_answered_for_a_python_without_torch(tool, tmp_path, path):
    """Nor where there is no other Python: the answer is that for no environment, and says so."""
    bare = make(tmp_path / "bare", numpy="2.0.0")
    error = "TypeError: __init__() got an unexpected keyword argument 'evaluation_strategy'"
    asked, path = ("explain", "--error", error), path.format(bare)
    in_general = told(tool, tmp_path, *asked, "--no-environment")
    done = told(tool, tmp_path, *asked, PATH=path)
    assert (done.returncode, done.stdout, in_general.stderr) == (0, in_general.stdout, "")
    assert "answered for no versions in particular (--python PATH or --facts FILE names yours): " in done.stderr
    assert (f"{bare} " in done.stderr and "has no torch" in done.stderr) or not path


@pytest.mark.parametrize(
    "words", [["--recipe", "t.py"], ["--code", "t.py"], ["vllm serve Qwen/Qwen3-4B"], ["--model", "Qwen/Qwen3-4B"]]
)
def test_a_run_is_not_judged_by_an_environment_that_nobody_chose_and_that_has_no_torch(tool, tmp_path, words):
    """It is envdoctor's own, or a bare Python on the PATH: that it lacks packages says nothing of the run."""
    (tmp_path / "t.py").write_text(
        "import torch\nfrom transformers import Trainer, TrainingArguments\n"
        "Trainer(None, TrainingArguments('x', bf16=True, deepspeed={'zero_optimization': {'stage': 2}})).train()\n"
    )
    bare = make(tmp_path / "bare", numpy="2.0.0")
    active, named = {"VIRTUAL_ENV": str(bare)}, ["--python", str(bare)]
    done = told(tool, tmp_path, "check", *words, **active)
    first = f"Not judged: {bare} has neither torch nor transformers: name what runs this by --python or --lock\n"
    assert done.stdout.startswith(first) and "No findings" not in done.stdout and done.returncode == 3
    if words[0] == "--recipe":
        assert " is not installed" in told(tool, tmp_path, "check", *words, *named, **active).stdout, "it was chosen"
        mine = make(tmp_path / "mine", torch="2.4.1")
        assert "transformers not installed" in told(tool, tmp_path, "check", *words, VIRTUAL_ENV=str(mine)).stdout


@pytest.mark.parametrize(
    ("versions", "option", "first", "verdict"),
    [
        ("transformers 4.30.2", "", "Versions are those of the text: transformers 4.30.2", "4.30.2 does not"),
        ("transformers 5.23.0", "", "ImportError: ", "transformers 5.23.0 has it: "),  # the environment knows more
        ("", "", "ImportError: ", "if the error is of another environment, name it with --python PATH or --lock FILE"),
        ("transformers 4.30.2", "--python", "ImportError: ", "transformers 5.23.0 has it: "),
    ],
)
def test_versions_that_a_pasted_issue_tells_are_the_environment(tool, tmp_path, versions, option, first, verdict):
    """Unless an option names one, or the default environment has all of them."""
    mine = str(make(tmp_path / "mine", torch="2.13.0", transformers="5.23.0"))
    issue = f"### System Info\n{versions}\n\nImportError: cannot import name 'Cache' from 'transformers'\n"
    named = (option, mine) if option else ()
    done = told(tool, tmp_path, "explain", "--error", issue, *named, VIRTUAL_ENV=mine)
    assert done.stdout.startswith(first) and verdict in done.stdout and done.stderr == ""
    assert (f"Environment  {mine}" in done.stdout) == first.startswith("ImportError")
    assert "error is from another" not in done.stdout


def test_an_error_that_this_environment_cannot_give_is_answered_by_what_it_proves(tool, tmp_path):
    mine = str(make(tmp_path / "mine", torch="2.13.0", transformers="5.23.0"))
    error = "ImportError: cannot import name 'EncoderDecoderCache' from 'transformers'"
    done = told(tool, tmp_path, "explain", "--error", error, VIRTUAL_ENV=mine)
    assert "use peft 0.13.2" in done.stdout and "0.15.2" not in done.stdout


def test_an_ordinary_environment_judges_itself(run, tmp_path):
    result = run("check", "--no-config", env={"VIRTUAL_ENV": str(make(tmp_path / "other", torch="2.4.1"))})
    assert result.out.splitlines()[0].startswith(f"Environment  {sys.prefix} ")


def test_another_interpreter_is_read_from_outside(run, tmp_path):
    mine = make(tmp_path / "mine", torch="2.4.1", transformers="4.48.3")
    inside = run("check", "--no-config", "--python", str(mine / "bin" / "python"))
    folder = run("check", "--no-config", "--python", str(mine))
    assert inside.out.splitlines()[0].startswith(f"Environment  {mine} ")
    assert "torch 2.4.1" in inside.out and "transformers 4.48.3" in inside.out
    assert without_seconds(folder.out)[1:] == without_seconds(inside.out)[1:]


def test_an_environment_whose_folder_cannot_be_listed_is_not_a_pass(run, tmp_path):
    mine = make(tmp_path / "mine", torch="2.4.1")
    (site,) = mine.glob("lib/python3*/site-packages")
    shutil.rmtree(site)
    site.write_text("a file where the folder should be")
    result = run("check", "--no-config", "--python", str(mine / "bin" / "python"))
    assert result.code == 3
    assert str(mine) in result.err and "Traceback" not in result.err
    assert len(result.err.splitlines()) == 1


def test_one_without_torch_that_nobody_chose_is_no_green_and_a_list_beside_it_is_named(tool, tmp_path):
    """It ended with exit code 0 and "No findings"; whoever named it is answered as before."""
    other = make(tmp_path / "other", click="8.1.7")
    (cwd := tmp_path / "project").mkdir()
    (cwd / "requirements.txt").write_text("torch==2.4.1\n")
    done = told(tool, cwd, "check", VIRTUAL_ENV=str(other))
    assert done.returncode == 3 and "Not judged: torch is not installed there" in done.stdout
    assert done.stdout.startswith("Not judged: requirements.txt, a list that lies here: nobody named the environment")
    named = told(tool, cwd, "check", "--python", str(other))
    assert named.returncode == 0 and "requirements.txt" not in named.stdout
    (cwd / "requirements.txt").rename(cwd / "Pipfile.lock")  # as the next ones: nothing that --lock reads
    (cwd / "setup.py").write_text("from setuptools import setup\nsetup(install_requires=['torch'])\n")
    (cwd / "pyproject.toml").write_text('[project]\nname = "mine"\ndynamic = ["dependencies"]\n')
    assert "lies here" not in told(tool, cwd, "check", VIRTUAL_ENV=str(other)).stdout
