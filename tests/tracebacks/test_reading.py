"""Whole texts as people paste them: which error matters, who asked, and whatever else may stand in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.observe import failure_of, module_of, numbered, read_error

SITE = "/opt/venv/lib/python3.10/site-packages"
PLAIN = f'''Traceback (most recent call last):
  File "/home/a/train.py", line 3, in <module>
    from peft import LoraConfig
  File "{SITE}/peft/__init__.py", line 22, in <module>
    from .auto import AutoPeftModel
  File "{SITE}/peft/peft_model.py", line 37, in <module>
    from transformers import Cache, DynamicCache, EncoderDecoderCache, HybridCache, PreTrainedModel
ImportError: cannot import name 'HybridCache' from 'transformers' ({SITE}/transformers/__init__.py)
'''
LAZY = f'''Traceback (most recent call last):
  File "{SITE}/transformers/modeling_utils.py", line 37, in <module>
    from huggingface_hub import split_torch_state_dict_into_shards
ImportError: cannot import name 'split_torch_state_dict_into_shards' from 'huggingface_hub' ({SITE}/h.py)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/a/train.py", line 3, in <module>
    from transformers import Trainer
  File "{SITE}/transformers/utils/import_utils.py", line 1780, in __getattr__
    raise ModuleNotFoundError(
ModuleNotFoundError: Could not import module 'Trainer'. Are this object's requirements defined correctly?
'''
NOTEBOOK = f"""---------------------------------------------------------------------------
ImportError                               Traceback (most recent call last)
Cell In[3], line 2
      1 import torch
----> 2 from peft import LoraConfig

File {SITE}/peft/peft_model.py:37
     35 import packaging
---> 37 from transformers import HybridCache
     38 

ImportError: cannot import name 'HybridCache' from 'transformers' ({SITE}/transformers/__init__.py)
"""
OLD_NOTEBOOK = f"""ImportError                               Traceback (most recent call last)
<ipython-input-3-0123456789ab> in <module>
----> 1 from peft import LoraConfig

{SITE}/peft/peft_model.py in <module>
     35 import packaging
---> 37 from transformers import HybridCache

ImportError: cannot import name 'HybridCache'
"""


RICH = f"""\
╭────────── Traceback (most recent call last) ──────────╮
│ /home/a/train.py:3 in <module>                       │
│                                                      │
│   2 │   import torch                                   │
│ ❱ 3 │   from peft import LoraConfig                    │
│                                                      │
│ {SITE}/peft/peft_model.py:37 in <module>             │
│                                                      │
│ ❱ 37 from transformers import HybridCache            │
╰──────────────────────────────╯
ImportError: cannot import name 'HybridCache'
"""


@pytest.mark.parametrize("text", [PLAIN, NOTEBOOK, OLD_NOTEBOOK, RICH])
def test_the_last_frame_asks(text):
    reading = read_error(text)
    assert reading.error == "ImportError"
    assert (reading.failure.module, reading.failure.name) == ("transformers", "HybridCache")
    assert reading.frames[-1].module == "peft.peft_model"
    assert reading.statements[0] == "peft"


def test_what_a_lazy_package_stands_for_is_found():
    reading = read_error(LAZY)
    assert reading.failure.name == "split_torch_state_dict_into_shards"
    assert reading.frames[-1].module == "transformers.modeling_utils"


@pytest.mark.parametrize(
    "more",
    [
        # handled before another error, and the error of a launcher is that of the process it started
        "\nDuring handling of the above exception, another exception occurred:\n\nRuntimeError: no backend\n",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n",
    ],
)
def test_a_failed_import_matters_though_another_error_comes_last(more):
    assert read_error(PLAIN + more).failure.name == "HybridCache"


def test_an_error_that_was_over_before_does_not():
    """A warning about an optional package, then a run that ends for another reason."""
    text = PLAIN + "WARNING: going on without peft\nTraceback (most recent call last):\nRuntimeError: CUDA error\n"
    reading = read_error(text)
    assert (reading.error, reading.failure) == ("RuntimeError", None)


@pytest.mark.parametrize(
    "prefix",
    [
        *("[rank0]: ", "E   ", "> ", "(EngineCore_0 pid=123) ", "2026-11-22 10:11:12,123 "),
        *("worker-1  | ", "\x1b[31m", "[0]:"),
    ],
)
def test_what_programs_write_before_lines_is_no_part_of_them(prefix):
    text = "\n".join(prefix + line for line in PLAIN.splitlines())
    reading = read_error(text)
    assert reading.failure.name == "HybridCache"
    assert reading.frames[-1].module == "peft.peft_model"


@pytest.mark.parametrize(
    "text",
    [
        "I get cannot import name 'HybridCache' from 'transformers', please help",
        "cannot import name 'HybridCache' from\n 'transformers' (/x/y.py)",  # broken by a narrow window
        "ImportError: cannot import name \u2018HybridCache\u2019 from \u2018transformers\u2019",
    ],
)
def test_a_message_is_read_as_people_write_it(text):
    reading = read_error(text)
    assert reading.failure.name == "HybridCache" and ("\n" in text or reading.failure.module == "transformers")
    assert reading.error == ("ImportError" if "ImportError" in text else "")


DECORATED = """\
  File "train.py", line 49, in <module>
    trainer = DPOTrainer(
  File "/x/site-packages/transformers/utils/deprecation.py", line 165, in wrapped_func
    return func(*args, **kwargs)"""
VARIABLE = f"""\
  File "{SITE}/transformers/modeling_utils.py", line 2611, in from_pretrained
    model = cls(config, *model_args, **model_kwargs)"""


@pytest.mark.parametrize(
    ("text", "callee"),
    [
        ('Traceback:\n  File "train.py", line 9, in <module>\n    trainer = SFTTrainer(', "SFTTrainer.__init__"),
        (DECORATED, "DPOTrainer.__init__"),  # a decorator that hands the call on is looked behind
        ("---> 13 trainer = Trainer(\n     14     model=model,", "Trainer.__init__"),  # a notebook points at it
        (VARIABLE, "from_pretrained"),  # it goes by the function that calls it
    ],
)
def test_older_pythons_do_not_say_the_class_and_the_code_does(text, callee):
    assert (
        read_error(f"{text}\nTypeError: __init__() got an unexpected keyword argument 'x'\n").failure.callee == callee
    )


def test_a_remark_about_an_error_is_none():
    remark = "[INFO:swift] if you are using vLLM, you will get `ImportError: cannot import name 'x' from 'swift.llm'`"
    assert read_error(remark).failure is None
    assert read_error(f"KeyError: 'a'\n{remark}").error == "KeyError"


@pytest.mark.parametrize(
    ("path", "module"),
    [
        (f"{SITE}/peft/__init__.py", "peft"),
        (f"{SITE}/peft/utils/other.py", "peft.utils.other"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        (r"C:\env\Lib\site-packages\peft\tuners\lora\layer.py", "peft.tuners.lora.layer"),
        ("/content/LLaMA-Factory/src/llamafactory/cli.py", "llamafactory.cli"),
        ("/sgl-workspace/sglang/python/sglang/srt/server.py", "sglang.srt.server"),
        ("/root/OpenRLHF/openrlhf/cli/train_ppo_ray.py", "openrlhf.cli.train_ppo_ray"),
        ("/home/a/train.py", ""),
        ("", ""),
    ],
)
def test_files_below_site_packages_are_modules(path, module):
    assert module_of(path) == module


@given(st.text(max_size=2_000))
def test_any_text_is_read(text):
    reading = read_error(text)
    assert reading.failure is None or reading.failure.message


@given(st.text(alphabet="abcXYZ_. '`\"()[]:,\n/\\1", max_size=300), st.sampled_from([PLAIN, LAZY, NOTEBOOK]))
def test_words_before_an_error_do_not_change_it(before, text):
    assert read_error(before + "\n\n" + text).failure.name in ("HybridCache", "split_torch_state_dict_into_shards")


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}(\.[A-Za-z_][A-Za-z0-9_]{0,20}){0,3}", fullmatch=True))
def test_every_module_name_is_read_whole(module):
    assert failure_of(f"No module named '{module}'").module == module


@pytest.mark.parametrize("noise", ["Error:", "a", "No module named ", 'File "', "/a in ", "Traceback:\nXError: y\n"])
def test_only_the_last_mebibyte_of_a_text_is_read(noise):
    text = noise * ((1 << 20) // len(noise)) + "\n" + LAZY
    assert read_error(noise * 1_000_000 + text) == read_error(text[-(1 << 20) :])
    assert read_error(text).failure.name == "split_torch_state_dict_into_shards"


def test_no_control_character_is_left():
    text = "ImportError: cannot\x00 import\x1b[0m name 'X\u202e' from 'peft'"
    assert read_error(text).message == "cannot import name 'X' from 'peft'"
    assert numbered("a\x07b\u2028c")[1] == ["ab", "c"]
