"""Traces without torch: the sums of products in the table memory-forms, at the sizes of a config.json.

``tools/refresh_memory_forms.py`` made the table with the trace itself. What a step computes comes from there; weights,
adapters, gradients and the optimizer's states are counted here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product, takewhile
from typing import Any, NamedTuple

from envdoctor.peak.closed_form import GIB, Residual, Terms
from envdoctor.peak.section import MemoryProblem
from envdoctor.peak.sizes import LARGEST, OTHER_SIZES, attending, inner_sizes, of_language, size_of, tower_sizes
from envdoctor.peak.tracing import Trace, TraceSource
from envdoctor.system.message import said_by

Row = Mapping[str, Any]
#: The type that others are most like, and how far it is to another: farther than what changes little of a step, because
#: Gemma 2 has a soft cap on its logits (table memory-terms, ``word``).
_LIKE, _UNLIKE = "llama", 5
_LOGITS, _SOFTMAX = "logits and loss", "aten._softmax_backward_data.default"
#: The most that torch's allocator holds of eager attention beside what is live, in bytes of a score: three matrices in
#: single precision. Readings of fitcheck-llm 0.3.1 (benchmarks/memory_published.toml) show 2 to 13.
_HELD = 12
#: The first release that makes the last logits of a prompt alone, and what earlier ones hold: all, in bfloat16 and in
#: float32 (the rule long-prompts-make-full-logits-before-transformers-4-45).
_LAST_LOGITS = (4, 45)
#: The first release whose experts are no linear layers, which is what bitsandbytes packs (its issue 1849).
_FUSED_EXPERTS = (5,)
_FULL_LOGITS = {
    "at": "forward/last float",
    "terms": {_LOGITS: "6 BSV", "KV cache": "16 BDKLS", "hidden states": "8 BGHKS"},
}
#: Values that share a scale in 4 bits (bitsandbytes: blocksize 64, of the scales 256).
_FOUR_BIT = {False: 0.5 + 4 / 64, True: 0.5 + (1 + 4 / 256) / 64}


def form_words(job: Row, targets: str) -> str:
    """Return what the table distinguishes, in words: ``lora all-linear bfloat16 amp sdpa padded checkpointing``, and
    for a stage with a reference model ``full dpo copy bfloat16 sdpa padded``."""
    method = "infer" if not job["training"] else "qlora" if job["quantized"] else "lora" if job["lora"] else "full"
    lora, packed, again = job["lora"], job["quantized"], job["checkpointing"]
    words = [method, targets, *((job["stage"], job["reference"]) if job["stage"] != "sft" else ())]
    # Autocast leaves weights in its own precision as they are.
    cast = job["amp"] and not (method == "full" and job["load_dtype"] != "float32")
    words += ["float32" if job["load_dtype"] == "float32" else "bfloat16", cast and "amp"]
    words += [packed and packed["upcast"] and "upcast", job["attention"], job["padded"] and "padded"]
    words += ["checkpointing" if again else lora and lora["lora_dropout"] and "dropout"]
    return " ".join(word for word in words if word)


def jobs_of(pattern: str) -> list[str]:
    """Return the jobs in the table's ``lora|qlora bfloat16 amp? sdpa``."""
    choices = [(*part.rstrip("?").split("|"), *([""] if part.endswith("?") else [])) for part in pattern.split()]
    return [" ".join(filter(None, words)) for words in product(*choices)]


class OnCuda(NamedTuple):
    """Traces of ``source`` with the outputs that a loop keeps, the half of the logits that is not there where
    ``half_loss`` says so, without the copies of inputs where ``plain_adapters`` does, the inputs of 4-bit layers that
    old releases of bitsandbytes keep, and what CUDA's kernel for the gradient of a softmax makes beside its result: the
    product of gradient and output, in single precision; of float16 the result itself is half as large. The traced
    kernels are the CPU's (softmax_backward_cuda_out in pytorch's aten/src/ATen/native/cuda/SoftMax.cu)."""

    source: TraceSource

    def run(self, jobs: Sequence[Row]) -> list[Trace | str]:
        """Return a trace for each job, or why it has no trace: one trace answers for loops that keep outputs and for
        others."""
        own = {"half_loss", "keeps_inputs", "plain_adapters"}
        plain = [{key: value for key, value in job.items() if key not in own} for job in jobs]
        traces = zip(self.source([{**job, "keep_outputs": False} for job in plain]), jobs, strict=True)
        return [trace if isinstance(trace, str) else self._changed(trace, job) for trace, job in traces]

    def _changed(self, trace: Trace, job: Row) -> Trace:
        heads, vocabulary = (job["config"].get(name) for name in ("num_attention_heads", "vocab_size"))
        if job.get("half_loss") and job["training"] and not job["amp"] and _computed_in(job) != "float32":
            (*_, point) = sorted(trace.points, key=lambda point: (point["layers"], point["tokens"]))
            sizes = [(size, terms.get(_LOGITS, 0.0)) for size, _, terms in point["segments"].values()]
            half = max(size for size, _ in sizes) - max(size - logits / 2 for size, logits in sizes)
            trace = trace._replace(halfway=trace.halfway + half)
        if job.get("plain_adapters") and job["lora"] and not job["amp"]:
            # Coefficients tell which inputs adapters in single precision copy, of a traced run too.
            (known,) = self.source([{**job, "keep_outputs": False, "untraced": True}])
            match known:
                case Trace(model={"copies": copies}):
                    trace = trace._replace(halfway=trace.halfway + copies * max(job["tokens"]))
        if job.get("keeps_inputs") and job["quantized"] and not job["checkpointing"]:
            hidden, inner = (job["config"].get(name) for name in ("hidden_size", "intermediate_size"))
            if isinstance(hidden, int) and isinstance(inner, int):
                for name, width in (("attention", 2 * hidden), ("MLP", hidden + inner)):
                    held = 2.0 * job["batch"] * int(trace.model["depth"]) * width
                    trace = _more(trace, ("backward", "forward/after"), "", name, held.__mul__)
        if job["keep_outputs"] and job["stage"] == "sft" and job["training"] and isinstance(vocabulary, int):
            # To the end of a step the logits are there twice, in the dtype of the head's result.
            width = (4.0 if _computed_in(job) == "float32" else 2.0) * job["batch"] * vocabulary
            trace = _more(trace, ("backward", "clip", "step"), "", _LOGITS, lambda tokens: width * tokens)
        operations = {operation for point in trace.points for _, operation, _ in point["segments"].values()}
        if not isinstance(heads, int) or _SOFTMAX not in operations:
            return trace
        scores = float(job["batch"] * heads * (2 if job["stage"] == "dpo" else 1))
        product = (2 if _computed_in(job) == "float16" else 4) * scores
        trace = _more(trace, ("backward",), _SOFTMAX, "gradients of activations", lambda tokens: product * tokens**2)
        if not trace.release:
            return trace
        points = []
        for point in trace.points:
            most = max(size for size, *_ in point["segments"].values())
            points.append({**point, "held_bytes": most + _HELD * scores * point["tokens"] ** 2})
        return trace._replace(points=tuple(points))


def _computed_in(job: Row) -> str:
    single = job["load_dtype"] == "float32" or (job["quantized"] and job["quantized"]["upcast"])
    return str(job["amp"] or ("float32" if single else job["load_dtype"]))


def _more(trace: Trace, begins: tuple[str, ...], operation: str, name: str, bytes_of: Callable[[int], float]) -> Trace:
    """Return the trace with more of the term ``name`` in segments whose name begins so, at one operation ("": any)."""
    points = []
    for point in trace.points:
        segments, more = dict(point["segments"]), bytes_of(point["tokens"])
        for segment, (size, at, terms) in segments.items():
            if segment.startswith(begins) and operation in ("", at):
                segments[segment] = [size + more, at, {**terms, name: terms.get(name, 0.0) + more}]
        held = {"held_bytes": point["held_bytes"] + more} if "held_bytes" in point else {}
        points.append({**point, **held, "segments": segments})
    return trace._replace(points=tuple(points))


class Shipped:
    """Answers jobs as a tracer does, each by the form that is the most like it.

    ``table`` is memory-forms and ``terms`` memory-terms; ``version`` is that of the installed transformers, "unknown"
    where nobody told it, and None where it does not matter; ``elsewhere`` tells whether a framework has loops or
    kernels of its own: nobody published enough readings of prompts in one, and those of its training count."""

    def __init__(self, table: Row, terms: Row, version: str | None, elsewhere: bool) -> None:
        self._forms: dict[tuple[str, str], dict[str, list[Row]]] = {}
        for row in table["form"]:
            for pattern, releases in row["jobs"].items():
                for kind, _, minor in (name.partition(" ") for name in releases):
                    for words in jobs_of(pattern):
                        self._forms.setdefault((kind, words), {}).setdefault(minor, []).append(row)
        self._models = {row["key"]: row for row in table["model"]}
        self._version = _minor(version or "") or None  # "none" where it is not installed
        self._unknown = version == "unknown"
        self._far = {word: int(row["far"]) for row in terms["word"] for word in row["words"]}
        self._inner = {(row["key"], row.get("trainer", "")): row for row in terms["inner"]}
        self._parts = {row["key"]: row["parts"] for row in terms["module"]}
        self._others = terms["other"]
        self._elsewhere, self._states = elsewhere, {row["key"]: row for row in terms["optimizer"]}
        self._residuals: dict[str, dict[str, Residual]] = {}
        for row in terms["residual"]:
            ends = ((share, beside * GIB) for share, beside in (row[name] for name in Residual._fields))
            self._residuals.setdefault(row["of"], {})[row["measure"]] = Residual(*ends)

    def run(self, jobs: Sequence[Row]) -> list[Trace | str]:
        """Return a trace for each job, or a sentence that says why it has no trace."""
        return [*map(self._answer, jobs)]

    def _answer(self, job: Row) -> Trace | str:
        try:
            return self._trace(job)
        except MemoryProblem as error:
            return said_by(error)

    def _trace(self, job: Row) -> Trace:
        job = {**job, "config": of_language(job["config"])}
        named, other = str(job["config"].get("model_type")), _other_of(job["config"], self._others)
        kind = other or named
        job = {**job, "other": other, "padded": job["padded"] or bool(other and job["training"])}
        model = self._models.get(kind, self._models[_LIKE])
        job = {**job, "attention": job["attention"] or model["attention"], "lora": self._named(model, job["lora"])}
        inner = self._inner.get((kind, job.get("trainer", "")), self._inner.get((kind, ""), {"share": 1.0}))
        linear = (self._version or _FUSED_EXPERTS) < _FUSED_EXPERTS  # each expert has layers of its own
        job["packed_experts"] = job.get("packed_experts") or linear
        job["perhaps_packed"] = job.get("perhaps_packed") and not linear
        named, _, rank = str(job["optimizer"]).partition("-")
        states = {**self._states[named], **({"rank": int(rank)} if rank else {})}
        model = {**model, "tied": inner.get("tied", model["tied"]), "states": states}
        run = _Run(model, job, float(inner["share"]))
        targets, words = self._targets(model, job), form_words(job, "all-linear")
        noise = "dropout" in words and not self._forms.keys().isdisjoint({(kind, words), (_LIKE, words)})
        spared = run.without_adapters(model, noise)
        words = form_words(job, targets)
        if spared and (targets == "all-linear" or not self._forms.keys() & {(kind, words), (_LIKE, words)}):
            words, run.spared = form_words(job, "all-linear"), spared
        run.spare(inner.get("spares", {}))
        form, like, unlike = self._most_alike(kind, words)
        # Where no form is about the job: a pair is two samples, float32 is twice bfloat16.
        added = set(words.split()) - set(unlike.split())
        run.batch *= 2 if "dpo" in added else 1
        run.scale = 2.0 if "float32" in added else 1.0
        minors = list(form)
        known = sorted((_minor(minor), minor) for minor in minors)
        below = [minor for number, minor in known if self._version is None or number <= self._version]
        minor = below[-1] if below else known[0][1]
        generates = not job["training"]
        of = "training elsewhere" if self._elsewhere else "generation" if generates else "training"
        near = "" if (like, unlike) == (kind, words) else f"{like}: {unlike}"
        rows, all_logits = form[minor], 0.0
        if generates and self._version is not None and self._version < _LAST_LOGITS:
            rows = [*rows, _FULL_LOGITS]
        elif generates and self._unknown:
            all_logits = run.bytes_of(_FULL_LOGITS)
        trace = run.trace(rows)._replace(residuals_of=of, residuals=self._residuals[of])
        return trace._replace(release=minor, near=near, apart=run.apart + all_logits)

    def _most_alike(self, kind: str, words: str) -> tuple[dict[str, list[Row]], str, str]:
        """Return the forms of the nearest type and job by release, that type, and the words of that job."""

        def distance(form: tuple[str, str]) -> int:
            other = 0 if form[0] == kind else 1 if form[0] == _LIKE else _UNLIKE
            return other + sum(self._far.get(word, 1) for word in {*words.split()} ^ {*form[1].split()})

        # No causal language model computes what another model does.
        others = {row["key"] for row in self._others}
        forms = [form for form in self._forms if form[0] == kind or others.isdisjoint((form[0], kind))]
        nearest = (kind, words) if (kind, words) in self._forms else min(forms, key=distance)
        return self._forms[nearest], *nearest

    def _named(self, model: Row, lora: Row | None) -> Row | None:
        """Return the adapter with the names of the forms for the linear layers that it trains."""
        names = lora and lora["target_modules"]
        if not lora or not names or names == "all-linear":
            return lora
        parts = [
            part for name in names for part in ([name] if name in model["modules"] else self._parts.get(name, [name]))
        ]
        return {**lora, "target_modules": list(dict.fromkeys(parts))}

    def _targets(self, model: Row, job: Row) -> str:
        """Return what LoRA trains in the words of the table."""
        wanted = job["lora"] and job["lora"]["target_modules"]
        if job["lora"] is None or wanted == "all-linear":
            return wanted or ""
        least = set(wanted or model["least"]) <= set(model["least"])
        return "least" if least else "qkv" if set(wanted) == set(model.get("qkv", ())) else "all-linear"


class _Run:
    """One job at the sizes of its configuration."""

    def __init__(self, model: Row, job: Row, inner: float) -> None:
        config = job["config"]
        try:
            hidden, heads = size_of(config, "hidden_size"), size_of(config, "num_attention_heads")
            keys, self.depth = size_of(config, "num_key_value_heads", heads), size_of(config, "num_hidden_layers")
            width, vocabulary = size_of(config, "head_dim", hidden // heads), size_of(config, "vocab_size")
            active, stored, routed = inner_sizes(config, hidden)
            named = {
                letter: next((name for name in names if config.get(name)), "") for letter, names in OTHER_SIZES.items()
            }
            other = {letter: size_of(config, name, 1) for letter, name in named.items() if job["other"]}
        except ValueError:
            raise MemoryProblem("config.json lacks sizes that the shipped coefficients need") from None
        letters = {"L": self.depth, "K": keys, "G": heads / keys, "Q": heads / keys + 2, "H": hidden / heads / 2}
        letters |= {"D": width / 4, "I": inner * active, "V": vocabulary}
        self.largest = hidden * vocabulary
        self.states, self.job = model["states"], job
        self.cache = 4.0 * self.depth * attending(config) * keys * width
        lora = job["lora"]
        self.letters = {**letters, **other, "R": lora["r"] if lora else 0}
        self.batch, self.scale = float(job["batch"]), 1.0
        linear, rest = self._total(model["linear"]), self._total(model["rest"])
        if model.get("head", True) and config.get("tie_word_embeddings", model["tied"]):
            rest -= letters["V"] * hidden
        tower = tower_sizes(config)
        rest += tower.parameters if tower is not None else 0
        self.parameters = linear + rest
        experts = 0.0
        if stored:
            extra = 3 * hidden * self.depth * (stored - self.letters["I"])
            self.parameters, linear = self.parameters + extra, linear + extra
            experts = 3.0 * hidden * self.depth * routed
        match config:
            # The table model-shapes, of models whose layers are unlike.
            case {"parameters": int(count)} if 0 < count < LARGEST << 16:
                share = count / self.parameters
                self.parameters, linear, experts, rest = count, linear * share, experts * share, rest * share
        self.layer = linear / self.depth
        self.width = 4 if job["load_dtype"] == "float32" else 2
        packed = job["quantized"]
        self.weights, self.whole, self.apart = self.width * self.parameters, 0.0, 0.0
        if packed:
            whole = 0.0 if job["packed_experts"] else experts
            width = 4 if packed["upcast"] else self.width
            # PEFT would make float32 of experts too, which few cards hold: they are taken as they were loaded.
            self.whole = whole * self.width
            if job["perhaps_packed"]:
                self.apart = experts * (self.width - _FOUR_BIT[packed["double"]])
            self.weights = (linear - whole) * _FOUR_BIT[packed["double"]] + rest * width + self.whole
        self.results = self.norm = 0.0
        self.spared: dict[str, tuple[float, float]] = {}
        self.copies = 0.0
        self.trained = self._adapters(model, lora) if lora else self.parameters if job["training"] else 0.0
        # Optimizers that treat matrices of layers otherwise do so with each side of an adapter.
        self.matrices = self.trained if lora else min(linear, self.trained)
        self.sides = [[self._total(side) for side in model["modules"][name]] for name in model["modules"]]

    def _total(self, text: str, **more: float) -> float:
        """Return the value of ``2 BGHKS + 4 DL``; ``more`` adds letters to the model's or replaces them."""
        known = {**self.letters, **more}
        parts = (part.partition(" ") for part in text.split(" + ") if part)
        return sum(float(factor) * math.prod(known[name] for name in names) for factor, _, names in parts)

    def _adapters(self, model: Row, lora: Row) -> float:
        modules, names = model["modules"], lora["target_modules"] or model["least"]
        if names == "all-linear" or any(name not in modules for name in names):
            names = list(modules)
        sides = sum(self._total(side) for name in names for side in modules[name])
        outputs = self._dora([modules[name] for name in names]) if lora.get("use_dora") else 0.0
        # Copies of whole modules stay in the model's dtype, and count by their bytes.
        saved = len(lora["modules_to_save"] or ()) * self.letters["V"] * self._total("2 GHK") * self.width / 4
        return float(lora["r"]) * self.depth * sides + self.depth * outputs + saved

    def without_adapters(self, model: Row, noise: bool) -> dict[str, tuple[float, float]]:
        """Return, by term, the bytes of a token and of the whole step that adapters hold, of the linear layers that
        LoRA leaves alone: a copy of each input, in single precision or in that of autocast, the ``noise`` of its
        dropout (lora/layer.py in peft), and the cast adapters. Nothing of layers that are computed again, or that are
        in single precision and share their inputs. Note the ``copies`` of the others, which are not there where
        adapters have the dtype of the weights."""
        lora, packed = self.job["lora"], self.job["quantized"]
        shared = packed and packed["upcast"] and not self.job["amp"]
        if not lora or shared or self.job["checkpointing"]:
            return {}
        modules, names = model["modules"], lora["target_modules"] or model["least"]
        names = modules if names == "all-linear" else names
        if any(name not in modules for name in names):
            return {}
        each, spared = 2 if self.job["amp"] else 4, dict[str, tuple[float, float]]()
        inputs: set[str] = set()
        for name in modules:
            into, out = map(self._total, modules[name])
            label = "MLP" if name.partition("_")[0] in ("gate", "up", "down") else "attention"
            if name in names:
                # One input of queries, keys and values, and a mask of a byte where there is dropout.
                shared_by = "qkv" if name[0] in "qkv" else name
                kept = 0 if shared_by in inputs else 3 if lora["lora_dropout"] else 2
                inputs.add(shared_by)
                self.copies += self.batch * self.depth * (each + 4 * noise - kept) * into
                continue
            token, cast = spared.get(label, (0.0, 0.0))
            token += self.batch * self.depth * ((each + 4 * noise) * into + each * lora["r"])
            spared[label] = token, cast + (2 * self.depth * lora["r"] * (into + out) if self.job["amp"] else 0.0)
        return spared

    def spare(self, layers: Mapping[str, str]) -> None:
        """Take from each term what the ``layers`` of the run's type hold less of a token than those of the forms."""
        if self.job["training"] and not self.job["checkpointing"]:
            for name, text in layers.items():
                token, cast = self.spared.get(name, (0.0, 0.0))
                self.spared[name] = token + self._total(text, B=self.batch), cast

    def _dora(self, modules: Sequence[Sequence[str]]) -> float:
        """Note what DoRA keeps of a layer, and return its magnitudes (lora/dora.py in peft): it scales the results of
        the base and of the adapter, for which both stay; the norm of a weight needs an identity matrix, and the weight
        four times, in single precision."""
        sizes = [(self._total(into), self._total(out)) for into, out in modules]
        each, outputs = 4 if _computed_in(self.job) == "float32" else 2, sum(out for _, out in sizes)
        samples = self.job["batch"] * (2 if self.job["stage"] == "dpo" else 1)
        self.results = samples * outputs * (each + (each if self.job["amp"] else 4))
        self.norm = max(4 * into * into + 16 * into * out for into, out in sizes)
        return outputs

    def _terms(self, row: Row, tokens: int) -> dict[str, float]:
        # Scores and logits are in float32 whatever the weights are, or in the dtype of autocast.
        cast = ("attention", _LOGITS)
        sizes = {name: self._total(text, B=self.batch, S=tokens) for name, text in row["terms"].items()}
        return {name: size if name in cast else size * self.scale for name, size in sizes.items()}

    def bytes_of(self, row: Row) -> float:
        """Return the bytes that the longest sample holds by this row."""
        return sum(self._terms(row, max(self.job["tokens"])).values())

    def trace(self, rows: Sequence[Row]) -> Trace:
        """Return the trace that this job would have by these rows."""
        model = {
            "depth": self.depth,
            "parameters": round(self.parameters),
            "weight_bytes": self.width * self.parameters,
            "layer_parameters": self.layer,
            "copies": self.copies,
            "whole_experts": self.whole,
            "perhaps_whole": self.apart,
        }
        points = []
        for tokens in self.job["tokens"]:
            cache = self.cache * self.width / 2 * self.job["batch"] * tokens
            known = {"layers": self.depth, "tokens": tokens, "trained": self.trained, "cache_bytes": cache}
            points.append({**known, "segments": self._segments(rows, tokens)})
        return Trace(model, tuple(points))

    def _kept(self) -> float:
        """Return the numbers that the optimizer keeps of all that is trained: of a matrix that is projected to a rank
        two of that size, and the projection."""
        kept, rank = self.states["kept"], self.states.get("rank")
        of_matrices = self.states.get("of_matrices", kept) * self.matrices
        if rank:
            of_matrices = float(self.depth * sum(min(rank, *side) * (2 * max(side) + min(side)) for side in self.sides))
        return float(kept * (self.trained - self.matrices) + min(of_matrices, 2 * self.matrices))

    def _segments(self, rows: Sequence[Row], tokens: int) -> dict[str, list[Any]]:
        own = (4 if self.job["lora"] else self.width) * self.trained
        # A copy of every parameter in its own dtype, unless the optimizer packs its states.
        states = self._kept() * (self.states.get("bytes") or (own / self.trained if self.trained else 0.0))
        adapters = own if self.job["lora"] else 0.0
        kept: Terms = {"weights": self.weights, "adapters": adapters, "optimizer states": states}
        if self.job["reference"] == "copy":
            kept = {**kept, "reference model": self.width * self.parameters}
        segments = {}
        for place, row in enumerate(rows):
            terms = self._terms(row, tokens)
            if self.job["accumulation"] > 1:
                terms["gradients"] = own
            segment, _, operation = row["at"].partition(" ")
            if self.results:  # of all layers, or of the one that is computed again
                again = self.results * tokens + self.norm if segment.endswith(("first", "last")) else 0.0
                more = again if self.job["checkpointing"] else self.results * tokens * self.depth
                terms["hidden states"] = terms.get("hidden states", 0.0) + more
            for name, (token, cast) in self.spared.items():
                terms[name] = max(terms.get(name, 0.0) - token * tokens - cast, 0.0)
            terms = {**kept, **terms}
            segments[f"{segment}/{place}"] = [sum(terms.values()), operation, terms]
        if self.job["training"]:
            others = 1 - self.matrices / self.trained if self.trained and "of_matrices" in self.states else 1.0
            copies = self.states["copies"] * own * others
            copies += self.states.get("largest", 0.0) * min(self.largest, self.trained)
            terms = {**kept, "gradients": own, "temporary values of the optimizer": copies}
            segments["step/before"] = [sum(terms.values()), "step", terms]
        return segments


def _other_of(config: Row, rows: Sequence[Row]) -> str | None:
    """Return what the forms call a model that is no causal language model, None for one; ``rows`` are of the table
    memory-terms. What config.json does not tell is as the first row has it."""
    named = config.get("model_type")
    own = (row for row in rows if named in row["types"])
    return next(
        (row["key"] for row in own if all(config.get(key, is_) == is_ for key, is_ in row["where"].items())), None
    )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, takewhile(str.isdigit, version.split(".")[:2])))
