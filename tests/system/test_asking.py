"""Questions to children of envdoctor's own: each has its answer, or how the child ended, in words of one list."""

import ast
from pathlib import Path

import pytest

import envdoctor
from envdoctor.system import ChildProblem, Limits, ask, ask_program, run_child, sentence

LIMITS = Limits(seconds=20.0, mib=512)
TREE = "envdoctor.revision.code.parts.tree:read_code"
TEMPLATE = "envdoctor.revision.template.parts.render_suite:answer"

#: What is said of a reader that ended badly.
FAILED = "it could not be read: envdoctor's reader stopped with an error (please report it)"


def code(*files: bytes, limits: Limits = LIMITS) -> list[object]:
    """How each file of Python was answered: ``read``, or the problem in words."""
    answers = ask(TREE, [({}, content) for content in files], limits)
    return [answer.said() if isinstance(answer, ChildProblem) else "read" for answer in answers]


def test_three_modules_start_children() -> None:
    found = set()
    for path in Path(envdoctor.__file__).parent.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
        names = {getattr(called, "id", getattr(called, "attr", "")) for called in calls}
        found |= {path.name} if run_child.__name__ in names else set()
    assert found == {"asking.py", "target.py", "installer.py"}


def test_a_child_imports_envdoctor_and_nothing_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    assert code(b"a\n") == ["read"]


@pytest.mark.parametrize("packages", [False, True])
def test_installed_packages_are_there_only_when_asked_for(packages: bool) -> None:
    asked = {"template": "hello", "variables": {}, "given": {}}
    (answer,) = ask(TEMPLATE, [(asked, None)], LIMITS, packages=packages)
    assert ("jinja2" in str(answer.get("invalid"))) != packages, answer


def test_what_a_file_is_refused_for_costs_no_other_file() -> None:
    syntax = "it is not Python that this interpreter can parse (line {})"
    deep = "it is nested too deeply, or took more than 512 MiB"
    files = (b"a = 1", b"a = 1\ndef (", b"  a = 1\n b", b"a = 1\0", b"# coding: no-such\na", b"-" * 100_000 + b"1")
    said = ["read", syntax.format(2), syntax.format(1), syntax.format(1), syntax.format(1), deep]
    assert code(*files, b"b = 1") == [*said, "read"]


def test_another_child_goes_on_behind_what_ended_the_first() -> None:
    small, large, limits = b"a = 1", b"def f(): ...\n" * 1000, LIMITS._replace(output=9999)
    full = "it gave too much output"
    assert code(small, large, small, limits=limits._replace(in_all=60.0)) == ["read", full, "read"]
    assert code(small, large, small, limits=limits) == ["read", full, full]


def test_without_time_nothing_is_read() -> None:
    said = code(b"", b"", limits=LIMITS._replace(seconds=0.0))
    assert said == ["it came behind files that took all the time"] * 2


def test_a_child_that_cannot_answer_is_a_problem() -> None:
    (answer,) = ask("envdoctor.nowhere:answer", [({}, None)], LIMITS)
    assert (answer.kind, answer.said()) == ("failed", FAILED)
    assert answer.tail == "ModuleNotFoundError: No module named 'envdoctor.nowhere'"
    (answer,) = ask(TREE, [({"unknown": 1}, None)], LIMITS)
    assert (answer.kind, answer.tail) == ("failed", "TypeError")


@pytest.mark.parametrize(
    ("argv", "text", "said"),
    [
        (["/bin/echo", "é"], "é\n", None),
        (["/bin/sh", "-c", "echo so far; sleep 60"], "so far\n", "it took more than 0.5 s"),
        (["/bin/sh", "-c", "echo why >&2; exit 1"], "", FAILED),
        (["/nowhere/program"], "", "it cannot be started: No such file or directory"),
    ],
)
def test_a_program_has_written_something_and_may_have_ended_badly(argv, text, said) -> None:
    written, problem = ask_program(argv, Limits(0.5, 512), environ={}, cwd="/")
    assert (written, problem and problem.said()) == (text, said)


KINDS = (
    *("timeout", "memory", "output-limit", "crash", "failed", "unreached", "unstarted"),
    *("SyntaxError", "RecursionError", "MemoryError", "NotANotebook", "TooMuch"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_ending_has_its_chinese(kind: str) -> None:
    problem = ChildProblem(kind, 20.0, 512, "x", 3)
    for text in (problem.said(), problem.clause()):
        assert not sentence("zh", text).isascii(), text
