"""All comparers together: each is found by its place, and what one side cannot vouch for is never called unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import envdoctor.revision
from envdoctor.facts import Records
from envdoctor.hub import Unread, limited_to
from envdoctor.knowledge import Matrix
from envdoctor.revision import AREAS, change_facts, compare_snapshots

ROOM = Path(envdoctor.revision.__file__).parent


def test_every_module_that_stands_in_a_room_compares_an_area(snapshot: Any, matrix: Matrix) -> None:
    told: list[str] = []
    comparison = compare_snapshots(snapshot({}), snapshot({}), matrix, progress=told.append)
    assert len(comparison.parts) == len(list(ROOM.glob("*/*.py")))
    assert {area for area, _ in comparison.parts} == set(AREAS)
    assert list(dict.fromkeys(told)) == [f"comparing {area}" for area in AREAS]


def test_changes_come_in_the_order_of_the_areas(snapshot: Any, matrix: Matrix) -> None:
    old = snapshot({"config.json": {"vocab_size": 1}, "LICENSE": "a", "a.dat": "1", "generation_config.json": {}})
    new = snapshot({"config.json": {"vocab_size": 2}, "LICENSE": "b", "a.dat": "2", "generation_config.json": {"x": 1}})
    changes = compare_snapshots(old, new, matrix).changes
    assert [change.area for change in changes] == ["config", "generation", "files", "licence"]


def test_one_area_is_compared_alone(snapshot: Any, matrix: Matrix) -> None:
    old, new = snapshot({"a.py": "x = 1", "a.dat": "1"}), snapshot({"a.py": "x = 2", "a.dat": "2"})
    comparison = compare_snapshots(old, new, matrix, areas=["files"])
    assert [change.path for change in comparison.changes] == ["a.dat"]
    assert new.reads == []


def test_a_file_that_one_side_refuses_was_neither_added_nor_removed(snapshot: Any, matrix: Matrix) -> None:
    old, new = snapshot({"a.dat": "1", "b.dat": "1"}), snapshot({"a.dat": "1", "b.dat": "2"})
    new = limited_to(new, {"b.dat"}, [Unread("a.dat", "it is a link that leads out of the folder")])
    comparison = compare_snapshots(old, new, matrix)
    assert [change.path for change in comparison.changes] == ["b.dat"]
    assert comparison.unread == [("a.dat", "it is a link that leads out of the folder")]
    (records,) = [fact.value for fact in change_facts(comparison, "test") if fact.key == "change"]
    assert isinstance(records, Records) and records.incomplete == "a.dat: it is a link that leads out of the folder"
