"""A maintainer's round trip: a pasted report judged, answered in Markdown, and a log joined with its facts."""

import json
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "envdoctor/report/schemas/error.schema.json").read_text(encoding="utf-8"))
REPORT = """\
- `transformers` version: 4.48.0
- Platform: Linux-5.15.0-91-generic-x86_64-with-glibc2.35
- Python version: 3.10.12
- PyTorch version (GPU?): 2.5.0+cu118 (True)

I tried torch 2.4.1 too
"""


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "issue.txt"
    path.write_text(REPORT, encoding="utf-8")
    return path


def test_a_report_is_judged_like_any_other_source(run, report):
    done = run("check", "--no-config", "--report", report, "--model", "THUDM/glm-4-9b-chat-hf", "--format", "json")
    found = {finding["id"]: finding for finding in done.json["findings"]}
    assert done.code == 1
    assert found["torch-2-5-0-glm4-batch-nan"]["locations"][0] == {"path": "issue.txt", "line": 4}


def test_the_comment_has_facts_evidence_and_what_to_ask_for(run, report):
    report.write_text(
        "NCCL_DEBUG=INFO\n" + REPORT.replace("\n\n", "\nNCCL_DEBUG=`@everyone`|[x](y)\n\n"), encoding="utf-8"
    )
    options = ("--model", "THUDM/glm-4-9b-chat-hf", "--format", "issue-comment")
    done = run("check", "--no-config", "--report", report, *options)
    assert "| torch | `2.5.0+cu118` | 5 |" in done.out
    assert "[issue](https://github.com/zai-org/GLM-4/issues/724)" in done.out
    assert "speaks of torch" not in done.out  # the fact is known from another line
    assert "`nvidia-smi`" in done.out and "| `'@everyone'/[x](y)` | 6 |" in done.out


def test_facts_name_the_line_and_errors_are_sentences(run, report, tmp_path):
    assert "issue.txt:3" in run("facts", "--no-config", "--report", report).out
    empty = tmp_path / "empty.txt"
    empty.write_text("hello\n")
    for path, code in ((empty, 3), (tmp_path / "none.txt", 2), (tmp_path, 2)):
        done = run("check", "--no-config", "--report", path)
        assert done.code == code and done.err.startswith("envdoctor: --report ") and done.err.count("\n") == 1


def test_a_log_is_explained_and_the_facts_of_a_report_decide(run, report, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "step 1\n" * 30 + "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n"
    )

    def suspects(*more):
        done = run("explain", "--no-config", "--log", log, "--format", "json", *more)
        jsonschema.validate(done.json, SCHEMA)
        return [(one["id"], one.get("applies"), one["line"]) for one in done.json["suspects"]]

    assert {name for name, _, _ in suspects()} == {f"driver-too-old-for-cuda-{major}" for major in (11, 12, 13)}
    assert suspects("--report", report, "--set", "driver.version=418.40") == [("driver-too-old-for-cuda-11", True, 31)]
    log.write_text("ZeroDivisionError: division by zero\n")
    unknown = run("explain", "--no-config", "--log", log)
    assert unknown.code == 3 and "Not known" in unknown.out


TRACEBACK = """\
- `transformers` version: 4.42.4
- Python version: 3.10.14
- PyTorch version (GPU?): 2.3.1+cu121 (True)

```
ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, got {'rope_type': 'llama3'}
```
"""


def test_a_report_in_which_a_run_failed_is_not_clean(run, report, tmp_path):
    forms = ("terminal", "concise", "json", "junit", "github", "issue-comment")
    words = ("check", "--no-config", "--report", report, *(f"--output={form}={form}.out" for form in forms))
    assert run(*words).code == 0
    report.write_text(TRACEBACK)
    assert run(*words).code == 3
    for form in forms:
        text = (tmp_path / f"{form}.out").read_text(encoding="utf-8")
        assert "does not know its kind of rope" in text, form
        assert "; why, and what to do: envdoctor explain " in text and "'llama3'} '" not in text, form
    assert run(*words, "--model", "meta-llama/Llama-3.1-8B").code == 1  # a rule decides it
    assert not [form for form in forms if "envdoctor explain /" in (tmp_path / f"{form}.out").read_text("utf-8")]


FRAME = '  File "/v/lib/python3.10/site-packages/transformers/generation/utils.py", line 1975, in generate\n'
PIP = "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("必须更新accelerate不然会报错AttributeError: 'AdamW' object has no attribute 'train'", "with accelerate;"),
        ("训练过程报错System role not supported", "it says"),
        (f"{PIP}torchvision 0.12.0 requires torch==1.11.0, but you have torch 2.1.0 which is incompatible.", "pip has"),
        ("ImportError: Using a `device_map` requires Accelerate: `pip install accelerate`", "it needs accelerate;"),
        (
            f"Traceback (most recent call last):\n{FRAME}    self._get_logits_warper(config, device=ids.device)\n"
            "TypeError: warper_patch() got an unexpected keyword argument 'device'",
            "calls GenerationMixin._get_logits_warper(device=)",
        ),
        (
            "Transformers version: 4.41.2\nImportError: cannot import name 'is_flash_attn_greater_or_equal_2_10' "
            "from 'transformers.utils'",
            "transformers 4.41.2 has it: files of several releases",
        ),
        (
            "RuntimeError: Failed to import transformers.generation.utils because of the following error (look up)",
            "every release of transformers has transformers.generation.utils",
        ),
        (
            "# transformers版本4.25.1\nImportError: cannot import name 'GenerationConfig' from 'transformers'",
            "every release of transformers since 4.26.1 has transformers.GenerationConfig: it is an older one",
        ),
        (
            "ERROR 07-07 02:22:12 [core.py:588] OSError: [Errno 28] No space left on device\nERROR 07-07 02:22:12 "
            "[core.py:588] EngineDeadError: EngineCore encountered an issue. See stack trace (above)",
            "failed with OSError: [Errno 28]",
        ),
        (
            "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
            "- ds bf16.enabled=True vs hf bf16|bf16_full_eval=False\n\naccelerate launch src/train_bash.py \\\n"
            "    --stage sft --do_train --finetuning_type lora --bf16",
            "contradicts the training arguments: ...; but what else is told says otherwise",
        ),
        (
            'Traceback (most recent call last):\n  File "/v/site-packages/vllm/v1/backends/flash_attn.py", '
            "line 539, in forward\n    flash_attn_varlen_func(\n"
            "TypeError: flash_attn_varlen_func() got an unexpected keyword argument 'num_splits'",
            "vllm calls something of another release",
        ),
        (f"error: it ends here\nTraceback (most recent call last):\n{FRAME}", "paste the line that names the error"),
        (f"No module named 'swift.gone'\n\nTraceback (most recent call last):\n{FRAME}", "failed with No module named"),
        ("ModuleNotFoundError: No module named 'vllm._C'", "it was not built, or its sources stand in front"),
        (
            f"x.py:7: RuntimeWarning: x\nNo module named 'vllm._version'\nTraceback (most recent call last):\n{FRAME}",
            "paste the line that names the error",
        ),
        # What a line means is not said of the error in another one.
        (
            "merge: Cannot merge LORA layers when the model is gptq quantized\nZeroDivisionError: division by zero",
            "it says merge: Cannot merge LORA layers",
        ),
    ],
)
def test_the_error_of_a_report_is_told_whatever_else_stands_in_it(run, report, text, said):
    report.write_text(f"{text}\n", encoding="utf-8")
    done = run("check", "--no-config", "--report", report)
    assert done.code == 3 and said in f"{done.out}{done.err}"


ASCEND = """WARNING 05-26 03:28:26 [_custom_ops.py:21] Failed to import from vllm._C with \
ModuleNotFoundError("No module named 'vllm._C'")"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"{ASCEND}\nINFO:     Application startup complete.", 0),
        ("[WARNING:swift] There are errors in the dataset, the data will be deleted\nTraining completed.", 0),
        (f"{ASCEND}\nZeroDivisionError: division by zero", 3),
        (f"{ASCEND}\nTraceback (most recent call last):\n{FRAME}", 3),
    ],
)
def test_a_warning_in_the_log_of_a_run_that_went_on_is_a_note(run, report, line, code):
    report.write_text(f"torch 2.6.0\nvllm 0.8.5\nPython 3.10\n{line}\n")
    assert run("check", "--no-config", "--report", report).code == code


def test_an_error_of_memory_is_not_put_down_to_a_setting_that_is_otherwise(run, report):
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB.\n"
    report.write_text(f"{REPORT}```\nllamafactory-cli train a.yaml\n```\n```yaml\n{CONFIGURATION}```\n{oom}")
    assert "checkpointing is off" not in run("explain", "--report", report, "--log", report).out
    assert "memory left" in run("check", "--no-config", "--report", report).out


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.1.0\ntorch-npu 2.1.0.post8\ntransformers 4.44.2\nPython 3.10.14\n",
        REPORT.replace("2.5.0+cu118 (True)", "2.5.1 (NPU)") + "- NPU type: Ascend910B2\n",
    ],
)
def test_a_report_from_ascend_is_not_taken_for_one_with_cuda(run, report, text):
    report.write_text(text)
    out = run("check", "--no-config", "--report", report).out
    assert "Not judged: what is special about this accelerator: ascend" in out.splitlines()[0]
    assert "torch-npu" not in text or "CUDA 12" not in out


def test_one_command_is_what_to_do_and_a_name_that_went_has_its_successor(run):
    error = "TypeError: Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'"
    said = run("explain", "--no-environment", "--error", error).out
    assert said.count("  do  ") == 1 and "accelerate>=1.3" in said
    error = "ImportError: cannot import name 'LossKwargs' from 'transformers.utils'"
    said = run("explain", "--no-environment", "--error", error).out
    assert "transformers.utils.TransformersKwargs (transformers >=4.54)" in said


CONFIGURATION = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: full
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
NAMED = "deepspeed: configs/ds_config.json\n"
SHOWN = """
```json
{"train_micro_batch_size_per_gpu": "auto",
 "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}}
```
"""


@pytest.mark.parametrize(
    ("more", "behind", "verdict", "code", "said"),
    [
        (NAMED, "", None, 0, True),  # how the processes share the model decides it
        (NAMED, SHOWN, "fits", 0, False),
        ("", "", "does-not-fit", 1, False),
        (f"{NAMED}disable_gradient_checkpointing: true\n", "", None, 0, True),
        (NAMED.replace("ds_config", "zero3_offload"), "", "fits", 0, True),
        (NAMED.replace("ds_config", "zero3_no_offload"), "", "does-not-fit", 1, True),
    ],
    ids=[
        "the file is missing",
        "the file is shown",
        "no file",
        "without checkpointing",
        "its name tells",
        "no offload",
    ],
)
def test_a_file_of_deepspeed_that_is_not_shown_leaves_open_what_it_says(run, report, more, behind, verdict, code, said):
    machine = "- GPU type: NVIDIA GeForce RTX 3090\n- GPU number: 4\n- GPU memory: 23.69GB\n"
    command = "```\nllamafactory-cli train full.yaml\n```\n"
    shown = f"```yaml\n{CONFIGURATION}{more}```\n{behind}"
    versions = REPORT.replace("4.48.0", "4.48.3")  # which llamafactory 0.9.3 refuses
    text = f"- `llamafactory` version: 0.9.3\n{versions}\n{machine}\n{command}\n{shown}"
    report.write_text(text, encoding="utf-8")
    done = run("check", "--no-config", "--report", report, "--format", "json")
    memory = done.json["sections"]["memory"]
    assert (memory["verdict"], done.code) == (verdict, code)
    notices = [notice["text"] for notice in done.json["notices"]]
    assert any("names configs/" in notice and "which is not there" in notice for notice in notices) == said
    assert not any("full.yaml" in notice for notice in notices)
    # LLaMA-Factory has it on by itself.
    assert not any("gradient checkpointing was not given" in text for text in memory["assumed"])


def test_a_sign_of_a_failed_run_is_no_green_end_though_its_known_causes_are_ruled_out(run, report, tmp_path):
    report.write_text(
        REPORT + "- GPU type: NVIDIA A100-SXM4-80GB\n- GPU number: 1\n{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.2}\n"
    )
    done = run("check", "--no-config", "--report", report)
    assert done.code == 3 and "'grad_norm': nan" in done.out and "the message does not say why" in done.out


def test_the_type_of_a_model_is_read_behind_a_traceback(run):
    file = "/x/site-packages/transformers/models/auto/configuration_auto.py"
    lines = [
        "Traceback (most recent call last):",
        f'  File "{file}", line 1113, in from_pretrained',
        '    config_class = CONFIG_MAPPING[config_dict["model_type"]]',
        f'  File "{file}", line 815, in __getitem__',
        "    raise KeyError(key)",
        "KeyError: 'qwen3'",
    ]
    assert (
        "model type qwen3 (known from 4.51.0 on)" in run("explain", "--no-environment", "--error", "\n".join(lines)).out
    )


@pytest.mark.parametrize(
    ("told", "rule"),
    [
        (
            "I'm fine-tuning glm-4-9b-chat-hf with LoRA on one A100 80GB. With batch size 1 eval is fine.\n"
            "When I put per_device_eval_batch_size=2 eval_loss is nan.\n\ntorch 2.5.0+cu124, transformers 4.46.1",
            "torch-2-5-0-glm4-batch-may-be-nan",
        ),
        (
            "单卡A100 80G 微调 glm-4-9b-chat-hf，LoRA。batch_size=2 时 eval loss 为 nan。\n\ntorch 2.5.0",
            "torch-2-5-0-glm4-batch-may-be-nan",
        ),
        (
            "用 LoRA 微调 GLM-4-9B，单卡 A100 80G，3500+2500 tokens，没有开启gradient checkpointing，几步后显存不足",
            "glm4-9b-lora-out-of-memory-without-gradient-checkpointing",
        ),
        (
            "In January I trained ChatGLM3-6b with LoRA on a 16 GB card. I downloaded it again, and now: CUDA out of\n"
            "memory. The script has gradient_checkpointing=True.\n\ntorch 2.1.2, transformers 4.36.2",
            "chatglm3-6b-current-code-ignores-gradient-checkpointing",
        ),
        (
            "DPO of GLM-4-9B with OpenRLHF runs out of memory on 8×A100-80G after a few steps. Full fine-tuning,\n"
            "ZeRO-3, max length 2048.\n\nOpenRLHF version: 0.3.8, torch 2.4.0, transformers 4.45.2",
            "openrlhf-glm4-dpo-out-of-memory-without-flash-attention",
        ),
        (
            "# vLLM 启动报错显存不足\n\nWeClone 微调 Qwen2.5-7B-Instruct 之后用 vLLM 部署，一张 A6000 48G\n"
            "gpu_memory_utilization 设为 0.95，启动就报 CUDA out of memory\n\nvllm 0.6.6，torch 2.5.1",
            "vllm-gpu-memory-utilization-too-high",
        ),
    ],
)
def test_a_story_told_in_words_is_answered_by_its_rule(run, report, told, rule):
    report.write_text(told, encoding="utf-8")
    checked = run("check", "--no-config", "--report", report, "--format", "json")
    assert rule in {finding["id"] for finding in checked.json["findings"]}
    assert "envdoctor explain /" not in checked.out
    explained = run("explain", "--no-config", report, "--format", "json")
    assert (rule, True) in {(one["id"], one.get("applies")) for one in explained.json["suspects"]}


def test_nobody_is_sent_to_explain_for_what_it_does_not_know(run, report):
    report.write_text(REPORT + "\nZeroDivisionError: division by zero\n")
    done = run("check", "--no-config", "--report", report)
    assert done.code == 3 and "give the whole traceback" in done.out and "envdoctor explain" not in done.out
