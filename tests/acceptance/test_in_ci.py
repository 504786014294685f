"""What a pipeline is given: the action, GitLab's component, the hook, completion, and the examples of each."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from jsonschema import Draft7Validator
from workflows import run_steps

from envdoctor.cli.group import cli

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
EXAMPLE = yaml.safe_load((ROOT / "examples/ci/github-workflow.yml").read_text(encoding="utf-8"))


def parsed(words: list[str]) -> None:
    """Let click take the words of a command; it raises for one that it does not know."""
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


def test_the_action_fits_its_schema_and_takes_its_inputs_as_variables() -> None:
    schema = json.loads((ROOT / "tests/schemas/github-action.json").read_text(encoding="utf-8"))
    Draft7Validator(schema).validate(ACTION)
    *_, check = ACTION["runs"]["steps"]
    passed = set(re.findall(r"inputs\.([a-z-]+)", " ".join(check["env"].values())))
    assert passed == set(ACTION["inputs"]) and "${{" not in check["run"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A runner's folder with this envdoctor where the action installs one."""
    program = tmp_path / "envdoctor" / "bin" / "envdoctor"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m envdoctor "$@"\n')
    program.chmod(0o755)
    return tmp_path


@pytest.mark.slow
def test_the_steps_of_the_example_workflow(installed: Path) -> None:
    root = installed / "checkout"
    root.mkdir()
    for name in ("action.yml", "fixtures/environments/glm4-batch-nan.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    steps: list[dict[str, Any]] = EXAMPLE["jobs"]["envdoctor"]["steps"]
    action = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    action["runs"]["steps"].pop(0)  # envdoctor is there already
    (root / "action.yml").write_text(yaml.safe_dump(action), encoding="utf-8")
    ran = run_steps(steps, {}, root, installed)
    assert ran["envdoctor"].code == 1, ran
    assert re.search(r"(?m)^::error title=torch-2-5-0-glm4-batch-nan::torch 2\.5\.0", ran["envdoctor"].out)
    assert "exit code 1\ntorch-2-5-0-glm4-batch-nan" in ran["What the step found"].out
    assert (installed / "summary.md").read_text(encoding="utf-8").startswith("## envdoctor check")
    assert (root / "envdoctor.sarif").is_file() and (root / "envdoctor.html").is_file()


@pytest.mark.slow
def test_the_action_judges_a_lock_for_the_machine_that_is_meant(installed: Path) -> None:
    workflow = yaml.safe_load((ROOT / "examples/ci/lock-workflow.yml").read_text(encoding="utf-8"))
    root = installed / "checkout"
    lock = "fixtures/locks/open-instruct.uv.lock"
    (root / lock).parent.mkdir(parents=True)
    shutil.copy(ROOT / lock, root / lock)
    action = {**ACTION, "runs": {**ACTION["runs"], "steps": ACTION["runs"]["steps"][1:]}}
    (root / "action.yml").write_text(yaml.safe_dump(action), encoding="utf-8")
    ran = run_steps(workflow["jobs"]["envdoctor"]["steps"], {}, root, installed)["envdoctor"]
    report = json.loads(Path(ran.outputs["report"]).read_text(encoding="utf-8"))
    assert ran.code == report["exit_code"] != 2 and report["target"]["kind"] == "lock"
    assert (root / "envdoctor-junit.xml").is_file()


def test_the_workflow_for_a_card_calls_what_there_is() -> None:
    workflow = yaml.safe_load((ROOT / "examples/ci/gpu-workflow.yml").read_text(encoding="utf-8"))
    *_, check, probe = workflow["jobs"]["envdoctor"]["steps"]
    assert set(check["with"]) <= set(ACTION["inputs"])
    parsed(shlex.split(probe["run"])[1:])


def test_the_component_of_gitlab_runs_a_command_that_there_is() -> None:
    head, job = yaml.safe_load_all((ROOT / "templates/check.yml").read_text(encoding="utf-8"))
    example = yaml.safe_load((ROOT / "examples/ci/gitlab-ci.yml").read_text(encoding="utf-8"))["include"][0]
    assert set(example["inputs"]) <= set(head["spec"]["inputs"]) and (ROOT / example["local"]).is_file()
    job = job["envdoctor"]
    assert not re.search(r"\$\[\[", " ".join(job["script"]))
    words = job["script"][1].replace('"$(command -v "$IN_PYTHON")"', "python3")
    parsed(shlex.split(words.replace("$IN_ARGUMENTS", example["inputs"]["arguments"]))[1:])
    written = set(re.findall(r"--output \w+=(\S+)", words))
    assert set(job["artifacts"]["reports"].values()) | set(job["artifacts"]["paths"]) == written


def test_the_hook_runs_a_command_that_there_is() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    example = yaml.safe_load((ROOT / "examples/ci/pre-commit-config.yaml").read_text(encoding="utf-8"))
    used = example["repos"][0]["hooks"]
    assert [one["id"] for one in used] == [hook["id"] for hook in hooks]
    for hook, here in zip(hooks, used, strict=True):
        assert hook["language"] == "python" and hook["pass_filenames"] is False
        for arguments in (hook.get("args", []), here["args"]):
            parsed([*shlex.split(hook["entry"]), *arguments][1:])


def test_the_images_are_built_and_stopped_by_commands_that_there_are(tmp_path: Path, script: Path) -> None:
    """The last step of the example runs; a pip that installs nothing stands in for the one that asks PyPI."""
    *_, step = (ROOT / "examples/ci/Dockerfile").read_text(encoding="utf-8").splitlines()
    (tmp_path / "train.yaml").write_text("model_name_or_path: zai-org/glm-4-9b-chat-hf\n")
    home = tmp_path / "home"
    line = step.removeprefix("RUN ").replace("/tmp/envdoctor", shlex.quote(str(home)))
    (tmp_path / "python3").write_text(
        f'#!/bin/sh\n[ "$2" = venv ] || exec {sys.executable} "$@"\nmkdir -p "$3/bin" && cd "$3/bin" && echo : > pip\n'
        f'printf \'#!/bin/sh\\nexec "{sys.executable}" {script} "$@"\\n\' > envdoctor && chmod +x pip envdoctor\n'
    )
    (tmp_path / "python3").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for more, code in ((" --exit-zero", 0), (" --require model.path", 3)):
        words = line.replace("--recipe", f"--no-config{more} --python {sys.executable} --recipe", 1)
        words = words.replace('--python "$(command -v python3)" ', "", 1)
        environ = {**os.environ, "PATH": path}
        done = subprocess.run(["sh", "-c", words], cwd=tmp_path, env=environ, capture_output=True, check=False)
        assert (done.returncode, home.exists()) == (code, code != 0), (done.stdout, done.stderr)
        shutil.rmtree(home, ignore_errors=True)
    lines = (ROOT / "examples/container/Dockerfile").read_text(encoding="utf-8").splitlines()
    used = [shlex.split(line.partition(" envdoctor check")[2]) for line in lines if "docker run" in line]
    assert len(used) == 2
    for words in used:
        parsed(["check", *words])


@pytest.mark.parametrize(
    ("words", "offered"), [("envdoctor di", "diff-revision"), ("envdoctor check --base", "--baseline")]
)
def test_a_shell_completes_commands_and_options(run: Any, words: str, offered: str) -> None:
    count = str(len(words.split()) - 1)
    asked = {"_ENVDOCTOR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    assert f"plain,{offered}" in run(env=asked).out


def test_the_upkeep_of_the_matrix_and_the_guide_call_what_is_there():
    upkeep = yaml.safe_load((ROOT / "examples/ci/matrix-upkeep.yml").read_text(encoding="utf-8"))
    told = "\n".join(step.get("run", "") for step in upkeep["jobs"]["upkeep"]["steps"])
    tools = re.findall(r"python (tools/\w+\.py)", told)
    assert len(tools) == 4 and all((ROOT / tool).is_file() for tool in tools)
    site = yaml.safe_load((ROOT / "examples/ci/guide.yml").read_text(encoding="utf-8"))
    assert [step["run"] for step in site["jobs"]["publish"]["steps"] if "tools/" in step.get("run", "")] == [
        "python tools/guide.py site"
    ]
    assert "envdoctor matrix lint --stale 180" in told


def test_what_is_tried_on_every_system_ends_as_it_says(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "envdoctor").write_text(f'#!/bin/sh\nexec {sys.executable} -m envdoctor "$@"\n')
    (tmp_path / "envdoctor").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    job = yaml.safe_load((ROOT / ".github/workflows/platforms.yml").read_text(encoding="utf-8"))["jobs"]["platforms"]
    assert {system.partition("-")[0] for system in job["strategy"]["matrix"]["os"]} == {"ubuntu", "macos", "windows"}
    steps = [step for step in job["steps"] if "name" in step]
    ran = run_steps(steps, {}, tmp_path, tmp_path)
    assert [one.code for one in ran.values()] == [0, 0, 0], ran


def test_the_upkeep_opens_what_changed_new_files_too_and_what_is_stale(tmp_path: Path, monkeypatch: Any) -> None:
    """Its last steps run with real repositories; scripts that note their words stand in for gh and envdoctor."""
    for name, script in {
        "gh": 'echo "$@" >> "$GH_SAID"; while [ "$1" != --body-file ]; do shift; done; cat "$2" >> "$GH_SAID"',
        "envdoctor": 'echo "told: $*"; case "$*" in *--stale*) exit 1 ;; esac',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GH_SAID", str(tmp_path / "said"))
    monkeypatch.setenv("GITHUB_RUN_ID", "7")
    root = tmp_path / "checkout"
    (root / "matrices").mkdir(parents=True)
    (root / "matrices" / "old.toml").write_text("a = 1\n")

    def git(*words: str) -> str:
        identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        return subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "before")
    subprocess.run(["git", "clone", "-q", "--bare", root, tmp_path / "origin"], check=True)
    git("remote", "add", "origin", str(tmp_path / "origin"))
    upkeep = yaml.safe_load((ROOT / "examples/ci/matrix-upkeep.yml").read_text(encoding="utf-8"))
    steps = [step for step in upkeep["jobs"]["upkeep"]["steps"] if "name" in step]
    ran = run_steps(steps, {}, root, tmp_path)
    assert [one.code for one in ran.values()] == [0, 0], ran
    said = (tmp_path / "said").read_text()
    assert "pr create" not in said and "issue create --title Evidence to be read again" in said
    (root / "matrices" / "new.toml").write_text("b = 2\n")
    assert [one.code for one in run_steps(steps[:1], {}, root, tmp_path).values()] == [0]
    said = (tmp_path / "said").read_text()
    assert "pr create" in said and "matrices/new.toml" in said and "told: matrix lint" in said
    assert git("ls-remote", "--heads", "origin", "upkeep-7") != ""


def test_a_project_names_its_lock_its_baseline_and_its_machine(run: Any, tmp_path: Path) -> None:
    """Told where it would be typed: `envdoctor check` alone judges what the file says, and what is typed wins."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "requirements.txt").write_text("torch==2.5.0\ntransformers==4.48.3\n")
    settings = 'lock = "locks/requirements.txt"\nbaseline = "known.json"\ntarget-gpu = ["H100", "A100"]\n'
    said = 'target-python = "3.11"\nmodel = "THUDM/glm-4-9b-chat-hf"\nset = { "recipe.batch_size" = 2 }\n'
    (tmp_path / "envdoctor.toml").write_text(settings + said)
    missing = run("check")
    assert missing.code == 2 and "known.json" in missing.err
    written = run("check", "--write-baseline", "known.json")
    assert written.code == 0 and "accepted" in written.err
    report = run("check", "--format", "json").json
    assert report["exit_code"] == 0 and report["target"]["path"] == "locks/requirements.txt"
    known = {finding["id"]: finding["baseline"] for finding in report["findings"]}
    assert known["torch-2-5-0-glm4-batch-nan"] == "unchanged"
    other = run("check", "--facts", str(ROOT / "fixtures/environments/glm4-batch-nan.json"), "--format", "json")
    assert other.json["target"]["kind"] == "facts"
    (tmp_path / "envdoctor.toml").write_text('python = "./python"\n')
    refused = run("check")
    assert refused.code == 2 and "python" in refused.err
