"""What the prediction says besides the finding: the section ``memory`` of a report, as it stands in its JSON."""

from typing import TypedDict

from envdoctor.system.message import MessageError


class MemoryProblem(MessageError):
    """No number can be given; the message is one sentence for the user: what is missing, or what is not followed."""


class _MemoryTerm(TypedDict):
    """What part of the peak is held, in GiB."""

    name: str
    gib: float


class MemorySaving(TypedDict):
    """One change of the recipe: the settings, the allocated GiB with it, and whether it fits then; ``keys`` are the
    settings as the recipe's file writes them."""

    set: dict[str, object]
    gib: float
    verdict: str
    keys: dict[str, str]


class _MemoryServing(TypedDict):
    """How a serving engine divides what it takes, in GiB; ``cache_tokens`` fit into the KV cache, ``length`` must.
    ``images_gib`` is what images may take of it."""

    asked_gib: float
    weights_gib: float
    activations_gib: float
    cache_gib: float
    cache_tokens: int
    length: int
    images_gib: float


class MemoryReach(TypedDict):
    """The longest samples, in tokens, that fit in a batch of this size."""

    batch: int
    tokens: int


class _MemoryInterval(TypedDict):
    """The least, the likely and the most GiB by each measure; ``of``: the published readings that they rest on, empty
    where the step was traced here. Four of five processes take more than ``mostly`` GiB: of a trace, the least.
    ``shown`` are the ends of what each measure may show where the facts ``not_given`` are otherwise than taken."""

    of: str
    allocated: list[float]
    reserved: list[float]
    process: list[float]
    mostly: float
    shown: dict[str, list[float]]
    not_given: list[str]


class MemorySection(TypedDict):
    """Sizes in GiB. ``allocated_gib`` are live tensors, ``reserved_gib`` what torch's allocator holds for them, and
    ``process_gib`` what nvidia-smi shows, each from and to. ``free_gib`` is free on ``gpu`` (None: no GPU is known, and
    no verdict). ``verdict`` is fits, tight or does-not-fit; ``upper``: the peak may be lower, for the reasons of
    ``savers``. ``terms`` are what the peak holds. ``settled_by``: the unknown fact that decides the verdict, empty
    for any other reason."""

    level: str
    model: str
    layers: int
    parameters: int
    trained_parameters: int
    batch: int
    tokens: int
    processes: int
    allocated_gib: float
    reserved_gib: list[float]
    process_gib: list[float]
    interval: _MemoryInterval | None
    gpu: str | None
    total_gib: float | None
    free_gib: float | None
    verdict: str | None
    phase: str
    operation: str
    terms: list[_MemoryTerm]
    changes: list[MemorySaving]
    reach: list[MemoryReach]
    serving: _MemoryServing | None
    assumed: list[str]
    savers: list[str]
    settled_by: str
