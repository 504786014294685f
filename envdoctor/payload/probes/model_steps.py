"""Do tiny models keep their numbers, weights and memory when they are checkpointed, saved and loaded, and trained, in
half precision and by several processes?

The functions cite the bugs that they exist for, such as https://github.com/pytorch/pytorch/issues/193671.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils import checkpoint

from ..probing import tiny_models
from ..probing.collective import together
from ..probing.kit import (
    DTYPES,
    Case,
    Emit,
    Job,
    Unavailable,
    growth,
    loaded_dtype,
    lost,
    of_rows,
    offered,
    pair,
    relative,
    run_rows,
    seed_of,
    vector,
)
from ..probing.shapes import drawn, each

PROBES = {
    "checkpointing": {
        "title": "gradients with and without checkpointing",
        "attention": "sdpa",
        "suites": {
            "quick": [{"models": ["llama"]}],
            "full": [{"models": ["llama", "qwen2", "glm", "gemma2", "mistral", "phi3", "mixtral", "gpt2"]}],
        },
        "memory_mib": 2000,
    },
    "memory-cycles": {
        "title": "memory over cycles of the same and of new shapes",
        "attention": "sdpa",
        "suites": {"quick": [{"dtype": "bf16"}]},
    },
    "mixed-precision": {
        "title": "training under autocast against training in float64",
        "attention": "sdpa",
        "suites": {"quick": [{}]},
    },
    "parallel-training": {
        "title": "training on two processes against training on one",
        "suites": {"full": [{}]},
        "seconds": {"cpu": 90, "cuda": 240},
        "memory_mib": 3000,
        "cuda_memory_mib": 4000,
    },
    "save-load": {"title": "models that are saved and loaded again", "needs": ["torch", "transformers", "accelerate"]},
    "training-step": {
        "title": "optimizer steps in the recipe's dtype",
        "attention": "sdpa",
        "suites": {
            "quick": [{"models": ["chatglm-like"]}],
            "full": [{"models": ["chatglm-like", "glm", "qwen2", "llama", "gemma2"]}],
        },
        "memory_mib": 2000,
    },
}

#: Relative difference of a gradient with checkpoints, and the share of values that dropout drops behind a layer.
_LIMIT, _DROPPED = 1e-3, 0.1
_CYCLES, _BATCHES = 3, 5
_SAVED = ("llama", *(f"llama {kind}" for kind in ("linear", "dynamic", "llama3", "yarn")))
_SAVED += ("qwen2", "qwen3", "mixtral", "gpt2")
#: Cycles of the same lengths and of new ones, and the former.
_SAME, _NEW = 4, 3
_LENGTHS = (64, 96, 130, 192, 200, 261, 320, 333, 448, 512, 640, 704)
#: Steps under autocast, their learning rate and the norm that gradients are clipped to, which only those reach that are
#: still scaled. Weights that are kept in half from the first step on are off by 0.4; seen on healthy releases: 0.008 in
#: bf16, 0.001 in fp16.
_MIXED_STEPS, _RATE, _NORM, _MIXED_LIMIT, _SCALE = 3, 0.15, 8.0, 0.05, 1024.0


def checkpointing(job: Job, emit: Emit) -> None:
    """Does gradient checkpointing give the gradients that it saves the memory of?

    Recomputing the forward pass must not change numbers. RReLU and other random operations did:
    https://github.com/pytorch/pytorch/issues/193671; memory that was not freed:
    https://github.com/pytorch/pytorch/issues/147449. Reentrant and not, on a tiny model in float32 with dropout behind
    each layer, which must drop the same values when it is computed again: seen bitwise equal on healthy releases. And
    models of transformers as its Trainer switches it on, dropping too, with the cache that their configs ask for:
    https://github.com/huggingface/transformers/issues/28056.
    """
    model = tiny_models.build("chatglm-like", "sdpa").to(job["device"])
    forwards = [_with_dropout(layer.forward) for layer in model.layers]

    def set_here(reentrant: bool | None) -> None:
        for layer, forward in zip(model.layers, forwards):
            way = partial(checkpoint.checkpoint, forward, use_reentrant=reentrant)
            layer.forward = forward if reentrant is None else way

    set_here(None)
    run_rows(job, emit, _checkpointed(model, set_here, "plain"))

    def of_transformers(name: str, called: str) -> None:
        model = tiny_models.build(name, "sdpa", job["model"]).to(job["device"])
        model.config.use_cache = True
        tiny_models.drop_layers(model)

        def switch(reentrant: bool | None) -> None:
            if reentrant is None:
                model.gradient_checkpointing_disable()
            else:
                model.gradient_checkpointing_enable({"use_reentrant": reentrant})

        run_rows(job, emit, _checkpointed(model, switch, called))

    tiny_models.each_chosen(job, emit, "llama", of_transformers)


@of_rows
def memory_cycles(job: Job) -> Iterator[Case]:
    """Does memory stay constant over cycles of the same shapes, over shapes that are always new, and in a whole model?

    Growth that is none: a longer batch needs more. So cycles repeat the same twelve lengths, or take lengths that were
    not there before and are shorter than the longest; and what is allocated after the last one must be what was after
    the second. Attention alone, and a model's step and evaluation. On the CPU the storages of live tensors are added
    up, for resident memory shows slopes where there is no leak. https://github.com/pytorch/pytorch/issues/152550
    (varying lengths), https://github.com/pytorch/pytorch/issues/147449 (checkpointing).
    """
    device = job["device"]
    lengths = _LENGTHS if device == "cuda" else _LENGTHS[:6]
    same = [lengths] * _SAME
    new = [(max(lengths), *range(33 + cycle, 48 + cycle, _NEW)) for cycle in range(_NEW)]

    def of_model() -> dict[str, Any]:
        return growth(partial(_use, tiny_models.build("llama", "sdpa").to(device)), new, device)

    for title, cycles, measure in (
        (f"{_SAME} cycles of {len(lengths)} lengths, forward and backward with a mask", same, None),
        (f"{_NEW} cycles of 5 new lengths, forward and backward with a mask", new, None),
        ("steps and evaluation of a model, new lengths", new, of_model),
    ):
        attention = partial(growth, partial(_attend, device=device), cycles, device)
        params = {"mask": "bool_left", "cycles": len(cycles)}
        yield Case(title, measure or attention, gate="", judge="growth", dtype="", params=params)


@of_rows
def mixed_precision(job: Job) -> Iterator[Case]:
    """Does training under autocast change float32 weights as training in float64 does, but for rounding?

    bf16, and fp16 with a GradScaler, whose gradients are unscaled and clipped before each step. Autocast keeps half
    copies of weights for as long as it lasts, and copies that live longer are those of an earlier step:
    https://github.com/pytorch/pytorch/issues/112583, https://github.com/pytorch/pytorch/issues/86136.
    """
    for name in ("bf16", "fp16"):
        words = f"{name} with GradScaler" if name == "fp16" else name
        row = pair(f"{_MIXED_STEPS} steps under autocast to {words}", partial(_mixed, name, words, job["device"]))
        row = row._replace(gate="parameters", limit=_MIXED_LIMIT, dtype=name, backend="default")
        yield row._replace(params={"scaled": name == "fp16"}, signature="autocast-differs")


def parallel_training(job: Job, emit: Emit) -> None:
    """Do two processes that share a batch change a model as one process with all of it does?

    Two steps with clipping by DistributedDataParallel, also with two micro-batches and ``no_sync``, and by both kinds
    of FSDP, which the installed torch offers: gloo on the CPU, NCCL where two GPUs are visible; against one process in
    float64. https://github.com/pytorch/pytorch/issues/144045 (FSDP2 leaves a small tensor without a gradient),
    https://github.com/pytorch/pytorch/issues/155903 (what FSDP2 divides by).
    """
    backend = "nccl" if job["device"] == "cuda" and torch.cuda.device_count() > 1 else "gloo"
    case: Job = {"judge": "change", "signature": "parallel-differs", "tensors": ["parameters"], "dtype": "fp32"}
    case.update(limit=_LIMIT, backend=backend)
    results = together({"world": 2, "backend": backend}, emit, case, "parallel_steps.py")
    for way in results[0]["changes"] if results else ():
        both = [result["changes"][way] for result in results]
        worst = next((change for change in both if not change.get("relative", _LIMIT) < _LIMIT), both[0])
        emit({**case, "case": f"two steps by {way}", "params": {"way": way}, **worst})


@of_rows
def save_load(job: Job) -> Iterator[Case]:
    """Is a model that was saved and loaded again the same model?

    Weights and logits, in float32 and bf16, whole and in shards, with an output layer of its own and with one
    that is tied to the embedding, which is not saved and must be tied again: otherwise it begins with random numbers,
    or trains apart from then on. No weight is as a new model has it, and positions are of every type.
    https://github.com/huggingface/transformers/issues/33689, https://github.com/huggingface/transformers/pull/43429.
    """
    axes = {
        "model": each(*_SAVED),
        "dtype": each("fp32", "bf16"),
        "tied": each(False, True),
        "whole": each(True, False),
    }
    for way in drawn(seed_of(job), **axes, asks=each("named", "auto", "mapped")):
        words = f"{way['model']}, {way['dtype']} weights, embeddings {'tied' if way['tied'] else 'not tied'}"
        title = f"{words}{'' if way['whole'] else ', in shards'}, dtype {way['asks']}"
        row = pair(title, partial(_reloaded, way), gate="parameters", judge="exact", dtype=way["dtype"])
        yield row._replace(params={"tied": way["tied"]}, signature="reload-differs")


@of_rows
def training_step(job: Job) -> Iterator[Case]:
    """Do optimizer steps in the recipe's dtype stay finite and move the weights?

    Pure fp16 weights with AdamW go NaN within two steps, because its epsilon of 1e-8 is 0 in fp16
    (https://github.com/pytorch/pytorch/issues/96755, https://github.com/pytorch/pytorch/issues/97004); pure bf16
    weights at 1.0 do not move at a learning rate of 1e-4, because the update is below half a step of the format. Both
    are so by design: a recipe that trains such weights (``recipe.load_dtype``) is told, others are informed.

    Fifteen AdamW steps of tiny models in bf16, with batches of changing length padded on alternating sides, must stay
    finite, whatever the recipe: https://github.com/zai-org/GLM-4/issues/724.
    """
    device, trained = job["device"], loaded_dtype(job)
    dtype = "fp16" if trained == "fp16" else "bf16"
    exact = partial(pair, gate="parameters", judge="exact", signature="nan-parameters")
    for name in tiny_models.chosen(job["model"], job["options"].get("models") or ["chatglm-like"]):
        called = tiny_models.label(name, job["model"])
        title = f"{called}: {_CYCLES * _BATCHES} AdamW steps of {dtype} weights"
        row = exact(title, partial(_train, name, DTYPES[dtype], device, job["model"]), backend="sdpa", dtype=dtype)
        yield row._replace(params={"model": called})
    for way in ("foreach", "fused"):
        row = exact(f"AdamW ({way}) on fp16 weights", partial(_half_adamw, way, device), backend=way, dtype="fp16")
        yield row._replace(params={"optimizer": "adamw"}, kind="case" if trained == "fp16" else "info")
    rate = float(job["recipe"].get("learning_rate") or 1e-4)
    row = exact("50 AdamW steps of a bf16 weight of 1.0", partial(_standstill, device, rate), dtype="bf16")
    row = row._replace(params={"optimizer": "adamw", "learning_rate": rate}, signature="weights-stand-still")
    yield row._replace(backend="default", kind="case" if trained == "bf16" else "info")


def _mixed(name: str, words: str, device: str) -> dict[str, Any]:
    """Compare the change of all parameters under autocast with that of the same steps in float64."""
    model = tiny_models.build("chatglm-like", "sdpa").to(device)
    exact = tiny_models.build("chatglm-like", "eager").double()
    before = vector(exact, "data")
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
    scaler_class, scaled = getattr(torch.amp, "GradScaler", None), name == "fp16"
    if scaled and scaler_class is None and device == "cpu":
        raise Unavailable("this torch has no GradScaler for a CPU (2.3 brought it)")
    kind = partial(scaler_class, device) if scaler_class else torch.cuda.amp.GradScaler
    scaler = kind(init_scale=_SCALE, enabled=scaled)
    for step in range(_MIXED_STEPS):
        batch = tiny_models.padded(tiny_models.samples((24, 24), seed=step), "right")  # masks are another matter
        with torch.autocast(device, DTYPES[name]):
            loss = model(**tiny_models.moved(batch, model)).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), _NORM)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        exact(**batch).loss.backward()
        share = min(1.0, _NORM / (float(vector(exact).norm()) + 1e-6))
        for parameter in exact.parameters():
            parameter.data -= _RATE * share * parameter.grad
            parameter.grad = None
    return tiny_models.step_error(vector(model, "data") - before, vector(exact, "data") - before, words)


def _checkpointed(model: Any, switch: Callable[[bool | None], None], called: str) -> Iterator[Case]:
    """Yield two rows: the gradient with each kind of checkpoints that ``switch`` sets against the one with none."""
    batch = tiny_models.moved(tiny_models.padded(tiny_models.samples((24, 17)), "right"), model)
    words, params = ("", {}) if called == "plain" else (f"{called} ", {"model": called})
    plain = _gradient(model, batch)

    def compared(reentrant: bool) -> dict[str, Any]:
        switch(reentrant)
        other = _gradient(model, batch)
        detail = "bitwise equal" if torch.equal(other, plain) else "not bitwise"
        return {"detail": detail, "relative": relative(other, plain)}

    for reentrant, name in ((False, "not reentrant"), (True, "reentrant")):
        title = f"{words}checkpointed ({name}) against plain"
        row = pair(title, partial(compared, reentrant), gate="gradients", limit=_LIMIT, signature="checkpoint-differs")
        backend = "reentrant" if reentrant else "default"
        yield row._replace(backend=backend, params={"use_reentrant": reentrant, **params})


def _with_dropout(forward: Any) -> Any:
    return lambda *arguments: functional.dropout(forward(*arguments), _DROPPED)


def _gradient(model: Any, batch: dict[str, Any]) -> Any:
    torch.manual_seed(5)
    model.zero_grad(set_to_none=True)
    # Reentrant checkpointing needs an input that asks for a gradient: the embedding's output does.
    model(**batch).loss.backward()
    return vector(model)


def _reloaded(row: dict[str, Any]) -> dict[str, Any]:
    problem = _problem(row)
    return {"equal": not problem, "detail": problem or "all weights and logits are the same"}


def _problem(row: dict[str, Any]) -> str:
    """Return what is different after saving and loading; empty if nothing is."""
    dtype = DTYPES[row["dtype"]]
    model = tiny_models.unlike(tiny_models.build(row["model"], "sdpa", tied=row["tied"])).eval()
    for parameter in model.parameters():  # buffers stay what they are, as where weights are loaded in half
        parameter.data = parameter.data.to(dtype)
    tiny_models.stress(model, 12)
    how: dict[str, Any] = {"torch_dtype": "auto" if row["asks"] == "auto" else dtype}
    if row["asks"] == "mapped":
        how["device_map"] = "cpu"
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        model.save_pretrained(folder, **({} if row["whole"] else {"max_shard_size": "60KB"}))
        again = type(model).from_pretrained(folder, **how).eval()
    before, after = dict(model.named_parameters()), dict(again.named_parameters())
    if set(before) != set(after):
        return f"{len(set(before) ^ set(after))} weights are in only one of both"
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    if changed:
        return f"{len(changed)} weights have other values, {changed[0]} among them"
    shared = again.get_output_embeddings().weight is again.get_input_embeddings().weight
    if shared != row["tied"]:
        return f"the embeddings are {'no longer ' if row['tied'] else ''}tied"
    tokens = tiny_models.samples((60,))[0][0][None]
    with torch.no_grad():
        off = relative(again(input_ids=tokens).logits, model(input_ids=tokens).logits)
    return "" if off <= _LIMIT else f"the logits of the same weights are off by {off:.2g}"


def _train(name: str, dtype: Any, device: str, folder: Any) -> dict[str, Any]:
    model = tiny_models.build(name, "sdpa", folder).to(dtype).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths = tiny_models.LENGTHS["long" if device == "cuda" else "short"]
    losses: list[float] = []
    for cycle in range(_CYCLES):
        for number in range(_BATCHES):
            shorter = tuple(max(4, length - 3 * number) for length in lengths)
            pairs = tiny_models.samples(shorter, seed=100 * cycle + number)
            batch = tiny_models.padded(pairs, "left" if number % 2 else "right", position_ids=bool(number % 2))
            loss = model(**tiny_models.moved(batch, model)).loss
            losses.append(float(loss.detach()))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if losses[-1] != losses[-1]:
                return {"equal": False, "detail": f"the loss is NaN at step {len(losses) - 1}"}
    bad = sum(map(lost, model.parameters()))
    return {"equal": bad == 0, "detail": f"{bad} parameters not finite, loss {losses[0]:.3g} to {losses[-1]:.3g}"}


def _half_adamw(way: str, device: str) -> dict[str, Any]:
    """Step eight fp16 weights three times: with a gradient of 1e-5, then 0."""
    weights = torch.nn.Parameter(torch.ones(8, dtype=torch.float16, device=device))
    with offered(f"{way} AdamW"):
        optimizer = torch.optim.AdamW([weights], lr=1e-3, **{way: True})
        for size in (1e-5, 0.0, 0.0):
            weights.grad = torch.full_like(weights, size)
            optimizer.step()
    return {"equal": lost(weights) == 0, "detail": f"{lost(weights)} of 8 weights are NaN after three steps"}


def _standstill(device: str, rate: float) -> dict[str, Any]:
    """Step a bf16 weight of 1.0 fifty times by AdamW with a constant gradient."""
    weight = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16, device=device))
    optimizer = torch.optim.AdamW([weight], lr=rate, weight_decay=0.0)
    for _ in range(50):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    moved = float((weight.detach() - 1).abs().max())
    return {"equal": moved > 0, "soft": True, "detail": f"moved by {moved:g} at a learning rate of {rate:g}"}


def _use(model: Any, length: int) -> None:
    """Run a training step without the optimizer, and the same batch in evaluation."""
    padded = tiny_models.padded(tiny_models.samples((length, length // 2)), "left", position_ids=True)
    batch = tiny_models.moved(padded, model)
    model.train()(**batch).loss.backward()
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        model.eval()(**batch)


def _attend(length: int, device: str) -> None:
    q, k, v = (torch.randn(2, 4, length, 64, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, length, length, dtype=torch.bool, device=device).tril()
    mask[1, :, :, : length // 4] = False
    functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum().backward()
