"""Values as people type them: understood, or refused with the nearest known."""

from __future__ import annotations

import pytest
from observing import shipped

from envdoctor.app import Sources, UsageProblem
from envdoctor.app.facts import with_assignments
from envdoctor.facts import FactSet, Unknown
from envdoctor.observe import facts_of_document


def known(*assignments: str) -> FactSet:
    return with_assignments(FactSet(), Sources(assignments=assignments), shipped())


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("recipe.dtype=float16", "fp16"),
        ("recipe.dtype=half", "fp16"),
        ("recipe.dtype=bfloat16", "bf16"),
        ("recipe.dtype=torch.bfloat16", "bf16"),
        ("recipe.dtype=FP16", "fp16"),
        ("recipe.attn=fa2", "flash_attention_2"),
        ("recipe.attn=flash-attn", "flash_attention_2"),
        ("recipe.attn=Flash_Attention_2", "flash_attention_2"),
        ("recipe.attn=sdpa", "sdpa"),
        ("recipe.attn=eager", "eager"),
        ("recipe.attn=kernels-community/flash-attn3", "kernels-community/flash-attn3"),
        ("recipe.method=LoRA", "lora"),
        ("recipe.method=QLORA", "qlora"),
        ("recipe.method=full", "full"),
        ("recipe.quantization=4bit", "bnb-4bit"),
        ("recipe.framework=LLaMA-Factory", "llamafactory"),
    ],
)
def test_usual_spellings_are_understood(typed: str, value: str) -> None:
    assert known(typed).value(typed.partition("=")[0]) == value


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("recipe.dtype=fp61", "did you mean fp16?"),
        ("recipe.attn=sdpaa", "did you mean sdpa?"),
        ("recipe.method=sft", "did you mean recipe.stage=sft?"),
        ("recipe.method=xyz", "known are full, lora, qlora"),
        ("gpu.memory=80", "did you mean gpu.memory_gib?"),
        ("gpu.count=-1", "at least 0 is expected"),
        ("recipe.batch_size=0", "at least 1 is expected"),
        ("recipe.gpu_memory_utilization=90", "at most 1 is expected"),
        ("pkg.\x1b=1", "is no name of a package"),
        ("env.CUDA_VISIBLE_DEVICE=0", "did you mean CUDA_VISIBLE_DEVICES?"),
        ("gpu.name=H10O", "did you mean H100?"),
        ("gpu.name=Voodoo 2", "give its compute capability too"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_nearest(typed: str, hint: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        known(typed)
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "cc", "memory"),
    [
        ("A100 80GB", "8.0", 80),
        ("NVIDIA A100-SXM4-80GB", "8.0", 80),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0", 10),
        ("A100", "8.0", None),
        ("RTX 4090 24G", "8.9", 24),
        ("RTX4090", "8.9", 24),
        ("4090", "8.9", 24),
        ("A6000", "8.6", 48),
        ("H20", "9.0", 96),
        ("RTX 4090 Laptop GPU", "8.9", None),
    ],
)
def test_the_name_of_a_gpu_tells_compute_capability_and_memory(typed: str, cc: str, memory: int | None) -> None:
    (gpu,) = known(f"gpu.name={typed}").value("gpu")
    assert (gpu["cc"], gpu.get("memory_gib")) == (cc, memory)


def test_a_gpu_that_no_table_has_is_taken_with_its_compute_capability() -> None:
    (gpu,) = known("gpu.name=Voodoo 2", "gpu.cc=9.9").value("gpu")
    assert gpu["name"] == "Voodoo 2"


def test_memory_that_was_given_stands() -> None:
    (gpu,) = known("gpu.name=4090", "gpu.memory_gib=48").value("gpu")
    assert gpu["memory_gib"] == 48


def test_a_word_of_a_facts_file_that_nobody_knows_is_not_known() -> None:
    document = {"schema": "envdoctor.facts/1", "facts": {"recipe.dtype": "float99", "recipe.method": "LoRA"}}
    facts = facts_of_document(document, "facts.json", shipped().registry)
    assert facts.value("recipe.method") == "lora"
    assert facts.value("recipe.dtype") == Unknown("'float99' is none of bf16, fp16, fp32, fp8")
