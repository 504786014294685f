"""What is found in recipes: nothing in healthy ones, the cause in the stories, nothing once it is mended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envdoctor import check
from envdoctor.matrix import Matrix

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
INSTALLED = {
    **{"os.platform": "linux", "python.version": "3.11.9", "pkg.torch": "2.6.0+cu124", "pkg.transformers": "4.51.3"},
    **{"pkg.trl": "0.19.1", "pkg.peft": "0.15.2", "pkg.accelerate": "1.6.0", "pkg.deepspeed": "0.16.4"},
    "pkg.bitsandbytes": "0.45.4",
    "gpu": [{"name": "NVIDIA A100-SXM4-80GB", "cc": "8.0", "memory_gib": 80}],
}
SWITCH = "gradient_checkpointing: true"
GLM = {"model.repo": "zai-org/glm-4-9b-chat"}


@pytest.fixture
def told(matrix: Matrix, given: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """What is found at warning or error in a recipe, by rule; ``facts`` beside INSTALLED, ``typed`` by --set."""

    def found(file: Path, model: str | None = None, typed: tuple[str, ...] = (), **facts: Any) -> dict[str, Any]:
        sources = given({**INSTALLED, **facts}, recipe=[file.name], cwd=file.parent, model=model, assignments=typed)
        findings = check(sources, matrix=matrix).findings
        return {one.id: one for one in findings if one.severity != "note" and not one.superseded_by}

    return found


HEALTHY = """
accelerate/fsdp.yaml accelerate/zero3.yaml axolotl/qlora.yaml deepspeed/zero2.json glm4/lora.yaml hf-arguments/train.sh
launchers/slurm.sh ms-swift/sft.sh openrlhf/dotted.sh openrlhf/param-dtype.sh torchtune/qlora.yaml
trl/sft.yaml trl/zero3.yaml unsloth/train.py vllm/serve.sh vllm/serve.yaml weclone/settings.jsonc
"""


@pytest.mark.parametrize("name", HEALTHY.split())
def test_a_healthy_recipe_gives_nothing(told, name):
    larger = {"gpu": [{"name": "NVIDIA H200", "cc": "9.0", "memory_gib": 141}] * 8} if "openrlhf" in name else {}
    assert list(told(FIXTURES / "recipes" / name, model="meta-llama/Meta-Llama-3-8B", **larger)) == []


TORCHRUN = "torchrun --nproc-per-node"
DIVIDED = [
    (f"{TORCHRUN}=8", "", ("recipe.method=full",), True),
    ("python", "", ("recipe.method=full",), True),
    (f"{TORCHRUN}=8", "", (), False),
    (f"{TORCHRUN}=$N", "", ("recipe.method=full",), False),
    ("accelerate launch", "", ("recipe.method=full",), False),
    ("accelerate launch --config_file none.yaml", "", ("recipe.method=full",), False),
    (f"{TORCHRUN}=8", "--deepspeed $FILE", ("recipe.method=full",), False),
    (f"{TORCHRUN}=8", "--deepspeed none.json", ("recipe.method=full",), False),
    (f"{TORCHRUN}=8", "--fsdp $SHARDED", ("recipe.method=full",), False),
]


@pytest.mark.parametrize(("launcher", "option", "typed", "told_so"), DIVIDED)
def test_a_run_that_may_be_divided_or_train_adapters_is_not_said_to_fit_at_no_length(
    told, tmp_path, launcher, option, typed, told_so
):
    """Full fine-tuning of 8 billion weights in bfloat16 by AdamW takes 75 GiB before any sample, 90 with DDP's."""
    command = f"{launcher} train.py --output_dir out --per_device_train_batch_size 1 --bf16 True {option}"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{command}\n")
    found = told(tmp_path / "run.sh", model="meta-llama/Meta-Llama-3-8B", typed=typed)
    assert ("does-not-fit" in found) is told_so


def test_the_defaults_of_grpo_beside_an_engine_may_need_more_than_80_gib(told):
    """Eight samples of 1,536 tokens in float32 without checkpointing, and 30 % of the card for vLLM; most answers are
    shorter."""
    assert list(told(FIXTURES / "recipes" / "trl" / "grpo.sh")) == ["longest-answers-do-not-fit"]


MISTAKES = [
    ("hf-arguments/train.yaml", "use-keyword-renamed", "train.yaml:11"),
    ("hf-arguments/train.yaml", "yaml-number-read-as-text", "train.yaml:5"),
    ("hf-arguments/train.json", "fp16-and-bf16-together", "train.json:5"),
    ("llamafactory/sft.yaml", "deepspeed-config-contradicts-training-arguments", "ds_z3.json:3"),
]


@pytest.mark.parametrize(("name", "rule", "place"), MISTAKES)
def test_a_mistake_is_found_with_its_line(told, name, rule, place):
    locations = told(FIXTURES / "recipes" / name)[rule].locations
    assert place in [f"{Path(one.path).name}:{one.line}" for one in locations]


OPENRLHF = {"flash-attn": "0.8.9", "attn-implementation": "0.9.1", "param-dtype": "0.10.1", "dotted": "0.10.2"}


@pytest.mark.parametrize(
    ("dialect", "release"),
    [
        *OPENRLHF.items(),
        *zip(list(OPENRLHF)[1:], OPENRLHF.values(), strict=False),
        *zip(OPENRLHF, list(OPENRLHF.values())[1:], strict=False),
    ],
)
def test_options_of_openrlhf_belong_to_releases(told, dialect, release):
    found = told(FIXTURES / "recipes" / "openrlhf" / f"{dialect}.sh", **{"pkg.openrlhf": release})
    assert ("openrlhf-options-of-another-release" not in found) is (OPENRLHF[dialect] == release)


# LLaMA-Factory hands its keys to TrainingArguments, which had this one until 5.0, and declares none of that name.
@pytest.mark.parametrize(("release", "lines"), [("4.57.6", []), ("5.0.0", [6]), ("5.23.0", [6])])
def test_a_key_of_llamafactory_that_transformers_dropped(told, tmp_path, release, lines):
    recipe = "stage: sft\nfinetuning_type: full\ntemplate: llama3\nbf16: true\nfsdp: [full_shard, auto_wrap]\n"
    (tmp_path / "sft.yaml").write_text(f"{recipe}fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n")
    found = told(tmp_path / "sft.yaml", **{"pkg.transformers": release, "pkg.llamafactory": "0.9.5"})
    refused = found.get("use-keyword-refused")
    assert [place.line for place in (refused.locations if refused else ())] == lines


# Its parser drops what it does not know then (llamafactory/hparams/parser.py).
@pytest.mark.parametrize(
    ("switch", "found"), [("", True), ("ALLOW_EXTRA_ARGS=1 ", False), ("ALLOW_EXTRA_ARGS=0 ", True)]
)
def test_llamafactory_may_be_told_to_drop_extra_keys(told, tmp_path, switch, found):
    recipe = "stage: sft\nfinetuning_type: full\nbf16: true\nfsdp_transformer_layer_cls_to_wrap: A\n"
    (tmp_path / "sft.yaml").write_text(recipe)
    (tmp_path / "run.sh").write_text(f"{switch}llamafactory-cli train sft.yaml\n")
    rules = told(tmp_path / "run.sh", **{"pkg.transformers": "5.0.0", "pkg.llamafactory": "0.9.5"})
    assert ("use-keyword-refused" in rules) is found
    facts = {"pkg.transformers": "5.0.0", "env.ALLOW_EXTRA_ARGS": "True"}
    assert "use-keyword-refused" not in told(tmp_path / "sft.yaml", **facts)


# DeepSpeed without ZeRO takes the loss scale of the fp16 section for bf16 too, enabled or not, from 0.17.6 to 0.18.5.
@pytest.mark.parametrize("release", ["0.17.5", "0.17.6", "0.18.5", "0.18.6"])
def test_bf16_without_zero_is_wrong_in_some_releases_of_deepspeed(told, tmp_path, release):
    stage = '{"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 0}}'
    (tmp_path / "ds_z0.json").write_text(stage)
    (tmp_path / "sft.yaml").write_text("stage: sft\nfinetuning_type: full\nbf16: true\ndeepspeed: ds_z0.json\n")
    found = told(tmp_path / "sft.yaml", **{"pkg.deepspeed": release})
    assert ("deepspeed-zero-0-bf16-divides-gradients" in found) is (release in {"0.17.6", "0.18.5"})


def test_the_first_story(told, tmp_path):
    story = FIXTURES / "stories" / "1"
    found = told(story / "run.sh", **GLM)
    assert "glm4-9b-lora-keeps-all-activations-on-each-gpu" in found
    config = (story / "configs" / "lora.yaml").read_text().replace("  deepspeed: configs/ds_zero_3.json\n", "")
    (tmp_path / "lora.yaml").write_text(config)
    without = "glm4-9b-lora-out-of-memory-without-gradient-checkpointing"
    assert list(told(tmp_path / "lora.yaml", **GLM)) == ["does-not-fit", without]
    (tmp_path / "lora.yaml").write_text(config.replace("training_args:", f"training_args:\n  {SWITCH}"))
    assert told(tmp_path / "lora.yaml", **GLM) == {}
