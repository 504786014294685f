"""auto_map: which code a repository asks transformers to load, and what must be importable for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import outcome
from rooms import comparer

from envdoctor.revision import Change, FileCode, Source, parse

remote_code = comparer("remote_code")


@pytest.fixture
def maps(snapshot: Callable[..., Any]) -> Callable[..., list[tuple[str, str, str | None, str | None]]]:
    def run(old: Any, new: Any, name: str = "config.json") -> list[tuple[str, str, str | None, str | None]]:
        compared = outcome(remote_code, snapshot({name: {"auto_map": old}}), snapshot({name: {"auto_map": new}}))
        assert compared.unread == ()
        assert all(change.path == name for change in compared.changes)
        return [(change.kind, change.symbol, change.before, change.after) for change in compared.changes]

    return run


def test_another_class_is_a_change(maps: Callable[..., Any]) -> None:
    assert maps({"AutoModel": "a.A"}, {"AutoModel": "a.B"}) == [("auto-map-changed", "AutoModel", "a.A", "a.B")]


def test_entries_come_and_go(maps: Callable[..., Any]) -> None:
    assert maps({"AutoModel": "a.A"}, {"AutoConfig": "a.C"}) == [
        ("auto-map-changed", "AutoConfig", None, "a.C"),
        ("auto-map-changed", "AutoModel", "a.A", None),
    ]


def test_code_of_another_repository_is_told_apart(maps: Callable[..., Any]) -> None:
    assert maps({"AutoModel": "a.A"}, {"AutoModel": "evil/code--a.A"}) == [
        ("auto-map-other-repository", "AutoModel", "a.A", "evil/code--a.A")
    ]


def test_the_own_repository_spelled_out_is_not_another(maps: Callable[..., Any]) -> None:
    assert maps({"AutoModel": "a.A"}, {"AutoModel": "Org/Model--a.A"})[0][0] == "auto-map-changed"


def test_another_repository_that_was_named_before_is_no_change(maps: Callable[..., Any]) -> None:
    assert maps({"AutoModel": "o/x--a.A"}, {"AutoModel": "o/x--a.A", "AutoConfig": "b.B"}) == [
        ("auto-map-changed", "AutoConfig", None, "b.B")
    ]
    assert maps({"AutoModel": "o/x--a.A"}, {"AutoModel": "o/x--a.B"})[0][0] == "auto-map-changed"


def test_tokenizers_have_two_classes(maps: Callable[..., Any]) -> None:
    found = maps({"AutoTokenizer": ["t.T", None]}, {"AutoTokenizer": ["t.T", "o/x--t.F"]}, "tokenizer_config.json")
    assert found == [("auto-map-other-repository", "AutoTokenizer.1", None, "o/x--t.F")]


def test_the_old_list_form_is_the_same_as_the_table(maps: Callable[..., Any]) -> None:
    assert maps(["t.T", None], {"AutoTokenizer": ["t.T", None]}, "tokenizer_config.json") == []


def test_custom_pipelines_are_code_too(snapshot: Callable[..., Any]) -> None:
    pipeline = {"custom_pipelines": {"chat": {"impl": "o/x--p.P", "pt": ["AutoModel"]}}}
    (change,) = outcome(remote_code, snapshot({"config.json": {}}), snapshot({"config.json": pipeline})).changes
    assert (change.kind, change.symbol) == ("auto-map-other-repository", "custom_pipelines.chat")
    assert isinstance(change, Change)


@pytest.mark.parametrize("value", [None, 1, "a.A", [1], {"AutoModel": 1}, {"AutoModel": [[]]}, {"AutoModel": {}}])
def test_odd_values_are_no_references(maps: Callable[..., Any], value: object) -> None:
    assert maps({}, value) == []


def test_a_configuration_that_is_no_json_is_unread(snapshot: Callable[..., Any]) -> None:
    compared = outcome(remote_code, snapshot({"config.json": "{}"}), snapshot({"config.json": "{"}))
    assert [one.path for one in compared.unread] == ["config.json"]


# --- imports ----------------------------------------------------------------------------------------------------------


def required(text: str) -> list[str]:
    """The imports that must succeed for the file to be loaded."""
    (code,) = parse([Source("m.py", text.encode())])
    assert isinstance(code, FileCode)
    return [one.name for one in code.imports if one.required]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from transformers import a\nexcept ImportError:\n    from transformers import b\n",
        "if TYPE_CHECKING:\n    from transformers import a\n",
        "if new:\n    from transformers import a\nelse:\n    from transformers import b\n",
        "def f():\n    from transformers import a\n",
        "for x in y:\n    import a\n",
    ],
)
def test_imports_that_need_not_succeed_are_left_out(text: str) -> None:
    assert required(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    import transformers.a\n",
        "try:\n    import transformers.a\nexcept ValueError:\n    pass\n",
        "with x:\n    import transformers.a\n",
        "try:\n    pass\nfinally:\n    import transformers.a\n",
    ],
)
def test_imports_that_always_run_are_kept(text: str) -> None:
    assert required(text) == ["transformers.a"]
