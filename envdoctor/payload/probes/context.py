"""What torch is and how it is set up here: device, cost of a CUDA context, cuDNN, allocator, SDPA switches and order.

The record that every other result is read against. One release of torch takes another attention kernel when the wheel
of cuDNN beside it changes (https://github.com/pytorch/pytorch/pull/162073,
https://github.com/pytorch/pytorch/pull/171627), when ``TORCH_CUDNN_SDPA_DEPRIORITIZED`` is set, and by GPU: so what
torch reports at run time is recorded, and nothing is inferred.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch

from ..probing.kit import Emit, Job
from ..probing.nvml import identity, used_mib

PROBES = {
    "context": {"title": "torch, device and settings", "settles": (), "gpu_memory_mib": None, "alone": True},
}

#: Variables that choose kernels or memory; their values go into the record.
_VARIABLES = (
    *("TORCH_CUDNN_SDPA_DEPRIORITIZED", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
    *("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "CUDA_MODULE_LOADING", "CUDA_LAUNCH_BLOCKING"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "ATEN_CPU_CAPABILITY", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"),
)
#: Those of NCCL and of torch's use of it, which hide a bad link or bring one out, begin so; names of files and hosts in
#: them are nobody's business.
_PREFIXES, _PRIVATE, _MOST = ("NCCL_", "TORCH_NCCL_"), ("FILE", "PATH", "DIR", "HOST", "ID", "ADDR"), 40
_BACKENDS = ("flash", "mem_efficient", "cudnn", "math")


def context(job: Job, emit: Emit) -> None:
    """Emit observations of the kind ``environment``: build, device, settings, allocator."""
    emit({"kind": "environment", "case": "build", **_build()})
    if job["device"] == "cuda":
        emit({"kind": "environment", "case": "device", **_device()})
    emit({"kind": "environment", "case": "settings", **_settings()})
    if job["device"] == "cuda":
        emit({"kind": "environment", "case": "allocator", "backend": _asked(torch.cuda.get_allocator_backend)})


def _build() -> dict[str, Any]:
    names = [name for name in _VARIABLES if name in os.environ]
    names += sorted(name for name in os.environ if name.startswith(_PREFIXES))[:_MOST]
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "python": sys.version.split()[0],
        "arch_list": _asked(lambda: torch.cuda.get_arch_list() or None),
        "cpu_capability": _asked(lambda: torch.backends.cpu.get_cpu_capability()),
        "threads": torch.get_num_threads(),
        "accelerators": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "variables": {name: "set" if name.endswith(_PRIVATE) else os.environ[name] for name in names},
    }


def _device() -> dict[str, Any]:
    """Return the device, and what a context on it costs in seconds and MiB of the driver's memory. Raises RuntimeError
    where this torch has no code for it."""
    properties = torch.cuda.get_device_properties(0)
    own = [identity(0, properties)]
    before = used_mib(own)[0]
    started = time.time()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    seconds = time.time() - started
    after = used_mib(own)[0]
    free, total = torch.cuda.mem_get_info()
    cost = None if before is None or after is None else max(0, after - before)
    (torch.ones(1, device="cuda") + 1).cpu()  # what was not compiled for this card ends here
    return {
        "name": properties.name,
        "cc": f"{properties.major}.{properties.minor}",
        "count": torch.cuda.device_count(),
        "total_mib": total >> 20,
        "free_mib": free >> 20,
        "context_s": round(seconds, 3),
        "context_mib": cost,
        "cudnn": _asked(_cudnn),
        "driver_cuda": _asked(lambda: torch._C._cuda_getDriverVersion()),
        # Units for bf16 came with 8.0; before, torch says that it is supported and emulates it.
        "bf16": bool(torch.version.hip) or properties.major >= 8,
    }


def _settings() -> dict[str, Any]:
    switches = torch.backends.cuda
    return {
        "sdp_enabled": {name: _asked(getattr(switches, f"{name}_sdp_enabled", None)) for name in _BACKENDS},
        "sdp_priority": _asked(_priority),
        "fp16_bf16_reduction_math_sdp": _asked(lambda: switches.fp16_bf16_reduction_math_sdp_allowed()),
        "matmul_precision": _asked(torch.get_float32_matmul_precision),
        "cudnn_tf32": _asked(lambda: torch.backends.cudnn.allow_tf32),
        "bf16_reduced_precision": _asked(lambda: switches.matmul.allow_bf16_reduced_precision_reduction),
        "fp16_reduced_precision": _asked(lambda: switches.matmul.allow_fp16_reduced_precision_reduction),
        "deterministic": _asked(torch.are_deterministic_algorithms_enabled),
    }


def _priority() -> list[str]:
    """Return names of the SDPA backends in the order in which the default tries them."""
    from torch.nn.attention import SDPBackend

    names = {int(value): name.lower() for name, value in SDPBackend.__members__.items()}
    return [names.get(int(number), str(number)) for number in torch._C._get_sdp_priority_order()]


def _cudnn() -> str | None:
    """Return the library that is loaded, as 9.10.2; its number has four digits before 9 and five from then on."""
    number = torch.backends.cudnn.version()
    if number is None or torch.version.cuda is None:
        return None
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def _asked(question: Any) -> Any:
    """Return the answer, or None where this release does not know the question, or why it fails."""
    try:
        return question()
    except (AttributeError, ImportError, TypeError):
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
