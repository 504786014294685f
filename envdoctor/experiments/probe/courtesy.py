"""Choose the device that the probes may use, from the driver's facts and before anything touches it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.factset import View
from envdoctor.facts.values import Records, Unknown, Value
from envdoctor.system.message import Message, joined

#: A context takes hundreds of MiB and the probes tens: with less than this left they would disturb, or fail themselves.
LEAST_FREE_GIB = 1.0


class Permission(NamedTuple):
    """``visible`` is the value for CUDA_VISIBLE_DEVICES (None: as it is), ``refused`` why nothing may run on a GPU, a
    sentence for the user, or None; ``notes`` are sentences about the choice and about what could not be checked,
    ``left_out`` about requested GPUs that are not shown."""

    visible: str | None
    refused: Message | None = None
    notes: tuple[Message, ...] = ()
    left_out: tuple[Message, ...] = ()


def ask_local(gpus: Value, environ: Mapping[str, str], local: int | None, *, force: bool) -> Permission:
    """Return the GPU of one of several processes: the only GPU that it sees, or the one of its local rank."""
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    entries = [entry.strip() for entry in setting.split(",")] if setting else []
    items = gpus.items if isinstance(gpus, Records) else ()
    count = len(items) or len(entries)
    place = 0 if count == 1 or (count == 0 and local is None) else local
    if place is None:
        return Permission(None, Message("{} GPUs are visible, and which of them is this rank's is not said", count))
    if 0 < count <= place:
        return Permission(None, Message("{} GPUs are visible, and none is left for local rank {}", count, place))
    shown = _visible({}, place, setting)
    if place >= len(items) or shown.startswith("MIG-"):
        return Permission(shown if setting != "" else "")
    trouble = _trouble(View.of(items[place]))
    name = _name_of(items[place], place)
    if trouble is not None and not force:
        return Permission(None, Message("{}{}. {}", name, trouble, _WAYS))
    notes = _unread([items[place]]) if trouble is None else (Message("{}{} (--force)", name, trouble),)
    return Permission(_visible(items[place], place, setting), None, notes)


def ask(gpus: Value, environ: Mapping[str, str], *, all_gpus: bool, force: bool) -> Permission:
    """Return which GPUs the children may see. ``gpus`` is the fact ``gpu``: the visible ones, as CUDA numbers them.

    One device is shown, the first with at least 1 GiB free and without other processes, and a note names the others as
    not measured; with ``all_gpus`` all such devices are shown, and notes name the rest. A MIG slice stays as the user
    named it: its memory and tenants are its own and not read here.
    """
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    first = setting.split(",")[0].strip() if setting else None
    items = gpus.items if isinstance(gpus, Records) else ()
    if first is not None and first.startswith("MIG-"):
        note = Message("{} is a MIG slice: whether somebody else uses it was not checked", first)
        return Permission(setting if all_gpus else first, None, (note,))
    if not items:
        # Perhaps only torch can tell that there is a GPU. GPUs that the user hid stay hidden.
        return Permission(setting if all_gpus else "0" if setting is None else first or "")
    names = [_name_of(item, place) for place, item in enumerate(items)]
    troubles = [_trouble(View.of(item)) for item in items]
    busy = [name + trouble for name, trouble in zip(names, troubles, strict=True) if trouble is not None]
    idle = [place for place, trouble in enumerate(troubles) if trouble is None]
    if not force and not idle:
        return Permission(None, Message("{}. {}", joined(busy[:4]), _WAYS))
    if all_gpus and (force or not busy):
        forced = tuple(Message("{} (--force)", gpu) for gpu in busy)
        return Permission(setting, None, (*forced, *_unread(items)))
    if all_gpus:
        shown = ",".join(_visible(items[place], place, setting) for place in idle)
        left_out = tuple(Message("not measured: {}", gpu) for gpu in busy)
        return Permission(shown, None, _unread([items[place] for place in idle]), left_out)
    place = idle[0] if idle else 0
    shown = _visible(items[place], place, setting)
    text = Message("{} of {} GPUs is measured, {}: --all-gpus measures all", 1, len(items), names[place])
    others = (text,) if len(items) > 1 else ()
    if not idle:
        return Permission(shown, None, (Message("{} (--force)", busy[0]), *others))
    notes = (Message("{}: {} was taken", busy[0], names[place]),) if place else ()
    return Permission(shown, None, (*notes, *others, *_unread([items[place]])))


_WAYS = Message("--force runs the experiments there all the same, --device cpu leaves the GPU alone")


def _trouble(item: View) -> str | None:
    """Return why this GPU should be left alone, as the rest of a sentence; None if it may be used."""
    processes, free = item.number("processes"), item.number("free_gib")
    if processes is not None and processes > 0:
        return Message(" is in use by {} other process{}", f"{processes:g}", "" if processes == 1 else "es")
    if free is not None and free < LEAST_FREE_GIB:
        return Message(" has {} GiB of memory free, less than {}", f"{free:g}", f"{LEAST_FREE_GIB:g}")
    return None


def _unread(items: Sequence[Mapping[str, Value]]) -> tuple[Message, ...]:
    for item in items:
        for column, subject in (
            ("processes", Message("whether others compute on the GPU")),
            ("free_gib", Message("how much memory is free")),
        ):
            value = item.get(column)
            if isinstance(value, Unknown):
                return (Message("{} could not be checked: {}", subject, value.reason),)
    return ()


def _visible(item: Mapping[str, Value], place: int, setting: str | None) -> str:
    """Return the GPU's name for CUDA_VISIBLE_DEVICES: its UUID, which is the same in every numbering, if known."""
    if uuid := View.of(item).text("uuid"):
        return uuid
    entries = [entry.strip() for entry in setting.split(",")] if setting else []
    return entries[place] if place < len(entries) else str(place)


def _name_of(item: Mapping[str, Value], place: int) -> str:
    name = View.of(item).text("name")
    return f"GPU {place}" + ("" if name is None else f" ({name})")
