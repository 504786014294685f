"""auto_map: which code a repository asks transformers to load, and what must be importable for it."""

from __future__ import annotations

from typing import Any

import pytest
from comparing import holds, outcome
from rooms import comparer

from envdoctor.revision import CodeSource, FileCode, parse

remote_code = comparer("remote_code")

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
MODEL = {"AutoModel": "a.A"}
PIPELINE = {"custom_pipelines": {"chat": {"impl": "o/x--p.P", "pt": ["AutoModel"]}}}


def maps(old: Any, new: Any, *expected: str, file: str = CONFIG, away: str = "") -> None:
    """Hold that these are the changes, and that the code of the repository ``away`` could not be told."""
    compared = outcome(remote_code, {file: {"auto_map": old}}, {file: {"auto_map": new}})
    reasons = [(file, f"the code that it names is in {away}, and was not compared")] if away else []
    assert [(one.path, one.reason) for one in compared.unread] == reasons
    holds(compared._replace(unread=()), *expected)
    assert all(change.path == file for change in compared.changes)


def test_what_a_repository_asks_to_load_is_compared() -> None:
    maps(MODEL, {"AutoModel": "a.B"}, "auto-map-changed AutoModel: a.A -> a.B")
    gone = "auto-map-changed AutoModel: a.A -> None"
    maps(MODEL, {"AutoConfig": "a.C"}, "auto-map-changed AutoConfig: None -> a.C", gone)
    # tokenizers have two classes, and the old form of their list is the same as the table
    two, other = ["t.T", None], "auto-map-other-repository AutoTokenizer.1: None -> o/x--t.F"
    maps({"AutoTokenizer": two}, {"AutoTokenizer": ["t.T", "o/x--t.F"]}, other, file=TOKENIZER, away="o/x")
    maps(two, {"AutoTokenizer": two}, file=TOKENIZER)


def test_code_of_another_repository_is_told_apart() -> None:
    other = "auto-map-other-repository AutoModel: a.A -> evil/code--a.A"
    maps(MODEL, {"AutoModel": "evil/code--a.A"}, other, away="evil/code")
    maps(MODEL, {"AutoModel": "Org/Model--a.A"}, "auto-map-changed")  # the own one, spelled out
    before = {"AutoModel": "o/x--a.A"}
    maps(before, {**before, "AutoConfig": "o/x--b.B"}, "auto-map-changed AutoConfig: None -> o/x--b.B", away="o/x")
    maps(before, {"AutoModel": "o/x--a.B"}, "auto-map-changed", away="o/x")
    pipeline = outcome(remote_code, {CONFIG: {}}, {CONFIG: PIPELINE})
    assert [one.path for one in pipeline.unread] == [CONFIG]
    holds(pipeline._replace(unread=()), "auto-map-other-repository custom_pipelines.chat")


@pytest.mark.parametrize("value", [None, 1, "a.A", [1], {"AutoModel": 1}, {"AutoModel": [[]]}, {"AutoModel": {}}])
def test_odd_values_are_no_references(value: object) -> None:
    maps({}, value)


def test_a_configuration_that_is_no_json_is_unread() -> None:
    assert [one.path for one in outcome(remote_code, {CONFIG: "{}"}, {CONFIG: "{"}).unread] == [CONFIG]


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("try:\n    from transformers import a\nexcept ImportError:\n    from transformers import b\n", False),
        ("if TYPE_CHECKING:\n    from transformers import a\n", False),
        ("if new:\n    from transformers import a\nelse:\n    from transformers import b\n", False),
        ("def f():\n    from transformers import a\n", False),
        ("for x in y:\n    import a\n", False),
        ("class A:\n    import transformers.a\n", True),
        ("try:\n    import transformers.a\nexcept ValueError:\n    pass\n", True),
        ("with x:\n    import transformers.a\n", True),
        ("try:\n    pass\nfinally:\n    import transformers.a\n", True),
    ],
)
def test_imports_that_must_succeed_are_those_that_always_run(text: str, required: bool) -> None:
    (code,) = parse([CodeSource("m.py", text.encode())])
    assert isinstance(code, FileCode)
    assert [one.name for one in code.imports if one.required] == (["transformers.a"] if required else [])
