"""The README shows what the program prints, and its two commands are the ones that CI and newcomers run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from pinned import pinned

from envdoctor.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LANGUAGES = {"en": README, "zh": (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")}


COMMANDS = dict(re.findall(r"<!-- (check|test) command -->\n```sh\n(.*?)\n```\n<!-- end -->", README, re.DOTALL))


def findings_of(text: str) -> str:
    """The text without its last lines: they count rules and seconds, and a new rule must not touch the README."""
    return text[: re.search(r"\n1 (error\.|个错误。)", text).start()]


@pytest.fixture
def printed(run):
    """What a marked example of a README prints when it is run, and what that README shows of it."""

    def start(mark, lang):
        pattern = rf"<!-- {mark} -->\n```console\n\$ envdoctor (.*?)\n(.*?)```"
        ((command, shown),) = re.findall(pattern, LANGUAGES[lang], re.DOTALL)
        return run(*command.split(), "--no-config", "--lang", lang, cwd=ROOT, env={"COLUMNS": "80"}), shown

    return start


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_example_is_what_the_program_prints(printed, lang):
    result, shown = printed("example", lang)
    assert result.code == 1
    assert findings_of(result.out) == findings_of(shown)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_example_of_a_lock_is_what_the_program_prints(printed, lang):
    result, shown = printed("lock example", lang)
    assert result.code == 1 and all(part.strip("\n") in result.out for part in shown.split("…"))


def test_the_two_commands_stand_in_the_readme_and_ci_calls_the_second():
    assert list(COMMANDS) == ["check", "test"]
    assert "tools/verify.py" in COMMANDS["test"]
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_file_the_readme_links_to_exists():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def calls() -> list[str]:
    """What follows the name of the program in every command of the README."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    found = re.findall(r"(?m)\benvdoctor ([a-z][^\n#|`]*)", "\n".join(blocks))
    return found + re.findall(r"`envdoctor ([a-z][^`]*?)[`;>]", README)


@pytest.mark.parametrize("call", sorted({" ".join(call.split()) for call in calls()}))
def test_every_command_of_the_readme_is_one(call):
    name, *arguments = (word.strip("[]") for word in shlex.split(call))  # [OPTIONAL]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, call
    if isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.get_command(click.Context(command), name)
        assert command is not None, call
    if "..." in arguments:
        arguments = [*arguments[: arguments.index("...")], "x"]
    command.make_context(name, arguments)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the command is one of a shell")
def test_what_a_newcomer_types_first_works(tmp_path):
    """In a copy of the checkout, with no environment but the one that it makes."""
    left_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, tmp_path / "envdoctor", ignore=left_out)
    first, second = COMMANDS["check"].splitlines()
    environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    pins = "".join(pinned(tmp_path)[1:])  # pip 25.3 and later hold builds to constraints of their own
    environ |= {"PIP_CONSTRAINT": pins, "PIP_BUILD_CONSTRAINT": pins} if pins else {}
    options = {"cwd": tmp_path / "envdoctor", "env": environ, "capture_output": True, "text": True}
    done = subprocess.run(["sh", "-c", first], check=False, **options)
    assert done.returncode == 1, done.stderr
    assert "error[torch-2-5-0-glm4-batch-nan]" in done.stdout
    own = subprocess.run(["sh", "-c", second], check=False, **options)
    assert own.returncode in (0, 1, 3), own.stderr
    assert own.returncode != 3 or own.stdout.startswith("Not judged: ")
