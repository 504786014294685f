"""Environment variables that change what torch, CUDA and the training stack do: an allow-list, credentials removed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value

if TYPE_CHECKING:
    from envdoctor.observe.machine.request import MachineRequest

__all__ = ["KEYS", "NAMES", "PATH_VARIABLES", "URL_VARIABLES", "observe", "privacy", "redact"]

#: Variables whose value is a path or a list of paths of this machine, or options that may hold one.
PATH_VARIABLES = frozenset(
    {
        "CONDA_PREFIX",
        "CUDA_HOME",
        "CUDA_PATH",
        "HF_HOME",
        "HF_HUB_CACHE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NVCC_APPEND_FLAGS",
        "NVCC_PREPEND_FLAGS",
        "PYTHONPATH",
        "TRITON_CACHE_DIR",
        "VIRTUAL_ENV",
        "VLLM_CACHE_ROOT",
    }
)

#: Variables whose value is the address of a package index or of a Hub.
URL_VARIABLES = frozenset(
    {
        "HF_ENDPOINT",
        "PIP_EXTRA_INDEX_URL",
        "PIP_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
        "UV_INDEX_URL",
    }
)

_SETTINGS = frozenset(
    {
        "ACCELERATE_DOWNCAST_BF16",
        "ACCELERATE_MIXED_PRECISION",
        "ACCELERATE_USE_CPU",
        "ACCELERATE_USE_DEEPSPEED",
        "ACCELERATE_USE_FSDP",
        "BNB_CUDA_VERSION",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_DEVICE_ORDER",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_VISIBLE_DEVICES",
        "DS_BUILD_OPS",
        "DS_IGNORE_CUDA_DETECTION",
        "DS_SKIP_CUDA_CHECK",
        "FLASH_ATTENTION_DETERMINISTIC",
        "FLASH_ATTENTION_FORCE_BUILD",
        "FLASH_ATTENTION_FORCE_CXX11_ABI",
        "FLASH_ATTENTION_SKIP_CUDA_BUILD",
        "FLASH_ATTENTION_TRITON_AMD_ENABLE",
        "HF_HUB_DISABLE_XET",
        "HF_HUB_ENABLE_HF_TRANSFER",
        "HF_HUB_OFFLINE",
        "MAX_JOBS",
        "NCCL_ALGO",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_CUMEM_ENABLE",
        "NCCL_DEBUG",
        "NCCL_IB_DISABLE",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_HCA",
        "NCCL_NET",
        "NCCL_NVLS_ENABLE",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_PROTO",
        "NCCL_SHM_DISABLE",
        "NCCL_SOCKET_IFNAME",
        "NVIDIA_TF32_OVERRIDE",
        "NVIDIA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "PYTHONNOUSERSITE",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_NVML_BASED_CUDA_CHECK",
        "TOKENIZERS_PARALLELISM",
        "TORCHDYNAMO_DISABLE",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TORCH_COMPILE_DISABLE",
        "TORCH_CUDA_ARCH_LIST",
        "TORCH_CUDNN_SDPA_DEPRIORITIZED",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
        "TORCH_FORCE_WEIGHTS_ONLY_LOAD",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TRANSFORMERS_OFFLINE",
        "USE_LIBUV",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_USE_V1",
        "VLLM_WORKER_MULTIPROC_METHOD",
    }
)

#: Every variable that is read. None of them carries a credential except inside a URL, where it is removed.
NAMES = tuple(sorted(PATH_VARIABLES | URL_VARIABLES | _SETTINGS))

KEYS = tuple("env." + name for name in NAMES)

_LIMIT = 4096
#: Everything up to the last @ after a scheme: a password may itself hold /, : and @; too much is better than a rest.
_USER_INFO = r"://\S*@"
_QUERY_PART = r"(?i)([?&;#][^=&#;\s]*(?:token|key|secret|passw|pwd|auth|sig|credential)[^=&#;\s]*=)[^&#;\s]+"
#: Tokens that say by their prefix what they are: Hugging Face, GitHub, GitLab, PyPI, OpenAI, AWS, JSON web tokens.
_TOKEN_PREFIXES = (
    "hf_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "pypi-",
    "sk-",
    "AKIA",
    "eyJ",
)
#: What follows /t/ in a URL's path: there the indexes that Anaconda serves carry the token, whatever it looks like.
_AFTER_T = r"(?<=/t/)[^/?#\s]+"
#: A long segment of letters and digits in a URL's path: other package indexes carry the token there.
_LONG_SEGMENT = r"(?<=/)(?=[^/\s]*\d)(?=[^/\s]*[A-Za-z])[A-Za-z0-9_-]{24,}(?=[/?#\s]|\Z)"


def observe(request: MachineRequest) -> list[Fact]:
    """``env.NAME`` for each allow-listed name: the value without credentials, or ABSENT when it is not set."""
    return [Fact("env." + name, _value(request, name), "environment variables", "machine") for name in NAMES]


def _value(request: MachineRequest, name: str) -> Value:
    text = request.environ.get(name)
    if text is None:
        return ABSENT
    if len(text) > _LIMIT:
        return Unknown(f"{name} is {len(text)} characters long; at most {_LIMIT} are read")
    return redact(name, text)


def redact(name: str, text: str) -> str:
    """The value as it may be shown: user, password and tokens in URLs as ``***``, and valid Unicode."""
    # Python keeps bytes of the environment that are not UTF-8 as lone surrogates, which no output could encode.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if "@" in text:
        text = re.sub(_USER_INFO, "://***@", text)
    if name in URL_VARIABLES:
        if "://" not in text:
            text = re.sub(r"\S*@", "***@", text)
        text = re.sub(_AFTER_T, "***", text)
        text = re.sub(_LONG_SEGMENT, "***", text)
    if "=" in text:
        text = re.sub(_QUERY_PART, r"\1***", text)
    for prefix in _TOKEN_PREFIXES:
        if prefix in text:
            text = re.sub(rf"(?<![A-Za-z0-9]){prefix}[\w.-]{{12,}}", "***", text)
    return text


def privacy(name: str, value: str) -> str:
    """How private a value is in the registry's words: ``path``, ``host`` (a GPU's UUID, an index's URL), ``public``.

    The registry holds one entry for all of ``env.*``, so exports ask here.
    """
    if name in PATH_VARIABLES:
        return "path"
    if name in URL_VARIABLES or "GPU-" in value or "MIG-" in value:
        return "host"
    return "public"
