"""The model that is traced: the type of config.json, or for code of the model's own the nearest one of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.memory.problem import MemoryProblem
from envdoctor.text.message import Message

#: How much more the activations of other code are taken to need than those of the nearest type. A choice and no bound:
#: two published readings of GLM-4's and ChatGLM3's own code lie above the whole prediction with it.
MARGIN = 0.3


class Model(NamedTuple):
    """``config`` is that of a type which transformers has; ``named`` is the type in config.json. Where the two differ,
    activations may take more by the share ``margin``, and ``nearest`` is the row of the table native-types. ``heeds``:
    whether its code heeds gradient checkpointing, None where the code is not there to be read."""

    config: Mapping[str, Any]
    named: str
    margin: float = 0.0
    nearest: Mapping[str, Any] | None = None
    heeds: bool | None = True

    @property
    def level(self) -> str:
        """``trace`` of the installed code, or of the ``nearest`` type."""
        return "nearest" if self.nearest else "trace"

    def assumed(self, job: Mapping[str, Any]) -> list[Message]:
        """What is to be said of the answer for this job."""
        if self.nearest is None:
            return []
        said = [
            Message(
                "code of the model's repository is never run: this is by the nearest type of transformers, {}; "
                "activations may take up to {} more",
                self.nearest["type"],
                f"{self.margin:.0%}",
            )
        ]
        if job["checkpointing"] and self.heeds is False:
            said.append(Message("the model's own code ignores gradient checkpointing: this is without it"))
        return said

    def job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The same job as the model's code does it, with the modules that LoRA names called as in the traced type."""
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
    config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], methods: Sequence[str] = (), framework: str = ""
) -> Model:
    """The model of a config.json; ``rows`` are those of the table native-types, ``methods`` those of its own code, and
    ``framework`` is the one that trains it.

    Raises :class:`MemoryProblem` where the nearest type computes something else.
    """
    named = str(config.get("model_type"))
    row = next((row for row in rows if row["key"] == named), None)
    if row is None:
        return Model(config, named)
    unlike = [key for key, value in row["needs"].items() if config.get(key) != value]
    unlike += [name for name in row["names"].values() if name not in config]
    if unlike:
        raise MemoryProblem(
            "code of the model's repository is never run, and {}, the nearest type of transformers, does "
            "not fit its config.json: {}",
            row["type"],
            ", ".join(dict.fromkeys(unlike)),
        )
    native = {"model_type": row["type"], **{name: config[other] for name, other in row["names"].items()}}
    return Model(native, named, MARGIN, row, _heeds(row, methods, framework))


def _heeds(row: Mapping[str, Any], methods: Sequence[str], framework: str) -> bool | None:
    if framework in row["but_in"]:
        return True
    ignored, there = (any(fnmatchcase(one, row[name]) for one in methods) for name in ("ignores", "modeling"))
    return not ignored if ignored or there else None
