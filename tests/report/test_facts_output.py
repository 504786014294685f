"""Facts as text, as a facts file and as a block for a bug report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts import ABSENT, Fact, FactSet, Records, Registry, Unknown, plain
from envdoctor.observe import Target, read_facts_file
from envdoctor.report import Page, display_width, facts_json, facts_text, issue_block
from envdoctor.text import public_facts
from envdoctor.text.privacy import redact

Validate = Callable[[str, Any], None]
PRIVATE = ("/home/li", "GPU-0000", "1111-2222", "VIRTUAL_ENV", "train.yaml")


def test_text_shows_key_value_and_origin_in_columns(facts: FactSet, registry: Registry) -> None:
    lines = facts_text.render(facts, Page(registry, width=80)).splitlines()
    rows = [line for line in lines if line.startswith(("pkg.torch", "driver.version"))]
    assert [line.split() for line in rows] == [
        ["pkg.torch", "2.5.0+cu118", "torch/version.py"],
        ["driver.version", "520.61.05", "NVML"],
    ]
    assert rows[0].index("2.5.0") == rows[1].index("520")
    assert rows[0].index("torch/") == rows[1].index("NVML")


def test_text_tells_absent_from_unknown_and_gives_the_reason(facts: FactSet, registry: Registry) -> None:
    text = facts_text.render(facts, Page(registry, width=80))
    assert re.search(r"^torch\.hip +absent", text, re.MULTILINE)
    assert "unknown (nvcc was found but did not answer): cuda.toolkit" in text
    assert "any other pkg.* is absent" in text
    assert re.search(r"unknown \(not given\):[^()]*recipe\.attn", text, re.DOTALL)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_text_keeps_to_the_width(facts: FactSet, registry: Registry, lang: str) -> None:
    text = facts_text.render(facts, Page(registry, lang, 80), Target("venv", "/home/li/.venvs/glm", "VIRTUAL_ENV"))
    wide = [line for line in text.splitlines() if display_width(line) > 80]
    assert wide == []


def test_long_lists_are_counted_unless_asked_for(registry: Registry) -> None:
    items = tuple({"name": f"p{n}", "version": "1"} for n in range(40))
    facts = FactSet([Fact("dist", Records(items), "site-packages", "environment")])
    assert "p39" not in facts_text.render(facts, Page(registry))
    assert "name p39, version 1" in facts_text.render(facts, Page(registry, verbosity=1))


def test_many_absent_variables_share_a_line(registry: Registry) -> None:
    facts = FactSet(Fact(f"env.NCCL_{n}", ABSENT, "environment", "machine") for n in range(9))
    assert "absent: env.NCCL_0, env.NCCL_1" in facts_text.render(facts, Page(registry))


def test_public_text_holds_nothing_private(facts: FactSet, registry: Registry) -> None:
    target = Target("venv", "/home/li/.venvs/glm", "VIRTUAL_ENV")
    text = facts_text.render(facts, Page(registry), target, public=True)
    assert not [private for private in PRIVATE if private in text]


def test_a_facts_file_is_read_back_as_it_was(
    facts: FactSet, registry: Registry, validate: Validate, tmp_path: Path
) -> None:
    text = facts_json.render(facts, registry)
    validate("facts", json.loads(text))
    path = tmp_path / "facts.json"
    path.write_text(text, encoding="utf-8")
    again = read_facts_file(path, registry)
    for fact in facts:
        value = again.value(fact.key)
        if fact.source == "derived":
            assert fact.key not in again  # the reader derives it
        elif isinstance(fact.value, Unknown):
            assert value == fact.value
        else:
            assert plain(value) == plain(fact.value)
    assert again.value("pkg.flash-attn") is ABSENT
    assert facts_json.render(again, registry) != ""


def test_a_list_that_may_lack_items_stays_so(registry: Registry, validate: Validate, tmp_path: Path) -> None:
    facts = FactSet([Fact("gpu", Records(({"name": "T4", "cc": Unknown("?")},), "NVML gave up"), "NVML", "machine")])
    path = tmp_path / "facts.json"
    path.write_text(facts_json.render(facts, registry), encoding="utf-8")
    validate("facts", json.loads(path.read_text(encoding="utf-8")))
    again = read_facts_file(path, registry).value("gpu")
    assert isinstance(again, Records)
    assert again.incomplete == "NVML gave up"
    assert "cc" not in again.items[0]


def test_a_value_that_no_reader_would_take_is_written_as_unknown(registry: Registry, tmp_path: Path) -> None:
    facts = FactSet(
        [
            Fact("pkg.odd", "not a version!", "METADATA", "environment"),
            Fact("not.registered", "x", "", ""),
            Fact("dist", Records(({"name": "odd", "version": "not a version!", "other": "x"},)), "", "environment"),
        ]
    )
    path = tmp_path / "facts.json"
    path.write_text(facts_json.render(facts, registry), encoding="utf-8")
    again = read_facts_file(path, registry)
    assert isinstance(again.value("pkg.odd"), Unknown)
    assert again.value("dist") == Records(({"name": "odd"},))
    assert "not.registered" not in again


def test_a_hand_written_file_fits_the_schema(validate: Validate) -> None:
    validate(
        "facts",
        {
            "schema": "envdoctor.facts/1",
            "facts": {"pkg.torch": "2.5.0+cu118", "recipe.batch_size": 2, "gpu.cc": ["8.0", "8.0"]},
        },
    )


def test_a_public_facts_file_holds_nothing_private(facts: FactSet, registry: Registry, validate: Validate) -> None:
    text = facts_json.render(facts, registry, public=True)
    document = json.loads(text)
    validate("facts", document)
    assert not [private for private in PRIVATE if private in text]
    assert document["origins"] == {}
    assert document["unknown"]["python.executable"] == "left out for privacy"
    assert document["facts"]["pkg.torch"] == "2.5.0+cu118"
    assert "uuid" not in document["facts"]["gpu"][0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/li/x", "<path>"),
        ("~/x", "<path>"),
        ("~li/x", "<path>"),
        (r"C:\Users\li", "<path>"),
        ("C:/Users/li", "<path>"),
        (r"\\server\share", "<path>"),
        ("--root=/home/li wei/x", "--root=<path>"),
        ("cannot read /home/li wei/x: no", "cannot read <path>"),
        ("https://li@host.example/x", "<url>"),
        ("file:///home/li", "<url>"),
        ("li@node01.cluster", "<address>"),
        ("GPU-0a1b2c3d-1111-2222-3333-444444444444", "<uuid>"),
        ("THUDM/glm-4-9b-chat-hf", "THUDM/glm-4-9b-chat-hf"),
        ("2.5.0+cu118", "2.5.0+cu118"),
        ("expandable_segments:True", "expandable_segments:True"),
        ("6 / 8", "6 / 8"),
    ],
)
def test_paths_addresses_and_uuids_are_redacted(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_variables_that_name_hosts_and_paths_are_left_out(registry: Registry) -> None:
    facts = FactSet(
        [
            Fact("env.MASTER_ADDR", "node01", "x", "machine"),
            Fact("env.HF_ENDPOINT", "https://mirror.corp.example", "x", "machine"),
            Fact("env.LD_LIBRARY_PATH", "/home/li/lib:/usr/lib", "x", "machine"),
            Fact("env.CUDA_VISIBLE_DEVICES", "0,1", "x", "machine"),
        ]
    )
    public = public_facts(facts, registry)
    assert isinstance(public.value("env.MASTER_ADDR"), Unknown)
    assert isinstance(public.value("env.HF_ENDPOINT"), Unknown)
    assert isinstance(public.value("env.LD_LIBRARY_PATH"), Unknown)
    assert public.value("env.CUDA_VISIBLE_DEVICES") == "0,1"


def test_the_issue_block_has_what_a_maintainer_asks_for(facts: FactSet, registry: Registry) -> None:
    block = issue_block.render(facts, registry)
    for text in ("2.5.0+cu118", "4.48.0", "8 x NVIDIA A100-SXM4-80GB (sm_80)", "520.61.05", "THUDM/glm-4-9b-chat-hf"):
        assert text in block
    assert "python" in block
    assert "linux x86_64, glibc 2.35" in block
    assert block.isascii()
    assert not [private for private in PRIVATE if private in block]
    assert block.startswith("<details><summary>")
    assert block.count("```") == 2


def test_the_issue_block_says_what_is_missing(registry: Registry) -> None:
    facts = FactSet([Fact("pkg.torch", ABSENT, "", ""), Fact("gpu", Unknown("--no-gpu was given"), "", "")])
    rows = [line.split(None, 1) for line in issue_block.render(facts, registry).splitlines()[3:-3]]
    assert ["torch", "not installed"] in rows
    assert ["GPU", "not known (--no-gpu was given)"] in rows
    assert ["driver", "not known"] in rows


def test_a_model_in_a_local_folder_is_not_named_by_its_path(registry: Registry) -> None:
    facts = FactSet([Fact("model.path", "/home/li/glm", "", ""), Fact("model.repo", "/home/li/glm", "", "")])
    assert "/home/li" not in issue_block.render(facts, registry)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=80) | st.text(alphabet="`~<>\n#@!|", max_size=40))
def test_no_value_can_leave_the_fence(registry: Registry, text: str) -> None:
    facts = FactSet(Fact(key, text, "", "") for key in ("pkg.peft", "model.repo", "os.arch"))
    lines = issue_block.render(facts, registry).splitlines()
    fence = lines[2].removesuffix("text")
    assert set(fence) == {"`"}
    assert lines[-3] == fence
    for line in lines[3:-3]:
        assert fence not in line
        assert line.isprintable()
