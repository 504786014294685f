"""Pasted reports: each fixture holds the facts that a person would read in it, `=====`, and the text."""

from functools import cache
from pathlib import Path

import pytest

from envdoctor.facts import NOT_GIVEN, Absent, Records, Unknown
from envdoctor.observe import report_facts

FOLDER = Path(__file__).resolve().parents[3] / "fixtures/reports"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
ONE_3090 = Records(({"name": "RTX 3090"},))
#: What is said of a recipe as such, beside its settings.
OF_THE_RECIPE = ("recipe_file", "recipe_key", "recipe.arguments")


def expected(name):
    """The facts that are read, and those that a person reads besides."""
    said = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("=====\n")[0]
    lines = "\n".join(line for line in said.splitlines() if not line.startswith("#"))
    return [
        dict(line.split(" = ", 1) for line in part.split("\n") if line) for part in lines.partition("not read:")[::2]
    ]


@pytest.fixture(scope="module")
def found(matrix):
    """Every fact of a fixture, spelled as the fixtures spell them: GPUs as NAME*COUNT:GiB, ? where more may be."""

    @cache
    def go(name):
        text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("=====\n")[2]
        facts = report_facts(text, matrix, "report").facts
        return {fact.key: spelled(fact.value) for fact in facts if fact.key not in OF_THE_RECIPE}

    return go


def spelled(value):
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Absent):
        return "absent"
    if isinstance(value, Records):
        first = value.items[0]
        memory = f":{first['memory_gib']}" if "memory_gib" in first else ""
        return f"{first.get('name', '')}*{len(value)}{memory}{'?' if value.incomplete else ''}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_of_a_report_and_what_is_not(found, name):
    read, not_read = expected(name)
    assert found(name) == read and not read.keys() & not_read.keys()


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("I use torch 2.4.1", {"pkg.torch": "2.4.1"}),
        ("# transformers版本4.25.1", {"pkg.transformers": "4.25.1"}),
        ("I tried:\n# transformers版本4.25.1", {}),
        ("peft==0.15.2\nanyio @ file:///home/conda/build_artifacts/work_if_tried/work", {"pkg.peft": "0.15.2"}),
        (
            "We are using `transformers` 4.48.0 and peft==0.14.0 on a 3090",
            {"pkg.transformers": "4.48.0", "pkg.peft": "0.14.0", "gpu": ONE_3090},
        ),
        ("我用的是 torch 2.0.1 和 python 3.10", {"pkg.torch": "2.0.1", "python.minor": "3.10"}),
        ("- torch: 2.4.1", {"pkg.torch": "2.4.1"}),
        ("8×H200 or 4 x B200, `vllm` 0.6.3", {}),
        ("transformers 4.46.1, 4 x 4090 and 2 x 3090", {"pkg.transformers": "4.46.1"}),
        ("微调 ZhipuAI/glm-4-9b-chat", {"model.repo": "ZhipuAI/glm-4-9b-chat"}),
        (
            "用 LLaMA-Factory 微调 Qwen/Qwen2-7B (modelscope 下载)",
            {"model.repo": "Qwen/Qwen2-7B", "recipe.framework": "llamafactory"},
        ),
        ("Fine-tuning `meta-llama/Llama-3.1-8B`", {"model.repo": "meta-llama/Llama-3.1-8B"}),
        (
            "Fine-tuning google/gemma-2-9b-it with QLoRA fails at loading.",
            {"model.repo": "google/gemma-2-9b-it", "recipe.method": "qlora"},
        ),
        ("I use torch 2.4", {"pkg.torch": Unknown("line 1 of report says 2.4, which may be any 2.4.x")}),
    ],
)
def test_packages_with_their_versions_and_the_model_are_read_in_a_sentence(matrix, text, facts):
    assert {fact.key: fact.value for fact in report_facts(text, matrix, "report").facts} == facts


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("We train Llama 3.1 8B with QLoRA.", {"model.path": "Llama-3.1-8B", "recipe.method": "qlora"}),
        ("训练 ChatGLM3-6b 时显存溢出", {"model.repo": "zai-org/chatglm3-6b"}),
        ("GLM-4-9B diverges. It is THUDM/glm-4-9b-chat-hf.", {"model.repo": "THUDM/glm-4-9b-chat-hf"}),
        ("unlike Llama-2-7b it diverges", {}),
        ("The same with Qwen2-7B. I also tried Qwen2.5-7B. Qwen2-7B or Qwen2.5-7B", {}),
        ("Qwen2-7B diverges. Then Qwen2.5-7B.", {"model.repo": "unknown"}),
        ("see https://example.org/Qwen2-7B, /data/Qwen2-7B and Qwen2-7B/config.json", {}),
        ("It fails on 8×A100-80G.", {"gpu": "A100 80G*8"}),
        ("one A100 80GB", {"gpu": "A100 80G*1"}),
        ("8 * H100", {"gpu": "H100*8"}),
        ("a single RTX 3090 (24G)", {"gpu": "RTX 3090 24G*1"}),
        ("a 48 GB RTX A6000", {"gpu": "RTX A6000 48G*1"}),
        ("8卡A800", {"gpu": "A800*8"}),
        ("我在4090上跑", {"gpu": "RTX 4090*1?"}),
        ("5090上报错，4090卡死", {"gpu": "RTX 5090*1?"}),
        ("memory is short on 2 x 24G", {"gpu": "*2:24.0"}),
        ("8 x 80G: 8x A100 80G", {"gpu": "A100 80G*8"}),
        ("win10上跑", {"os.platform": "windows"}),
        ("WSL2 under Windows 11", {}),
        ("kernel[grid](x, BLOCK_SIZE=1024)", {}),
        ("单卡 4090", {"gpu": "RTX 4090*1"}),
        ("3090 samples, 4090 tokens, A3B, T5", {}),
        ("works on A100, and on V100 it hangs", {}),
        ("It works on A100, but hangs on 2 x 4090", {"gpu": "RTX 4090*2"}),
        ("We need 8 x H100", {}),
        ("batch size 4 diverges. batch size 1 is fine.", {"recipe.batch_size": "4"}),
        ("per_device_eval_batch_size=2", {"recipe.eval_batch_size": "2", "recipe.batch_size": "2"}),
        ("it has learning_rate = 8.148148e-06.", {"recipe.learning_rate": "8.148148e-06"}),
        ("vLLM with gpu_memory_utilization 0.95", {"recipe.gpu_memory_utilization": "0.95"}),
        ("3500+2500 tokens without gradient checkpointing",
         {"recipe.max_length": "6000", "recipe.gradient_checkpointing": "false"}),
        ("Maybe set per_device_train_batch_size=1 instead", {}),
        ("LoRA is set. Full fine-tuning is what fails.", {"recipe.method": "unknown"}),
        ("```\nQwen2-7B on one A100\n```", {}),
    ],
)  # fmt: skip
def test_sentences_say_what_is_run_and_those_that_compare_or_advise_say_nothing(matrix, text, facts):
    assert {fact.key: spelled(fact.value) for fact in report_facts(text, matrix, "report").facts
            if fact.key != "model.name"} == facts  # fmt: skip


def test_a_command_counts_before_a_sentence(matrix):
    text = "Qwen2-7B diverges with batch size 4.\n\n```\nswift sft --model Qwen/Qwen2.5-7B --train_type lora\n```"
    facts = report_facts(text, matrix, "report").facts
    assert facts.text("model.repo") == "Qwen/Qwen2.5-7B" and facts.get("recipe.batch_size").source == "told"


@pytest.mark.parametrize(
    ("said", "gpus"),
    [
        ("8 x A100 80G", "A100 80G*8"),
        ("NVIDIA L4 x4", "NVIDIA L4*4"),
        ("Tesla P40(24G) * 3", "Tesla P40 24G*3"),
        ("单卡 3090", "RTX 3090*1"),
        ("2× RTX 5090 (32 GB each)", "RTX 5090 32GB*2"),
        ("2x RTX 5090 32 GB each", "RTX 5090 32GB*2"),
        ("4 x A100 (80GB each, no NVLink)", "A100 80GB*4"),
        ("RTX 4090", "RTX 4090*1?"),
        ("B300", "B300*1?"),
        ("RTX 6090", None),
        ("A100 or H100", None),
        ("A100 H100", None),
        ("my A100 is broken", None),
        ("99 x A100", None),
    ],
)
def test_gpus_behind_a_label_are_those_that_the_tables_know(matrix, said, gpus):
    fact = report_facts(f"GPU: {said}", matrix, "report").facts.get("gpu")
    assert (None if fact.value == NOT_GIVEN else spelled(fact.value)) == gpus


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("显卡 RTX 4090 24G", "RTX 4090 24G*1?"),
        ("- 显卡 3090 x 2", "RTX 3090*2"),
        ("显卡 8 x A100 80G", "A100 80G*8"),
        ("I have 2× RTX 5090 (32 GB each), `transformers` 4.46.1 and `peft==0.13.0`.", "RTX 5090 32G*2"),
        ("2x5090, torch `2.7.0`", "RTX 5090*2"),
    ],
)
def test_a_gpu_is_read_behind_its_word_alone_and_in_a_sentence_with_versions(matrix, text, gpus):
    assert spelled(report_facts(text, matrix, "report").facts.value("gpu")) == gpus


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.4.1 works, 2.5.0 does not",
        "It happens with torch 2.5.0 but not torch 2.4.1",
        "Same problem on torch 2.3.0 and transformers 4.41.0",
        "pip install torch==2.4.1",
        "torch>=2.3.0",
        "torch 2.4.1 -> 2.5.0",
        "use torch 2.4.1",
        "使用 torch 2.4.1",
        "用 torch 2.4.1 就可以",
        "on another server:\ntorch 2.4.1",
        "What works:\n\n```\ntorch==2.4.1\n```",
        "torch==2.4.1\nworks for me",
        "dependencies:\n  - torch==2.4.1",
        "Works for me:\n- `transformers` version: 4.48.0\n- PyTorch version (GPU?): 2.4.1 (True)",
        "torch version: 2.0 or above",
        "torch: 2.4.1 (works)",
        "| name | works | fails |\n| torch | 2.4.1 | 2.5.0 |",
        "deepspeed wheel compiled w. ...... torch 2.1, cuda 12.1",
        'the model\'s config: "transformers_version": "4.40.0"',
        "OS: Linux or Windows",
        "GPU: A100 or H100",
        "datasets 3.0.0 rows",
        "## Environment\n\n**What works:**\n- PyTorch: 2.7.0+cu128",
        "**Dependencies:**\n- PyTorch: 2.7.0+cu128",
        "peft-0.5.0 works",
        "显卡 RTX 4090 没问题",
        "显卡 3090 4090",
        "之前的机器:\n显卡 RTX 4090",
        "换成另一台就正常\n显卡 RTX 4090 24G",
        "显卡 RTX 6090",
        "显卡 驱动 535",
        "微调 ZhipuAI/glm-4-9b-chat 没问题",
        "微调 ZhipuAI/glm-4-9b-chat 失败, 微调 Qwen/Qwen2-7B 正常",
        "之前试过\n微调 ZhipuAI/glm-4-9b-chat",
        "微调 data/alpaca.json",
        "微调 examples/qwen2-7b",
        "Fine-tuning examples/train_lora/llama3_lora_sft.yaml",
        "Fine-tuning meta-llama/Llama-3.1-8B works",
        "Fine-tuning meta-llama/Llama-3.1-8B or Qwen/Qwen2-7B",
        "Works for me:\n\nFine-tuning meta-llama/Llama-3.1-8B",
    ],
)
def test_what_was_tried_or_advised_is_not_installed(matrix, text):
    assert list(report_facts(text, matrix, "report").facts) == []


def test_lines_that_contradict_make_the_fact_unknown_and_are_both_named(matrix):
    read = report_facts("Machine A\ntorch==2.4.1\n\nMachine B\ntorch==2.5.0\n", matrix, "report")
    reason = "line 2 of report says 2.4.1, line 5 of report says 2.5.0"
    assert read.facts.value("pkg.torch") == Unknown(reason)
    assert read.notes == (f"torch: {reason}",)


def test_each_fact_has_its_line_and_what_was_not_read_is_said(matrix):
    read = report_facts("- Python version: 3.10.12\n\nI tried torch 2.4.1 too\n", matrix, "report")
    assert read.facts.get("python.version").origin == "report:1"
    assert read.notes == ("line 3 of report speaks of torch and was not read",)


def test_a_range_is_no_version_and_is_said(matrix):
    read = report_facts("transformers>=4.40,<5\npeft[all] ~= 0.12.0\ntorch>=2.3\n\ntorch 2.4.1\n", matrix, "report")
    assert {fact.key: fact.value for fact in read.facts} == {"pkg.torch": "2.4.1"}
    assert read.notes == tuple(
        f"line {number} of report speaks of {name} and was not read"
        for number, name in ((1, "transformers"), (2, "peft"))
    )


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.5.0 " * 5_000_000,
        "\x00\x1b[31m\u202etorch\x00 version: 2.5.0\x1b[0m\n" * 3,
        "| " * 1_000_000,
        "OS: Linux-" + "5-x86_64" * 100_000,
        "[conda] " + "a " * 100_000,
        "\n" * 1_000_000,
        (" " * 300 + "a:\n") * 20_000,
    ],
    ids=["one line", "escapes", "bars", "platform", "blanks", "lines", "indented labels"],
)
def test_hostile_text_is_bounded_and_its_characters_do_not_come_through(matrix, text):
    read = report_facts(text, matrix, "report")
    said = repr([fact.value for fact in read.facts]) + "".join(read.notes)
    assert not any(sign in said for sign in ("\x1b", "\\x1b", "\x00", "\\x00", "\u202e"))
    assert len(read.notes) < 8


def test_a_configuration_between_fences_is_read_as_a_whole(matrix):
    rows = "model_name_or_path: mistralai/Mistral-7B-v0.1\nbf16: true\n\nmixer:\n  HuggingFaceH4/ultrachat_200k: 1.0\n"
    rest = "\ngradient_accumulation_steps: 32\nper_device_train_batch_size: 2\nlearning_rate: 2.0e-05\n"
    facts = report_facts(f"```\n{rows}{rest}```\n", matrix, "report").facts
    assert facts.text("model.repo") == "mistralai/Mistral-7B-v0.1" and facts.value("recipe.batch_size") == 2
    assert not isinstance(facts.value("recipe.arguments"), Unknown)
