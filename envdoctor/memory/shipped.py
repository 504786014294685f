"""Traces without torch: the sums of products in the table memory-forms, at the sizes of a config.json.

``tools/refresh_memory_forms.py`` made the table with the trace itself. What a step computes comes from there; weights,
adapters, gradients and the optimizer's states are counted here.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from envdoctor.memory.closed_form import Terms
from envdoctor.memory.section import MemoryProblem
from envdoctor.memory.tracing import Trace
from envdoctor.text.message import Message, said_by

Row = Mapping[str, Any]
#: States of an optimizer, bytes of a value in them (0: as the parameters have; bitsandbytes: a byte, and a float32
#: scale for 256 values), and copies of the parameters that its step makes.
_EIGHT_BIT = 1 + 4 / 256
_STATES = {
    "AdamW": (2, 0.0, 1),
    "adamw_fused": (2, 0.0, 0),
    "adamw_8bit": (2, _EIGHT_BIT, 0),
    "lion": (1, 0.0, 0),
    "lion_8bit": (1, _EIGHT_BIT, 0),
    "SGD": (0, 0.0, 0),
    "elsewhere": (0, 0.0, 0),
}
#: Values that share a scale in 4 bits (bitsandbytes: blocksize 64, of the scales 256).
_FOUR_BIT = {False: 0.5 + 4 / 64, True: 0.5 + (1 + 4 / 256) / 64}


def form_words(job: Row, targets: str) -> str:
    """What the table distinguishes, in words: ``lora all-linear bfloat16 amp sdpa padded checkpointing``, and for a
    stage with a reference model ``full dpo copy bfloat16 sdpa padded``."""
    method = "infer" if not job["training"] else "qlora" if job["quantized"] else "lora" if job["lora"] else "full"
    dropout = bool(job["lora"] and job["lora"]["lora_dropout"] and not job["checkpointing"])
    again = job["checkpointing"]
    upcast = bool(job["quantized"] and job["quantized"]["upcast"])
    words = [method, targets, *((job["stage"], job["reference"]) if job["stage"] != "sft" else ())]
    words += ["float32" if job["load_dtype"] == "float32" else "bfloat16", job["amp"] and "amp"]
    words += ["upcast" if upcast else "", job["attention"], "padded" if job["padded"] else ""]
    words += ["checkpointing" if again else "", "dropout" if dropout else ""]
    return " ".join(word for word in words if word)


class Shipped:
    """Answers jobs as a tracer does. ``table`` is memory-forms; ``version`` is that of the installed transformers, None
    where it is not known."""

    def __init__(self, table: Mapping[str, Any], version: str | None) -> None:
        self._table = table
        self._models = {row["key"]: row for row in table.get("model", ())}
        self._version = _minor(version or "") or None  # "none" where it is not installed

    def run(self, jobs: Sequence[Row]) -> list[Trace | str]:
        """A trace for each job, or the sentence that says why there is none."""
        return [self._answer(job) for job in jobs]

    def _answer(self, job: Row) -> Trace | str:
        kind = str(job["config"].get("model_type"))
        if kind not in self._models:
            return Message("no shipped coefficients are about the type {}", kind)
        try:
            return self._trace(self._models[kind], job)
        except MemoryProblem as error:
            return said_by(error)

    def _trace(self, model: Row, job: Row) -> Trace:
        job = {**job, "attention": job["attention"] or model["attention"]}
        run = _Run(model, job)
        whole, least = self._targets(model, job)
        found = self._rows(model["key"], form_words(job, whole))
        if not found:
            raise MemoryProblem("no shipped coefficients of {} are about: {}", model["key"], form_words(job, whole))
        minor, beside, outside = self._chosen(list(found))
        likely = [found[minor], *(found[other] for other in beside)]
        if least:
            likely += self._rows(model["key"], form_words(job, "least")).values()
        sizes = [run.computed(rows) for rows in likely]
        method = form_words(job, whole).split()[0]
        margin = float(self._table["drift"].get(method, 0.0) if outside else self._table["measured"]["margin"])
        less, more = 1 - min(sizes) / sizes[0] + margin, max(sizes) / sizes[0] - 1 + margin
        return run.trace(found[minor])._replace(release=minor, less=less, more=more)

    def _targets(self, model: Row, job: Row) -> tuple[str, bool]:
        """What LoRA trains in the words of the table, and whether less may be trained than that."""
        lora = job["lora"]
        if lora is None:
            return "", False
        wanted, modules = lora["target_modules"], set(model["modules"])
        if lora["modules_to_save"] or lora["use_dora"]:
            raise MemoryProblem("no shipped coefficients are about DoRA, or about modules that LoRA trains as a whole")
        if wanted != "all-linear" and set(wanted or model["least"]) <= set(model["least"]):
            return "least", False
        if wanted != "all-linear" and set(wanted) == set(model.get("qkv", ())):
            return "qkv", False
        return "all-linear", wanted != "all-linear" and not modules <= set(wanted)

    def _rows(self, kind: str, words: str) -> dict[str, list[Row]]:
        """The rows about such a job, by minor release of transformers."""
        found: dict[str, list[Row]] = {}
        for row in self._table["form"]:
            if words in row["jobs"]:
                for name in row["releases"]:
                    of, _, minor = name.partition(" ")
                    if of == kind:
                        found.setdefault(minor, []).append(row)
        return found

    def _chosen(self, minors: list[str]) -> tuple[str, list[str], bool]:
        """The release to take, another that the installed one may be like, and whether the installed one is newer than
        all of them, or not known. Raises :class:`MemoryProblem` for one that is older."""
        known = sorted((_minor(minor), minor) for minor in minors)
        below = [minor for number, minor in known if self._version is None or number <= self._version]
        above = [minor for number, minor in known if self._version is not None and number >= self._version]
        if not below:
            raise MemoryProblem("the shipped coefficients begin with transformers {}", known[0][1])
        return below[-1], above[:1], not above


class _Run:
    """One job at the sizes of its configuration."""

    def __init__(self, model: Row, job: Row) -> None:
        config = job["config"]
        try:
            hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
            keys, self.depth = int(config.get("num_key_value_heads") or heads), int(config["num_hidden_layers"])
            width = int(config.get("head_dim") or hidden / heads)
            letters: dict[str, float] = {"I": int(config["intermediate_size"]), "V": int(config["vocab_size"])}
            letters |= {
                "L": self.depth,
                "K": keys,
                "G": heads / keys,
                "Q": heads / keys + 2,
                "H": hidden / heads / 2,
                "D": width / 4,
            }
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            raise MemoryProblem("config.json lacks sizes that the shipped coefficients need") from None
        window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
        if isinstance(window, int) and window < max(job["tokens"]):
            raise MemoryProblem("no shipped coefficients are about samples that are longer than the sliding window")
        if job["optimizer"] not in _STATES:
            raise MemoryProblem("no shipped coefficients are about the optimizer {}", job["optimizer"])
        self.job, self.cache = job, 4.0 * self.depth * keys * width
        lora = job["lora"]
        self.letters = {**letters, "R": lora["r"] if lora else 0}
        linear, rest = self._total(model["linear"]), self._total(model["rest"])
        if config.get("tie_word_embeddings", model["tied"]):
            rest -= letters["V"] * hidden
        self.parameters = linear + rest
        each = self._total(model["linear"], L=1) + self._total(model["rest"], L=1)
        self.layer = each - self._total(model["rest"], L=0)
        self.width = 4 if job["load_dtype"] == "float32" else 2
        packed = job["quantized"]
        self.weights = self.width * self.parameters
        if packed:
            self.weights = linear * _FOUR_BIT[packed["double"]] + rest * (4 if packed["upcast"] else self.width)
        self.trained = self._adapters(model, lora) if lora else self.parameters if job["training"] else 0.0

    def _total(self, text: str, **more: float) -> float:
        """The value of ``2 BGHKS + 4 DL``; ``more`` are letters that are not the model's, or others than its own."""
        known = {**self.letters, **more}
        parts = (part.partition(" ") for part in text.split(" + ") if part)
        return sum(float(factor) * math.prod(known[name] for name in names) for factor, _, names in parts)

    def _adapters(self, model: Row, lora: Row) -> float:
        modules, wanted = model["modules"], lora["target_modules"] or model["least"]
        names = list(modules) if wanted == "all-linear" else wanted
        if unknown := [name for name in names if name not in modules]:
            raise MemoryProblem("no shipped coefficients are about LoRA of {}", ", ".join(unknown))
        sides = sum(self._total(side) for name in names for side in modules[name])
        return float(lora["r"]) * self.depth * sides

    def computed(self, rows: Sequence[Row]) -> float:
        """The most bytes of what a step of the longest sample computes."""
        return max(sum(self._terms(row, max(self.job["tokens"])).values()) for row in rows)

    def _terms(self, row: Row, tokens: int) -> dict[str, float]:
        return {name: self._total(text, B=self.job["batch"], S=tokens) for name, text in row["terms"].items()}

    def trace(self, rows: Sequence[Row]) -> Trace:
        """What the trace of this job would be, by these rows."""
        model = {
            "depth": self.depth,
            "parameters": round(self.parameters),
            "weight_bytes": self.width * self.parameters,
            "layer_parameters": self.layer,
        }
        points = [
            {
                "layers": self.depth,
                "tokens": tokens,
                "trained": self.trained,
                "cache_bytes": self.cache * self.width / 2 * self.job["batch"] * tokens,
                "segments": self._segments(rows, tokens),
            }
            for tokens in self.job["tokens"]
        ]
        return Trace(model, tuple(points))

    def _segments(self, rows: Sequence[Row], tokens: int) -> dict[str, list[Any]]:
        copies, each, temporary = _STATES[self.job["optimizer"]]
        own = (4 if self.job["lora"] else self.width) * self.trained
        # A copy of every parameter in its own dtype, unless the optimizer packs its states.
        states = copies * (each * self.trained or own)
        kept: Terms = {
            "weights": self.weights,
            "adapters": own if self.job["lora"] else 0.0,
            "optimizer states": states,
        }
        if self.job["reference"] == "copy":
            kept = {**kept, "reference model": self.width * self.parameters}
        found = {}
        for place, row in enumerate(rows):
            terms = self._terms(row, tokens)
            if self.job["accumulation"] > 1:
                terms["gradients"] = own
            terms = {**kept, **terms}
            found[f"{row['segment']}/{place}"] = [sum(terms.values()), row["operation"], terms]
        if self.job["training"]:
            terms = {**kept, "gradients": own, "temporary values of the optimizer": temporary * own}
            found["step/before"] = [sum(terms.values()), "step", terms]
        return found


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, takewhile(str.isdigit, version.split(".")[:2])))
