"""The prediction of a training step or a prompt: the peak, the verdict, and what would make it fit."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.peak.changes import (
    NO_CHANGE,
    STEP,
    Saving,
    Shown,
    combined,
    largest,
    smaller,
    traced_changes,
    unstated_of,
)
from envdoctor.peak.closed_form import (
    GENERATING,
    GIB,
    LENGTHS,
    LOGITS,
    OF_THE_MODEL,
    ClosedForm,
    Gpu,
    Need,
    Peak,
    at_full_depth,
    gpu_of,
    need_of,
    with_readings,
)
from envdoctor.peak.model import Model
from envdoctor.peak.recipe import LESS, RunPlan, RunRecipe, plan_of, recipe_of, staged
from envdoctor.peak.section import MemoryProblem, MemoryReach, MemorySaving, MemorySection
from envdoctor.peak.sharing import sharing
from envdoctor.peak.shipped import OnCuda
from envdoctor.peak.sizes import has_experts, longest_of
from envdoctor.peak.tower import IMAGES, tower_of, trained_tower, with_images
from envdoctor.peak.tracing import Trace, TraceSource
from envdoctor.system.message import Message, as_message
from envdoctor.versions.pep440 import satisfies

_VERDICTS = ("fits", "tight", "does-not-fit")
#: The batches of which the longest samples are told; of a model that tells no longest context, up to so many tokens.
_BATCHES = (1, 2, 4, 8)
_LONGEST = 1 << 17
#: The length from which every other follows where none was given.
USUAL = 2048
#: What is said of a run that may be another one, with its GiB.
_DOUBTS = {
    "checkpointing": "the model's own code is not here to be read, and some revisions ignore gradient checkpointing: "
    "then its tensors take {} GiB",
    "default": "older releases have gradient checkpointing off: then its tensors take {} GiB",
    "attention": "the attention was not given, and some releases take eager attention: then its tensors take {} GiB",
    "outputs": "the framework is not known, and a loop without a trainer may keep the model's outputs: "
    "then its tensors take {} GiB",
}


def _doubts(plan: RunPlan, model: Model, job: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each property of the job that is unknown, and the job with all of them so far as they take more."""
    if job["checkpointing"] and (model.heeds is None or plan.maybe_off):
        job = {**job, "checkpointing": False}
        yield "checkpointing" if model.heeds is None else "default", job
    if plan.eager:
        job = {**job, "attention": "eager"}
        yield "attention", job
    if plan.untold and isinstance(job["config"].get("vocab_size"), int):
        yield "outputs", {**job, "keep_outputs": True}


def _settled(plan: RunPlan, saving: Saving) -> RunPlan:
    """Return the plan without the doubts of a release that a change would end."""
    eager, maybe_off = "attention" not in saving.job, "checkpointing" not in saving.job
    return plan._replace(eager=plan.eager and eager, maybe_off=plan.maybe_off and maybe_off)


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
    longest, recipe = longest_of(model.config), recipe_of(facts, known, model.config.get("hidden_size"))
    processes = int(recipe.given.get("world_size") or 1)
    plan = plan_of(recipe, usual and min(usual, max(longest or usual, 1)))
    if (tower := tower_of(model.config, recipe)) is not None:
        tracer = with_images(tracer, tower, trained_tower(recipe))
        plan = plan._replace(spared=(*plan.spared, IMAGES))  # nobody tells how many images a sample has
    tracer, gpu = staged(OnCuda(tracer).run, plan.stage), gpu_of(facts.each("gpu"), processes)
    base = _job_of(recipe, model, plan)
    trace = with_readings(traced({**base, "tokens": [plan.tokens]}, tracer), recipe.known["context"], recipe.given, gpu)
    run, notes = _Prediction(plan, recipe, model, tracer, base, trace), [*model.said_of(trace, plan.job), *plan.assumed]
    peak, (need, doubts) = run.peak(run.gone), run.doubted(run.need())
    loose = run.batch > 1 and recipe.given.get("padding_free") and not recipe.given.get("packing")
    if loose and (alone := run.untraced({**base, "tokens": [plan.tokens], "batch": 1})):
        need, text = need.down_to(alone[1]), "samples are not padded: a step of short ones takes as little as {} GiB"
        doubts.append(Message(text, f"{alone[1].process[0] / GIB:.1f}"))
    if plan.stage.generates and (short := run.untraced({**base, "tokens": [min(plan.tokens, _SHORTEST)], "batch": 1})):
        need = need.down_to(short[1])
        text = "few answers are as long as they may be: a step with a short one takes as little as {} GiB"
        doubts.append(Message(text, f"{short[1].process[0] / GIB:.1f}"))
    if not plan.divided:
        least, undivided = run.without(*OF_THE_MODEL), run.undivided("deepspeed" in recipe.keys, need)
        need = need.up_to(undivided).down_to(least)
        text = "how the run is divided among processes is not known: one of many may take as little as {} GiB"
        doubts.append(Message(text, f"{least.process[0] / GIB:.1f}"))
    verdict, settling = run.verdict(need, gpu), ""
    if gpu and plan.whole and not plan.stated and (least := run.shortest()).verdict(gpu.free) == "does-not-fit":
        need, verdict, settling = need._replace(mostly=least.mostly), "does-not-fit", ""
        notes.append(Message("the length was not given: it does not fit even at {} tokens", _SHORTEST))
    if gpu is not None and verdict == "does-not-fit":
        untold = base["quantized"] and recipe.given.keys().isdisjoint(("double_quantization", "framework"))
        if run.may_be_checkpointed() and run.may_fit(gpu, checkpointing=True):
            verdict, settling = None, "recipe.gradient_checkpointing"
        elif untold and (packed := run.may_fit(gpu, quantized={"double": True, "upcast": False})):
            need, verdict = need.down_to(packed), "tight"
            text = "double quantization and the framework were not given: it may take as little as {} GiB"
            doubts.append(Message(text, f"{packed.process[0] / GIB:.1f}"))
    if gpu is not None and verdict == "tight" and not plan.divided and undivided.verdict(gpu.free) == "does-not-fit":
        verdict, settling = None, "recipe.zero_stage"
    least = run.without(*plan.unsure) if plan.unsure else need
    if gpu is not None and verdict in _VERDICTS[1:] and least is not need and least.verdict(gpu.free) != verdict:
        need, verdict, settling = need.down_to(least), None, plan.open_by
    shown = run.shown(need, gpu)
    return {
        "level": model.level_of(trace),
        "model": model.named,
        "layers": int(trace.model["depth"]),
        "parameters": int(trace.model["parameters"]),
        "trained_parameters": round(at_full_depth(trace, "trained")),
        "batch": run.batch,
        "tokens": plan.tokens,
        "processes": processes,
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
            "not_given": [f"recipe.{name}" for name in shown.names if plan.stated],
        },
        "gpu": gpu and gpu.name,
        "total_gib": gpu and rounded(gpu.total),
        "free_gib": gpu and rounded(gpu.free),
        "verdict": verdict,
        "settled_by": settling,
        "phase": peak.segment.partition("/")[0],
        "operation": peak.operation,
        "terms": [
            {"name": name, "gib": rounded(size)}
            for name, size in sorted(peak.terms.items(), key=lambda term: -term[1])
            if size >= GIB / 1000
        ],
        "changes": run.changes(need, gpu) if gpu is not None and verdict != "fits" else [],
        "reach": run.reach(gpu) if gpu is not None and (trace.release or not plan.stated) else [],
        "serving": None,
        "assumed": [*notes, *doubts],
        "savers": list(plan.savers),
    }


def _job_of(recipe: RunRecipe, model: Model, plan: RunPlan) -> dict[str, Any]:
    """Return the job of the run, without lengths."""
    known, given = recipe.known, recipe.given
    base = {**model.job(plan.job), "config": model.config}
    base |= {"trainer": model.trainer} if model.trainer else {}
    for name in ("half_loss", "plain_adapters"):
        base[name] = any(row["name"] in (model.named, given.get("framework")) for row in known[name])
    own = next((row for row in known["packed_experts"] if row["name"] == given.get("framework")), None)
    release = recipe.facts.text(f"pkg.{given.get('framework')}")
    of_all = own is not None and (release is None or satisfies(release, own["releases"]))
    surely = own is not None and (model.named in own["types"] or (of_all and release is not None))
    surely |= bool(model.trainer or model.nearest or given.get("quantize_experts"))
    base |= {"packed_experts": surely or of_all, "perhaps_packed": of_all and not surely}
    if base["packed_experts"] and base["quantized"] and has_experts(model.config):
        base["untraced"] = True  # a trace packs linear layers
    release = recipe.facts.text("pkg.bitsandbytes")
    base["keeps_inputs"] = release is not None and satisfies(release, known["keeps_inputs"][0]["releases"])
    return base


#: Terms that are likely gone where they may be: Liger and Cut Cross Entropy never make the whole logits, and what is
#: offloaded is not there. What else a kernel or torch.compile spares of an MLP is its own choice.
_GONE = (LOGITS, "hidden states", "attention")


class _Prediction(NamedTuple):
    """One run: ``base`` is its job without lengths, ``trace`` the step at its length."""

    plan: RunPlan
    recipe: RunRecipe
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

    def form(self, trace: Trace, change: Saving = NO_CHANGE) -> ClosedForm:
        """Return what one process of the run holds, by a trace of it or of another job, maybe after a change."""
        given = {**self.recipe.given, **{key.removeprefix("recipe."): value for key, value in change.set.items()}}
        return ClosedForm(trace, change.job.get("batch", self.batch), sharing(given, trace))

    def peak(self, without: Sequence[str] = ()) -> Peak:
        """Return the most of the step; of a prompt, or of the answer with all keys and values, if that is more."""
        peak = self.form(self.trace).at(self.batch, self.plan.tokens, without)
        if self.plan.job["training"]:
            return peak
        longest = max(int(point["tokens"]) for point in self.trace.points)
        tokens = self.plan.tokens + int(self.recipe.given.get("max_new_tokens") or 0)
        weights, cache = (
            float(self.trace.model["weight_bytes"]),
            at_full_depth(self.trace, "cache_bytes") / longest * tokens,
        )
        answer = Peak("decode", "torch.cat", {"weights": weights, "KV cache": cache})
        return max(peak, answer, key=lambda part: part.size)

    def need(self) -> Need:
        return self.around(self.form(self.trace), self.peak)

    def undivided(self, unread: bool, need: Need) -> Need:
        """Return what the run takes where nothing of it is divided: by a file of DeepSpeed's that was not read, at most
        stage 0 with its copy of the weights."""
        whole = self.recipe._replace(given={**self.recipe.given, "zero_stage": 0})
        return self._replace(recipe=whole).need() if unread else need

    def without(self, *terms: str) -> Need:
        """Return what the run takes where nothing of these terms is there."""
        form = self.form(self.trace)
        return self.around(form, lambda gone: form.at(self.batch, self.plan.tokens, (*gone, *terms)))

    def verdict(self, need: Need, gpu: Gpu | None) -> str | None:
        """Return the verdict; without a length only that the longest sample fits which the model takes."""
        verdict = need.verdict(gpu.free) if gpu is not None else None
        longest = verdict == "fits" and self.plan.tokens == longest_of(self.base["config"])
        return verdict if self.plan.stated or longest else None

    def shortest(self) -> Need:
        form = self.form(traced({**self.base, "tokens": _lengths(self.plan.tokens)}, self.tracer))
        return self.around(form, partial(form.at, self.batch, _SHORTEST))

    def around(self, form: ClosedForm, peak: Callable[[Sequence[str]], Peak], share: float = 1.0) -> Need:
        """Return what a run takes, by its ``peak`` without the terms that may be gone, or are likely gone, or none."""
        choices = [(*self.plan.spared,), (*self.gone,), ()]
        low, likely, high = map(peak, choices)
        need = self.needed(form, low, high, share, likely)
        if not self.plan.stage.asleep:
            return need
        # The most that the training takes while the engine sleeps may be of another moment.
        low, likely, high = (peak((*names, GENERATING)) for names in choices)
        return need.up_to(self.needed(form, low, high, share, likely))

    def needed(self, form: ClosedForm, low: Peak, high: Peak, share: float = 1.0, likely: Peak | None = None) -> Need:
        """Return what a run takes whose peak is between both, and halfway from the least to the ``likely`` one (None:
        the high one); ``share`` is how much more it may be than the plan has it."""
        # What an engine takes is a share of the GPU: no allocator of the training holds more of it.
        if GENERATING in high.terms:
            peaks = (low, likely or high, high)
            least, size, most = (peak.terms.get(GENERATING, 0.0) for peak in peaks)
            low, mean, top = (peak.without(GENERATING) for peak in peaks)
            need = self.needed(form, low, top, share, mean)
            if not self.plan.stage.asleep:
                return need.beside((least, size, most))
            awake = high.without(*(name for name in high.terms if name not in self.plan.stage.stays))
            turn = high.size - awake.size
            return need.up_to(self.needed(form, awake, awake, share).beside((turn, turn, turn)))
        least, most = low.size, high.size
        if not self.trace.residuals:  # which hold what other code takes
            least, most = low.most(-LESS if self.model.trainer else 0.0), high.most(self.model.margin)
        least -= self.trace.halfway
        most = (most * (1 + self.model.loose) + self.trace.apart) * share
        smaller = (1 - self.model.loose) * (1 - self.plan.less) / self.plan.parts
        size = (least * smaller + (likely or high).size * (1 + self.model.loose)) / 2
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

    def shown(self, need: Need, gpu: Gpu | None) -> Shown:
        """Return what each measure may show of the run whatever of it nobody told. Samples may be shorter than the
        longest, the allocator of a GPU that is never full keeps blocks of all lengths, and each GPU may load 4-bit
        weights whole before FSDP divides them (update_device_map in transformers' quantizer_bnb_4bit.py)."""
        batch, tokens, base = self.batch, self.plan.tokens, {**self.base, "tokens": [self.plan.tokens]}
        given, known, version = self.recipe.given, self.recipe.known, self.recipe.facts.text("pkg.transformers")
        others = [*unstated_of(given, base, known["unstated"], version)]
        if not self.plan.job["training"]:
            others = [(name, job) for name, job in others if name in ("load_dtype", "attn", "framework")]
        if self.model.heeds is False and self.plan.job["checkpointing"]:
            others.append(("gradient_checkpointing", {**base, "checkpointing": True}))
        if given.get("fsdp") and "deepspeed" in self.recipe.trainer and self.plan.job["quantized"]:
            whole = ClosedForm(self.trace, batch).at(batch, tokens).terms.get("weights", 0.0)
            loaded = Peak("load", "", {"weights": whole})
            need = need.up_to(self.needed(self.form(self.trace), loaded, loaded))
        processes = int(given.get("world_size") or 1)
        further = known["beyond"][0]["times"] if processes > 1 or given.get("layers_over") else 1.0
        shown = Shown(need, gpu.total if gpu is not None else math.inf, further)
        if given.get("padding") != "max" and not given.get("packing") and self.plan.job["training"]:
            others.append(("padding", {**base, "tokens": [max(_SHORTEST, tokens // 4)]}))
            if not given.get("empty_cache_steps"):
                form, kept = self.form(self.trace), {row["name"]: row["times"] for row in known["kept"]}
                shown.more("padding", form.at(batch, tokens, (), kept).held(kept) - form.at(batch, tokens).size)
        as_it_is = self.untraced(base)
        for name, job in others:
            if as_it_is and (other := self.untraced(job)):
                shown.otherwise(name, *as_it_is, *other)
        return shown

    def may_be_checkpointed(self) -> bool:
        """Return whether nobody told of gradient checkpointing, and no trainer is known that would have it off."""
        is_known = self.base["checkpointing"] or self.plan.off
        return bool(self.plan.job["training"] and not is_known and self.model.heeds is not False)

    def untraced(self, job: Mapping[str, Any], change: Saving = NO_CHANGE) -> tuple[float, Need] | None:
        """Return the weights and the need of another run by shipped coefficients, if they tell it."""
        (trace,) = self.tracer([{**job, "untraced": True}])
        if not isinstance(trace, Trace):
            return None
        run, tokens = self._replace(trace=trace._replace(residuals=self.trace.residuals)), job["tokens"][0]
        form = run.form(trace, change)
        weights = form.at(self.batch, tokens).terms.get("weights", 0.0)
        return weights, run.around(form, partial(form.at, self.batch, tokens))

    def may_fit(self, gpu: Gpu, **job: Any) -> Need | None:
        """Return the need with this in the job, or None if it does not fit or no shipped coefficients tell it."""
        other = self.untraced({**self.base, "tokens": [self.plan.tokens], **job})
        return None if other is None or other[1].verdict(gpu.free) == "does-not-fit" else other[1]

    def ruled_out(self, gpu: Gpu, saving: Saving) -> bool:
        """Return whether the run surely does not fit after a change, by coefficients of this very form: then it need
        not be traced."""
        job = {**self.base, **saving.job, "tokens": [self.plan.tokens], "untraced": True}
        (trace,) = self.tracer([job])
        run = None if isinstance(trace, str) or trace.near else self.untraced(job, saving)
        return run is not None and run[1].verdict(_SURELY * gpu.free) == "does-not-fit"

    def up_to_doubts(self, after: Need, saving: Saving) -> Need:
        """Return the need after a change, up to the unknown properties of the run that it leaves; a smaller batch or
        length alone leaves at most the share by which the run's own doubts are more."""
        tokens = self.plan.tokens
        if "tokens" in saving.job or saving.job.keys() == {"batch"}:
            return after
        for what, job in _doubts(_settled(self.plan, saving), self.model, {**self.base, **saving.job}):
            if what != "outputs":
                form = self.form(traced({**job, "tokens": [tokens]}, self.tracer), saving)
                most = form.at(saving.job.get("batch", self.batch), tokens)
                after = after.up_to(self.needed(form, most, most))
        return after

    def left(self, saving: Saving, doubt: float) -> float:
        """Return how many times the need the doubts are that a change leaves, of ``doubt`` in all."""
        run = self._replace(plan=_settled(self.plan, saving))
        return doubt if run.plan == self.plan else run.doubted(need := self.need())[0].process[2] / need.process[2]

    def changes(self, doubted: Need, gpu: Gpu) -> list[MemorySaving]:
        """Return changes that lower the peak, and whether the run then fits; the ones that make it fit come first."""
        plan, doubt = self.plan, doubted.process[2] / self.need().process[2]
        lengths = _lengths(plan.tokens)

        def after(saving: Saving, form: ClosedForm) -> MemorySaving:
            at = partial(form.at, saving.job.get("batch", self.batch), saving.job.get("tokens", plan.tokens))
            need = self.around(form, at, self.left(saving, doubt))
            verdict = self.up_to_doubts(need, saving).verdict(gpu.free)
            return {"set": dict(saving.set), "gib": rounded(need.allocated[1]), "verdict": verdict, "keys": {}}

        def each(savings: Iterable[Saving], untraced: Callable[[Saving], bool]) -> list[tuple[MemorySaving, Saving]]:
            whole = bool(self.base.get("untraced"))
            named = [saving._replace(job={**saving.job, "untraced": whole or untraced(saving)}) for saving in savings]
            jobs = [{**self.base, "tokens": [plan.tokens], **saving.job} for saving in named]
            traces = zip(named, self.tracer(jobs), strict=True)
            forms = ((saving, self.form(trace, saving)) for saving, trace in traces if isinstance(trace, Trace))
            return [(after(saving, form), saving) for saving, form in forms]

        worst = {**self.base, **({"attention": "eager"} if plan.eager else {})}
        worst["checkpointing"] &= not plan.maybe_off
        stored = self.recipe.given.get("quantization") or self.recipe.facts.known("model.quantization")
        candidates = [
            saving
            for saving in traced_changes(worst, self.recipe.adapted, divisible=plan.divisible)
            if not (self.model.heeds is False and saving.job.get("checkpointing"))
            and (self.model.sdpa or saving.job.get("attention") != "sdpa")
            # What is packed is so as the model's files have it.
            and not (stored and "quantized" in saving.job)
        ]
        most = _WORTH * rounded(doubted.allocated[1])
        changes = [change for change, _ in each(candidates, partial(self.ruled_out, gpu))]
        savings = [change for change in changes if change["gib"] < most or change["verdict"] == "fits"]
        (trace,) = self.tracer([{**self.base, "tokens": lengths}])
        cut = False  # nobody asked for a small part of the length
        if isinstance(trace, Trace):
            form = self.form(trace)

            def fits(peak: Peak) -> bool:
                return self.needed(form, peak, peak, doubt).verdict(gpu.free) == "fits"

            for saving in smaller(form, self.batch_name, self.batch, plan.tokens, fits):
                if plan.stated or "tokens" not in saving.job:
                    savings.append(after(saving, form))
                    cut |= 2 * saving.job.get("tokens", plan.tokens) < plan.tokens
        savings.sort(key=lambda change: change["verdict"] != "fits")
        fitting = [change for change in savings if change["verdict"] == "fits"]
        # What fits with less of a change needs no more of it: what is offloaded costs time.
        enough = [change["set"].items() for change in fitting]
        savings = [change for change in savings if not any(less < change["set"].items() for less in enough)]
        if all(cut and "recipe.max_length" in change["set"] for change in fitting):
            single = [saving for saving in candidates if "recipe.method" in saving.set or len(saving.set) == 1]
            single += [Saving({self.batch_name: 1}, {"batch": 1})] if self.batch > 1 else []
            single.sort(key=lambda saving: "recipe.method" in saving.set)  # what trains something else is the last
            # Coefficients choose among so many; what they choose is traced where the run is.
            pairs = list[tuple[MemorySaving, Saving]]()
            for combinations in combined(single):
                pairs += each(combinations, lambda saving: True)
                if any(change["verdict"] == "fits" for change, _ in pairs):
                    break
            best = sorted(pairs, key=lambda pair: _VERDICTS.index(pair[0]["verdict"]))[:1]
            if not self.trace.release:
                best = each([saving for _, saving in best], lambda saving: False)
            savings = [*(change for change, _ in best if change["verdict"] != "does-not-fit"), *savings]
        return savings

    def reach(self, gpu: Gpu) -> list[MemoryReach]:
        """Return the longest samples that fit, by the batch."""
        most = min(longest_of(self.base["config"]) or _LONGEST, _LONGEST << 7)
        jobs = [self.base, *(job for _, job in _doubts(self.plan, self.model, self.base))]
        traces = self.tracer([{**job, "tokens": _lengths(USUAL)} for job in jobs])
        forms, reach = [self.form(trace) for trace in traces if isinstance(trace, Trace)], list[MemoryReach]()
        if isinstance(traces[0], str):
            return []
        for batch in _BATCHES:

            def fits(steps: int, batch: int = batch) -> bool:
                peaks = [(form, form.at(batch, steps * STEP)) for form in forms]
                return all(self.needed(form, peak, peak).verdict(gpu.free) == "fits" for form, peak in peaks)

            tokens = largest(fits, most // STEP) * STEP
            reach += [{"batch": batch, "tokens": tokens}] if tokens else []
        return reach


def traced(job: Mapping[str, Any], tracer: TraceSource) -> Trace:
    """Return the trace of one job. Raises :class:`MemoryProblem`."""
    (trace,) = tracer([job])
    if isinstance(trace, str):
        raise MemoryProblem(as_message(trace))
    return trace


def rounded(size: float) -> float:
    """Return bytes as GiB, to a thousandth."""
    return round(size / GIB, 3)


def _lengths(tokens: int) -> list[int]:
    """Return the traced lengths, the one that is asked first: they tell every other length."""
    return [tokens, *sorted({max(_SHORTEST, int(tokens * share)) for share in LENGTHS} - {tokens}, reverse=True)]
