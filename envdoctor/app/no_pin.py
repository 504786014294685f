"""The facts about a pin where there is none; apart from ``pins.py``, which brings the readers of model files along."""

from envdoctor.facts.values import ABSENT, Fact
from envdoctor.system.message import Message

PIN_KEYS = ("pin.revision", "pin.state", "pin.files")


def without_pin(why: Message) -> list[Fact]:
    """Return the facts ``pin.*`` as absent, for this reason."""
    return [Fact(key, ABSENT, why, "pin") for key in PIN_KEYS]
