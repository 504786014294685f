"""What engines and trainers install by their own requirements, with models and GPUs that people use with them: no error
is told that is not true. The versions are those that uv resolved (``tools/record_stacks.py``)."""

import json
from pathlib import Path

import pytest
from known import derived
from observing import shipped

from envdoctor.judge import Policy, judge
from envdoctor.observe import facts_of_document

STACKS = json.loads((Path(__file__).parent / "official_stacks.json").read_text(encoding="utf-8"))
MODELS = ("zai-org/glm-4-9b-chat-hf", "Qwen/Qwen2.5-7B-Instruct", "google/gemma-2-9b-it", "openai/gpt-oss-20b")
GPUS = {"NVIDIA A100-SXM4-80GB": "8.0", "NVIDIA H100 80GB HBM3": "9.0", "NVIDIA GeForce RTX 4090": "8.9"}
METHODS = {"vllm": "serve", "sglang": "serve", "llamafactory": "lora", "ms-swift": "lora"}
#: transformers has gpt_oss since 4.55.0 (github.com/huggingface/transformers/releases/tag/v4.55.0); these stacks had
#: 4.52.4.
TRUE = {
    ("llamafactory-0.9.3", "openai/gpt-oss-20b"): {"model-type-unknown-to-transformers"},
    ("ms-swift-3.5", "openai/gpt-oss-20b"): {"model-type-unknown-to-transformers"},
    # SGLang has it since 0.5.1 (the table framework-models).
    ("sglang-0.4.6", "openai/gpt-oss-20b"): {"engine-does-not-know-the-model"},
}


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stack", STACKS)
def test_an_official_stack_has_no_error_that_is_not_true(stack, model, gpu):
    framework = stack.rpartition("-")[0]
    facts = {f"pkg.{name}": version for name, version in STACKS[stack]["packages"].items()}
    facts |= {"python.version": "3.11.9", "os.platform": "linux", "os.arch": "x86_64", "driver.version": "580.95.05"}
    facts |= {"gpu.name": [gpu], "gpu.cc": [GPUS[gpu]], "model.repo": model, "recipe.dtype": "bf16"}
    facts |= {"recipe.framework": framework, "recipe.method": METHODS[framework], "recipe.batch_size": 2}
    matrix = shipped()
    known = facts_of_document({"schema": "envdoctor.facts/1", "facts": facts}, "stack.json", matrix.registry)
    findings = judge(derived(known, matrix), matrix, Policy()).findings
    errors = {f.id for f in findings if f.severity == "error" and f.superseded_by is None}
    assert errors == TRUE.get((stack, model), set())
