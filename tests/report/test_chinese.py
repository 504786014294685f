"""Chinese reports are Chinese throughout: every text that the code can put into a report has its Chinese."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from known import given, judged

import envdoctor
from envdoctor.judge import Text
from envdoctor.knowledge import Matrix
from envdoctor.text import say, sentence
from templates import House, is_sentence

ENVDOCTOR = Path(envdoctor.__file__).parent
CATALOGUE = json.loads((ENVDOCTOR / "text" / "zh.json").read_text(encoding="utf-8"))
INTERFACE: dict[str, str] = CATALOGUE["interface"]
SENTENCES: dict[str, str] = CATALOGUE["sentences"]

#: Calls by whose arguments (by number or keyword) a sentence reaches a report: reasons, origins, what may be missing,
#: remarks on the run.
SINKS = {
    "Unknown": (0,),
    "Derived": (1,),
    "Fact": (2,),
    "Records": (1, "incomplete"),
    "Notice": (1,),
    "Unread": (1,),
    "Change": (7, "detail"),
    "Compared": ("equal",),
    "OfferedFix": ("withheld",),
    "_offered": ("withheld",),
    "Layout": ("because", "notes", "incomplete", "version_origin"),
    "Choice": (2, "notes"),
    "Environment": ("notes", 4),
    "Results": (2, 3, 4),
    "Verdict": ("why", 4),
    "Permission": ("refused", "notes", 0, 1, 2),
}
FOLDERS = (
    *("observe", "derive", "facts", "install", "judge", "models", "hub", "revision", "probe", "app", "text", "sandbox"),
)
#: What writes scripts, configuration files and lists of its own, and holds what templates are rendered with.
WITHOUT = (
    *("probe/reproducer.py", "probe/catalogue.py", "judge/selftest.py", "install/checking.py", "models/names.py"),
    *(f"app/{name}.py" for name in ("matrix", "configuration", "ignore", "guard", "pin", "plan")),
    "revision/template/parts/conversations.py",
)
#: What the search finds and no report says: errors of envdoctor's own files, and values of changes.
NEVER_SAID = {
    *("a file without a name", "an unknown value has no JSON form: {}"),
    *("not needed", "extra == ''", "extra != ''", "extra == {}", "({}) and extra == {}", "id {}{}"),
    "{} is neither >= nor < a release",
    # lines of a shell and of progress, which functions of the same names return
    *("export {}={}", "unset {}", "{} of {} done   {}"),
    # replaced in messages of rules, whose Chinese has its own
    *("installed is", "and it would get", "are installed", "is installed", "is not installed", "the installed"),
    *("would be installed", "would not be installed"),
    # said behind the name of a file only
    *("it {}", "{} of {} {}", "is not UTF-8 text: byte {}", "is not JSON: line {}, column {}: {}"),
    *("is not a JSON object but {}", "holds a number that is too long to read", "is nested more than {} levels deep"),
    *("is nested too deeply, or too large in memory, to be read", "has keys that are too long"),
}


def braces(text: str) -> list[str]:
    return sorted(re.findall(r"{\w*}", text))


def phrases() -> Iterator[tuple[str, str]]:
    """What is said on a page: the first argument of ``say``, and the tables from which it is taken."""
    for path in sorted(ENVDOCTOR.rglob("*.py")):
        module = ast.parse(path.read_bytes())
        tables = {
            target.id: node.value
            for node in module.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(module):
            called = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
            if isinstance(call, ast.Call) and called == "say":
                yield from ((text, f"{path.name}:{call.lineno}") for text in said(call.args[0], tables))


def said(node: ast.expr, tables: dict[str, ast.Dict]) -> list[str]:
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return said(node.body, tables) + said(node.orelse, tables)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return [text for value in tables[node.value.id].values for text in said(value, tables)]
    raise AssertionError(f"what does {ast.unparse(node)} say?")


def test_every_phrase_has_its_chinese_and_every_chinese_phrase_is_said() -> None:
    found = dict(phrases())
    assert {text: place for text, place in found.items() if text not in INTERFACE} == {}
    assert set(INTERFACE) - set(found) == set()


def test_every_sentence_that_can_reach_a_report_has_its_chinese() -> None:
    found = House(FOLDERS, WITHOUT).said(SINKS)
    assert len(found) > 600
    sentences = {text.strip(";, ").removesuffix("\n"): place for text, place in found.items() if is_sentence(text)}
    known = {text.strip(" ") for text in SENTENCES} | NEVER_SAID
    missing = {text: place for text, place in sentences.items() if text not in known and is_sentence(text)}
    assert missing == {}, "add them to envdoctor/text/zh.json"


def test_every_reason_why_no_memory_is_predicted_has_its_chinese() -> None:
    found = House(("memory",), ()).said({"MemoryProblem": (0,), "append": (0,)})
    assert len(found) > 10
    assert {text for text in found if is_sentence(text)} - set(SENTENCES) == set()


def test_both_languages_have_the_same_values() -> None:
    for english, chinese in INTERFACE.items():
        assert english.isascii() and set(braces(english)) == set(braces(chinese)), english
    for english, chinese in SENTENCES.items():
        assert chinese.format(*("x" for _ in braces(english))), english
    # and a Chinese console can show all of it
    assert "".join([*INTERFACE.values(), *SENTENCES.values()]).encode("gbk")


def test_reasons_that_a_table_gives_have_their_chinese(matrix: Matrix) -> None:
    assert {row["reason"] for row in matrix.rows("withdrawn-releases", "release")} - set(SENTENCES) == set()


def test_values_are_put_in() -> None:
    assert say("en", "chosen: {reason}", reason="{name} {0} (s)") == "chosen: {name} {0} (s)"
    assert say("zh", "chosen: {reason}", reason="{name} {0}") == "选择依据：{name} {0}"
    assert [say("en", "{n} error(s)", n) for n in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]
    assert say("zh", "{n} error(s)", 1) == "1 个错误"
    assert say("zh", "{name} not known", name="驱动") == "驱动未知"
    assert say("zh", "{name} not known", name="torch") == "torch 未知"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("torch is not installed", "未安装 torch"),
        ("RECORD of torch cannot be read: it is a folder", "无法读取 torch 的 RECORD：是目录"),
        ("INSTALLER of 3 of 7 distributions", "7 个软件包中 3 个的 INSTALLER"),
        ("families.toml: repository name zai-org/glm-4-9b", "families.toml：仓库名 zai-org/glm-4-9b"),
        ("no more than this", "没有 more than this"),
        ("a reason that nobody knows", "a reason that nobody knows"),
        ("torch/version.py", "torch/version.py"),
        ("train.yaml:14", "train.yaml:14"),
        (
            "the active virtual environment (VIRTUAL_ENV); "
            "envdoctor itself runs in an environment that uv tool made for it",
            "已激活的虚拟环境（VIRTUAL_ENV）；envdoctor 运行在 uv tool 为其创建的环境中",
        ),
        (
            'OLD is b098244, before "Fix" (2024-01-02); 3 later commits changed only text about the model',
            "OLD 为 b098244，在“Fix”（2024-01-02）之前；其后 3 个提交只改了模型的说明文字",
        ),
        ("", ""),
    ],
)
def test_finished_sentences_are_recognised(english: str, chinese: str) -> None:
    assert sentence("zh", english) == chinese
    assert sentence("en", english) == english


@pytest.mark.parametrize("text", ["x" * 60_000, "{} {0} {name}", "; " * 5_000, ": ".join("abcdefgh"), "no " * 9_999])
def test_any_text_may_come(text: str) -> None:
    assert sentence("zh", text)


def test_english_reports_do_not_read_the_catalogue() -> None:
    calls = "say('en', 'No findings'); sentence('en', 'torch is not installed')"
    code = f"import builtins; from envdoctor.text import say, sentence; builtins.open = None; {calls}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_text_of_a_table_is_said_in_chinese_too(matrix: Matrix) -> None:
    use = {"package": "numpy", "kind": "keyword", "what": "numpy.f(x=)", "installed": "2.0.0", "reach": "start"}
    moved = {"has": "<2.0", "moved_to": "write y=", "moved_to_zh": "改写为 y="}
    (finding,) = judged(given({"broken_use": [{**use, **moved}]}, matrix.registry), matrix).findings
    instead = "numpy 2.0.0 does not take numpy.f(x=); instead: write y="
    assert finding.message == Text(instead, "numpy 2.0.0 不接受 numpy.f(x=)；改用：改写为 y=")
