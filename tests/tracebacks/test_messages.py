"""Messages as Python, numpy and the lazy packages write them, in the formats of several releases."""

from __future__ import annotations

import pytest

from envdoctor.tracebacks import failure_of

SITE = "/opt/venv/lib/python3.10/site-packages"


@pytest.mark.parametrize(
    ("message", "module"),
    [
        ("No module named 'peft'", "peft"),
        ("No module named peft", "peft"),
        ("No module named 'transformers.deepspeed'", "transformers.deepspeed"),
        ("/usr/bin/python3: No module named accelerate.commands", "accelerate.commands"),
        ("No module named 'torch._six'; 'torch' is not a package", "torch._six"),
    ],
)
def test_a_module_that_is_missing(message, module):
    failure = failure_of(message)
    assert (failure.kind, failure.module) == ("module", module)
    assert failure.not_a_package is ("not a package" in message)


@pytest.mark.parametrize(
    ("message", "module", "place", "circular"),
    [
        (f"cannot import name 'X' from 'peft.utils' ({SITE}/peft/utils/__init__.py)", "peft.utils", True, False),
        ("cannot import name 'X' from 'peft' (unknown location)", "peft", True, False),
        ("cannot import name 'X' from 'peft'", "peft", False, False),
        ("cannot import name 'X' from peft", "peft", False, False),
        ("Cannot import name 'X' from 'peft'", "peft", False, False),
        ("cannot import name 'X'", "", False, False),
        ("cannot import name X", "", False, False),
        (
            "cannot import name 'X' from partially initialized module 'peft' (most likely due to a circular import) "
            f"({SITE}/peft/__init__.py)",
            "peft",
            True,
            True,
        ),
        (f"cannot import name 'X' from 'peft' ({SITE}/peft/__init__.py). Did you mean: 'Y'?", "peft", True, False),
        (r"cannot import name 'X' from 'peft' (C:\env\Lib\site-packages\peft\__init__.py)", "peft", True, False),
    ],
)
def test_a_name_that_cannot_be_imported(message, module, place, circular):
    failure = failure_of(message)
    assert (failure.kind, failure.module, failure.name) == ("name", module, "X")
    assert (bool(failure.place), failure.circular) == (place, circular)


def test_python_3_13_suspects_a_file_of_the_users():
    message = (
        "cannot import name 'Dataset' from 'datasets' (consider renaming '/home/a/datasets.py' if it has the same name "
        "as a library you intended to import) (/home/a/datasets.py)"
    )
    failure = failure_of(message)
    assert (failure.name, failure.shadowed, failure.place) == ("Dataset", True, "/home/a/datasets.py")


@pytest.mark.parametrize(
    ("message", "module", "name"),
    [
        ("module 'torch' has no attribute 'float8_e4m3fn'", "torch", "float8_e4m3fn"),
        ("module transformers has no attribute LLaMATokenizer", "transformers", "LLaMATokenizer"),
        ("module 'torch.utils._pytree' has no attribute 'X'. Did you mean: '_X'?", "torch.utils._pytree", "X"),
        (
            "partially initialized module 'torch' has no attribute 'X' (most likely due to a circular import)",
            "torch",
            "X",
        ),
        ("No huggingface_hub attribute hf_api", "huggingface_hub", "hf_api"),
        ("'np.float_' was removed in the NumPy 2.0 release. Use 'np.float64' instead.", "numpy", "float_"),
    ],
)
def test_an_attribute_of_a_module(message, module, name):
    failure = failure_of(message)
    assert (failure.kind, failure.module, failure.name) == ("attribute", module, name)


@pytest.mark.parametrize(
    ("message", "owner", "name"),
    [
        ("'DynamicCache' object has no attribute 'get_max_length'", "DynamicCache", "get_max_length"),
        ("type object 'Accelerator' has no attribute 'X'", "Accelerator", "X"),
        ("BertTokenizer has no attribute batch_encode_plus. Did you mean: 'x'?", "BertTokenizer", "batch_encode_plus"),
    ],
)
def test_a_member_of_a_class(message, owner, name):
    failure = failure_of(message)
    assert (failure.kind, failure.callee, failure.name) == ("member", owner, name)


@pytest.mark.parametrize(
    ("message", "callee", "name"),
    [
        ("TrainingArguments.__init__() got an unexpected keyword argument 'x'", "TrainingArguments.__init__", "x"),
        ("__init__() got an unexpected keyword argument 'x'", "__init__", "x"),
        ("load_dataset() got an unexpected keyword argument 'x'", "load_dataset", "x"),
        ("f.<locals>.g() got an unexpected keyword argument 'x'. Did you mean 'y'?", "f.<locals>.g", "x"),
        ("'x' is an invalid keyword argument for print()", "print", "x"),
        ("LoraConfig.init() got an unexpected keyword argument 'x'", "LoraConfig.__init__", "x"),
        ("unexpected keyword argument 'x'", "", "x"),
        ("Some keys are not used by the HfArgumentParser: ['x', 'y']", "", "x"),
    ],
)
def test_a_keyword_that_is_not_taken(message, callee, name):
    failure = failure_of(message)
    assert (failure.kind, failure.callee, failure.name) == ("keyword", callee, name)


def test_a_method_that_is_called_with_more_than_it_takes():
    failure = failure_of("T._get_train_sampler() takes 1 positional argument but 2 were given")
    assert (failure.kind, failure.callee, failure.name) == ("arguments", "T._get_train_sampler", "2")


@pytest.mark.parametrize(
    ("message", "requirement", "found"),
    [
        (
            "tokenizers>=0.14,<0.19 is required for a normal functioning of this module, but found tokenizers==0.20.1.",
            "tokenizers>=0.14,<0.19",
            "0.20.1",
        ),
        ("Using the 'Trainer' with 'PyTorch' requires 'accelerate>=0.26.0': Please run", "accelerate>=0.26.0", ""),
        ("Using 'low_cpu_mem_usage=True' requires Accelerate: 'pip install accelerate'", "accelerate", ""),
        (
            "The 'transformers<4.45,>=4.33' distribution was not found and is required by x",
            "transformers<4.45,>=4.33",
            "",
        ),
        ("Found an incompatible version of auto-gptq, requires 'auto-gptq>=0.4.99'", "auto-gptq>=0.4.99", ""),
    ],
)
def test_a_version_that_the_code_itself_asks_for(message, requirement, found):
    failure = failure_of(message)
    assert (failure.kind, failure.requirement, failure.found) == ("demand", requirement, found)


def test_lazy_packages_pass_on_what_happened():
    inner = "cannot import name 'X' from 'peft' (unknown location)"
    wrapped = f"Failed to import peft.tuners because of the following error (look up to see its traceback): {inner}"
    assert failure_of(wrapped).name == "X"
    alone = "Could not import module 'Trainer'. Are this object's requirements defined correctly?"
    assert (failure_of(alone).kind, failure_of(alone).name) == ("lazy", "Trainer")


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 20.00 MiB",
        "Expected all tensors to be on the same device",
        "'<' not supported between instances of 'int' and 'str'",
        "operator torchvision::nms does not exist",
        "",
    ],
)
def test_other_messages_are_none_of_these(message):
    assert failure_of(message) is None


@pytest.mark.parametrize(
    ("message", "kind", "callee", "name"),
    [
        ("Unexpected keyword argument 'use_beam_search'", "keyword", "", "use_beam_search"),
        ("出现错误Chat.infer() got an unexpected keyword argument 'x'", "keyword", "Chat.infer", "x"),
        ("'ModelType' has no attribute 'llama3'", "member", "ModelType", "llama3"),
        ("module 'Garden' has no attribute 'x'", "attribute", "", "x"),
    ],
)
def test_what_is_said_in_other_words(message, kind, callee, name):
    failure = failure_of(message)
    assert (failure.kind, failure.callee, failure.name) == (kind, callee, name)


@pytest.mark.parametrize(
    ("message", "requirement"),
    [
        ("Loading an AWQ quantized model requires auto-awq library (pip install autoawq)", "autoawq"),
        ("Unsloth: Please install unsloth_zoo via 'pip install unsloth-zoo'", "unsloth-zoo"),
        ("packages that were not found in your environment: tiktoken. Run 'pip install tiktoken'", "tiktoken"),
    ],
)
def test_a_package_that_should_be_installed(message, requirement):
    failure = failure_of(message)
    assert (failure.kind, failure.requirement) == ("demand", requirement)


def test_a_package_that_should_be_upgraded_is_not_missing():
    assert failure_of("unknown architecture. You can update it with 'pip install --upgrade transformers'") is None


def test_a_package_that_seems_to_be_not_installed():
    failure = failure_of("it cannot be used: the package flash_attn seems to be not installed. Please refer to ...")
    assert (failure.kind, failure.module) == ("module", "flash_attn")
