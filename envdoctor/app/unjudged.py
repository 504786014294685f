"""What a run could not judge although it looks complete: a clean report about nothing would be believed."""

from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Absent, Records, Unknown
from envdoctor.observe.target import Target

__all__ = ["Unjudged", "unjudged"]


class Unjudged(NamedTuple):
    """A sentence about it; ``asked``: the question of this run was about it, which makes the run incomplete."""

    text: str
    asked: bool


def unjudged(facts: FactSet, target: Target, model: str | None, cut_short: str | None) -> tuple[Unjudged, ...]:
    """Of an environment and the model that was asked for. Of a facts file nothing is missed: its reader knows it.

    ``cut_short`` says why the environment was not looked at to the end: an error may stand in what was left.
    """
    found = [Unjudged(cut_short, asked=True)] if cut_short else []
    if target.kind not in ("facts", "none"):
        dists = facts.value("dist")
        if isinstance(dists, Records) and not dists and dists.incomplete is None:
            found.append(Unjudged(f"no package is installed in {target.path}", asked=True))
        elif isinstance(facts.value("pkg.torch"), Absent):
            text = "torch is not installed there: nothing about training was judged"
            found.append(Unjudged(text, asked=model is not None))
    if model is not None and all(isinstance(facts.value(f"model.{name}"), Unknown) for name in ("type", "family")):
        text = f"nothing is known of the model {model}: give a folder with its config.json, or a name that exists"
        found.append(Unjudged(text, asked=True))
    pin, pinned, at_hand = (facts.value(key) for key in ("pin.state", "pin.revision", "model.path"))
    if isinstance(pin, Unknown) and not isinstance(pinned, Unknown) and isinstance(at_hand, str):
        found.append(Unjudged(f"{model} and its pin: {pin.reason}", asked=True))
    return tuple(found)
