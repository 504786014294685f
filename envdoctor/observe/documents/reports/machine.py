"""What a report says of the machine: platform strings, and GPUs by every way in which tools and people list them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.knowledge.gpu_names import gpu_named
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim

__all__ = [
    "DRIVER",
    "GPU",
    "gpu_fact",
    "gpus_behind_label",
    "gpus_written",
    "plain_gpus",
    "platform_claims",
    "smi_line",
]

_LINUX = re.compile(
    r"Linux-(\d[\w.+~-]{0,80}?)-(x86_64|aarch64|ppc64le)(?:-[\w.]{0,40})?(?:-with-"
    r"(glibc|libc|musl)([\d.]{0,10})|-with-[\w.-]{1,60})?\Z"
)
_ARCH = re.compile(r"\b(x86_64|amd64|aarch64|arm64)\b", re.IGNORECASE)
_ARCHES = {"amd64": "x86_64"}
#: ``|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |``
_SMI_NAME = re.compile(
    r"\|\s{1,4}(\d{1,3})\s{2}(\S.{1,60}?)\s{1,40}(?:On|Off|N/A|TCC|WDDM|MCDM)\s{1,8}\|\s{1,4}[0-9A-Fa-f]{4,8}:.{1,100}"
)
_SMI_MEMORY = re.compile(r"\|.{1,60}\|\s{0,12}\d{1,7}MiB\s?/\s{0,8}(\d{3,7})MiB\s\|.{0,60}")
_LISTED = re.compile(
    r"(?:- )?(?:\[?GPU|CUDA|Device) ?(\d{1,3})\]?: ?([A-Z][\w/-]{1,30}(?: [A-Z0-9][\w/-]{0,30}){0,8})"
    r"(?: \(UUID: .{1,80}\)|, .{0,60})?\Z"
)
#: ``GPU 0,1,2,3: NVIDIA A800-SXM4-40GB``, as check_env of sglang lists GPUs of a kind.
_GROUP = re.compile(r"GPU (0(?:,\d{1,2}){1,63}): ([A-Z][\w/-]{1,30}(?: [A-Z0-9][\w/-]{0,30}){0,8})")
#: What a GPU is called and how many there are of it: ``2x RTX 4090 24G``, ``NVIDIA A100-SXM4-80GB``, ``3090 * 4``.
_COUNT = r"(?:(?<![A-Za-z0-9_.])(\d{1,3}) ?(?:[x*×卡张块片] ?)(?:\d{1,3} ?GB?(?:显存)?的? ?)?|(?<![A-Za-z0-9_.+-]))"
_NUMBERS = {"双": "2", "两": "2", "二": "2", "三": "3", "四": "4", "六": "6", "八": "8"} | {
    "dual": "2",
    "two": "2",
    "four": "4",
    "eight": "8",
}
_WRITTEN = re.compile(
    r"(?i)([双两二三四六八])(?=[卡张块片])|\b(dual|two|four|eight) (?=(?:nvidia |rtx |tesla |[ALHV]\d|\d0\d0))"
)
#: ``8 A100 GPUs``, ``4090s``
_PLURAL = re.compile(
    r"(?i)(?<![\w.])(\d{1,2}) (?=(?:nvidia |geforce |rtx |gtx |tesla ){0,3}(?:[ALHVTB]\d{1,4}|\d0\d0)"
    r"(?:[ -]\d{2,3} ?GB?)?(?:s\b| ?GPUs?\b| ?cards?\b))"
)
_S = re.compile(r"(?<=\d\d0)s\b")
_NAME = (
    r"((?:NVIDIA )?(?:GeForce )?(?:(?:RTX|GTX|Tesla|Quadro) ?)?(?:[ALHTVPB]\d{1,3}[0-9]{0,2}[a-z]?"
    r"|RTX PRO \d{4}|GB\d{3}|A[2456]000|[1-5]0[5-9]0|6000)"
    r"(?: ?Ti(?![A-Za-z0-9])| ?SUPER\b| Ada Generation\b| Ada\b| Laptop GPU\b|D\b)?(?:[ -]"
    r"(?:SXM\d?|PCIE|PCIe|NVL|HBM\d\w?|\d{1,3} ?(?:GB|G|GiB))\b){0,4})"
)
#: What may stand beside it behind a label.
_BESIDE = re.compile(
    r"(?i)nvidia|geforce|单卡|gpus?|显卡|显存|single|张|卡|\b(?:a|an|one|on|the|only|instance|machine|node|server|each|v?ram|memory)\b"
    r"|\b\d{1,3} ?(?:GB|G|GiB|MB)\b"
)
#: A driver beside it: ``RTX 2070, driver 450.102.04``.
DRIVER = re.compile(r"(?i)[,;(]?\s*\b(?:nvidia )?driver(?: version)?[:=]?\s?(\d{3}\.\d{2,3}(?:\.\d{2})?)\b\)?")
GPU = re.compile(rf"{_COUNT}{_NAME}(?![.+-]?[A-Za-z0-9_])(?:\s?[x*×] ?(\d{{1,3}})(?![\w.]))?", re.IGNORECASE)


def platform_claims(said: str, number: int, matrix: Matrix) -> Iterator[Claim]:
    """``Linux-5.15.0-91-generic-x86_64-with-glibc2.35``, ``Ubuntu 22.04.3 LTS (x86_64)``, ``Windows 11``."""
    said = said.strip()
    lowered = said.lower()
    rows = matrix.rows("report-forms", "system")
    named = {row["platform"] for row in rows for word in row["words"] if word in lowered}
    if len(named) != 1 or not any(lowered.startswith(word) for row in rows for word in row["words"]):
        return
    yield Claim("os.platform", named.pop(), number)
    found = _LINUX.match(said)
    arch = found[2] if found is not None else (_ARCH.findall(said) or [""])[-1].lower()
    if arch:
        yield Claim("os.arch", _ARCHES.get(arch, arch), number)
    if found is None:
        return
    yield Claim("os.kernel", found[1], number)
    if "microsoft" in found[1].lower():
        yield Claim("os.wsl", True, number)
    if found[3] == "glibc" and found[4]:
        yield Claim("os.libc", "glibc", number)
        yield Claim("os.libc_version", found[4], number)


def smi_line(text: str, number: int) -> Claim | None:
    """A line of nvidia-smi's table or list: a GPU's index and name, or its memory."""
    found = _SMI_NAME.fullmatch(text) or _LISTED.match(text)
    if found is not None:
        return (
            Claim(f"smi.{found[1]}", _uncut(found[2].strip()), number)
            if re.search(r"\d|\.\.\.|TITAN", found[2])
            else None
        )
    group = _GROUP.fullmatch(text)
    if group is not None:
        return Claim("gpu", Records(tuple({"name": group[2]} for _ in group[1].split(","))), number)
    memory = _SMI_MEMORY.fullmatch(text) if "MiB" in text else None
    return Claim("smi.memory", round(int(memory[1]) / 1024, 2), number) if memory else None


def _uncut(name: str) -> str:
    """Old releases cut names off (``NVIDIA A100-SXM...``): the product alone, or nothing when it may be another."""
    if not name.endswith("..."):
        return name
    found = re.match(r"(.*\d)-\w{0,10}\.\.\.\Z", name)
    return found[1] if found else ""


def plain_gpus(said: str) -> str:
    """``A100 80G`` for ``A100 (80G)``, ``8x A100`` for ``eight A100s``; without what else stands in brackets, unless it
    may say how many there are."""
    said = re.sub(r"\((\d{1,3} ?G(?:i?B)?)\)", r" \1", said)
    said = _WRITTEN.sub(lambda found: _NUMBERS[found[0].strip().lower()] + ("x " if found[2] else ""), said)
    said = _S.sub("", _PLURAL.sub(r"\1x ", said))
    return re.sub(
        r"\((?:[^()\d]|\d{1,3} ?G(?:i?B)? (?=V?RAM)|sm_\d{2,3}|(?i:compute capability|cc) ?\d\d?\.\d){1,40}\)",
        " ",
        said,
    )


def gpus_behind_label(said: str, number: int, matrix: Matrix) -> Claim | None:
    """GPUs as people write them behind a label (``8 x A100 80G``); None when any of it is unclear."""
    said = plain_gpus(said)
    return None if re.search(r"\w", _BESIDE.sub(" ", GPU.sub(" ", said))) else gpus_written(said, number, matrix)


def gpus_written(said: str, number: int, matrix: Matrix) -> Claim | None:
    """The GPUs in a text, all of one kind; None when there are none or several kinds."""
    said = plain_gpus(said)
    found = list(GPU.finditer(said))
    if len(found) != 1:
        return None
    match, rest = found[0], GPU.sub(" ", said)
    known = gpu_named(match[2].strip(), matrix)
    if known is None or (match[1] and match[3]):
        return None
    count = match[1] or match[3]
    single = re.search(r"(?i)单卡|single|单张|一张|\b(?:a|an|one)\b", rest)
    name = known.name if re.match(r"(?i)\d|RTX\d", match[2]) else match[2].strip()
    number_of = int(count) if count else 1
    if not 0 < number_of <= 64:
        return None
    incomplete = None if count or single else "how many GPUs there are is not said"
    return Claim("gpu", Records(tuple({"name": name} for _ in range(number_of)), incomplete), number)


def gpu_fact(claims: Sequence[Claim], name: str) -> Fact | None:
    """The GPUs by all lines that speak of them: lists with indexes, a type with its number and memory, words."""
    said = [*_listed(claims), *(claim for claim in claims if claim.key == "gpu" and not claim.aside), *_typed(claims)]
    asides = [claim for claim in claims if claim.key == "gpu" and claim.aside]
    if not said or all(map(_doubtful, said)):
        # What sentences say may add the number.
        said += [one for one in asides if all(_agree(one, other) for other in said)] if said else asides
    if not said:
        return None
    best = min(said, key=lambda claim: (_doubtful(claim), -_columns(claim)))
    for other in said:
        if not _agree(best, other):
            words = (f"line {one.line} of {name} says {_spelled(one)}" for one in (best, other))
            return Fact("gpu", Unknown(", ".join(words)), f"{name}:{best.line}", "given")
    return Fact("gpu", best.value, f"{name}:{best.line}", "given")


def _listed(claims: Sequence[Claim]) -> Iterator[Claim]:
    """The lists of nvidia-smi and collect_env: each begins with index 0."""
    items: list[dict[str, Value]] = []
    first = 0
    for claim in claims:
        if claim.key == "smi.memory" and items and "memory_gib" not in items[-1]:
            items[-1]["memory_gib"] = claim.value
        elif claim.key.startswith("smi.") and claim.key != "smi.memory":
            index = int(claim.key[4:])
            if index == 0 and items:
                yield Claim("gpu", Records(tuple(items)), first)
                items = []
            if not items:
                first = claim.line
            if index != len(items):
                items, first = [], 0  # not from the beginning: some lines were left out
                continue
            items.append({"index": index, **({"name": claim.value} if claim.value else {})})
    if items:
        yield Claim("gpu", Records(tuple(items)), first)


def _typed(claims: Sequence[Claim]) -> Iterator[Claim]:
    """``GPU type`` with ``GPU number`` and ``GPU memory`` below it, as env commands print them."""
    for place, claim in enumerate(claims):
        if claim.key != "gpu.type":
            continue
        near = {one.key: one.value for one in claims[place + 1 : place + 4] if one.line - claim.line <= 3}
        count = near.get("gpu.count")
        item: dict[str, Value] = {"name": claim.value}
        if "gpu.memory_gib" in near:
            item["memory_gib"] = near["gpu.memory_gib"]
        times = int(str(count).split(".")[0]) if count is not None else 1
        doubt = None if count is not None else "how many GPUs there are is not said"
        if 0 < times <= 64:
            yield Claim("gpu", Records(tuple(dict(item) for _ in range(times)), doubt), claim.line)


def _columns(claim: Claim) -> int:
    """How much is said of each GPU."""
    return len(claim.value.items[0]) if isinstance(claim.value, Records) and claim.value.items else 0


def _doubtful(claim: Claim) -> bool:
    return isinstance(claim.value, Records) and claim.value.incomplete is not None


def _agree(one: Claim, other: Claim) -> bool:
    if not isinstance(one.value, Records) or not isinstance(other.value, Records):
        return False
    if one.value.incomplete is None and other.value.incomplete is None and len(one.value) != len(other.value):
        return False
    return all(_same(a.get("name"), b.get("name")) for a, b in zip(one.value.items, other.value.items, strict=False))


def _same(one: object, other: object) -> bool:
    """Whether two names may be of one product: ``A100 80G`` and ``NVIDIA A100-SXM4-80GB``."""
    if not isinstance(one, str) or not isinstance(other, str):
        return True
    words = [
        set(re.findall(r"[a-z]*\d+[a-z]*", text.lower())) - {"80g", "80gb", "40g", "40gb", "24g", "24gb"}
        for text in (one, other)
    ]
    return words[0] <= words[1] or words[1] <= words[0]


def _spelled(claim: Claim) -> str:
    items = claim.value.items if isinstance(claim.value, Records) else ()
    names = {str(item.get("name", "GPU")) for item in items}
    return f"{len(items)} x {', '.join(sorted(names))}"
