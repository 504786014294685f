"""All comparers together: what one side cannot vouch for is never called unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from comparing import outcome
from header_true import Repository
from rooms import comparer

from envdoctor.facts import Records
from envdoctor.matrix import Matrix
from envdoctor.revision import AREAS, COMPARERS, Compared, Unread, change_facts, compare_snapshots, limited_to


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
