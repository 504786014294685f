"""Whole logs: which rule or link is named first. Each fixture says it (any of several), `=====`, and the log."""

from functools import cache
from pathlib import Path

import pytest

from envdoctor.app.explaining import explain_error

FOLDER = Path(__file__).resolve().parents[2] / "fixtures/logs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
UNRELATED = [name for name in NAMES if name.startswith("unrelated-")]
RELATED = [name for name in NAMES if name not in UNRELATED]
FROM_ISSUES = [name for name in RELATED if name.startswith("issue-")]


@cache
def parts(name):
    head, _, text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("=====\n")
    return next(line[8:].split() for line in head.splitlines() if line.startswith("first = ")), text


@pytest.fixture(scope="module")
def first(matrix):
    """What is named first: a rule, or the package that a link leads to."""

    @cache
    def go(name):
        answer = explain_error(parts(name)[1], matrix).answer
        if answer.suspects:
            return answer.suspects[0].id
        return f"package:{answer.homes[0].package}" if answer.homes else "nothing"

    return go


@pytest.mark.parametrize("names", [RELATED, FROM_ISSUES], ids=["all", "from issues"])
def test_the_right_rule_or_link_comes_first(first, names):
    wrong = {name: first(name) for name in names if first(name) not in parts(name)[0]}
    print(f"{len(names) - len(wrong)} of {len(names)}; not: {wrong}")
    assert len(names) >= 25 and len(wrong) <= 0.2 * len(names), wrong
    assert f" {len(names) - len(wrong)} of {len(names)} " in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", UNRELATED)
def test_nothing_is_claimed_of_a_log_that_no_rule_is_about(first, name):
    assert first(name) == "nothing"


@pytest.mark.parametrize(
    ("library", "told"),
    [
        ("libcublas.so.12", True),
        ("libnccl.so.2", True),
        ("libcusparseLt.so.0", True),
        ("libnvrtc.so.12", True),
        ("libGL.so.1", False),
        ("libmkl_rt.so.2", False),
        ("libgomp.so.1", False),
    ],
)
def test_only_libraries_of_cuda_that_torch_cannot_find_are_told(matrix, library, told):
    log = (
        f"    from torch._C import *\nImportError: {library}: cannot open shared object file: No such file or directory"
    )
    suspects = {one.id for one in explain_error(log, matrix).answer.suspects}
    assert ("torch-cuda-libraries-missing" in suspects) is told


def test_of_rules_with_one_symptom_those_about_models_the_log_does_not_name_say_nothing(matrix):
    """A loss of NaN alone is no sign of Gemma 3."""
    log = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.9e-05, 'epoch': 0.01}"
    assert [one.id for one in explain_error(log, matrix).answer.suspects] == ["gradients-not-finite"]
    named = {one.id for one in explain_error(f"PyTorch version: 2.5.0\n{log}", matrix).answer.suspects}
    assert "torch-2-5-0-cudnn-sdpa-default-nan" in named and not named & {
        "gemma3-fp16-overflow",
        "glm4-fp16-training-nan",
    }
    model = explain_error(f"--model_name_or_path THUDM/glm-4-9b-chat --fp16\n{log}", matrix).answer.suspects
    assert "glm4-fp16-training-nan" in {one.id for one in model}
    sampling = "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"
    bare = explain_error(sampling, matrix).answer.suspects
    assert [one.id for one in bare] == ["logits-not-finite-while-sampling"]
    qwen = explain_error(f"model: Qwen/Qwen2-7B-Instruct\n{sampling}", matrix).answer.suspects
    assert [one.id for one in qwen] == ["qwen2-eager-fp16-overflow", "logits-not-finite-while-sampling"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# eval loss become nan after a batch\nI had a CUDA out of memory issue before", "gradients-not-finite"),
        ("# It is slow\nits loss become nan, says my colleague", None),
        ("# Out of Memory at step 300\nTraceback (most recent call last):", "memory-ran-out-by-the-title"),
        ("# eval_loss is nan: False", None),
        ("# Chunk the logits to avoid out of memory", None),
        ("# How to avoid out of memory with a batch of 2", "memory-ran-out-by-the-title"),
        ("# 多机多卡训练时卡住", "run-hangs-by-the-title"),
        ("# Out of Memory at step 300\nValueError: 130004 is not in list", "chatglm-special-token-not-in-the-sample"),
        ("# loss一直为0.69，不下降", None),
        ("# loss降为0.3之后不再下降", None),
        ("# loss变为0.05，如何继续下降", None),
        ("# loss一直为0.000，如何解决？", "loss-is-zero-by-the-title"),
        ("# 训练几步后loss降为0。", "loss-is-zero-by-the-title"),
        ("# 修复训练卡死的问题，现在正常", None),
        ("# 解决不了训练卡死", "run-hangs-by-the-title"),
        ("# The model learning hangs on what you give it as examples", None),
    ],
)
def test_a_title_says_what_is_asked_where_no_error_is_shown(matrix, text, told):
    suspects = explain_error(text, matrix).answer.suspects
    assert (suspects[0].id if suspects else None) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Out of memory, and the loss is nan", ["memory-ran-out-by-the-title", "gradients-not-finite"]),
        # the line that says how much stands below
        (
            "# Out of memory\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            ["gpu-memory-ran-out"],
        ),
        # no GPU is named, so that nothing is said of Hopper's
        ("# grad_norm: nan, why?\n{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.01}", ["gradients-not-finite"]),
    ],
)
def test_of_several_known_errors_each_is_told_that_says_more_than_another(matrix, text, told):
    assert [one.id for one in explain_error(text, matrix).answer.suspects] == told


CAUGHT = "WARNING: A matching Triton is not available.{}Error caught was: No module named 'triton'\n"
NO_NVCC = "UserWarning: flash_attn was requested, but nvcc was not found.  Are you sure your environment has nvcc?\n"
SPACE = "No space left on device"
MADE = "The above exception was the direct cause of the following exception:\ndatasets.builder.DatasetGenerationError: "


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (CAUGHT.format("\n") + "{'loss': 1.2, 'epoch': 1.0}\n{'train_runtime': 100.0}", None),
        (CAUGHT.format(" ") + "{'loss': 1.2, 'epoch': 1.0}\n{'train_runtime': 100.0}", None),
        (CAUGHT.format(" ") + "Traceback (most recent call last):\nValueError: my own problem is here", None),
        ("import triton\nModuleNotFoundError: No module named 'triton'", "triton-is-not-there"),
        (NO_NVCC + "Successfully installed flash-attn-2.5.8", None),
        (f"× python setup.py egg_info did not run successfully.\n{NO_NVCC}", "no-cuda-toolkit-to-compile-with"),
        (f"× Failed to build `flash-attn==2.7.4.post1`\n{NO_NVCC}", "no-cuda-toolkit-to-compile-with"),
        (NO_NVCC.replace("UserWarning", "RuntimeError"), "no-cuda-toolkit-to-compile-with"),
        (f"pyarrow.lib.ArrowInvalid: Couldn't cast\n{MADE}disk is full, {SPACE}", "disk-is-full"),
        (f"OSError: [Errno 28] {SPACE}\n{MADE}An error occurred while generating the dataset", "disk-is-full"),
        (f"{MADE}An error occurred while generating the dataset", "json-data-with-columns-of-several-types"),
    ],
)
def test_a_warning_is_no_error_and_what_was_raised_first_says_more(matrix, log, told):
    answer = explain_error(log, matrix).answer
    assert (answer.suspects[0].id if answer.suspects else None) == told
    assert answer.known == (told is not None)


def test_a_package_without_a_wheel_for_the_system_is_not_offered(matrix):
    ways = {}
    for system in ("win10", "Ubuntu 22.04"):
        answer = explain_error(f"OS: {system}\nModuleNotFoundError: No module named 'triton'", matrix).answer
        (ways[system],) = answer.ways
    assert ways["win10"].withheld and not ways["Ubuntu 22.04"].withheld


def test_kernels_that_are_missing_in_an_extension_are_not_torchs(matrix):
    place = "/x/xformers/third_party/flash-attention/hopper/flash_fwd_launch_template.h:175"
    log = f"CUDA error ({place}): no kernel image is available for execution on the device"
    assert [one.id for one in explain_error(log, matrix).answer.suspects] == ["xformers-has-no-kernel-for-this-gpu"]
    assert explain_error(
        "RuntimeError: CUDA error: no kernel image is available for execution on the device", matrix
    ).answer.suspects


def test_a_known_error_is_told_beside_rules_and_is_none(matrix):
    """What the message says most about comes first, whether it is a rule's symptom or a known error's."""
    log = "Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert triggered"
    told = explain_error(log, matrix).answer.suspects
    assert [(one.id, one.rule, one.missing) for one in told] == [
        ("token-or-position-beyond-the-embeddings", False, ()),
        ("assertion-on-the-gpu", False, ()),
    ]
    rule = explain_error("ValueError: Attempting to unscale FP16 gradients.", matrix).answer.suspects[0]
    assert rule.rule and rule.missing


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("[rank0]: RuntimeError: element 0 of tensors does not require grad and does\nnot have a grad_fn", True),
        ("RuntimeError: element 0 of tensors does\nnot require grad", False),
        (f"{'x' * 20} RuntimeError: element 0 of tensors does\nnot require grad", True),
        (f"{'x' * 20} RuntimeError: element 0 of tensors does\n\nnot require grad", False),
    ],
    ids=["after it", "short line", "long line", "a line between"],
)
def test_a_long_line_may_be_broken(matrix, log, told):
    ids = {one.id for one in explain_error(log, matrix).answer.suspects}
    assert ("loss-reaches-no-trainable-weight" in ids) is told


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("KeyError: 'smollm3'", "does not know the model type smollm3 (known from 4.53.0 on)"),
        ("KeyError: 'input_ids'", None),
        (f"KeyError: '{'x' * 100}'", None),
        ("... has model type ‘qwen3_next’ but Transformers does not recognize this architecture.", "4.57.0"),
        ("has model type `of-tomorrow` but Transformers does not recognize this architecture", "the model type ..."),
    ],
)
def test_a_word_of_a_log_is_a_fact_where_something_follows_from_it(matrix, log, said):
    titles = [one.title.en for one in explain_error(log, matrix).answer.suspects]
    assert (said or "") in " ".join(titles) and bool(titles) is bool(said)


def test_a_known_error_names_rules_that_exist(matrix):
    named = {rule for row in matrix.rows("known-errors", "error") for rule in row.get("rules", ())}
    assert len(named) > 5 and all(matrix.find(rule) for rule in named)
