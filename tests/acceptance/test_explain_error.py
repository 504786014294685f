"""An error message answered: which releases have the name, where it went, who asked, what to install."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "envdoctor/report/schemas/error.schema.json").read_text(encoding="utf-8")
)
SITE = "/opt/venv/lib/python3.11/site-packages"
PEFT = f'''Traceback (most recent call last):
  File "/home/a/train.py", line 3, in <module>
    from peft import LoraConfig
  File "{SITE}/peft/peft_model.py", line 37, in <module>
    from transformers import Cache, DynamicCache, EncoderDecoderCache, HybridCache, PreTrainedModel
ImportError: cannot import name 'HybridCache' from 'transformers' ({SITE}/transformers/__init__.py)
'''


@pytest.fixture
def explain(run, facts_file):
    """``explain --error`` for facts, or for no versions in particular."""

    def go(text, facts=None, *more):
        where = ("--facts", facts_file(facts)) if facts is not None else ("--no-environment",)
        return run("explain", "--no-config", "--error", text, *where, *more)

    return go


@pytest.fixture
def answer(explain):
    """The same as data, which its schema holds."""

    def go(text, facts=None):
        result = explain(text, facts, "--format", "json")
        jsonschema.validate(result.json, SCHEMA)
        assert result.code == (0 if result.json["known"] else 3)
        return result.json

    return go


VERSIONS = {"pkg.peft": "0.17.0", "pkg.transformers": "5.23.0"}


def test_a_package_that_asks_for_a_name_which_is_gone(answer, explain):
    found = answer(PEFT, VERSIONS)
    (home,) = found["homes"]
    assert (home["package"], home["releases"], home["there"]) == ("transformers", ">=4.44.2,<5.0", False)
    asker, fits = found["asker"], found["asker"]["fits"]
    assert (asker["package"], asker["version"], "0.17.1" in fits) == ("peft", "0.17.0", False)
    commands = [command for way in found["ways"] for command in way.get("commands", [])]
    assert commands[0] == f"python -m pip install peft=={fits[0]}"
    told = explain(PEFT, VERSIONS)
    assert told.code == 0 and told.err == ""
    assert "asked by   peft 0.17.0 (peft.peft_model)" in told.out
    assert "transformers >=4.44.2,<5.0 has transformers.HybridCache" in told.out
    assert "; transformers 5.23.0 does not" in told.out


def test_a_name_that_moved_to_another_package_and_a_package_that_is_not_installed(explain):
    out = explain("ImportError: cannot import name 'load_metric' from 'datasets'", {"pkg.datasets": "3.1.0"}).out
    assert "datasets <3.0 has datasets.load_metric" in out and "pip install 'evaluate>=0.1'" in out
    assert "evaluate.load (evaluate >=0.1)" in out
    out = explain("ModuleNotFoundError: No module named 'flash_attn'").out
    assert "flash_attn comes with flash-attn" in out and "pip install flash-attn" in out
    out = explain("AttributeError: module 'numpy' has no attribute 'float'", None, "--lang", "zh").out
    assert "numpy <1.24 含有 numpy.float" in out and "改写为 float" in out


def test_a_keyword_that_was_renamed(answer):
    text = "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'"
    found = answer(text, {"pkg.transformers": "4.55.0"})
    assert found["homes"][0]["releases"] == "<4.51" and found["homes"][0]["there"] is False
    assert found["moved"][0]["new"] == "eval_strategy="


@pytest.mark.parametrize(
    ("module", "name", "releases"),
    [("torch", "float8_e8m0fnu", ">=2.7"), ("torch.compiler", "set_stance", ">=2.6")],
)
def test_a_name_of_a_package_whose_names_the_ledger_does_not_have(answer, module, name, releases):
    found = answer(f"AttributeError: module '{module}' has no attribute '{name}'", {"pkg.torch": "2.5.1"})
    assert (found["homes"][0]["releases"], found["homes"][0]["there"]) == (releases, False)


SHADOW = f"""Traceback (most recent call last):
  File "{SITE}/transformers/trainer.py", line 3, in <module>
    from datasets import Dataset
  File "/home/a/datasets.py", line 1, in <module>
    import peft.x
ModuleNotFoundError: No module named 'peft.x'"""


@pytest.mark.parametrize(
    ("text", "code", "about"),
    [
        ("cannot import name 'Dataset' from 'datasets' (/home/a/x/datasets.py)", "shadow", "/home/a/x/datasets.py"),
        ("cannot import name 'LoraConfig' from 'peft' (unknown location)", "no-files", "peft"),
        ("No module named 'tokenizers.models'; 'tokenizers' is not a package", "not-a-package", "tokenizers"),
        (SHADOW, "shadow", "/home/a/datasets.py"),
        ("No module named 'FlagEmbedding.baai_general_embedding'", "part", "FlagEmbedding"),
        ("type object 'JITFunction' has no attribute '_type_of'", "class", "triton.JITFunction"),
        ("'LlamaAWQForCausalLM' object has no attribute 'generate'", "class", "awq.models.LlamaAWQForCausalLM"),
    ],
)
def test_files_in_front_of_an_installed_package_and_parts_of_another_release(answer, text, code, about):
    assert answer(text)["notes"] == [{"code": code, "about": about}]


@pytest.mark.parametrize("name", ["ChatGLMForConditionalGeneration", "InternLM2ForCausalLM"])
def test_a_private_method_that_a_model_of_its_own_code_calls_is_known(answer, name):
    found = answer(
        f"'{name}' object has no attribute '_extract_past_from_model_output'", {"pkg.transformers": "4.51.3"}
    )
    assert [(home["package"], home["releases"], home["there"]) for home in found["homes"]] == [
        ("transformers", ">=4.29.2,<4.49", False)
    ]
    assert "glm4-generate-fails-since-transformers-4-49" in [rule["id"] for rule in found["rules"]]


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Expected all tensors to be on the same device",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "AttributeError: 'MyModel' object has no attribute 'prepare_inputs_for_generation'",
        "ImportError: cannot import name 'collate' from '__main__' (train.py)",
        "it does not work",
    ],
)
def test_other_errors_are_not_known(explain, text):
    result = explain(text)
    assert result.code == 3 and "Not known: " in result.out and result.err == ""


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([], "give the whole traceback"),
        ([("/home/a/train.py", 3)], "raised in  /home/a/train.py, line 3\n  next       look at the values"),
        (
            [
                ("/home/a/train.py", 3),
                ("/usr/lib/python3.10/json/__init__.py", 293),
                (r"C:\Python310\Lib\runpy.py", 7),
                (f"{SITE}/trl/trainer/sft_trainer.py", 40),
            ],
            "called by  /home/a/train.py, line 3\n  next       search this message in the issues of trl,",
        ),
    ],
)
def test_of_an_error_that_is_not_known_its_place_and_what_would_help_is_said(explain, frames, told):
    lines = [f'  File "{path}", line {line}, in f' for path, line in frames]
    result = explain("\n".join([*lines, "TypeError: 'NoneType' object is not subscriptable"]))
    assert result.code == 3 and told in result.out


def test_a_traceback_that_is_cut_before_its_error_is_asked_for_it(explain, run, tmp_path):
    frame = f'  File "{SITE}/trl/trainer/sft_trainer.py", line 40, in f\n'
    (tmp_path / "issue.txt").write_text(REPORTED + frame)  # its head is cut too
    whole = explain(f"Traceback (most recent call last):\n{frame}")
    for result in (whole, run("check", "--no-config", "--report", tmp_path / "issue.txt")):
        assert result.code == 3 and "paste the line that names the error" in " ".join(result.out.split())


def test_only_its_own_package_imports_a_private_module(answer):
    """No range of releases helps where the compiled part of a package was not built."""
    found = answer("ModuleNotFoundError: No module named 'vllm._C'")
    assert [note["code"] for note in found["notes"]] == ["unbuilt"]
    assert [way["kind"] for way in found["ways"]] == ["reinstall"]


@pytest.mark.parametrize(
    ("module", "releases", "frame", "instead"),
    [
        ("torch._six", "<2.0", "", "torch._six"),
        (
            "torch._six",
            "<2.0",
            '  File "/home/u/train.py", line 1, in <module>\n    from torch._six import inf\n',
            "six",
        ),
        ("numpy._core", ">=1.26.4", "", ""),  # a pickle of NumPy 2, read under NumPy 1
        ("transformers.generation._utils", None, "", ""),
    ],
)
def test_a_private_module_that_others_ask_for_too_may_be_of_another_release(answer, module, releases, frame, instead):
    found = answer(f"{frame}ModuleNotFoundError: No module named '{module}'")
    assert found["notes"] == [] and "reinstall" not in [way["kind"] for way in found["ways"]]
    assert found["homes"][0]["releases"] == releases and bool(found["moved"]) == bool(instead)


def test_a_release_that_does_not_ask_for_a_name_is_not_replaced_by_an_older_one(answer):
    found = answer(PEFT, {"pkg.peft": "0.15.2", "pkg.transformers": "5.23.0"})
    assert "changed" in [note["code"] for note in found["notes"]]
    assert found["ways"][0]["pins"] == ["peft==0.15.2"]


def test_a_warning_is_no_cause_beside_an_error(answer):
    """bitsandbytes warns of its CPU library where torch has no CUDA; packed weights are no matter of dtypes."""
    warning = 'warn("The installed version of bitsandbytes was compiled without GPU support. "'
    both = answer(f"{warning}\nAssertionError: Torch not compiled with CUDA enabled")["suspects"]
    assert both[0]["id"] == "cpu-torch-on-gpu-machine"
    packed = answer("RuntimeError: self and mat2 must have the same dtype, but got BFloat16 and Byte")["suspects"]
    assert [one["id"] for one in packed] == ["packed-weights-in-a-plain-product"]


NO_PLACE = "ValueError: Model type foo not supported"
ONLY = "_pickle.UnpicklingError: Weights only load failed."


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("torch._C._LinAlgError: linalg.cholesky: the input is not positive-definite", []),
        (NO_PLACE, []),
        (f'  File "{SITE}/mlx_lm/utils.py", line 1, in load\n{NO_PLACE}', ["mlx-does-not-know-the-model-type"]),
        (
            f"{ONLY} In PyTorch 2.6\nWeightsUnpickler error: Unsupported operand 118",
            ["weights-file-is-no-weights-file"],
        ),
        (f"{ONLY} This file can still be loaded, to do so", ["pickle-holds-more-than-weights"]),
        (
            "  x No solution found when resolving dependencies:\nBecause torhc was not found in the package registry",
            ["package-name-is-not-in-the-index"],
        ),
        ("requests.exceptions.ChunkedEncodingError: Connection broken: IncompleteRead(0 bytes read)", []),
        ("requests.HTTPError: 429 Client Error: Too Many Requests for url: https://api.example.org/", []),
        ("ConnectionResetError: Connection closed by remote peer", []),
        ("Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: cannot open shared object file", []),
        ("tiktoken==0.7.0\nValueError: not enough values to unpack (expected 2, got 1)", []),
    ],
)
def test_a_title_says_no_more_than_the_text(answer, text, known):
    assert [one["id"] for one in answer(text)["suspects"]] == known


REPORTED = "- `transformers` version: 4.48.0\n- Platform: Linux-5.15.0-91-generic-x86_64-with-glibc2.35\n"


@pytest.mark.parametrize(
    ("title", "is_answered"),
    [
        ("Feature request: detect when training hangs", False),
        ("[Feature] Say earlier that CUDA is out of memory", False),
        ("RFC: what to do when CUDA is out of memory", False),
        ("[功能请求] CUDA out of memory 的提示", False),
        ("never out of memory again", False),
        ("Is it possible to detect CUDA out of memory before training?", False),
        ("How to solve CUDA out of memory?", True),
        ("training hangs and never ends", True),
        ("Feature extraction: CUDA out of memory", True),
        ("RFC: CUDA out of memory\n\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", True),
    ],
)
def test_a_title_that_asks_for_a_feature_is_no_error(run, answer, tmp_path, title, is_answered):
    assert bool(answer(title)["suspects"]) == is_answered
    (tmp_path / "issue.txt").write_text(f"{title}\n\n{REPORTED}", encoding="utf-8")
    out = run("check", "--no-config", "--report", tmp_path / "issue.txt").out
    assert (" why, and what to do: " in " ".join(out.split())) == is_answered


FULL = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.11 GiB. GPU 0 has a total capac{}ty of {} is free. "


@pytest.mark.parametrize(
    ("spelling", "total", "others", "own", "by_others"),
    [
        ("i", "31.36 GiB of which 5.76 GiB", "", "25.58 GiB", False),
        ("i", "23.69 GiB of which 8.12 MiB", "Process 4711 has 20.10 GiB memory in use. ", "3.40 GiB", True),
        ("", "79.15 GiB of which 19.12 MiB", "", "29.40 GiB", True),
        ("i", "23.69 GiB of which 0 bytes", "Process 1 has 600.00 MiB memory in use. ", "23.08 GiB", False),
    ],
)
def test_what_others_hold_of_a_gpu_is_what_the_message_leaves(answer, spelling, total, others, own, by_others):
    text = FULL.format(spelling, total) + f"{others}Including non-PyTorch memory, this process has {own} memory in use."
    for facts in (None, {"torch.cuda": "12.8", "gpu": [{"name": "A100"}]}):
        suspects = [suspect["id"] for suspect in answer(text, facts)["suspects"]]
        assert ("gpu-memory-taken-by-others" in suspects, "gpu-memory-ran-out" in suspects) == (by_others, True)


def test_standard_input_is_read_within_bounds(script):
    command = [sys.executable, str(script), "explain", "--no-config", "--no-environment", "--error", "-"]
    text = b"\xff\x00\x1b[31mnoise\n" * 700_000 + b"ModuleNotFoundError: No module named 'torch._six'\n"
    done = subprocess.run(command, input=text, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0 and b"torch <2.0 has torch._six" in done.stdout
    too_much = subprocess.run(command, input=b"x" * (65 << 20), capture_output=True, timeout=120, check=False)
    assert too_much.returncode == 3 and b"larger than 64 MiB" in too_much.stderr


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("explain",), "give one of them"),
        (("explain", "torch-2-5-0-glm4-batch-nan", "--error", "x"), "give one of them"),
        (("explain", "--error", "  "), "there is no text"),
        (("explain", "--log", "-", "--report", "-"), "--log - and --report -: standard input is read once"),
    ],
)
def test_wrong_use(run, arguments, fragment):
    result = run(*arguments)
    assert result.code == 2 and fragment in result.err


def test_nothing_of_the_message_reaches_the_terminal_unclean(explain):
    result = explain("ImportError: cannot import name 'x\x1b]0;y\x07' from 'peft' (hf_0123456789abcdefghij)")
    assert "\x1b" not in result.out and "0123456789abcdefghij" not in result.out
