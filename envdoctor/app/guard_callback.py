"""A TrainerCallback: :func:`envdoctor.guard` before the first step, and the facts beside the run's other files."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from envdoctor.app.configuration import write_whole
from envdoctor.app.guard import Stopped, guard, say
from envdoctor.report.report import Report

#: In the Trainer's ``output_dir``; ``envdoctor check --facts`` judges it again, ``envdoctor compare`` compares runs.
FILE = "envdoctor-facts.json"


class Guard(TrainerCallback):
    """Runs the guard when training begins, with the arguments of the Trainer.

    The arguments are those of :func:`envdoctor.guard`. Of the Trainer it takes the batch size, the dtype and gradient
    checkpointing, which ``recipe`` and ``settings`` override, and of the model its type, unless ``model`` names it.
    The first process of the job writes the facts to ``envdoctor-facts.json`` in ``output_dir``, without paths and names
    of the machine. ``report`` has the findings. Only findings at the gate stop the run, as :class:`Stopped`.
    """

    def __init__(
        self,
        model: str | None = None,
        recipe: str | Sequence[str] = (),
        *,
        code: str | Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        fail_on: str | None = "error",
    ) -> None:
        self.report: Report | None = None
        self._model, self._recipe, self._code, self._fail_on = model, recipe, code, fail_on
        self._settings = settings or {}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Judge the run before the first step."""
        settings = {**({} if self._recipe else _of_arguments(args)), **self._settings}
        if self._model is None and isinstance(name := getattr(getattr(model, "config", None), "model_type", None), str):
            settings = {"model.type": name, **settings}
        try:
            self.report = guard(self._model, self._recipe, code=self._code, settings=settings, fail_on=self._fail_on)
        except Stopped as stopped:
            self.report = stopped.report
            raise
        finally:
            if self.report is not None and state.is_world_process_zero:
                _write(self.report, os.fspath(args.output_dir))


def _of_arguments(args: Any) -> dict[str, object]:
    checkpointing = getattr(args, "gradient_checkpointing", None)
    settings: dict[str, object] = {
        "recipe.train_batch_size": getattr(args, "per_device_train_batch_size", None),
        "recipe.gradient_checkpointing": getattr(args, "activation_checkpointing", checkpointing),
        "recipe.dtype": next((name for name in ("bf16", "fp16") if getattr(args, name, False)), None),
    }
    return {key: value for key, value in settings.items() if value is not None}


def _write(report: Report, folder: str) -> None:
    """Write the facts of the run; a folder that cannot be written does not stop it."""
    from envdoctor.report.facts_text import document

    try:
        os.makedirs(folder, exist_ok=True)
        facts = document(report.facts, report.registry, public=True)
        write_whole(Path(folder, FILE), json.dumps(facts, indent=1) + "\n")
    except Exception as error:
        say(f"envdoctor: {FILE} was not written: {type(error).__name__}: {error}")
