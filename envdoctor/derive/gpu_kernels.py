"""What torch has for each GPU, how much of its memory is taken, and the compute capability of GPUs known by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.knowledge.gpu_names import gpu_named
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("gpu", "pkg.torch", "torch.cuda", "torch.arch_list", "os.platform", "os.arch")
OUTPUTS = ("gpu",)

#: Later than every CUDA version of the tables.
_NEWEST = "99"
_NOT_KNOWN = Unknown("not known of this GPU")
#: The answer about one GPU: kernels and gap.
_Answer = tuple[Value, Value]


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``gpu`` with ``cc`` by name, ``kernels``, ``gap``, ``taken_gib``; a given one stands where it cannot be told."""
    gpus = value("gpu")
    if not isinstance(gpus, Records) or not len(gpus):
        return {}
    asked: dict[str, _Answer] = {}
    items: list[dict[str, Value]] = []
    for gpu in gpus:
        item = dict(gpu)
        cc = item.get("cc", _NOT_KNOWN)
        if isinstance(cc, Unknown):
            name = item.get("name")
            known = gpu_named(name, matrix) if isinstance(name, str) else None
            cc = item["cc"] = str(known.row["cc"]) if known is not None else cc
        if isinstance(cc, str) and cc not in asked:
            asked[cc] = _kernels(cc, value, matrix)
        unknown = (_NOT_KNOWN, _NOT_KNOWN)
        for column, cell in zip(("kernels", "gap"), asked.get(str(cc), unknown), strict=True):
            if not isinstance(cell, Unknown) or column not in item:
                item[column] = cell
        _set_taken(item)
        items.append(item)
    return {"gpu": Derived(Records(tuple(items), gpus.incomplete), "the GPUs that were found, and torch's build")}


def _set_taken(item: dict[str, Value]) -> None:
    total, free = item.get("memory_gib"), item.get("free_gib")
    if isinstance(total, (int, float)) and isinstance(free, (int, float)):
        item["taken_gib"] = round(max(0.0, total - free), 3)


def _kernels(cc: str, value: Callable[[str], Value], matrix: Matrix) -> _Answer:
    """``kernels`` and ``gap`` for a compute capability."""
    from envdoctor.knowledge.gpu_code import arch_lists

    cuda, torch, listed = value("torch.cuda"), value("pkg.torch"), value("torch.arch_list")
    if isinstance(listed, tuple) and listed and isinstance(cuda, Unknown):
        # The list settles it, but for the few GPUs whose exceptions end with a CUDA version.
        answers = {_of_list(cc, listed, each, matrix) for each in (None, _NEWEST)}
        return answers.pop() if len(answers) == 1 else (cuda, cuda)
    if isinstance(cuda, (Absent, Unknown)):
        reason = Unknown("torch is no CUDA build" if isinstance(cuda, Absent) else cuda.reason)
        return reason, reason
    if isinstance(listed, tuple):
        return _of_list(cc, listed, str(cuda), matrix)
    if isinstance(torch, Absent):
        reason = Unknown("torch is not installed")
        return reason, reason
    platform, machine = _text(value("os.platform")), _text(value("os.arch"))

    def of_builds(release: str | None) -> set[_Answer]:
        rows = arch_lists(release, str(cuda), platform, machine, matrix)
        return {_of_list(cc, tuple(row["archs"]), str(cuda), matrix) for row in rows}

    answers = of_builds(_text(torch))
    if len(answers) == 1:
        return answers.pop()
    if not answers:
        bound = _by_compiler(cc, str(cuda), _text(torch), lambda: of_builds(None), matrix)
        if bound is not None:
            return "none", bound
    why = f"torch builds for CUDA {cuda} differ" if answers else f"no table has the build of torch for CUDA {cuda}"
    reason = Unknown(why)
    return reason, reason


def _by_compiler(
    cc: str, cuda: str, torch: str | None, of_releases: Callable[[], set[_Answer]], matrix: Matrix
) -> str | None:
    """``older`` or ``newer`` where the compiler of this CUDA version has no code for the GPU, whoever built torch.

    PTX is for later GPUs only, so it cannot save an older one. It could save a newer one: that is told of a nightly
    build only, when no release with this CUDA version runs there.
    """
    from envdoctor.knowledge.gpu_code import capability, compiler_range, is_nightly

    device, (oldest, newest) = capability(cc), compiler_range(cuda, matrix)
    if device is None:
        return None
    if oldest is not None and device < oldest:
        return "older"
    if newest is not None and device[0] > newest[0] and is_nightly(torch) and of_releases() == {("none", "newer")}:
        return "newer"
    return None


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _of_list(cc: str, archs: tuple[str, ...], cuda: str | None, matrix: Matrix) -> _Answer:
    from envdoctor.knowledge.gpu_code import kernels

    found = kernels(cc, archs, cuda, matrix)
    if found is None:
        reason = Unknown(f"the architectures {', '.join(archs)[:100]} are not understood")
        return reason, reason
    return found, ABSENT if found != "none" else _gap(cc, archs)


def _gap(cc: str, archs: tuple[str, ...]) -> str:
    from envdoctor.knowledge.gpu_code import capability

    device, built = capability(cc), sorted(_numbers(archs))
    if device is None or not built:
        return "between"
    return "newer" if device > built[-1] else "older" if device < built[0] else "between"


def _numbers(archs: Iterable[str]) -> Iterable[tuple[int, int]]:
    for arch in archs:
        digits = arch.partition("_")[2].rstrip("af")
        if digits.isdecimal() and len(digits) > 1:
            yield int(digits[:-1]), int(digits[-1])
