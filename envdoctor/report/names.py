"""How facts are called in a sentence: ``pkg.torch`` is "torch", ``recipe.batch_size`` is "batch size"."""

from __future__ import annotations

import re

from envdoctor.report.phrases import phrase
from envdoctor.text.clean import clean

__all__ = ["KEY_PACKAGES", "is_answer", "is_place", "name_fact", "say_fact", "say_reason", "short_url"]

#: Packages that people ask for first when training fails, in the order of the header and of the bug report block.
KEY_PACKAGES = (
    "torch",
    "transformers",
    "flash-attn",
    "peft",
    "accelerate",
    "deepspeed",
    "trl",
    "bitsandbytes",
    "datasets",
    "tokenizers",
    "huggingface-hub",
    "safetensors",
    "triton",
    "xformers",
    "vllm",
    "llamafactory",
    "ms-swift",
    "numpy",
)

#: Prefixes that say nothing in a sentence.
_SILENT = frozenset({"recipe", "os", "machine", "build"})
_NAMES = {
    "build.needed": "ops to compile",
    "environment.kind": "environment",
    "os.arch": "processor",
    "os.libc_version": "C library",
    "os.libstdcxx": "libstdc++",
    "os.platform": "system",
    "os.shm_gib": "shared memory",
    "torch.damaged_files": "damaged files",
    "torch.missing_files": "missing files",
    "torch.missing_libraries": "missing CUDA libraries",
}
_WORDS = {
    "abi": "ABI",
    "c": "C",
    "cc": "compute capability",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "cxx11": "C++11",
    "fsdp": "FSDP",
    "gpu": "GPU",
    "hip": "HIP",
    "uuid": "UUID",
    "wsl": "WSL",
}
_ZH = {
    "model.family": "模型系列",
    "model.type": "模型类型",
    "model.repo": "模型",
    "driver.version": "驱动",
    "gpu.count": "GPU 数量",
    "gpu.cc": "计算能力",
}
#: Facts that are computed for a rule to ask for: a message says in words what they mean.
_ANSWERS = frozenset(
    {"gpu.gap", "gpu.kernels", "driver.fits", "build.gcc_fits", "cuda.toolkit_fits", "torch_companion.apart"}
)
_PLACE = re.compile(r"--|.*:\d+\Z")
_SCHEME = re.compile(r"https?://(?:www\.)?")


def name_fact(key: str, lang: str = "en") -> str:
    """The key in words: its last part, with the prefix where the last part alone would be vague."""
    if lang == "zh" and key in _ZH:
        return _ZH[key]
    if key in _NAMES:
        return _NAMES[key]
    head, dot, tail = key.partition(".")
    if head in ("pkg", "env") and dot:
        return clean(tail, 100)
    words = [] if head in _SILENT and dot else head.split("_")
    words += tail.split("_") if dot else []
    if words[-1] == "gib":
        words.pop()
    if len(words) > 1 and words[-1] == "version":
        words.pop()
    return clean(" ".join(_WORDS.get(word, word) for word in words), 100)


def say_fact(key: str, value: str, lang: str = "en") -> str:
    """The fact in words: "torch 2.5.0", "flash-attn not installed", "GPU memory 79.1 GiB", "shared memory 64 MiB"."""
    name = name_fact(key, lang)
    value = clean(value, 200)
    if value == "absent":
        absent = "not_installed" if key.startswith("pkg.") else "not_set" if key.startswith("env.") else "none"
        return phrase(lang, absent, name=name)
    if value == "unknown":
        return phrase(lang, "not_known", name=name)
    if key.startswith("env."):
        return f"{name}={value}"
    if value.endswith((" item", " items")):
        return f"{value.partition(' ')[0]} {name}"
    return f"{name} {_size(value)}" if key.endswith("_gib") else f"{name} {value}"


def _size(gib: str) -> str:
    """A size in GiB, in MiB below one."""
    try:
        mib = float(gib) * 1024
    except ValueError:
        return f"{gib} GiB"
    return f"{mib:.0f} MiB" if 0 < mib < 1024 else f"{gib} GiB"


def is_answer(key: str) -> bool:
    """Whether the fact is an answer of envdoctor's own ("too-old"), which says nothing beside the message."""
    return key in _ANSWERS or key.endswith(("_ok", ".same_build", ".same_release", ".differs", ".order"))


def say_reason(reason: str, lang: str = "en") -> str:
    """Why a fact is unknown; the commonest reason is translated."""
    return phrase(lang, "not_given") if reason == "not given" else clean(reason, 300)


def is_place(origin: str) -> bool:
    """Whether an origin tells the user where to look or what was typed: ``train.yaml:14``, ``--set``."""
    return _PLACE.match(origin) is not None


def short_url(url: str) -> str:
    """The address as it is printed: without its scheme."""
    return clean(_SCHEME.sub("", url, count=1))
