"""Messages as Python, numpy and the lazy packages write them, in the formats of several releases."""

import pytest

from envdoctor.observe import failure_of

SITE = "/opt/venv/lib/python3.10/site-packages"
RENAME = "consider renaming '/home/a/datasets.py' if it has the same name as a library you intended to import"
CIRCULAR = "(most likely due to a circular import)"
NORMAL = "is required for a normal functioning of this module, but found"
LAZY = "because of the following error (look up to see its traceback)"
FLAGS = ("circular", "shadowed", "not_a_package")


def spelled(message: str) -> str | None:
    """The failure: its kind, then every column that says something, then what it is."""
    failure = failure_of(message)
    if failure is None:
        return None
    columns = (failure.module, failure.callee, failure.name, failure.requirement, failure.found)
    return " ".join([failure.kind, *filter(None, columns), *(name for name in FLAGS if getattr(failure, name))])


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        # a module that is missing
        ("No module named 'peft'", "module peft"),
        ("No module named peft", "module peft"),
        ("No module named 'transformers.deepspeed'", "module transformers.deepspeed"),
        ("/usr/bin/python3: No module named accelerate.commands", "module accelerate.commands"),
        ("No module named 'torch._six'; 'torch' is not a package", "module torch._six not_a_package"),
        ("it cannot be used: the package flash_attn seems to be not installed. Please refer to", "module flash_attn"),
        # a name that cannot be imported
        (f"cannot import name 'X' from 'peft.utils' ({SITE}/peft/utils/__init__.py)", "name peft.utils X"),
        ("cannot import name 'X' from 'peft' (unknown location)", "name peft X"),
        ("cannot import name 'X' from 'peft'", "name peft X"),
        ("cannot import name 'X' from peft", "name peft X"),
        ("Cannot import name 'X' from 'peft'", "name peft X"),
        ("cannot import name 'X'", "name X"),
        ("cannot import name X", "name X"),
        (
            f"cannot import name 'X' from partially initialized module 'peft' {CIRCULAR} ({SITE}/peft/__init__.py)",
            "name peft X circular",
        ),
        (f"cannot import name 'X' from 'peft' ({SITE}/peft/__init__.py). Did you mean: 'Y'?", "name peft X"),
        (r"cannot import name 'X' from 'peft' (C:\env\Lib\site-packages\peft\__init__.py)", "name peft X"),
        (f"cannot import name 'X' from 'datasets' ({RENAME}) (/home/a/datasets.py)", "name datasets X shadowed"),
        # an attribute of a module
        ("module 'torch' has no attribute 'float8_e4m3fn'", "attribute torch float8_e4m3fn"),
        ("module transformers has no attribute LLaMATokenizer", "attribute transformers LLaMATokenizer"),
        ("module 'torch.utils._pytree' has no attribute 'X'. Did you mean: '_X'?", "attribute torch.utils._pytree X"),
        (f"partially initialized module 'torch' has no attribute 'X' {CIRCULAR}", "attribute torch X circular"),
        ("No huggingface_hub attribute hf_api", "attribute huggingface_hub hf_api"),
        ("'np.float_' was removed in the NumPy 2.0 release. Use 'np.float64' instead.", "attribute numpy float_"),
        ("module 'Garden' has no attribute 'x'", "attribute Garden x"),
        # a member of a class
        ("'DynamicCache' object has no attribute 'get_max_length'", "member DynamicCache get_max_length"),
        ("type object 'Accelerator' has no attribute 'X'", "member Accelerator X"),
        ("BertTokenizer has no attribute batch_encode. Did you mean: 'x'?", "member BertTokenizer batch_encode"),
        ("'ModelType' has no attribute 'llama3'", "member ModelType llama3"),
        # a keyword that is not taken, a method that is called with more than it takes
        ("TrainingArguments.__init__() got an unexpected keyword argument 'x'", "keyword TrainingArguments.__init__ x"),
        ("__init__() got an unexpected keyword argument 'x'", "keyword __init__ x"),
        ("load_dataset() got an unexpected keyword argument 'x'", "keyword load_dataset x"),
        ("f.<locals>.g() got an unexpected keyword argument 'x'. Did you mean 'y'?", "keyword f.<locals>.g x"),
        ("'x' is an invalid keyword argument for print()", "keyword print x"),
        ("LoraConfig.init() got an unexpected keyword argument 'x'", "keyword LoraConfig.__init__ x"),
        ("unexpected keyword argument 'x'", "keyword x"),
        ("Unexpected keyword argument 'use_beam_search'", "keyword use_beam_search"),
        ("出现错误Chat.infer() got an unexpected keyword argument 'x'", "keyword Chat.infer x"),
        ("Some keys are not used by the HfArgumentParser: ['x', 'y']", "keyword x"),
        ("T._get_sampler() takes 1 positional argument but 2 were given", "arguments T._get_sampler 2"),
        # a version or a package that the code itself asks for
        (f"tokenizers>=0.14,<0.19 {NORMAL} tokenizers==0.20.1.", "demand tokenizers>=0.14,<0.19 0.20.1"),
        ("Using the 'Trainer' with 'PyTorch' requires 'accelerate>=0.26.0': Please run", "demand accelerate>=0.26.0"),
        ("Using 'low_cpu_mem_usage=True' requires Accelerate: 'pip install accelerate'", "demand accelerate"),
        ("The 'trl<4,>=3' distribution was not found and is required by x", "demand trl<4,>=3"),
        ("Found an incompatible version of auto-gptq, requires 'auto-gptq>=0.4.99'", "demand auto-gptq>=0.4.99"),
        ("Loading an AWQ quantized model requires auto-awq library (pip install autoawq)", "demand autoawq"),
        ("Unsloth: Please install unsloth_zoo via 'pip install unsloth-zoo'", "demand unsloth-zoo"),
        ("that were not found in your environment: tiktoken. Run 'pip install tiktoken'", "demand tiktoken"),
        # lazy packages pass on what happened
        (f"Failed to import peft.tuners {LAZY}: cannot import name 'X' from 'peft'", "name peft X"),
        ("Could not import module 'Trainer'. Are this object's requirements defined correctly?", "lazy Trainer"),
        # none of these; what should be upgraded is not missing
        ("CUDA out of memory. Tried to allocate 20.00 MiB", None),
        ("Expected all tensors to be on the same device", None),
        ("'<' not supported between instances of 'int' and 'str'", None),
        ("operator torchvision::nms does not exist", None),
        ("", None),
        ("unknown architecture. You can update it with 'pip install --upgrade transformers'", None),
    ],
)
def test_a_message_says_what_was_asked_for(message, failure):
    assert spelled(message) == failure


@pytest.mark.parametrize(
    ("more", "place"),
    [
        (f"({SITE}/peft/__init__.py)", f"{SITE}/peft/__init__.py"),
        (f"({SITE}/peft/__init__.py). Did you mean: 'Y'?", f"{SITE}/peft/__init__.py"),
        (r"(C:\env\Lib\site-packages\peft\__init__.py)", r"C:\env\Lib\site-packages\peft\__init__.py"),
        (f"({RENAME}) (/home/a/datasets.py)", "/home/a/datasets.py"),
        ("(unknown location)", "unknown location"),
        ("", ""),
    ],
)
def test_a_message_names_the_file(more, place):
    assert failure_of(f"cannot import name 'X' from 'peft' {more}").place == place
