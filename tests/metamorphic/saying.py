"""What a run is to say, and how arguments that many trainers share say it."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from released import arguments, release

#: What a dialect without an argument for it does anyway.
_OFF_ANYWAY = {"torch_compile", "sleep_mode", "fsdp", "resume"}
#: Facts that the training arguments of transformers, and what is made of them, say by one name.
_TRAINING = {
    "batch_size": ("per_device_train_batch_size",),
    "train_batch_size": ("per_device_train_batch_size",),
    "eval_batch_size": ("per_device_eval_batch_size",),
    "auto_find_batch_size": ("auto_find_batch_size",),
    "max_steps": ("max_steps",),
    "gradient_accumulation": ("gradient_accumulation_steps",),
    "gradient_checkpointing": ("gradient_checkpointing",),
    "optimizer": ("optim",),
    "torch_compile": ("torch_compile",),
    "eval_strategy": ("eval_strategy", "evaluation_strategy"),
    "eval_steps": ("eval_steps",),
    "eval_accumulation": ("eval_accumulation_steps",),
    "predict_with_generate": ("predict_with_generate",),
    "save_strategy": ("save_strategy",),
    "load_best_model": ("load_best_model_at_end",),
    "find_unused_parameters": ("ddp_find_unused_parameters",),
    "dataloader_workers": ("dataloader_num_workers",),
    "padding_free": ("padding_free",),
    "packing": ("packing",),
}
_TORCH = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "auto": "auto"}


class CannotSay(Exception):
    """A dialect has no argument for something; the message is the reason."""


class Code(str):
    """Python source that is written as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Arguments(dict[str, Any]):
    """Arguments that are written, each among the ``known`` ones of ``owner``."""

    def __init__(self, owner: str, known: Collection[str], **values: Any) -> None:
        super().__init__(values)
        self.owner, self.known = owner, known

    def put(self, value: Any, *names: str) -> None:
        """Write a value under the first name that is known. Raises :class:`CannotSay`."""
        for name in names:
            if name in self.known:
                self[name] = value
                return
        raise CannotSay(f"{self.owner} has no argument {' or '.join(names)}")

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.items())


class Run:
    """The facts of a run: what is left to say of its recipe, its packages, the model, files beside its recipe."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.left = {key[7:]: value for key, value in facts.items() if key.startswith("recipe.")}
        self.packages = {
            key[4:]: value.partition("+")[0]
            for key, value in facts.items()
            if key.startswith("pkg.") and value not in ("absent", "installed", "present")
        }
        self.keys = list(facts.get("recipe_key", ()))
        names = (facts.get("model.repo"), facts.get("model.path"), "/models/mine")
        self.model: str = next(name for name in names if name and name != "absent")
        kinds = [facts[key] for key in ("model.type", "model.family") if facts.get(key)]
        self.family: str = kinds[0] if kinds else "" if self.model == "/models/mine" else self.model
        self.files: dict[str, str] = {}

    def take(self, name: str) -> Any:
        """Take a fact, that is said now; None when it is left open or absent."""
        value = self.left.pop(name, None)
        return None if value == "absent" else value

    def want(self, name: str, *values: Any, what: str) -> None:
        """Take a fact that the dialect says by being what it is. Raises :class:`CannotSay` for another value."""
        value = self.take(name)
        if value is not None and value not in values:
            raise CannotSay(f"{what}: recipe.{name} is never {value}")

    def known(self, project: str, *groups: str) -> frozenset[str]:
        """Return the arguments of these groups in the run's release of the project."""
        return frozenset().union(*(arguments(project, group, self.packages) for group in groups))

    def release(self, project: str) -> str:
        """Return the release of the project whose arguments the run has."""
        return release(project, self.packages)

    def finish(self, what: str) -> None:
        """Raise :class:`CannotSay` when something was not said."""
        self.left.pop("framework", None)
        self.left.pop("dialect", None)
        for name, value in self.left.items():
            if value != "absent" and not (value is False and name in _OFF_ANYWAY):
                raise CannotSay(f"{what} has no argument for recipe.{name}")
        if self.keys:
            raise CannotSay(f"{what} has no argument {self.keys[0]['key']}")


def dtype_of(value: str) -> Any:
    """Return how Python writes a dtype of torch."""
    return "auto" if value == "auto" else Code(f"torch.{_TORCH[value]}")


def say_training(run: Run, to: Arguments) -> None:
    """Write what the training arguments of transformers say. Raises :class:`CannotSay`."""
    for fact, names in _TRAINING.items():
        value = run.take(fact)
        if value is not None and not (value is False and fact in _OFF_ANYWAY and not set(names) & set(to.known)):
            to.put(value, *names)
    _say_precision(run, to)
    if run.take("group_by_length"):
        by = "group_by_length" in to.known
        to.put(True if by else "group_by_length", "group_by_length", "train_sampling_strategy")
    reentrant = run.take("reentrant")
    if reentrant is not None:
        to.put({"use_reentrant": reentrant}, "gradient_checkpointing_kwargs")
    kernels = run.left.get("kernels")
    if kernels in ("liger", ["liger"]):
        run.take("kernels")
        to.put(True, "use_liger_kernel", "use_liger", "enable_liger_kernel")
    if run.take("resume"):
        to.put("out/checkpoint-100", "resume_from_checkpoint")
    if run.take("fsdp") or "fsdp_version" in run.left:
        offload = run.take("offload_param")
        to.put("full_shard auto_wrap" + (" offload" if offload else ""), "fsdp")
        version = run.take("fsdp_version")
        if version is not None:
            to.put({"version": version}, "fsdp_config")
    if "zero_stage" in run.left and (name := deepspeed_file(run)):
        to.put(name, "deepspeed")
    for record in list(run.keys):
        if record.get("format") == "deepspeed" and record["state"] == "contradicted" and "deepspeed" in to.known:
            to.put(4, "per_device_train_batch_size")
            to.put("ds.json", "deepspeed")
            run.files["ds.json"] = json.dumps({record["key"]: 2, "zero_optimization": {"stage": 2}})
            run.keys.remove(record)
        if record["key"] in to.known and record.get("value") == "true":
            to[record["key"]] = True
            run.keys.remove(record)
    named = [name for name in run.left.get("arguments") or () if name not in to.known and name != "x"]
    if "arguments" in run.left and not named:
        run.take("arguments")


def _say_precision(run: Run, to: Arguments) -> None:
    dtype = run.take("dtype")
    if dtype in ("bf16", "fp16"):
        to.put(True, dtype)
    elif dtype == "fp32":
        to.put(False, "bf16")
        to.put(False, "fp16")
    elif dtype is not None:
        to.put(True, dtype)
    for record in list(run.keys):
        if record.get("state") == "contradicted" and record["key"] in ("fp16", "bf16"):
            to.put(True, "fp16")
            to.put(True, "bf16")
            run.keys.remove(record)


def deepspeed_file(run: Run) -> str | None:
    """Write the file of DeepSpeed beside the recipe; return its name, None without DeepSpeed."""
    stage = run.take("zero_stage")
    if stage is None:
        return None
    zero: dict[str, Any] = {"stage": stage}
    for fact, key in (
        ("overlap_comm", "overlap_comm"),
        ("allgather_bucket", "allgather_bucket_size"),
        ("reduce_bucket", "reduce_bucket_size"),
    ):
        if (value := run.take(fact)) is not None:
            zero[key] = value
    for fact in ("offload_param", "offload_optimizer"):
        if (value := run.take(fact)) is not None:
            zero[fact] = {"device": value}
    whole = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    run.files["ds.json"] = json.dumps({**whole, "bf16": {"enabled": "auto"}, "zero_optimization": zero}, indent=1)
    return "ds.json"


def accelerated(run: Run) -> list[str]:
    """Return what ``accelerate launch`` and the like are told about processes."""
    processes = run.take("world_size")
    return ["--num_processes", str(processes)] if processes is not None else []
