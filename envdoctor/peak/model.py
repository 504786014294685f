"""The model that is traced: the type of config.json, or for code of the model's own the nearest one of transformers."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.observe.model.config import Shape
from envdoctor.peak.closed_form import GIB
from envdoctor.peak.section import MemoryProblem
from envdoctor.peak.tracing import Trace
from envdoctor.system.message import Message

#: How much more the activations of other code are taken to need than those of the nearest type. A choice and no bound:
#: two published readings of GLM-4's and ChatGLM3's own code lie above the whole prediction with it.
MARGIN = 0.3

#: How much less or more everything may take if a part of the name is unknown, and if the name is only a number of
#: parameters. Choices, and wide: models of seven billion parameters differ by a fifth.
_LOOSE, _LOOSEST = 0.05, 0.2
#: The same if the name says that the weights are quantised, without the bits: four to eight are usual.
_BITS_UNKNOWN = 0.5
#: The same where words of the name tell of another shape: a tower for images may be half of a small model.
_UNLIKE = 0.5


class Model(NamedTuple):
    """``config`` is that of a type which transformers has; ``named`` is the type in config.json. Where the two differ,
    activations may take more by the share ``margin``, and ``nearest`` is the row of the table native-types; ``trainer``
    is a framework that runs code of its own, with which they may take less too. ``heeds``:
    whether its code heeds gradient checkpointing, None where the code is not there to be read. ``said`` tells that the
    shape is by the model's name; then everything may be less or more by the share ``loose``; ``bare``: only its size
    is. ``sdpa``: whether its classes take it."""

    config: Mapping[str, Any]
    named: str
    margin: float = 0.0
    nearest: Mapping[str, Any] | None = None
    heeds: bool | None = True
    trainer: str = ""
    said: tuple[Message, ...] = ()
    loose: float = 0.0
    bare: bool = False
    sdpa: bool = True

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
            text = "no shipped coefficients are for exactly this run: those of the nearest one were taken, {}"
            notes.append(Message(text, trace.near))
        if trace.model.get("whole_experts"):
            whole = "bitsandbytes packs linear layers: the experts keep {} GiB of the weights, as in transformers 5"
            notes.append(Message(whole, f"{trace.model['whole_experts'] / GIB:.1f}"))
        if trace.model.get("perhaps_whole"):
            text = "not every release of the framework packs the experts: whole they take {} GiB more"
            notes.append(Message(text, f"{trace.model['perhaps_whole'] / GIB:.1f}"))
        if trace.model.get("image_bytes"):
            text = (
                "images: up to {} patches of them a sample were counted, for which the tower takes up to {} GiB "
                "(image_max_pixels or max_pixels in the recipe bounds them, for one picture a sample)"
            )
            patches, most = trace.model["patches"], trace.model["image_bytes"] / GIB
            notes.append(Message(text, f"{patches:,.0f}", f"{most:.1f}"))
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
    config = {key: value for key, value in config.items() if key != "quantization_config"}
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
    is_deaf, is_read = (any(fnmatchcase(method, row[name]) for method in methods) for name in ("ignores", "modeling"))
    heeds = not is_deaf if is_deaf or is_read else None
    if framework in row["but_in"] or (repo and repo.lower() in row["ignoring"]):
        heeds = framework in row["but_in"]
    return Model(native, named, MARGIN, row, heeds, of_trainer)


def words_of(shape: Shape) -> tuple[Sequence[Message], float]:
    """Return the basis of a prediction by a model's name in words, and how much less or more everything may take."""
    if shape.bare:
        loose = _UNLIKE if shape.unlike else _LOOSEST
        text = "only the parameter count is known: the shape of {} is assumed, {} less or more, vocabulary up to {}"
        return [Message(text, shape.like, f"{loose:.0%}", f"{shape.vocabulary:,}")], loose
    if shape.quantized == "":
        loose = _LOOSE if shape.bits else _BITS_UNKNOWN
        text = (
            "by its name the model has the shape of {}, quantised and not told how: {} bits a weight were taken, "
            "{} less or more"
        )
        return [Message(text, shape.like, shape.bits or 8, f"{loose:.0%}")], loose
    if shape.unknown:
        text = "by its name the model has the shape of {}, {} less or more, because words of the name are not known: {}"
        return [Message(text, shape.like, f"{_LOOSE:.0%}", ", ".join(shape.unknown))], _LOOSE
    return [Message("no file of the model is here: by its name it has the shape of {}", shape.like)], 0.0
