"""Values of weights over the Hub: ranges of changed files alone, within a budget, and said before."""

import json
import struct

import pytest
from loopback import Hub, Repo
from observing import shipped
from small_models import access

from envdoctor.revision import Comparison, compare_snapshots, open_hub

NAMES = [f"model.layers.{place}.weight" for place in range(8)]
ELEMENTS = 1 << 12


def shard(*numbers: float) -> bytes:
    """A file of one tensor of float32 for each number, all of whose elements are that number."""
    size = 4 * ELEMENTS
    header = {
        name: {"dtype": "F32", "shape": [ELEMENTS], "data_offsets": [place * size, (place + 1) * size]}
        for place, name in enumerate(NAMES[: len(numbers)])
    }
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + b"".join(struct.pack("<f", number) * ELEMENTS for number in numbers)


@pytest.fixture
def repo(hub: Hub) -> Repo:
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}", "model.safetensors": shard(*range(1, 9)), "other.safetensors": shard(1)})
    repo.commit({"model.safetensors": shard(*range(1, 8), 8.5)}, title="another last layer")
    return repo


def compared(hub: Hub, repo: Repo, values: int | None, said: list[str] | None = None) -> Comparison:
    way = access(hub)
    sides = [open_hub("zai-org/tiny", commit.id, way) for commit in repo.commits[::-1]]
    hub.forget()
    tell = (lambda text: None) if said is None else said.append
    return compare_snapshots(*sides, shipped(), areas=["weights"], values=values, progress=tell)


def test_without_being_asked_only_headers_come(hub: Hub, repo: Repo) -> None:
    assert [change.kind for change in compared(hub, repo, None).changes] == ["values-changed"]
    assert hub.bytes_of(".safetensors") < 2 * 4 * ELEMENTS * len(NAMES)


def test_ranges_of_the_changed_file_are_read_and_said_before(hub: Hub, repo: Repo) -> None:
    said: list[str] = []
    comparison = compared(hub, repo, 10**9, said)
    (change,) = comparison.changes
    assert (change.kind, change.symbol, change.count) == ("tensor-values-changed", "model.layers.{i}.weight", 1)
    assert change.after == "largest difference 0.5, relative 6.25%"
    assert "comparing values: 262.1 kB are read, 262.1 kB of it from the Hub" in said
    assert not [entry for entry in hub.log if "other.safetensors" in entry.path]


def test_what_the_budget_does_not_reach_is_unread(hub: Hub, repo: Repo) -> None:
    size = 2 * 4 * ELEMENTS
    comparison = compared(hub, repo, 3 * size)
    assert [change.kind for change in comparison.changes] == ["values-changed"]
    (part,) = comparison.unread
    assert part.reason == "values of 5 tensors lie beyond the 98.3 kB that may be fetched"
    assert not [text for text in comparison.equal("weights") if "value" in text]
