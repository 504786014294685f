"""The gaps of a run that looks complete: a clean report about nothing would be believed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Unknown
from envdoctor.observe.request import Target
from envdoctor.observe.sources import DOCUMENTS
from envdoctor.system.message import Message, as_message

_MOST_UNREAD = 5


class Unjudged(NamedTuple):
    """A sentence about a gap; ``asked``: the question of this run was about it, which makes the run incomplete."""

    text: Message
    asked: bool


def unjudged(
    facts: FactSet,
    target: Target,
    model: str | None,
    cut_short: Message | None,
    code: Sequence[str] = (),
    *,
    typed: bool = True,
    started: bool = False,
) -> tuple[Unjudged, ...]:
    """Return the parts of the environment, of the model and of the code in question that were not judged. A facts file
    that was written by hand has no gaps: its reader knows it. ``cut_short`` says why the environment was not read to
    its end: an error may stand in the rest. ``typed``: the user named the model, not a recipe. ``started``: a recipe,
    which is judged itself, starts the code, and the user did not name it."""
    gaps = [Unjudged(cut_short, asked=True)] if cut_short else []
    if target.kind not in (*DOCUMENTS, "none") or "package_damage" in facts:
        dists = facts.records("dist")
        if dists is not None and not dists and dists.incomplete is None:
            gaps.append(Unjudged(Message("no package is installed in {}", target.path), asked=True))
        elif dists is not None and all(one.text("version") is None for one in facts.each("dist")):
            told = facts.items("refused")
            gaps.append(Unjudged(Message("no version of a package is known from {}", target.path), asked=not told))
        elif facts.absent("pkg.torch"):
            text = Message("torch is not installed there: nothing about training was judged")
            gaps.append(Unjudged(text, asked=model is not None))
        gaps += _unread_files(facts)
    elif target.kind == "none" and target.path:  # nobody named it, and this run is of another
        text = Message("{} has neither torch nor transformers: name what runs this by --python or --lock", target.path)
        gaps.append(Unjudged(text, asked=True))
    if target.kind == "lock" and facts.unknown("python.minor") and facts.records("dist"):
        text = Message("whether an installer accepts the list, for no Python is known: give --target-python 3.11")
        gaps.append(Unjudged(text, asked=False))
    others = [kind for kind in facts.words("machine.accelerators") or () if kind != "nvidia"]
    if others and not facts.items("gpu"):
        text = Message("what is special about this accelerator: {}; only NVIDIA GPUs are covered", ", ".join(others))
        gaps.append(Unjudged(text, asked=False))
    if no_model := unknown_model(facts, model):
        gaps.append(Unjudged(no_model, asked=typed))
    pin = facts.unknown("pin.state")
    if pin is not None and not facts.unknown("pin.revision") and facts.text("model.path") is not None:
        gaps.append(Unjudged(Message("{} and its pin: {}", model, pin.reason), asked=True))
    return (*gaps, *(_unread_code(facts, code, started) if code else ()))


def _unread_files(facts: FactSet) -> Iterator[Unjudged]:
    """Yield the installed files that could not be read, and may hold anything."""
    if "package_damage" not in facts:
        return
    unread = [item for item in facts.items("package_damage") if item.get("kind") == "unread"]
    closed = [item for item in facts.items("metadata_problem") if item.get("kind") == "no-access"]
    active = [(item.get("name"), item.get("requires")) for item in facts.items("dist") if item.get("active") is True]
    texts = [Message("{}: {}", item.get("package"), item.get("file")) for item in unread]
    texts += [as_message(str(item.get("detail"))) for item in closed]
    damage = facts.unknown("package_damage")
    if damage is not None and facts.records("dist") is not None:
        texts.append(Message("the installed files: {}", damage.reason))
    texts += [Message("what {} requires: {}", name, gap.reason) for name, gap in active if isinstance(gap, Unknown)]
    yield from (Unjudged(text, asked=True) for text in texts[:_MOST_UNREAD])
    if len(texts) > _MOST_UNREAD:
        yield Unjudged(Message("{} more packages could not be read", len(texts) - _MOST_UNREAD), asked=True)


def unknown_model(facts: FactSet, model: str | None) -> Message | None:
    """Return a sentence about the model in question, if neither its files nor its name tell anything about it."""
    if model is None or any(not facts.unknown(f"model.{name}") for name in ("type", "family")):
        return None
    text = "nothing is known of the model {}: it is not in the table of shapes; give a folder with its config.json"
    return Message(text, model)


def _unread_code(facts: FactSet, code: Sequence[str], started: bool) -> Iterator[Unjudged]:
    """Yield what was not read of the code; asked for is a file that was named, or all if nothing was read, and of code
    that a recipe starts a file that may not run at all. Of one that certainly does not, a rule speaks."""
    read = facts.value("code.files")
    items = [item for item in facts.items("code_unread") if not (item.get("named") and item.get("broken") is True)]
    if isinstance(read, Unknown):
        yield Unjudged(Message("{}: {}", ", ".join(code), read.reason), asked=not started)
    for item in items[:_MOST_UNREAD]:
        text = Message("{}: {}", item.get("place"), item.get("reason"))
        asked = item.get("broken") is not False if started else not read or item.get("named") is True
        yield Unjudged(text, asked=asked)
    if len(items) > _MOST_UNREAD:
        yield Unjudged(Message("{} more files of the code could not be read", len(items) - _MOST_UNREAD), asked=False)
