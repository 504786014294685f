"""Chinese reports are Chinese throughout: every sentence of the house has its Chinese, and no text is put together
where only the page knows the language."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from known import given, judged

import envdoctor
from envdoctor.judge import Text
from envdoctor.matrix import Matrix
from envdoctor.system import Message, joined, quoted, said_by, say, sentence

ENVDOCTOR = Path(envdoctor.__file__).parent
CATALOGUE: dict[str, str] = json.loads((ENVDOCTOR / "system" / "zh.json").read_text(encoding="utf-8"))
#: Modules that make messages of the ids of others.
MAKERS = ("message.py",)


def braces(text: str) -> list[str]:
    return sorted(re.findall(r"{\w*}", text))


def has_words(template: str) -> bool:
    """Whether there is something to translate: more than values, options and punctuation."""
    words = re.sub(r"--\w+(?:-\w+)*|{\w*}|\w+\.toml", "", template)
    return re.search("[A-Za-z]{2}", words) is not None


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    paths = sorted(ENVDOCTOR.rglob("*.py"))
    return tuple((path.relative_to(ENVDOCTOR).as_posix(), ast.parse(path.read_bytes())) for path in paths)


@cache
def makers() -> tuple[str, ...]:
    """Calls whose first argument is an id: exceptions that are made of a message, or of its id and values, as well."""
    bases = {
        node.name: {getattr(base, "id", "") for base in node.bases}
        for _, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    }
    found = {"MessageError"}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return ("Message", "Refused", *sorted(found))


def said(node: ast.expr, tables: dict[str, ast.expr]) -> list[str]:
    """The constants that an expression can be."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return said(node.body, tables) + said(node.orelse, tables)
    if isinstance(node, ast.Subscript):
        return said(node.value, tables)
    if isinstance(node, ast.Name) and node.id in tables:
        return said(tables[node.id], tables)
    if isinstance(node, (ast.Dict, ast.Tuple)):
        values = node.values if isinstance(node, ast.Dict) else node.elts
        return [text for value in values for text in said(value, tables)]
    raise AssertionError(ast.unparse(node))


def calls(*names: str) -> Iterator[tuple[list[str], int, str]]:
    """Every first argument of these calls as the constants that it can be, how many values follow, and its place."""
    for path, module in modules():
        calls, tables = _calls_and_tables(module)
        for call in calls:
            called = "." + call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if called in names and call.args and not path.endswith(MAKERS):
                yield *_first(call, tables), f"{path}:{call.lineno}"


@cache
def _calls_and_tables(module: ast.Module) -> tuple[list[ast.Call], dict[str, ast.expr]]:
    """The calls of a module, and what its names stand for that are set to a dictionary or a constant."""
    nodes = [node for node in ast.walk(module) if isinstance(node, ast.Call | ast.Assign)]
    tables = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict | ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [node for node in nodes if isinstance(node, ast.Call)], tables


def _first(call: ast.Call, tables: dict[str, ast.expr]) -> tuple[list[str], int]:
    open_ended = isinstance(call.args[0], ast.Name) or any(isinstance(one, ast.Starred) for one in call.args)
    try:
        return said(call.args[0], tables), -1 if open_ended else len(call.args) - 1
    except AssertionError:
        return [], -1


def test_every_phrase_and_message_has_its_chinese_and_its_values() -> None:
    # what children of the target's interpreter refuse is a message when it is told here
    found = {text: (values, place) for texts, values, place in calls(*makers()) for text in texts}
    assert len(found) > 900
    missing = {text: place for text, (_, place) in found.items() if has_words(text) and text not in CATALOGUE}
    assert missing == {}, "add them to envdoctor/system/zh.json"
    wrong = {
        place: text
        for texts, values, place in calls(*makers())
        for text in texts
        # a text without values may hold braces of its own
        if values >= 0 and len(braces(text)) != values and "{}" in text
    }
    assert wrong == {}
    phrases = {text: place for texts, _, place in calls(".say") for text in texts}
    assert {text: place for text, place in phrases.items() if text not in CATALOGUE} == {}


#: Rooms whose sentences are still to move: their values may be clauses.
LATER = ("memory", "revision", "probe", "payload", "watch")


def words_of(node: ast.AST | None) -> str:
    """The words that a value brings by itself: those of a text, of a text with places, of one of two."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return " ".join(map(words_of, parts))
        case ast.FormattedValue(value=inside):
            return words_of(inside)
        case ast.IfExp(body=one, orelse=other):
            return f"{words_of(one)} {words_of(other)}"
    return ""


def test_no_value_of_a_message_is_a_clause() -> None:
    """A value is a name, a number, a version, a place, or a message: nobody would translate words in it."""
    clauses = set()
    for path, module in modules():
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        for function in functions if not path.startswith(LATER) else []:
            inside = list(ast.walk(function))
            named = {
                one.id: node.value
                for node in inside
                if isinstance(node, ast.Assign)
                for one in node.targets
                if isinstance(one, ast.Name)
            }
            for call in (node for node in inside if isinstance(node, ast.Call)):
                for value in call.args[1:] if getattr(call.func, "id", "") in makers() else ():
                    text = words_of(named.get(value.id) if isinstance(value, ast.Name) else value)
                    if re.search(r"(?<![\w-])[a-z]{2,} +[a-z]{2,}(?![\w-])", text):
                        clauses.add((path, text))
    assert clauses == set()


def test_no_message_is_made_of_a_text_that_was_put_together() -> None:
    """What a message is made of stands in the code as it stands in the catalogue, or comes from one of these places."""
    made = {
        path
        for path, module in modules()
        for calls, tables in (_calls_and_tables(module),)
        for call in calls
        if getattr(call.func, "id", "") == "Message" and not _first(call, tables)[0] and not path.endswith(MAKERS)
    }
    # children answer with sentences of their own, tables give reasons, the system says what is wrong with a file
    assert made == {
        "system/files.py",
        "revision/hub/transport.py",
        *("system/asking.py", "system/target.py"),
        *("judge/derivations/packages.py", "judge/derivations/torch.py"),
        "cli/group.py",  # the help: docstrings and rows of options
    }
    put_together = [
        f"{path}:{call.lineno}"
        for path, module in modules()
        for call in _calls_and_tables(module)[0]
        if getattr(call.func, "id", "") in (*makers(), "Notice", "Unknown", "Unread")
        and any(isinstance(part, (ast.JoinedStr, ast.BinOp)) for part in call.args[:1])
    ]
    assert put_together == []


def parts_of(texts: set[str]) -> set[str]:
    """Paragraphs and comments of docstrings, which the help shows."""
    paragraphs = {" ".join(part.split()) for text in texts for part in text.split("\n\n")}
    return paragraphs | {line.partition("  # ")[2] for text in texts for line in text.splitlines()}


def test_all_of_the_catalogue_is_said(matrix: Matrix) -> None:
    constants = {
        node.value
        for _, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    tables = {row["reason"] for row in matrix.rows("withdrawn-releases", "release")}
    tables |= {row.get("level", "") for row in matrix.rows("torch-archs", "wheel")}
    tables |= {name for form in matrix.rows("memory-forms", "form") for name in form["terms"]}
    system = {os.strerror(number) for number in range(1, 140)}
    assert set(CATALOGUE) - constants - parts_of(constants) - tables - system == set()
    assert tables - set(CATALOGUE) - {""} == set()


def test_both_languages_have_the_same_values() -> None:
    for english, chinese in CATALOGUE.items():
        assert english.isascii() or "…" in english, english
        plain = [brace for brace in braces(english) if brace != "{}"]
        assert {*plain} == {brace for brace in braces(chinese) if not re.fullmatch(r"{\d*}", brace)}, english
        if not plain:
            assert chinese.format(*("x" for _ in braces(english))), english
    # and a Chinese console can show all of it
    assert "".join(CATALOGUE.values()).encode("gbk")


def test_values_are_put_in() -> None:
    assert say("en", "chosen: {reason}", reason="{name} {0} (s)") == "chosen: {name} {0} (s)"
    assert say("zh", "chosen: {reason}", reason="{name} {0}") == "选择依据：{name} {0}"
    assert [say("en", "{n} error(s)", n) for n in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]
    assert say("zh", "{n} error(s)", 1) == "1 个错误"
    assert say("zh", "{name} not known", name="驱动") == "驱动未知"
    assert say("zh", "{name} not known", name="torch") == "torch 未知"


@pytest.mark.parametrize(
    ("message", "english", "chinese"),
    [
        (Message("torch is not installed"), "torch is not installed", "未安装 torch"),
        (
            Message("RECORD of {} cannot be read: {}", "torch", Message("it is a folder")),
            "RECORD of torch cannot be read: it is a folder",
            "无法读取 torch 的 RECORD：是目录",
        ),
        (
            joined([Message("torch is not installed"), quoted("no more than this")]),
            "torch is not installed; no more than this",
            "未安装 torch；no more than this",
        ),
        (quoted("{} {0} {name} not known"), "{} {0} {name} not known", "{} {0} {name} not known"),
        (
            Message("it would bring {}: {}", "a-rule", Text("it is bad", "有问题")),
            "it would bring a-rule: it is bad",
            "会引起 a-rule：有问题",
        ),
        (said_by(ValueError(Message("torch is not installed"))), "torch is not installed", "未安装 torch"),
        (said_by(KeyError("x")), "x", "x"),
    ],
)
def test_a_message_is_said_in_both_languages(message: Message, english: str, chinese: str) -> None:
    assert (message, sentence("en", message), sentence("zh", message)) == (english, english, chinese)


@pytest.mark.parametrize("text", ["torch is not installed", "no more than this", "", "; " * 5_000])
def test_what_somebody_else_says_is_said_as_it_is(text: str) -> None:
    assert sentence("zh", text) == sentence("en", text) == text


def test_english_reports_do_not_read_the_catalogue() -> None:
    calls = "say('en', 'No findings'); sentence('en', Message('torch is not installed'))"
    code = f"import builtins; from envdoctor.system import Message, say, sentence; builtins.open = None; {calls}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_text_of_a_table_is_said_in_chinese_too(matrix: Matrix) -> None:
    use = {"package": "numpy", "kind": "keyword", "what": "numpy.f(x=)", "installed": "2.0.0", "reach": "start"}
    moved = {"has": "<2.0", "moved_to": "write y=", "moved_to_zh": "改写为 y="}
    (finding,) = judged(given({"broken_use": [{**use, **moved}]}, matrix.registry), matrix).findings
    instead = "numpy 2.0.0 does not take numpy.f(x=); instead: write y="
    assert finding.message == Text(instead, "numpy 2.0.0 不接受 numpy.f(x=)；改用：改写为 y=")
