"""The prediction of a training step or a prompt: the peak, the verdict, and what would make it fit."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.peak.closed_form import (
    GIB,
    LENGTHS,
    OF_THE_MODEL,
    OTHER_MODELS,
    ClosedForm,
    Gpu,
    Need,
    Peak,
    Residual,
    Terms,
    gpu_of,
    kept_bytes,
    need_of,
    trained_parameters,
)
from envdoctor.peak.recipe import LESS, RunPlan, plan_of, settings_of, staged
from envdoctor.peak.section import MemoryProblem, MemoryReach, MemorySaving, MemorySection
from envdoctor.peak.shipped import OnCuda
from envdoctor.peak.tracing import Trace, TraceSource
from envdoctor.peak.unstated import Shown, unstated_of
from envdoctor.system.message import Message, as_message
from envdoctor.versions.pep440 import satisfies

# The single changes of a recipe that lower its peak: those with a trace of their own, and smaller numbers.

#: Lengths are offered in steps of this many tokens.
_STEP = 128
_VERDICTS = ("fits", "tight", "does-not-fit")
#: The batches of which the longest samples are told; of a model that tells no longest context, up to so many tokens.
_BATCHES = (1, 2, 4, 8)
_LONGEST = 1 << 17
#: The length from which every other follows where none was given.
USUAL = 2048
_SMALL_ADAPTER = {
    **{"r": 8, "lora_alpha": None, "lora_dropout": None, "target_modules": "all-linear"},
    **{"modules_to_save": None, "use_dora": None},
}


class Saving(NamedTuple):
    """``set`` are the facts of the recipe after the change, ``job`` what is different in the trace."""

    set: Mapping[str, object]
    job: Mapping[str, Any]


def _traced_changes(job: Mapping[str, Any], adapted: str) -> Iterator[Saving]:
    """Yield changes that keep batch and length, from the ones that cost nothing to the ones that train something else;
    ``adapted`` is where the reference model of an adapter comes from."""
    single = []
    if job["attention"] == "eager":
        single.append(Saving({"recipe.attn": "sdpa"}, {"attention": "sdpa"}))
    if job["training"] and not job["checkpointing"]:
        single.append(Saving({"recipe.gradient_checkpointing": True}, {"checkpointing": True}))
    yield from single
    if len(single) == 2:
        yield Saving({**single[0].set, **single[1].set}, {**single[0].job, **single[1].job})
    if not job["training"]:
        return
    if job["lora"] is None:
        if job["optimizer"] in ("AdamW", "adamw_fused"):
            yield Saving({"recipe.optimizer": "adamw_8bit"}, {"optimizer": "adamw_8bit"})
        reference = {"reference": adapted} if job["reference"] == "copy" else {}
        yield Saving({"recipe.method": "lora", "recipe.lora_r": 8}, {"lora": _SMALL_ADAPTER, **reference})
        packed = {"quantized": {"double": False, "upcast": True}}
        yield Saving({"recipe.method": "qlora", "recipe.lora_r": 8}, {"lora": _SMALL_ADAPTER, **packed, **reference})
    elif job["quantized"] is None:
        yield Saving({"recipe.method": "qlora"}, {"quantized": {"double": False, "upcast": True}})


def combined(single: Sequence[Saving]) -> Iterator[Saving]:
    """Yield two changes together, then three, and so on; none that sets one thing twice."""
    for number in range(2, len(single) + 1):
        for parts in combinations(single, number):
            settings = [item for part in parts for item in part.set.items()]
            if len(dict(settings)) == len(settings):
                yield Saving(dict(settings), {key: value for part in parts for key, value in part.job.items()})


def smaller(form: ClosedForm, name: str, batch: int, tokens: int, fits: Callable[[Peak], bool]) -> Iterator[Saving]:
    """Yield the largest batch (the setting ``name``) and the largest length below the given ones whose peak
    ``fits``."""
    found = _largest(lambda number: fits(form.at(number, tokens)), batch - 1)
    if found:
        yield Saving({name: found}, {"batch": found})
    steps = _largest(lambda number: fits(form.at(batch, number * _STEP)), (tokens - 1) // _STEP)
    if steps:
        yield Saving({"recipe.max_length": steps * _STEP}, {"tokens": steps * _STEP})


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` that fits, if every smaller one fits too; 0 if none fits."""
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))


# What one process of several holds: DDP, DeepSpeed's ZeRO, FSDP.
#
# The terms are those of the sources (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py; torch's
# torch/csrc/distributed/c10d/reducer.cpp); activations are not divided.


def _sharing(given: Mapping[str, Any], model: Mapping[str, Any], trained: float) -> Callable[[Terms], Terms]:
    """Return a function that turns the bytes of one process into those of one of ``recipe.world_size``. ``trained`` is
    the number of trained parameters. Raises :class:`MemoryProblem` if the number of processes is unknown."""
    world = given.get("world_size")
    if world is None and (given.get("zero_stage") or given.get("fsdp")):
        raise MemoryProblem("the number of processes is not known: give --set recipe.world_size=8")
    width = float(model["weight_bytes"]) / float(model["parameters"])
    layer, layers = float(model["layer_parameters"]), int(model["depth"])
    run = _Run(given, int(world or 1), float(model["parameters"]), layer, width, trained, layers)
    if given.get("zero_stage") is not None:
        return run.zero
    return run.fsdp if given.get("fsdp") else run.replicated


class _Run(NamedTuple):
    """``layer`` are the parameters of the largest layer, ``width`` the bytes of a parameter."""

    given: Mapping[str, Any]
    processes: int
    parameters: float
    layer: float
    width: float
    trained: float
    layers: int

    def replicated(self, terms: Terms) -> Terms:
        """Add the reducer's buckets, which hold every gradient a second time."""
        return {**terms, "communication buffers": self.trained * self.width} if self.processes > 1 else terms

    def zero(self, terms: Terms) -> Terms:
        """Divide the optimizer's states (stage 1), the gradients too (2), the weights too (3)."""
        stage, new = int(self.given["zero_stage"]), dict(terms)
        new.pop("temporary values of the optimizer", None)
        # Adam's two states and the float32 copy that DeepSpeed updates.
        states = 12 * self.trained / (self.processes if stage else 1)
        new["optimizer states"] = 0.0 if self.given.get("offload_optimizer") else states
        if stage >= 2 and "gradients" in new:
            new["gradients"] /= self.processes
        if stage < 3:
            sizes = [self.given[name] for name in ("allgather_bucket", "reduce_bucket")]
            several = 4.5 if self.given.get("overlap_comm") else 1.0
            new["communication buffers"] = several * 2 * min(sum(sizes), 2 * self.trained)
            return new
        live = min(self.given["live_parameters"], self.parameters) * self.width
        whole = new.get("weights", 0.0)
        kept = 0.0 if self.given.get("offload_param") else whole / self.processes
        new["weights"] = kept + min(4 * self.layer + live, whole)
        for name in new.keys() & set(OTHER_MODELS):  # prepare_deepspeed in trl/models/utils.py: by stage 3 alone
            new[name] *= 0.0 if self.given.get("offload_param") else 1 / self.processes
        new["communication buffers"] = 2 * self.given["reduce_bucket"]
        return new

    def fsdp(self, terms: Terms) -> Terms:
        """Divide everything but two layers, which are whole at a time: the one that computes and the next. A reference
        model is divided and offloaded as well (prepare_fsdp in trl/models/utils.py)."""
        new = {name: size / (self.processes if name in OF_THE_MODEL else 1) for name, size in terms.items()}
        if self.given.get("offload_param"):
            new.update({"weights": 0.0, "reference model": 0.0, "optimizer states": 0.0})
        # What is in no layer, the root's, stays whole until the way back (torch/distributed/fsdp/_runtime_utils.py).
        rest = max(self.parameters - self.layers * self.layer, 0.0) * (1 - 1 / self.processes)
        return {**new, "gathered layers": (2 * self.layer + rest) * self.width}


# The model that is traced: the type of config.json, or for code of the model's own the nearest one of transformers.

#: How much more the activations of other code are taken to need than those of the nearest type. A choice and no bound:
#: two published readings of GLM-4's and ChatGLM3's own code lie above the whole prediction with it.
MARGIN = 0.3


#: What is said of a run that may be another one, with its GiB.
_DOUBTS = {
    "checkpointing": "the model's own code is not here to be read, and some revisions ignore gradient checkpointing: "
    "then it takes {} GiB",
    "attention": "the attention was not given, and some releases take eager attention: then it takes {} GiB",
    "outputs": "the framework is not known, and a loop without a trainer may keep the model's outputs: "
    "then it takes {} GiB",
}


class Model(NamedTuple):
    """``config`` is that of a type which transformers has; ``named`` is the type in config.json. Where the two differ,
    activations may take more by the share ``margin``, and ``nearest`` is the row of the table native-types; ``trainer``
    is a framework that runs code of its own, with which they may take less too. ``heeds``:
    whether its code heeds gradient checkpointing, None where the code is not there to be read. ``said`` tells that the
    shape is by the model's name; then everything may be less or more by the share ``loose``."""

    config: Mapping[str, Any]
    named: str
    margin: float = 0.0
    nearest: Mapping[str, Any] | None = None
    heeds: bool | None = True
    trainer: str = ""
    said: tuple[Message, ...] = ()
    loose: float = 0.0

    def level_of(self, trace: Trace) -> str:
        """Return ``trace`` of the installed code, of the ``nearest`` type or form, or ``shipped`` coefficients."""
        if trace.near or (self.nearest and not trace.release):
            return "nearest"
        return "shipped" if trace.release else "trace"

    def said_of(self, trace: Trace, job: Mapping[str, Any]) -> list[str]:
        """Return sentences that say where the answer comes from."""
        notes: list[str] = list(self.said)
        if trace.release:
            text = "nothing was traced here: this is by shipped coefficients of transformers {}"
            notes.append(Message(text, trace.release))
        if trace.near:
            notes.append(Message("no shipped coefficients are about this very run: the nearest are of {}", trace.near))
        if self.trainer:
            notes.append(Message("{} runs code of its own for the model, not that of transformers", self.trainer))
        if self.nearest:
            nearest = (
                "code of the model's repository is never run: this is by the nearest type of transformers, {}; "
                "activations may take up to {} more"
            )
            notes.append(Message(nearest, self.nearest["type"], f"{self.margin:.0%}"))
            if job["checkpointing"] and self.heeds is False:
                notes.append(Message("the model's own code ignores gradient checkpointing: this is without it"))
        return notes

    def job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same job as the model's code does it; LoRA's modules are called as in the traced type."""
        if self.heeds is False:
            job = {**job, "checkpointing": False}
        lora = job["lora"]
        if lora is None or self.nearest is None:
            return dict(job)
        targets = lora["target_modules"] or self.nearest["targets"]
        renamed = {"target_modules": targets if targets == "all-linear" else self._called(targets)}
        if lora["modules_to_save"]:
            renamed["modules_to_save"] = self._called(lora["modules_to_save"])
        return {**job, "lora": {**lora, **renamed}}

    def _called(self, modules: Sequence[str]) -> list[Message]:
        known = self.nearest["modules"] if self.nearest else {}
        return [name for module in modules for name in known.get(module, [module])]


def model_of(
    config: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    methods: Sequence[str] = (),
    framework: str = "",
    *,
    repo: str = "",
    trainer: bool = False,
) -> Model:
    """Return the model of a config.json. ``rows`` are the table native-types, ``methods`` are those of its own code,
    ``framework`` trains it and is a ``trainer`` if it has code of its own. ``repo`` names a model without files here.

    Raises :class:`MemoryProblem` where the nearest type computes something else.
    """
    named = str(config.get("model_type"))
    row = next((row for row in rows if row["key"] == named), None)
    of_trainer = framework if trainer else ""
    if row is None:
        return Model(config, named, MARGIN if trainer else 0.0, trainer=of_trainer)
    unlike = [key for key, value in row["needs"].items() if config.get(key) != value]
    unlike += [name for name in row["names"].values() if name not in config]
    if unlike and repo:
        return Model(config, named, MARGIN, heeds=None, trainer=of_trainer)
    if unlike:
        raise MemoryProblem(
            "code of the model's repository is never run, and {}, the nearest type of transformers, does "
            "not fit its config.json: {}",
            row["type"],
            ", ".join(dict.fromkeys(unlike)),
        )
    native = {"model_type": row["type"], **{name: config[other] for name, other in row["names"].items()}}
    ignored, there = (any(fnmatchcase(method, row[name]) for method in methods) for name in ("ignores", "modeling"))
    heeds = not ignored if ignored or there else None
    if framework in row["but_in"] or (repo and repo.lower() in row["ignoring"]):
        heeds = framework in row["but_in"]
    return Model(native, named, MARGIN, row, heeds, of_trainer)


def _doubts(plan: RunPlan, model: Model, job: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each property of the job that is unknown, and the job with all of them so far as they take more."""
    if job["checkpointing"] and model.heeds is None:
        job = {**job, "checkpointing": False}
        yield "checkpointing", job
    if plan.eager:
        job = {**job, "attention": "eager"}
        yield "attention", job
    if plan.untold and isinstance(job["config"].get("vocab_size"), int):
        yield "outputs", {**job, "keep_outputs": True}


#: The least length that is traced beside the one that is asked.
_SHORTEST = 16
#: What does not fit so many times the free memory by coefficients is not traced. They are 1.4 % off at the most where
#: there is a form of the run (tests/peak/test_trace.py).
_SURELY = 1.1
#: What is not smaller than this share of the run is no change to offer.
_WORTH = 0.99


def predict(
    facts: FactSet, model: Model, tracer: TraceSource, known: Mapping[str, Any], usual: int | None = None
) -> MemorySection:
    """Return the section of the report. ``known`` is the table memory-frameworks, ``usual`` the length if none was
    given: then there is no verdict on it. Raises :class:`MemoryProblem` if there is no number."""
    plan, given = plan_of(facts, known, usual), settings_of(facts, model.config.get("hidden_size"), known["zero"])
    tracer = staged(OnCuda(tracer), plan.stage)
    gpu = gpu_of(facts.each("gpu"), int(given.get("world_size") or 1))
    base = {**model.job(plan.job), "config": model.config}
    base |= {"trainer": model.trainer} if model.trainer else {}
    for name in ("half_loss", "plain_adapters"):
        base[name] = any(row["name"] in (model.named, given.get("framework")) for row in known[name])
    kept = facts.text("pkg.bitsandbytes")
    base["keeps_inputs"] = kept is not None and satisfies(kept, known["keeps_inputs"][0]["releases"])
    trace = traced({**base, "tokens": [plan.tokens]}, tracer)
    # Where somebody measured what a process has on such a card beside what torch reserves.
    words = (gpu.name if gpu is not None else "").lower().replace("-", " ").split()
    beside = next((row["gib"] * GIB for row in known["context"] if row["name"] in words), None)
    if beside is not None and trace.residuals:
        process = Residual(*((share, more + beside) for share, more in trace.residuals["reserved"]))
        trace = trace._replace(residuals={**trace.residuals, "process": process})
    if given.get("empty_cache_steps") and trace.residuals:
        tensors = trace.residuals["allocated"]
        emptied = {measure: residual.if_emptied(tensors) for measure, residual in trace.residuals.items()}
        trace = trace._replace(residuals=emptied)
    run = _Prediction(plan, given, model, tracer, base, trace)
    peak, said = run.peak(run.gone), [*model.said_of(trace, plan.job), *plan.assumed]
    need, doubts = run.doubted(run.need())
    if not plan.divided:
        form = run.form(trace)
        least = run.around(form, lambda without: form.at(run.batch, plan.tokens, (*without, *OF_THE_MODEL)))
        need = need.down_to(least)
        text = "how the run is divided among processes is not known: one of many may take as little as {} GiB"
        doubts.append(Message(text, f"{least.process[0] / GIB:.1f}"))
    verdict = need.verdict(gpu.free) if gpu is not None and plan.stated else None
    judged = gpu if plan.whole and not plan.stated else None
    if judged is not None and (least := run.shortest()).verdict(judged.free) == "does-not-fit":
        need, verdict = need._replace(mostly=least.mostly), "does-not-fit"
        said.append(Message("the length was not given: it does not fit even at {} tokens", _SHORTEST))
    if gpu is not None and verdict == "does-not-fit" and run.may_be_checkpointed():
        checkpointed = run.untraced({**base, "tokens": [plan.tokens], "checkpointing": True})
        if checkpointed is not None and checkpointed[1].verdict(gpu.free) != "does-not-fit":
            verdict = None
    shown = run.shown(need, known, facts.text("pkg.transformers"), gpu)
    if shown.names and plan.stated:
        text = "nvidia-smi may show {} to {} GiB: not given are {}"
        low, high = (f"{size / GIB:.1f}" for size in shown.spans()["process"])
        doubts.append(Message(text, low, high, ", ".join(f"recipe.{name}" for name in shown.names)))
    return {
        "level": model.level_of(trace),
        "model": model.named,
        "layers": int(trace.model["depth"]),
        "parameters": int(trace.model["parameters"]),
        "trained_parameters": round(trained_parameters(trace)),
        "batch": run.batch,
        "tokens": plan.tokens,
        "processes": int(given.get("world_size") or 1),
        "allocated_gib": rounded(peak.size),
        "reserved_gib": [rounded(need.reserved[0]), rounded(need.reserved[2])],
        "process_gib": [rounded(need.process[0]), rounded(need.process[2])],
        "interval": {
            "of": trace.residuals_of,
            "allocated": [*map(rounded, need.allocated)],
            "reserved": [*map(rounded, need.reserved)],
            "process": [*map(rounded, need.process)],
            "mostly": rounded(need.mostly),
            "shown": {measure: [*map(rounded, span)] for measure, span in shown.spans().items()},
        },
        "gpu": gpu and gpu.name,
        "total_gib": gpu and rounded(gpu.total),
        "free_gib": gpu and rounded(gpu.free),
        "verdict": verdict,
        "phase": peak.segment.partition("/")[0],
        "operation": peak.operation,
        "terms": [
            {"name": name, "gib": rounded(size)}
            for name, size in sorted(peak.terms.items(), key=lambda term: -term[1])
            if size >= GIB / 1000
        ],
        "changes": run.changes(run.peak(), need, gpu) if gpu is not None and verdict != "fits" else [],
        "reach": run.reach(gpu) if gpu is not None and (trace.release or not plan.stated) else [],
        "serving": None,
        "assumed": [*said, *doubts],
        "savers": list(plan.savers),
    }


#: Terms that are likely gone where they may be: Liger and Cut Cross Entropy never make the whole logits, and what is
#: offloaded is not there. What else a kernel or torch.compile spares of an MLP is its own choice.
_GONE = ("logits and loss", "hidden states", "attention")


class _Prediction(NamedTuple):
    """One run: ``base`` is its job without lengths, ``trace`` the step at its length."""

    plan: RunPlan
    given: Mapping[str, Any]
    model: Model
    tracer: TraceSource
    base: Mapping[str, Any]
    trace: Trace

    @property
    def batch(self) -> int:
        return int(self.plan.job["batch"])

    @property
    def batch_name(self) -> str:
        return f"recipe.{'train_' if self.plan.job['training'] else ''}batch_size"

    @property
    def gone(self) -> list[str]:
        """Return the terms that are likely not there."""
        return [term for term in self.plan.spared if term in (*_GONE, *self.plan.stage.spared)]

    def form(self, trace: Trace) -> ClosedForm:
        """Return what one process of the run holds, by a trace of it or of another job."""
        return ClosedForm(trace, self.batch, _sharing(self.given, trace.model, trained_parameters(trace)))

    def peak(self, without: Sequence[str] = ()) -> Peak:
        """Return the most of the step; of a prompt, or of the answer with all keys and values, if that is more."""
        peak = self.form(self.trace).at(self.batch, self.plan.tokens, without)
        if self.plan.job["training"]:
            return peak
        longest = max(int(point["tokens"]) for point in self.trace.points)
        tokens = self.plan.tokens + int(self.given.get("max_new_tokens") or 0)
        weights, cache = float(self.trace.model["weight_bytes"]), kept_bytes(self.trace) / longest * tokens
        answer = Peak("decode", "torch.cat", {"weights": weights, "KV cache": cache})
        return max(peak, answer, key=lambda one: one.size)

    def need(self) -> Need:
        """Return the need of the run, if it is as the plan has it."""
        return self.around(self.form(self.trace), self.peak)

    def shortest(self) -> Need:
        """Return the need of the run with the shortest samples."""
        form = self.form(traced({**self.base, "tokens": _lengths(self.plan.tokens)}, self.tracer))
        return self.around(form, partial(form.at, self.batch, _SHORTEST))

    def around(self, form: ClosedForm, peak: Callable[[Sequence[str]], Peak], share: float = 1.0) -> Need:
        """Return what a run takes, by its ``peak`` without the terms that may be gone, or are likely gone, or none."""
        low, likely, high = map(peak, (self.plan.spared, self.gone, ()))
        return self.needed(form, low, high, share, likely)

    def needed(self, form: ClosedForm, low: Peak, high: Peak, share: float = 1.0, likely: Peak | None = None) -> Need:
        """Return what a run takes whose peak is between both, and halfway from the least to the ``likely`` one (None:
        the high one); ``share`` is how much more it may be than the plan has it."""
        least, most = low.size, high.size
        if not self.trace.residuals:  # which hold what other code takes
            least, most = low.most(-LESS if self.model.trainer else 0.0), high.most(self.model.margin)
        least -= self.trace.halfway
        most = (most * (1 + self.model.loose) + self.trace.apart) * share
        smaller = (1 - self.model.loose) * (1 - self.plan.less) / self.plan.parts
        size = (least * smaller + (likely or high).size) / 2
        return need_of(max(least - self.trace.absent, 0.0) * smaller, size, most, form.held, self.trace.residuals)

    def doubted(self, need: Need) -> tuple[Need, list[Message]]:
        """Return the need with the run's unknown properties, and what is said of them."""
        notes = []
        for what, job in _doubts(self.plan, self.model, self.base):
            other = self.form(traced({**job, "tokens": [self.plan.tokens]}, self.tracer))
            most = other.at(self.batch, self.plan.tokens)
            need = need.up_to(self.needed(other, most, most))
            notes.append(Message(_DOUBTS[what], f"{most.size / GIB:.1f}"))
        return need, notes

    def shown(self, need: Need, known: Mapping[str, Any], version: str | None, gpu: Gpu | None) -> Shown:
        """Return what each measure may show of the run whatever of it nobody told. Samples may be shorter than the
        longest, and the allocator of a GPU that is never full keeps blocks of all lengths."""
        batch, tokens, base = self.batch, self.plan.tokens, {**self.base, "tokens": [self.plan.tokens]}
        others = [*unstated_of(self.given, base, known["unstated"], version)]
        if not self.plan.job["training"]:
            others = [(name, job) for name, job in others if name in ("load_dtype", "attn", "framework")]
        if self.model.heeds is False and self.plan.job["checkpointing"]:
            others.append(("gradient_checkpointing", {**base, "checkpointing": True}))
        shown = Shown(need, gpu.total if gpu is not None else math.inf)
        fixed = self.given.get("padding") == "max" or self.given.get("packing") or not self.plan.job["training"]
        if not fixed:
            others.append(("padding", {**base, "tokens": [max(_SHORTEST, tokens // 4)]}))
            if not self.given.get("empty_cache_steps"):
                form, kept = self.form(self.trace), {row["name"]: row["times"] for row in known["kept"]}
                shown.more("padding", form.at(batch, tokens, (), kept).held(kept) - form.at(batch, tokens).size)
        as_it_is = self.untraced(base)
        for name, job in others:
            if as_it_is and (other := self.untraced(job)):
                shown.otherwise(name, *as_it_is, *other)
        return shown

    def may_be_checkpointed(self) -> bool:
        """Return whether nobody told of gradient checkpointing, and no trainer is known that would have it off."""
        told = self.base["checkpointing"] or not {"gradient_checkpointing", "framework"}.isdisjoint(self.given)
        return bool(self.plan.job["training"] and self.plan.stated and not told and self.model.heeds is not False)

    def untraced(self, job: Mapping[str, Any]) -> tuple[float, Need] | None:
        """Return the weights and the need of another run by shipped coefficients, if they tell it."""
        (trace,) = self.tracer.run([{**job, "untraced": True}])
        if not isinstance(trace, Trace):
            return None
        run, tokens = self._replace(trace=trace._replace(residuals=self.trace.residuals)), job["tokens"][0]
        form = run.form(trace)
        weights = form.at(self.batch, tokens).terms.get("weights", 0.0)
        return weights, run.around(form, partial(form.at, self.batch, tokens))

    def ruled_out(self, job: Mapping[str, Any], gpu: Gpu) -> bool:
        """Return whether another run surely does not fit, by coefficients: then it need not be traced."""
        known = self.untraced(job)
        return known is not None and known[1].verdict(_SURELY * gpu.free) == "does-not-fit"

    def up_to_doubts(self, after: Need, saving: Saving) -> Need:
        """Return the need after a change, up to the unknown properties of the run that it leaves; a smaller batch or
        length alone leaves at most the share by which the run's own doubts are more."""
        batch, lengths = int(saving.job.get("batch", self.batch)), [self.plan.tokens]
        if "tokens" in saving.job or saving.job.keys() == {"batch"}:
            return after
        lengths = lengths if batch == self.batch else _lengths(self.plan.tokens)
        for what, job in _doubts(self.plan, self.model, {**self.base, **saving.job}):
            if what == "checkpointing" or (what == "attention" and "attention" not in saving.job):
                form = self.form(traced({**job, "batch": self.batch, "tokens": lengths}, self.tracer))
                most = form.at(batch, self.plan.tokens)
                after = after.up_to(self.needed(form, most, most))
        return after

    def changes(self, peak: Peak, doubted: Need, gpu: Gpu) -> list[MemorySaving]:
        """Return changes that lower the peak, and whether the run then fits; the ones that make it fit come first."""
        plan, doubt = self.plan, doubted.process[2] / self.need().process[2]
        savings: list[MemorySaving] = []
        cut = False  # nobody asked for a small part of the length

        def fits(peak: Peak) -> bool:
            return self.needed(form, peak, peak, doubt).verdict(gpu.free) == "fits"

        def after(saving: Saving, form: ClosedForm, batch: int, tokens: int) -> MemorySaving:
            size, need = form.at(batch, tokens).size, self.around(form, partial(form.at, batch, tokens), doubt)
            verdict = self.up_to_doubts(need, saving).verdict(gpu.free)
            return {"set": dict(saving.set), "gib": rounded(size), "verdict": verdict}

        form, tried = self.form(self.trace), list(_traced_changes(self.base, plan.adapted))
        if self.model.heeds is False:
            tried = [saving for saving in tried if not saving.job.get("checkpointing")]
        if self.given.get("quantization"):  # as the model's files have it
            tried = [saving for saving in tried if "quantized" not in saving.job]
        lengths = _lengths(plan.tokens)
        jobs = [{**self.base, **saving.job, "tokens": [plan.tokens]} for saving in tried]
        jobs = [{**job, "untraced": True} if self.ruled_out(job, gpu) else job for job in jobs]
        every, *others = self.tracer.run([{**self.base, "tokens": lengths}, *jobs])
        for saving, one in zip(tried, others, strict=True):
            changed = self.form(one) if isinstance(one, Trace) else form
            if changed.at(self.batch, plan.tokens).size < _WORTH * peak.size:
                savings.append(after(saving, changed, self.batch, plan.tokens))
        if isinstance(every, Trace):
            any_length = self.form(every)
            for saving in smaller(any_length, self.batch_name, self.batch, plan.tokens, fits):
                if "tokens" in saving.job and not plan.stated:
                    continue
                changed_sizes = {"batch": self.batch, "tokens": plan.tokens, **saving.job}
                savings.append(after(saving, any_length, **changed_sizes))
                cut |= 2 * changed_sizes["tokens"] < plan.tokens
        savings.sort(key=lambda change: change["verdict"] != "fits")
        if not any(
            change["verdict"] == "fits" and not (cut and "recipe.max_length" in change["set"]) for change in savings
        ):
            single = [saving for saving in tried if "recipe.method" in saving.set or len(saving.set) == 1]
            single += [Saving({self.batch_name: 1}, {"batch": 1})] if self.batch > 1 else []
            single.sort(key=lambda saving: "recipe.method" in saving.set)  # what trains something else is the last

            def together(savings: Sequence[Saving]) -> list[tuple[MemorySaving, Saving]]:
                # Another batch needs to know what does not grow with it.
                asked = [lengths if "batch" in saving.job else [plan.tokens] for saving in savings]
                sizes = [{"batch": self.batch, "tokens": tokens} for tokens in asked]
                jobs = zip(savings, sizes, strict=True)
                traces = self.tracer.run([{**self.base, **saving.job, **size} for saving, size in jobs])
                return [
                    (after(saving, self.form(trace), saving.job.get("batch", self.batch), plan.tokens), saving)
                    for saving, trace in zip(savings, traces, strict=True)
                    if isinstance(trace, Trace)
                ]

            # Coefficients choose among so many; what they choose is traced where the run is.
            known = together([Saving(one.set, {**one.job, "untraced": True}) for one in combined(single)])
            best = sorted(known, key=lambda one: _VERDICTS.index(one[0]["verdict"]))[:1]
            if not self.trace.release:
                best = together([Saving(one.set, {**one.job, "untraced": False}) for _, one in best])
            savings = [*(change for change, _ in best if change["verdict"] != "does-not-fit"), *savings]
        return savings

    def reach(self, gpu: Gpu) -> list[MemoryReach]:
        """Return the longest samples that fit, by the batch."""
        longest = self.base["config"].get("max_position_embeddings")
        most = min(longest, _LONGEST << 7) if isinstance(longest, int) else _LONGEST
        lengths = {"tokens": _lengths(USUAL)}
        (trace,) = self.tracer.run([{**self.base, **lengths}])
        if not isinstance(trace, Trace):
            return []
        forms, reach = [self.form(trace)], list[MemoryReach]()
        for _, job in _doubts(self.plan, self.model, self.base):
            (other,) = self.tracer.run([{**job, **lengths}])
            forms += [self.form(other)] if isinstance(other, Trace) else []
        for batch in _BATCHES:

            def fits(steps: int, batch: int = batch) -> bool:
                peaks = [(form, form.at(batch, steps * _STEP)) for form in forms]
                return all(self.needed(form, peak, peak).verdict(gpu.free) == "fits" for form, peak in peaks)

            tokens = _largest(fits, most // _STEP) * _STEP
            reach += [{"batch": batch, "tokens": tokens}] if tokens else []
        return reach


def traced(job: Mapping[str, Any], tracer: TraceSource) -> Trace:
    """Return the trace of one job. Raises :class:`MemoryProblem`."""
    (trace,) = tracer.run([job])
    if isinstance(trace, str):
        raise MemoryProblem(as_message(trace))
    return trace


def rounded(size: float) -> float:
    """Return bytes as GiB, to a thousandth."""
    return round(size / GIB, 3)


def _lengths(tokens: int) -> list[int]:
    """Return the traced lengths, the one that is asked first: they tell every other length."""
    return [tokens, *sorted({max(_SHORTEST, int(tokens * share)) for share in LENGTHS} - {tokens}, reverse=True)]
