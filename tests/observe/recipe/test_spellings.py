"""GPUs as people type them: known by their names, or refused with the nearest."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from envdoctor.app import Sources, UsageProblem, collect_facts
from envdoctor.facts import FactSet, Range, Unknown, spell
from envdoctor.observe import SCHEMA


@pytest.fixture
def known(tmp_path: Path, matrix) -> Callable[..., FactSet]:
    """The facts of a file, with what is typed."""

    def facts(*typed: str, **said: str) -> FactSet:
        path = tmp_path / "facts.json"
        path.write_text(json.dumps({"schema": SCHEMA, "facts": {f"recipe.{key}": said[key] for key in said}}))
        return collect_facts(Sources(facts=str(path), assignments=typed, cache=False, environ={}), matrix).facts

    return facts


@pytest.mark.parametrize(
    ("typed", "gpu"),
    [
        ("A100 80GB", ("8.0", 80)),
        ("NVIDIA A100-SXM4-80GB", ("8.0", 80)),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", ("8.0", 10)),
        ("A100", ("8.0", "40 or 80")),
        ("RTX 4090 24G", ("8.9", 24)),
        ("RTX4090", ("8.9", 24)),
        ("4090", ("8.9", 24)),
        ("A6000", ("8.6", 48)),
        ("H20", ("9.0", 96)),
        ("RTX 4090 Laptop GPU", ("8.9", None)),
        ("H10O", "did you mean H100?"),
        ("Voodoo 2", "give its compute capability too"),
    ],
)
def test_the_name_of_a_gpu_tells_compute_capability_and_memory(known, typed: str, gpu: object) -> None:
    if isinstance(gpu, str):
        with pytest.raises(UsageProblem) as refused:
            known(f"gpu.name={typed}")
        assert gpu in str(refused.value)
    else:
        (found,) = known(f"gpu.name={typed}").value("gpu")
        memory = found.get("memory_gib")
        assert (found["cc"], spell(memory) if isinstance(memory, Range) else memory) == gpu


@pytest.mark.parametrize(
    ("name", "column", "typed", "value"), [("Voodoo 2", "cc", "9.9", "9.9"), ("4090", "memory_gib", "48", 48)]
)
def test_what_is_given_beside_the_name_stands(known, name: str, column: str, typed: str, value: object) -> None:
    (gpu,) = known(f"gpu.name={name}", f"gpu.{column}={typed}").value("gpu")
    assert gpu["name"].endswith(name) and gpu[column] == value


def test_a_word_of_a_facts_file_that_nobody_knows_is_not_known(known) -> None:
    facts = known(dtype="float99", method="LoRA")
    assert facts.value("recipe.method") == "lora"
    assert facts.value("recipe.dtype") == Unknown("'float99' is none of bf16, fp16, fp32, fp8")
