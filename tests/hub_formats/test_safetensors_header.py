"""The header reader agrees with the installed safetensors library, and says why it rejects what it rejects."""

import struct
from pathlib import Path
from typing import Any

import pytest
from header_true import header, model
from mutations import mutated_files
from safetensors import SafetensorError, deserialize

from envdoctor.matrix import load_toml
from envdoctor.revision import DTYPE_BITS, HeaderError, parse_header
from envdoctor.revision.hub.safetensors_header import REASONS

ATTACKS = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "attacks" / "safetensors.toml")["attack"]


def whole_file(attack: dict[str, Any]) -> bytes:
    if "file" in attack:
        return attack["file"].encode()
    text = bytes.fromhex(attack["hex"]) if "hex" in attack else attack["header"].encode()
    return struct.pack("<Q", attack.get("length", len(text))) + text + bytes(attack.get("data", 0))


def library_accepts(data: bytes) -> bool:
    try:
        deserialize(data)
    except SafetensorError:
        return False
    return True


def rejection(data: bytes) -> str | None:
    try:
        parse_header(data, len(data))
    except HeaderError as error:
        return error.reason
    return None


def with_header(text: bytes, data: int = 0) -> bytes:
    return struct.pack("<Q", len(text)) + text + bytes(data)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_an_attack_gets_its_reason_and_the_verdict_of_the_library(attack):
    data = whole_file(attack)
    if attack.get("accept"):
        parse_header(data, len(data))
    else:
        assert rejection(data) == attack["reason"]
    assert library_accepts(data) == bool(attack.get("accept"))


def test_every_reason_has_an_attack_but_those_of_the_reading():
    shown = {attack.get("reason") for attack in ATTACKS}
    assert set(REASONS) - shown == {"header-incomplete", "nested-too-deeply", "too-complex"}


@pytest.mark.parametrize(("depth", "accepted"), [(125, True), (126, False), (5000, False)])
def test_nesting_ends_where_that_of_the_library_does(depth, accepted):
    inner = "[" * depth + "]" * depth
    data = with_header(f'{{"a":{{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":{inner}}}}}'.encode(), 4)
    assert library_accepts(data) is accepted
    assert rejection(data) == (None if accepted else "nested-too-deeply")


@pytest.mark.parametrize("part", [b"[],", b"{},", b"0,", b'"a",'])
def test_a_header_of_millions_of_parts_is_refused_before_it_is_parsed(part):
    assert rejection(with_header(b'{"a":[' + part * 1_000_001 + b"0]}")) == "too-complex"


def test_what_lies_beyond_the_header_is_judged_by_the_size_of_the_file():
    with pytest.raises(HeaderError) as raised:  # cut, not wrong
        parse_header(struct.pack("<Q", 100) + b"{}", 1000)
    assert raised.value.reason == "header-incomplete"
    text = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    assert parse_header(with_header(text), len(with_header(text, 4))).data_bytes == 4


@pytest.mark.parametrize(("count", "seed"), [(1000, 1), (1000, 2), pytest.param(60_000, 3, marks=pytest.mark.slow)])
def test_mutated_headers_get_the_verdict_of_the_library(count, seed):
    verdicts = {data: rejection(data) for data in mutated_files(count, seed)}
    wrong = [(data, why) for data, why in verdicts.items() if library_accepts(data) is not (why is None)]
    assert wrong == []
    assert len(set(verdicts.values())) > 10


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_a_dtype_of_the_table_is_read_by_the_installed_library_if_it_is_new_enough(dtype, matrix):
    import safetensors

    rows = {row["key"]: row["since"] for row in matrix.rows("safetensors-dtypes")}
    head, size = header({"a": (dtype, (8,))})
    installed = tuple(int(part) for part in safetensors.__version__.split(".")[:3])
    assert library_accepts(head + bytes(size)) is (installed >= tuple(map(int, rows[dtype].split("."))))


def test_the_table_of_dtypes_is_that_of_the_reader(matrix):
    assert {row["key"] for row in matrix.rows("safetensors-dtypes")} == set(DTYPE_BITS)


@pytest.mark.parametrize(
    "name",
    [
        *("chatglm3-6b", "glm-4-9b-chat", "glm-4-9b-chat-hf", "qwen2.5-7b-instruct"),
        pytest.param("deepseek-v3", marks=pytest.mark.slow),
    ],
)
def test_headers_of_real_models_are_read_whole(name):
    described = model(name)
    totals = described.about["totals"]
    found = [header(shard, described.about["metadata"]) for shard in described.shards.values()]
    read = [parse_header(head, len(head) + size) for head, size in found]
    assert (len(read), sum(len(one.tensors) for one in read)) == (totals["files"], totals["tensors"])
    assert sum(one.data_bytes for one in read) == totals["data_bytes"]
    assert sum(one.header_bytes - 8 for one in read) == totals["header_bytes"]
