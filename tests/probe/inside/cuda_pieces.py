"""The GPU code of the experiments with a stand-in for torch.cuda; prints {name of the check: true or what is wrong}.

python cuda_pieces.py PAYLOAD_FOLDER CHECK ...

A stand-in can show which way the code goes, never what a card computes: for that there is test_on_a_gpu.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

PAYLOAD = sys.argv[1]
sys.path.insert(0, os.path.dirname(PAYLOAD))
PACKAGE = os.path.basename(PAYLOAD)
CARD = SimpleNamespace(name="Tesla V100", major=7, minor=0, uuid="11-22", total_memory=16 << 30)


def part(name: str) -> Any:
    return import_module(f"{PACKAGE}.{name}")


def cuda(stack: ExitStack, **more: Any) -> None:
    """torch.cuda as on a machine with eight cards, as far as the code asks it."""
    given = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 8,
        "set_device": lambda device: None,
        "synchronize": lambda *device: None,
        "get_device_properties": lambda place: CARD,
        "get_arch_list": lambda: ["sm_80", "sm_90"],
        **more,
    }
    for name, value in given.items():
        stack.enter_context(patch.object(torch.cuda, name, value))


def the_trainer_splits_no_batch_over_eight_cards() -> Any:
    transformers = import_module("transformers")
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        cuda(stack)
        settings = {"output_dir": folder, "per_device_train_batch_size": 2}
        made = part("probing.tiny_models").arguments(transformers.TrainingArguments, "cuda", **settings)
        found = [made.n_gpu, made.train_batch_size, made.eval_batch_size]
    return found == [1, 2, 8] or found


def _broken() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def only_a_context_that_is_lost_ends_the_process() -> Any:
    failure, found = part("probing.kit").failure, []
    real = torch.empty
    for text, lives in (
        ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasGemmEx", True),
        ("CUDA error: an illegal memory access was encountered", False),
        ("shape mismatch", False),
    ):
        with ExitStack() as stack:
            cuda(stack, synchronize=(lambda *device: None) if lives else _broken)
            stack.enter_context(patch.object(torch, "empty", lambda size, device: real(size)))
            found.append(sorted(failure(RuntimeError(text), "cuda")))
    return found == [["error"], ["error", "sticky"], ["error"]] or found


def a_card_that_torch_was_not_built_for_is_one_sentence() -> Any:
    with ExitStack() as stack:
        cuda(stack)
        error = RuntimeError("CUDA error: no kernel image is available for execution on the device")
        ending, detail = part("child")._named(error)
    words = f"torch {torch.__version__} has no code for Tesla V100 (sm_70), only for sm_80 sm_90"
    return (ending, detail) == ("no-device", words) or [ending, detail]


def bf16_that_is_emulated_is_not_called_supported() -> Any:
    context, found = part("probes.context"), []
    real = {name: getattr(torch, name) for name in ("zeros", "ones")}
    for major in (7, 8):
        with ExitStack() as stack:
            card = SimpleNamespace(**{**vars(CARD), "major": major})
            memory = {"mem_get_info": lambda: (1 << 30, 16 << 30), "is_bf16_supported": lambda: True}
            cuda(stack, get_device_properties=lambda place, card=card: card, **memory)
            for name, make in real.items():
                stack.enter_context(patch.object(torch, name, lambda *size, device=None, make=make: make(*size)))
            uses = iter([[200], [700]])
            asked: list[Any] = []
            # The card that is measured, whatever others take of theirs in the meantime.
            one = patch.object(
                context, "used_mib", lambda uuids, asked=asked, uses=uses: asked.append(uuids) or next(uses)
            )
            stack.enter_context(one)
            device = context._device()
            found.append([device["bf16"], device["context_mib"], asked])
    return found == [[False, 500, [["GPU-11-22"]] * 2], [True, 500, [["GPU-11-22"]] * 2]] or found


def settings_of_nccl_are_recorded_without_names_of_files() -> Any:
    given = {"NCCL_P2P_DISABLE": "1", "TORCH_NCCL_BLOCKING_WAIT": "0", "NCCL_TOPO_FILE": "/home/me/t.xml"}
    with patch.dict(os.environ, {**given, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NOT_NCCL_": "x"}):
        found = part("probes.context")._build()["variables"]
    wanted = {**given, "NCCL_TOPO_FILE": "set", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return ({**found, **wanted} == found and "NOT_NCCL_" not in found) or found


def deterministic_mode_comes_back_behind_the_padded_batch() -> Any:
    torch.set_deterministic_debug_mode("warn")
    job = {"device": "cpu", "dtype": "bf16", "model": None, "recipe": {}}
    emitted: list[Any] = []
    part("probes.padded_batch").padded_batch(
        {**job, "options": {"models": ["chatglm-like"], "gains": [1]}}, emitted.append
    )
    found = [torch.get_deterministic_debug_mode(), len(emitted)]
    torch.set_deterministic_debug_mode("default")
    return found == [1, 5] or found


def atomics_of_a_gpu_are_information() -> Any:
    checks, kit, found = part("probes.training_checks"), part("probing.kit"), []
    real = kit.run_rows

    def on_cpu(job: Any, emit: Any, rows: Any) -> None:
        real({"device": "cpu"}, emit, rows)

    for device in ("cuda", "cpu"):
        emitted: list[Any] = []
        given = iter(range(16))
        once = patch.object(checks, "_once", lambda *a, part, given=given: {"{}": _count(part, given)})
        with once, patch.object(kit, "run_rows", on_cpu):
            checks.repeatable({"device": device}, emitted.append)
        found.append([(case["kind"], case["difference"] == 0) for case in emitted])
    wanted = [[("case", True), ("info", False)] * 2, [("case", True), ("case", False)] * 2]
    return found == wanted or found


def _count(part: str, given: Any) -> Any:
    """Another number each time behind a backward pass."""
    return torch.tensor(float(next(given)) if part == "backward" else 0.0)


def _products(arithmetic: Any) -> Any:
    """Of all operations only the one that multiplies is tried."""
    return patch.object(arithmetic, "OPERATIONS", {"linear": arithmetic.OPERATIONS["linear"]})


def tf32_that_a_container_sets_is_no_error_of_arithmetic() -> Any:
    arithmetic, seen = part("probes.arithmetic"), []
    torch.set_float32_matmul_precision("medium")

    def told(job: Any, emit: Any, rows: Any) -> None:
        seen.extend((row.dtype, torch.get_float32_matmul_precision()) for row in rows)

    with _products(arithmetic), patch.object(arithmetic, "run_rows", told):
        arithmetic.arithmetic({"device": "cpu"}, lambda case: None)
    after = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    return ({way for dtype, way in seen if dtype == "fp32"} == {"highest"} and after == "medium") or [seen, after]


def products_of_many_tiles_are_judged_as_torch_is_set() -> Any:
    arithmetic, emitted = part("probes.arithmetic"), []
    switches = {"allow_bf16_reduced_precision_reduction": True}
    real = arithmetic.run_rows

    def tiled(job: Any, emit: Any, rows: Any) -> None:
        real({"device": "cpu"}, emit, [row for row in rows if row.name.startswith("tiled")])

    with ExitStack() as stack:
        stack.enter_context(patch.object(arithmetic, "_without_reduced_reductions", lambda: switches))
        stack.enter_context(patch.object(arithmetic, "_dropped", lambda *given: {}))
        stack.enter_context(patch.object(arithmetic, "run_rows", tiled))
        stack.enter_context(_products(arithmetic))
        real_operation = arithmetic._operation

        def on_cpu(device: str, *given: Any, **size: int) -> Any:
            """Sums as long as on a card, for fewer rows and columns: a CPU computes each number of them alone."""
            return real_operation("cpu", *given, **{**size, "rows": 64, "outer": 128} if size else {})

        stack.enter_context(patch.object(arithmetic, "_operation", on_cpu))
        arithmetic.arithmetic({"device": "cuda"}, emitted.append)
    cases = [case for case in emitted if case["case"].startswith("tiled")]
    limits = [case["limits"][:2] for case in cases]
    ratios = [max(case["ratio"].values()) for case in cases]
    return (limits == [[16.0, 64.0]] * 2 and max(ratios) < 2 and cases[0]["kind"] == "case") or [limits, ratios]


def cards_are_alike_where_their_libraries_are() -> Any:
    devices = part("probes.devices")

    class Library:
        def cublasGetProperty(self, kind: int, number: Any) -> int:
            ctypes.cast(number, ctypes.POINTER(ctypes.c_int))[0] = (12, 6, 4)[kind]
            return 0

    with ExitStack() as stack:
        stack.enter_context(patch.object(devices, "version", lambda: "570.86.15"))
        stack.enter_context(patch.object(torch.backends.cudnn, "version", lambda: 91002))
        stack.enter_context(patch.object(ctypes, "CDLL", lambda name: Library()))
        found = devices._libraries()
    return found == ["cuDNN 91002", "driver 570.86.15", "cuBLAS 12.6.4"] or found


def slices_of_one_card_are_no_broken_fabric() -> Any:
    unfinished = part("probing.collective").unfinished
    said = "a process of 2 ended with 1: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b0"
    older = "a process of 2 ended with 1: RuntimeError: Invalid scalar type"  # gloo of torch 2.1, asked for bf16
    found = [sorted(unfinished("rank 0", text)) for text in (said, older, "a process of 2 ended with 1: broken")]
    return found == [["case", "skip"], ["case", "skip"], ["case", "error"]] or found


def memory_that_is_full_is_not_called_right() -> Any:
    devices = part("probes.devices")
    bench = SimpleNamespace(places=[torch.device("cuda", 0)], cuda=True, tenants=[1])
    with ExitStack() as stack:
        cuda(stack, mem_get_info=lambda place: (700 << 20, 80 << 30), empty_cache=lambda: None)
        try:
            found = devices._memory(bench, 0)
        except devices.Unavailable as reason:
            found = str(reason)
    return found == "only 700 MiB of it are free" or found


def memory_is_filled_from_what_is_free_and_from_half_of_it_beside_others() -> Any:
    devices, blocks, found = part("probes.devices"), [], []
    for tenants in (1, 2, None):
        blocks.clear()
        ends, told = time.monotonic() + 60, []
        bench = SimpleNamespace(places=[torch.device("cuda", 0)], cuda=True, tenants=[tenants], ends=ends)
        bench.gap, bench.labels = (lambda text, number, told=told: told.append(text)), ["GPU 0"]
        with ExitStack() as stack:
            cuda(stack, mem_get_info=lambda place: (80 << 30, 80 << 30), empty_cache=lambda: None)
            # A number for a block: nothing of 256 MiB is made here.
            stack.enter_context(patch.object(devices, "_pattern", lambda size, block, place: torch.tensor([block])))
            stack.enter_context(
                patch.object(devices.work, "stored", lambda pattern, number: blocks.append(pattern) or pattern)
            )
            found.append([devices._memory(bench, 0)["words"], len(blocks) // 2 / 4, told])
    return found == [["", 74.25, []], ["", 38.25, []], ["", 38.25, []]] or found


def a_kernel_is_forced_once_for_all_cards() -> Any:
    """The switches are of the process: threads that put them back would leave them as they found them midway."""
    devices = part("probes.devices")
    forced: list[str] = []

    def force(kernel: str) -> Any:
        forced.append(kernel)
        return nullcontext()

    bench = SimpleNamespace(
        places=[torch.device("cpu")] * 8, compare=lambda title, measure: list(map(measure, range(8)))
    )
    with patch.object(devices, "force", force):
        devices._attention(bench, "flash", 64)
    return forced == ["flash"] or forced


def every_tile_of_a_product_is_compared_with_float64() -> Any:
    """A product with one tile of 128 x 128 lost, in 4,096 x 4,096, is far from rounding."""
    work = part("probing.card_work")
    a, b = work.drawn(1024)
    truth = work.truth("matmul", 1024)
    right = (a.float() @ b.float()).to(torch.bfloat16)
    wrong = right.clone()
    wrong[128:256, 256:384] = 0
    found = [work.error("matmul", one, truth) for one in (right, wrong)]
    return (found[0] < 2 and found[1] > 16) or found


if __name__ == "__main__":
    print(json.dumps({name: globals()[name]() for name in sys.argv[2:]}))
