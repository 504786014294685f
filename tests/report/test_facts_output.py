"""Facts as text, as a facts file and as a block for a bug report."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import rows

from envdoctor.facts import ABSENT, Fact, FactSet, Records, Registry, Unknown, plain, public_facts
from envdoctor.observe import Target, read_facts_file
from envdoctor.report import Page, display_width, facts_text

Validate = Callable[[str, Any], None]
Again = Callable[..., FactSet]
VENV = Target("venv", "/home/li/.venvs/glm", "VIRTUAL_ENV")
PRIVATE = ("/home/li", "GPU-0000", "1111-2222", "VIRTUAL_ENV", "train.yaml")


def known(**values: Any) -> FactSet:
    """Facts by their keys, two underscores for a dot."""
    return FactSet(Fact(key.replace("__", "."), value, "", "machine") for key, value in values.items())


def private(text: str) -> list[str]:
    return [part for part in PRIVATE if part in text]


@pytest.fixture
def again(registry: Registry, validate: Validate, tmp_path: Path) -> Again:
    """Write facts into a file that fits the schema, and read it."""

    def run(facts: FactSet) -> FactSet:
        text = facts_text.render_json(facts, registry)
        validate("facts", json.loads(text))
        (tmp_path / "facts.json").write_text(text, encoding="utf-8")
        return read_facts_file(tmp_path / "facts.json", registry)

    return run


# --- as text ----------------------------------------------------------------------------------------------------------


def test_text_shows_key_value_and_origin_in_columns(facts: FactSet, registry: Registry) -> None:
    text = facts_text.render(facts, Page(registry, width=80))
    rows = [line for line in text.splitlines() if line.startswith(("pkg.torch", "driver.version"))]
    assert [line.split() for line in rows] == [
        ["pkg.torch", "2.5.0+cu118", "torch/version.py"],
        ["driver.version", "520.61.05", "NVML"],
    ]
    assert rows[0].index("2.5.0") == rows[1].index("520")
    assert rows[0].index("torch/") == rows[1].index("NVML")
    assert re.search(r"^torch\.hip +absent", text, re.MULTILINE)
    assert "unknown (nvcc was found but did not answer): cuda.toolkit" in text
    assert "any other pkg.* is absent" in text
    assert re.search(r"\d+ more facts are not known, and nothing was given that tells them: -v", " ".join(text.split()))
    every = facts_text.render(facts, Page(registry, width=80, verbosity=1))
    assert re.search(r"unknown \(not given\):[^()]*recipe\.attn", every, re.DOTALL)
    for lang in ("en", "zh"):
        lines = facts_text.render(facts, Page(registry, lang, 80), VENV).splitlines()
        assert [line for line in lines if display_width(line) > 80] == []
    assert private(facts_text.render(facts, Page(registry), VENV, public=True)) == []


def test_long_lists_are_counted_unless_asked_for(registry: Registry) -> None:
    facts = known(dist=Records(tuple({"name": f"p{n}", "version": "1"} for n in range(40))))
    assert "p39" not in facts_text.render(facts, Page(registry))
    assert "name p39, version 1" in facts_text.render(facts, Page(registry, verbosity=1))
    absent = known(**{f"env__NCCL_{n}": ABSENT for n in range(9)})
    assert "absent: env.NCCL_0, env.NCCL_1" in facts_text.render(absent, Page(registry))
    none = facts_text.render(known(dist=Records(()), gpu=Records((), "NVML gave up")), Page(registry))
    assert "\nnone: dist\n" in none and "NVML gave up" in none.partition("none: ")[0]


# --- as a file --------------------------------------------------------------------------------------------------------


def test_a_facts_file_is_read_back_as_it_was(facts: FactSet, registry: Registry, again: Again) -> None:
    read = again(facts)
    for fact in facts:
        value = read.value(fact.key)
        if fact.source == "derived":
            assert fact.key not in read  # the reader derives it
        elif isinstance(fact.value, Unknown):
            assert value == fact.value
        else:
            assert plain(value) == plain(fact.value)
    assert read.value("pkg.flash-attn") is ABSENT
    assert facts_text.render_json(read, registry) != ""


def test_what_cannot_be_read_stays_unknown(again: Again) -> None:
    gpus = again(known(gpu=Records(({"name": "T4", "cc": Unknown("?")},), "NVML gave up"))).value("gpu")
    assert isinstance(gpus, Records) and gpus.incomplete == "NVML gave up" and "cc" not in gpus.items[0]
    odd = Records(({"name": "odd", "version": "not a version!", "other": "x"},))
    read = again(known(pkg__odd="not a version!", not__registered="x", dist=odd))
    assert isinstance(read.value("pkg.odd"), Unknown)
    assert read.value("dist") == Records(({"name": "odd"},))
    assert "not.registered" not in read


def test_a_hand_written_file_fits_the_schema(validate: Validate) -> None:
    facts = {"pkg.torch": "2.5.0+cu118", "recipe.batch_size": 2, "gpu.cc": ["8.0", "8.0"]}
    validate("facts", {"schema": "envdoctor.facts/1", "facts": facts})


def test_a_public_facts_file_holds_nothing_private(facts: FactSet, registry: Registry, validate: Validate) -> None:
    text = facts_text.render_json(facts, registry, public=True)
    document = json.loads(text)
    validate("facts", document)
    assert private(text) == []
    assert document["origins"] == {}
    assert document["unknown"]["python.executable"] == "left out for privacy"
    assert document["facts"]["pkg.torch"] == "2.5.0+cu118"
    assert "uuid" not in document["facts"]["gpu"][0]


@rows("text expected")
def test_paths_addresses_and_uuids_are_redacted(registry: Registry, text: str, expected: str) -> None:
    assert public_facts(known(os__arch=text), registry).value("os.arch") == expected


def test_variables_that_name_hosts_and_paths_are_left_out(registry: Registry) -> None:
    hosts = {"env__MASTER_ADDR": "node01", "env__HF_ENDPOINT": "https://mirror.corp.example"}
    facts = known(**hosts, env__LD_LIBRARY_PATH="/home/li/lib:/usr/lib", env__CUDA_VISIBLE_DEVICES="0,1")
    left = {fact.key for fact in public_facts(facts, registry) if not isinstance(fact.value, Unknown)}
    assert left == {"env.CUDA_VISIBLE_DEVICES"}


# --- for a bug report -------------------------------------------------------------------------------------------------


def test_the_issue_block_has_what_a_maintainer_asks_for(facts: FactSet, registry: Registry) -> None:
    block = facts_text.render_issue(facts, registry)
    for text in ("2.5.0+cu118", "4.48.0", "8 x NVIDIA A100-SXM4-80GB (sm_80)", "520.61.05", "THUDM/glm-4-9b-chat-hf"):
        assert text in block
    assert "python" in block and "linux x86_64, glibc 2.35" in block
    assert block.isascii() and private(block) == []
    assert block.startswith("<details><summary>") and block.count("```") == 2
    missing = facts_text.render_issue(known(pkg__torch=ABSENT, gpu=Unknown("--no-gpu was given")), registry)
    rows = [line.split(None, 1) for line in missing.splitlines()[3:-3]]
    for row in (["torch", "not installed"], ["GPU", "not known (--no-gpu was given)"], ["driver", "not known"]):
        assert row in rows
    folder = known(model__path="/home/li/glm", model__repo="/home/li/glm")
    assert "/home/li" not in facts_text.render_issue(folder, registry)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=80) | st.text(alphabet="`~<>\n#@!|", max_size=40))
def test_no_value_can_leave_the_fence(registry: Registry, text: str) -> None:
    facts = FactSet(Fact(key, text, "", "") for key in ("pkg.peft", "model.repo", "os.arch"))
    lines = facts_text.render_issue(facts, registry).splitlines()
    fence = lines[2].removesuffix("text")
    assert set(fence) == {"`"} and lines[-3] == fence
    assert all(fence not in line and line.isprintable() for line in lines[3:-3])
