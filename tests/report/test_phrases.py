"""The table of interface strings, and how facts are called."""

from __future__ import annotations

import re

import pytest

from envdoctor.report.names import is_place, name_fact, say_fact
from envdoctor.report.phrases import PHRASES, phrase


@pytest.mark.parametrize("name", sorted(PHRASES))
def test_both_languages_have_the_same_placeholders(name: str) -> None:
    english, chinese = PHRASES[name]
    assert set(re.findall(r"{\w+}", english)) == set(re.findall(r"{\w+}", chinese))


def test_english_is_ascii_and_chinese_fits_gbk() -> None:
    for english, chinese in PHRASES.values():
        assert english.isascii()
        assert chinese.encode("gbk")


def test_values_are_put_in_as_they_are() -> None:
    assert phrase("en", "chosen", reason="{name} {0}") == "chosen: {name} {0}"


def test_one_has_a_singular() -> None:
    assert phrase("en", "error", 1) == "1 error"
    assert phrase("en", "error", 2) == "2 errors"


def test_two_chinese_words_stand_without_a_blank() -> None:
    assert phrase("zh", "not_known", name="驱动") == "驱动未知"
    assert phrase("zh", "not_known", name="torch") == "torch 未知"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("pkg.torch", "2.5.0+cu118", "torch 2.5.0+cu118"),
        ("pkg.flash-attn", "absent", "flash-attn not installed"),
        ("model.family", "glm4", "model family glm4"),
        ("recipe.batch_size", "2", "batch size 2"),
        ("recipe.max_length", "6000", "max length 6000"),
        ("recipe.quantization", "absent", "no quantization"),
        ("python.version", "3.11.9", "python 3.11.9"),
        ("driver.version", "absent", "no driver"),
        ("driver.max_cuda", "12.4", "driver max CUDA 12.4"),
        ("torch.cuda", "11.8", "torch CUDA 11.8"),
        ("torch.cxx11_abi", "false", "torch C++11 ABI false"),
        ("os.libc_version", "2.31", "C library 2.31"),
        ("gpu.cc", "12.0", "GPU compute capability 12.0"),
        ("gpu.memory_gib", "79.15", "GPU memory 79.15 GiB"),
        ("env.PYTORCH_CUDA_ALLOC_CONF", "absent", "PYTORCH_CUDA_ALLOC_CONF not set"),
        ("env.CUDA_VISIBLE_DEVICES", "0,1", "CUDA_VISIBLE_DEVICES=0,1"),
        ("gpu", "2 items", "2 GPU"),
        ("os.shm_gib", "0.0625", "shared memory 64 MiB"),
        ("gpu.memory_gib", "79.1", "GPU memory 79.1 GiB"),
        ("build.gcc", "absent", "no gcc"),
    ],
)
def test_facts_are_said_in_words(key: str, value: str, expected: str) -> None:
    assert say_fact(key, value) == expected


def test_chinese_names_exist_for_the_commonest_facts() -> None:
    assert say_fact("model.family", "glm4", "zh") == "模型系列 glm4"
    assert name_fact("recipe.batch_size", "zh") == "batch size"


def test_places_are_lines_and_options() -> None:
    assert is_place("train.yaml:14")
    assert is_place("--set")
    assert not is_place("torch/version.py")
    assert not is_place("NVML")


def test_what_only_repeats_the_rule_is_no_fact_for_a_reader():
    from envdoctor.report.names import is_answer

    answers = ("gpu.gap", "driver.fits", "extension.python_ok", "torch_companion.apart", "cuda_library.order")
    assert all(is_answer(key) for key in answers)
    assert not any(is_answer(key) for key in ("gpu.cc", "driver.version", "extension.python_tag", "pkg.torch"))
