"""auto_map: which code a repository asks transformers to load, and what that code imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from envdoctor.hub.snapshot import Unread
from envdoctor.revision import code
from envdoctor.revision.comparer import Change

MODELING = "from transformers.modeling_utils import PreTrainedModel\nfrom .configuration import Config\nimport torch\n"


@pytest.fixture
def maps(snapshot: Callable[..., Any]) -> Callable[..., list[tuple[str, str, str | None, str | None]]]:
    def run(old: Any, new: Any, name: str = "config.json") -> list[tuple[str, str, str | None, str | None]]:
        compared = code.compare(snapshot({name: {"auto_map": old}}), snapshot({name: {"auto_map": new}}))
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


def test_tokenizers_have_two_classes(maps: Callable[..., Any]) -> None:
    found = maps({"AutoTokenizer": ["t.T", None]}, {"AutoTokenizer": ["t.T", "o/x--t.F"]}, "tokenizer_config.json")
    assert found == [("auto-map-other-repository", "AutoTokenizer.1", None, "o/x--t.F")]


def test_the_old_list_form_is_the_same_as_the_table(maps: Callable[..., Any]) -> None:
    assert maps(["t.T", None], {"AutoTokenizer": ["t.T", None]}, "tokenizer_config.json") == []


def test_custom_pipelines_are_code_too(snapshot: Callable[..., Any]) -> None:
    pipeline = {"custom_pipelines": {"chat": {"impl": "o/x--p.P", "pt": ["AutoModel"]}}}
    (change,) = code.compare(snapshot({"config.json": {}}), snapshot({"config.json": pipeline})).changes
    assert (change.kind, change.symbol) == ("auto-map-other-repository", "custom_pipelines.chat")
    assert isinstance(change, Change)


@pytest.mark.parametrize("value", [None, 1, "a.A", [1], {"AutoModel": 1}, {"AutoModel": [[]]}, {"AutoModel": {}}])
def test_odd_values_are_no_references(maps: Callable[..., Any], value: object) -> None:
    assert maps({}, value) == []


def test_a_configuration_that_is_no_json_is_unread(snapshot: Callable[..., Any]) -> None:
    compared = code.compare(snapshot({"config.json": "{}"}), snapshot({"config.json": "{"}))
    assert [one.path for one in compared.unread] == ["config.json"]


# --- imports ----------------------------------------------------------------------------------------------------------


def test_imports_of_the_files_that_are_loaded(snapshot: Callable[..., Any]) -> None:
    found = code.imports_of(
        snapshot(
            {
                "config.json": {"auto_map": {"AutoModel": "modeling.Model", "AutoConfig": "o/x--other.C"}},
                "modeling.py": MODELING,
                "configuration.py": "from transformers import PretrainedConfig\n",
                "finetune.py": "import deepspeed\n",
            }
        )
    )
    assert found == {
        "modeling.py": ("torch", "transformers.modeling_utils.PreTrainedModel"),
        "configuration.py": ("transformers.PretrainedConfig",),
    }


def test_without_an_auto_map_no_code_is_loaded(snapshot: Callable[..., Any]) -> None:
    model = snapshot({"config.json": {}, "modeling.py": MODELING})
    assert code.imports_of(model) == {}
    assert "modeling.py" not in model.reads


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
def test_imports_that_need_not_succeed_are_left_out(snapshot: Callable[..., Any], text: str) -> None:
    model = snapshot({"config.json": {"auto_map": {"AutoModel": "m.M"}}, "m.py": text})
    assert code.imports_of(model) == {"m.py": ()}


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    import transformers.a\n",
        "try:\n    import transformers.a\nexcept ValueError:\n    pass\n",
        "with x:\n    import transformers.a\n",
        "try:\n    pass\nfinally:\n    import transformers.a\n",
    ],
)
def test_imports_that_always_run_are_kept(snapshot: Callable[..., Any], text: str) -> None:
    model = snapshot({"config.json": {"auto_map": {"AutoModel": "m.M"}}, "m.py": text})
    assert code.imports_of(model) == {"m.py": ("transformers.a",)}


def test_files_that_import_each_other_end(snapshot: Callable[..., Any]) -> None:
    files = {
        "config.json": {"auto_map": {"AutoModel": "a.M"}},
        "a.py": "from . import b, c",
        "b.py": "from .a import x",
    }
    assert code.imports_of(snapshot(files)) == {"a.py": (), "b.py": ()}


def test_a_loaded_file_that_cannot_be_parsed_makes_all_unread(snapshot: Callable[..., Any]) -> None:
    model = snapshot({"config.json": {"auto_map": {"AutoModel": "m.M"}}, "m.py": "import"})
    found = code.imports_of(model)
    assert isinstance(found, Unread)
    assert found.path == "m.py"
