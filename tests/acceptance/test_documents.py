"""The READMEs and the chapters in docs/ show what the program prints and say the same in both languages."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from pinned import pinned
from update_examples import EXAMPLE, ROOT, documents, fits, pair_of, replay

from envdoctor.cli.group import cli
from envdoctor.report import FORMATS

LANGUAGES = documents()
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in LANGUAGES}
ENGLISH = [name for name, lang in LANGUAGES.items() if lang == "en"]
COMMANDS = dict(
    re.findall(r"<!-- (check|test) command -->\n```sh\n(.*?)\n```\n<!-- end -->", TEXTS["README.md"], re.DOTALL)
)
BLOCK = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")


def links(text: str) -> list[tuple[str, str]]:
    """Every link into the checkout: the path and the heading."""
    return re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text)


def code(text: str) -> list[tuple[str, str]]:
    """Each block with its language, without comments; of a console only what is typed."""
    found = []
    for language, block in BLOCK.findall(text):
        lines = "\n".join(re.findall(r"(?m)^\$ ((?:.*\\\n)*.*)", block)) if language == "console" else block
        found.append((language, re.sub(r"(?m)(^|\s)#.*$", "", lines.replace("\\\n", ""))))
    return found


def shape(text: str) -> dict[str, object]:
    """What a translation has in common with its original."""
    prose = BLOCK.sub("", text)
    return {
        "headings": re.findall(r"(?m)^(#+) ", prose),
        "rows": len(re.findall(r"(?m)^\|", prose)),
        "examples": len(EXAMPLE.findall(text)),
        "code": [(language, language == "text" or block.split()) for language, block in code(text)],
        "links": [re.sub(r"\.\./|zh/|\.zh-CN", "", path) for path, _ in links(prose)],
        "figures": sorted(re.findall(r"\d+\.\d+", prose)),
    }


def spans(text: str) -> set[str]:
    """What stands in backticks outside of blocks: commands, options, names."""
    return {" ".join(span.split()) for span in re.findall(r"`([^`]+)`", BLOCK.sub("", text))}


@pytest.mark.parametrize("name", ENGLISH)
def test_both_languages_have_the_same_headings_commands_links_names_and_figures(name):
    english, chinese = (TEXTS[one] for one in pair_of(name))
    assert shape(english) == shape(chinese)
    assert not spans(english) - spans(chinese)


def test_the_readmes_are_short_and_the_tables_of_contents_name_every_chapter():
    for index in (name for name in TEXTS if "README" in name):
        assert index.startswith("docs/") or len(TEXTS[index]) <= 8000
        named = {((ROOT / index).parent / path).resolve() for path, _ in links(TEXTS[index])}
        chapters = {ROOT / name for name in TEXTS if LANGUAGES[name] == LANGUAGES[index] and "README" not in name}
        assert len(chapters) > 20 and not chapters - named


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "<!-- example -->" in text])
def test_an_example_is_what_the_program_prints(run, tmp_path, name):
    def program(words, place):
        return run(*words, "--no-config", "--lang", LANGUAGES[name], cwd=place, env={"COLUMNS": "80"}).out

    examples = EXAMPLE.findall(TEXTS[name])
    assert examples
    for command, shown, printed in (step for example in examples for step in replay(example, tmp_path, program)):
        assert fits(shown, printed), f"python tools/update_examples.py: {command}\n{printed}"


@pytest.mark.parametrize("name", TEXTS)
def test_every_link_leads_to_a_file_and_a_heading(name):
    for path, heading in links(TEXTS[name]):
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), path
        titles = re.findall(r"(?m)^#+ (.*)", target.read_text(encoding="utf-8")) if heading else [""]
        assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, path


@pytest.mark.parametrize("name", ENGLISH)
def test_every_command_is_one(name):
    lines = "\n".join(block for language, block in code(TEXTS[name]) if language in ("sh", "console"))
    calls = re.findall(r"\benvdoctor ([a-z][^\n|>]*)", lines)
    calls += re.findall(r"`envdoctor ([a-z][^`]*?)[`;>]", TEXTS[name])
    for call in calls:
        command, arguments = cli, shlex.split(call)
        while isinstance(command, click.Group):
            (word, *arguments), context = arguments, click.Context(command)
            command = command.get_command(context, word)
        assert command is not None, call
        if "..." in arguments:
            arguments = [*arguments[: arguments.index("...")], "x"]
        command.make_context(word, [one.strip("[]") for one in arguments])  # [OPTIONAL]


def test_the_chapter_on_ci_names_every_format():
    assert set(FORMATS) <= spans(TEXTS["docs/ci.md"])


def test_the_two_commands_stand_in_the_readme_and_ci_calls_the_second():
    assert list(COMMANDS) == ["check", "test"]
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the command is one of a shell")
def test_what_a_newcomer_types_first_works(tmp_path: Path):
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
