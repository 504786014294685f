"""The README shows what the program prints, and its two commands are the ones that CI and newcomers run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def findings_of(text: str) -> str:
    """The text without its last lines: they count rules and seconds, and a new rule must not touch the README."""
    return text[: text.index("\n1 error.")]


def test_the_example_is_what_the_program_prints(run):
    (example,) = re.findall(r"```console\n\$ envdoctor (check --facts \S+)\n(.*?)```", README, re.DOTALL)
    command, shown = example
    result = run(*command.split(), "--no-config", cwd=ROOT, env={"COLUMNS": "80"})
    assert result.code == 1
    assert findings_of(result.out) == findings_of(shown)


def test_the_two_commands_stand_in_the_readme_and_ci_calls_the_second():
    commands = re.findall(r"<!-- (check|test) command -->\n```sh\n(.*?)\n```\n<!-- end -->", README)
    assert [name for name, _ in commands] == ["check", "test"]
    assert "tools/verify.py" in commands[1][1]
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_file_the_readme_links_to_exists():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
