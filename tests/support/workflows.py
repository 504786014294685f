"""Runs the steps of a GitHub workflow and of a composite action on this machine, those of others left out."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class Ran(NamedTuple):
    """What a step printed, its exit code, and its outputs."""

    out: str
    code: int
    outputs: Mapping[str, str]


def run_steps(steps: list[dict[str, Any]], context: Mapping[str, str], root: Path, temp: Path) -> dict[str, Ran]:
    """The steps in order, up to the first that fails, by their id or name; ``context`` says what expressions are.

    ``uses: ./`` runs the action of ``root``; the outputs of its steps are those of the step.
    """
    known = dict(context)
    ran: dict[str, Ran] = {}
    for number, step in enumerate(steps):
        name = step.get("id") or step.get("name") or str(number)
        if step.get("uses") == "./":
            ran[name] = _action(step.get("with", {}), known, root, temp)
        elif "run" in step:
            assert "${{" not in step["run"], "an expression in a script is an injection"
            ran[name] = _script(step, known, root, temp)
        else:
            continue
        known.update({f"steps.{name}.outputs.{key}": value for key, value in ran[name].outputs.items()})
        if ran[name].code and not step.get("continue-on-error"):
            break
    return ran


def _action(given: Mapping[str, str], known: Mapping[str, str], root: Path, temp: Path) -> Ran:
    action = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    assert set(given) <= set(action["inputs"])
    inputs = {f"inputs.{name}": given.get(name, spec.get("default", "")) for name, spec in action["inputs"].items()}
    context = {**known, **inputs, "github.action_path": str(root)}
    ran = run_steps(action["runs"]["steps"], context, root, temp)
    inner = {f"steps.{name}.outputs.{key}": value for name, one in ran.items() for key, value in one.outputs.items()}
    outputs = {name: _filled(spec["value"], {**context, **inner}) for name, spec in action["outputs"].items()}
    return Ran("".join(one.out for one in ran.values()), [one.code for one in ran.values()][-1], outputs)


def _script(step: Mapping[str, Any], known: Mapping[str, str], root: Path, temp: Path) -> Ran:
    output, summary = temp / "output", temp / "summary.md"
    output.write_text("")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ENVDOCTOR_")}
    environ |= {"RUNNER_TEMP": str(temp), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    environ |= {name: _filled(value, known) for name, value in step.get("env", {}).items()}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (line.partition("=") for line in output.read_text(encoding="utf-8").splitlines())
    return Ran(done.stdout + done.stderr, done.returncode, {name: value for name, _, value in lines})


def _filled(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: known[found[1]], text)
