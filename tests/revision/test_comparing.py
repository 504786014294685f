"""All comparers together: what one side cannot vouch for is never called unchanged."""

from typing import Any

import pytest
from comparing import judged_kinds, outcome
from header_true import Repository
from observing import shipped
from rooms import comparer

from envdoctor.facts import Records
from envdoctor.matrix import Matrix
from envdoctor.revision import (
    AREAS,
    COMPARERS,
    Compared,
    Unread,
    change_facts,
    compare_snapshots,
    effect_of,
    limited_to,
)


def of(**files: Any) -> Repository:
    """A snapshot; a double underscore stands for the dot of a name."""
    return Repository(texts={name.replace("__", "."): content for name, content in files.items()})


def test_every_comparer_compares_an_area(matrix: Matrix) -> None:
    told: list[str] = []
    comparison = compare_snapshots(of(), of(), matrix, progress=told.append)
    assert [area for area, _ in comparison.parts] == [one.area for one in COMPARERS]
    assert list(dict.fromkeys(told)) == [f"comparing {area}" for area in AREAS]


@pytest.mark.parametrize(
    ("name", "file", "equal"),
    [
        ("config", "config.json", "config.json"),
        ("tokenizer_files", "tokenizer.json", "tokenizer"),
        ("chat_template", "chat_template.jinja", "chat templates"),
        ("remote_code", "modeling.py", "code (1 of 1 Python files)"),
        ("other_files", "a.gguf", "1 other files"),
    ],
)
def test_equal_files_are_not_read(name: str, file: str, equal: str) -> None:
    old, new = (Repository(texts={file: "{}"}) for _ in range(2))
    assert outcome(comparer(name), old, new)._replace(facts={}) == Compared(equal=(equal,))
    assert old.read_paths == new.read_paths == []


def test_changes_come_in_the_order_of_the_areas(matrix: Matrix) -> None:
    old = of(config__json={"vocab_size": 1}, LICENSE="a", a__dat="1", generation_config__json={})
    new = of(config__json={"vocab_size": 2}, LICENSE="b", a__dat="2", generation_config__json={"x": 1})
    changes = compare_snapshots(old, new, matrix).changes
    assert [change.area for change in changes] == ["config", "generation", "files", "licence"]


def test_one_area_is_compared_alone(matrix: Matrix) -> None:
    old, new = of(a__py="x = 1", a__dat="1"), of(a__py="x = 2", a__dat="2")
    comparison = compare_snapshots(old, new, matrix, areas=["files"])
    assert [change.path for change in comparison.changes] == ["a.dat"]
    assert new.read_paths == ["a.py"]  # which may name it


def test_a_file_that_one_side_refuses_was_neither_added_nor_removed(matrix: Matrix) -> None:
    old = of(a__dat="1", b__dat="1")
    new = limited_to(
        of(a__dat="1", b__dat="2"), {"b.dat"}, [Unread("a.dat", "it is a link that leads out of the folder")]
    )
    comparison = compare_snapshots(old, new, matrix)
    assert [change.path for change in comparison.changes] == ["b.dat"]
    assert comparison.unread == [("a.dat", "it is a link that leads out of the folder")]
    (records,) = [fact.value for fact in change_facts(comparison, "test") if fact.key == "change"]
    assert isinstance(records, Records) and records.incomplete == "a.dat: it is a link that leads out of the folder"


REGISTERED = next(spec for spec in shipped().registry if spec.key == "change").columns["kind"].values
#: Code that changed and that no rule judges is told with its lines: "changed, not judged".
SHOWN = {
    *("attention-class-added", "call-keyword-changed", "default-changed", "definition-added", "definition-changed"),
    *("definition-removed", "gradient-checkpointing-hook-removed", "import-added", "import-removed"),
    *("signature-extended", "unparsable"),
}


@pytest.mark.parametrize("kind", [kind for kind in REGISTERED if kind not in SHOWN])
def test_each_kind_is_judged_or_has_a_reason_to_be_left_alone(matrix: Matrix, kind: str) -> None:
    judged = {area for area, known in judged_kinds() if known == kind}
    assert judged or any(effect_of(area, kind, matrix) for area in AREAS)


def test_no_row_excuses_a_kind_that_nobody_knows(matrix: Matrix) -> None:
    rows: Any = matrix.rows("revision-kinds", "kind")
    assert {kind for row in rows for kind in row["kinds"]} <= set(REGISTERED)
    assert {area for row in rows for area in row["areas"]} <= set(AREAS)


def test_a_kind_with_an_effect_has_no_excuse(matrix: Matrix) -> None:
    assert effect_of("config", "rope-changed", matrix) is None
    assert effect_of("code", "definition-changed", matrix) is None
    assert "no loader acts on this key" in (effect_of("config", "noise", matrix) or {}).values()
