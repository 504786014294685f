"""What a line of a report claims of the machine: platform strings, and GPUs as tools list them and as people write them
behind a label; and what sentences say of the run: the model, the GPUs, settings, a framework and a method.

A sentence is a person's word and no measurement. Nothing is read in one that compares, advises or tells what works, and
nothing of which one sentence says two things. What lines, commands and configurations say counts before it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from envdoctor.facts.registry import FactTypeError, parse_value, unlisted
from envdoctor.facts.values import ABSENT, Fact, Origin, Records, Unknown, Value
from envdoctor.matrix.gpu_code import counted, gpu_named, other_accelerator
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.model.config import shape_of
from envdoctor.observe.model.names import is_repo_name
from envdoctor.observe.recipe.document import scalar
from envdoctor.observe.recipe.formats import Formats, Meaning, spelled
from envdoctor.system.message import Message, joined

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
#: Words of the names of GPUs; every other one has a number in it.
_WORDS = r"(?i)(?:nvidia|geforce|rtx|gtx|tesla|quadro|titan|ti|super|ada|generation|laptop|gpus?|pcie|nvl|pro|d)\Z"
#: Their memory in brackets, and what else stands there and does not say how many there are.
_MEMORY = r"\((\d{1,3} ?G(?:i?B)?)(?:, [^()]{1,40})?\)"
_EACH = r"(?i)(?<=\d) (?=gi?b?\b)|(?<=[gb]) (?:each|per (?:gpu|card))\b"
_ASIDE = r"\((?:[^()\d]|sm_\d{2,3}|(?:cc|capability) ?\d\d?\.\d){1,40}\)"
#: Names as tools print them, all of them with commas.
_PRODUCT = r"(?:NVIDIA|Tesla|GeForce|Quadro) (?:(?! [x*]\s?\d)[\w -]){2,60}"
_PRODUCTS = re.compile(rf"{_PRODUCT}(?:, {_PRODUCT}){{0,63}}")
_MOST = 64


class Claim(NamedTuple):
    """One line says that a fact has a value. ``loose``: people write such lines by hand. ``partial``: the value is only
    the beginning of a version (4.46 for any 4.46.x)."""

    key: str
    value: Value
    line: int
    loose: bool = False
    partial: bool = False


class Line(NamedTuple):
    """What a line says: claims, or the fact that it speaks of and that could not be read (``unread``)."""

    claims: tuple[Claim, ...] = ()
    unread: str = ""


def understood(line: Line, matrix: Matrix) -> Line:
    """Return the line with systems and GPUs, whose values are words, as the facts that the words give."""
    claims: list[Claim] = []
    for claim in line.claims:
        if claim.key == "os.platform":
            claims += _platform(str(claim.value), claim.line, matrix)
        elif claim.key != "gpu.name" or claim.value is ABSENT:
            claims.append(claim._replace(key=claim.key.replace("gpu.name", "gpu")))
        elif (gpu := _gpu(str(claim.value), claim.line, matrix)) is not None:
            claims.append(gpu._replace(loose=claim.loose))
        elif (kind := other_accelerator(str(claim.value))) is not None:
            claims.append(Claim("machine.accelerators", (kind,), claim.line, claim.loose))
        elif any(map(str.isdigit, str(claim.value))):
            line = line._replace(unread="gpu")
    return line._replace(claims=tuple(claims))


def _gpu(text: str, number: int, matrix: Matrix) -> Claim | None:
    """Claim the GPUs behind a label, as tools print them or as the tables name them; None if any of it is unclear."""
    if (listed := smi_line(text, number)) is not None:
        return listed
    if _PRODUCTS.fullmatch(text):
        names = text.split(", ")
        return _gpus([{"name": name} for name in names], number) if names[1:] else Claim("gpu.type", text, number)
    plain = re.sub(_ASIDE, "", re.sub(_MEMORY, r" \1", re.sub(_EACH, "", text)))
    pair = counted(" ".join(plain.split()))
    if pair is None:
        return None
    count, name = pair
    if count and (size := re.fullmatch(r"(\d{2,3}) ?G(?:i?B)?", name)) is not None:  # 2 x 24G
        return _gpus([{"memory_gib": float(size[1])}] * count, number)
    words = [word for word in re.split(r"[\s,/]+", name) if not re.match(_WORDS, word)]
    products = [word for word in words if gpu_named(word, matrix) is not None]
    product = gpu_named(name, matrix)
    if product is None or len(products) > 1 or not all(any(map(str.isdigit, word)) for word in words):
        return None
    name = product.name if re.match(r"(?i)\d|RTX\d", name) else name
    return _gpus([{"name": name}] * count, number) if count else Claim("gpu.type", name, number)


def _gpus(items: Sequence[Mapping[str, Value]], line: int, doubt: Message | None = None) -> Claim:
    return Claim("gpu", Records(tuple(map(dict, items)) if len(items) <= _MOST else (), doubt), line)


def _platform(text: str, number: int, matrix: Matrix) -> Iterator[Claim]:
    """Yield ``Linux-5.15.0-91-generic-x86_64-with-glibc2.35``, ``Ubuntu 22.04.3 LTS (x86_64)``, ``Windows 11``."""
    text = text.strip()
    lowered = text.lower()
    rows = matrix.rows("report-forms", "system")
    platforms = {row["platform"] for row in rows for word in row["words"] if word in lowered}
    if len(platforms) != 1 or not any(lowered.startswith(word) for row in rows for word in row["words"]):
        return
    yield Claim("os.platform", platforms.pop(), number)
    match = _LINUX.match(text)
    arch = match[2] if match is not None else (_ARCH.findall(text) or [""])[-1].lower()
    if arch:
        yield Claim("os.arch", _ARCHES.get(arch, arch), number)
    if match is None:
        return
    yield Claim("os.kernel", match[1], number)
    if "microsoft" in match[1].lower():
        yield Claim("os.wsl", True, number)
    if match[3] == "glibc" and match[4]:
        yield Claim("os.libc", "glibc", number)
        yield Claim("os.libc_version", match[4], number)


def smi_line(text: str, number: int) -> Claim | None:
    """Read a line of nvidia-smi's table or list: a GPU's index and name, or its memory."""
    match = _SMI_NAME.fullmatch(text) or _LISTED.match(text)
    if match is not None:
        name = match[2].strip()
        if name.endswith("..."):  # cut off: the product alone, or nothing if it may be another
            name = "" if (product := re.match(r"(.*\d)-\w{0,10}\.\.\.\Z", name)) is None else product[1]
        return Claim(f"smi.{match[1]}", name, number) if re.search(r"\d|\.\.\.|TITAN", match[2]) else None
    group = _GROUP.fullmatch(text)
    if group is not None:
        return _gpus([{"name": group[2]} for _ in group[1].split(",")], number)
    memory = _SMI_MEMORY.fullmatch(text) if "MiB" in text else None
    return Claim("smi.memory", round(int(memory[1]) / 1024, 2), number) if memory else None


def gpu_fact(claims: Sequence[Claim], name: str) -> Fact | None:
    """Return the GPUs by all lines that speak of them: lists with indexes, a type with its number and memory, words."""
    lists = [*_listed(claims), *(claim for claim in claims if claim.key == "gpu"), *_typed(claims)]
    lists = [claim for claim in lists if not _is_nameless(claim)] or lists
    all_of = [(claim.line, claim.value) for claim in lists if isinstance(claim.value, Records) and claim.value.items]
    if not all_of:
        none = next((claim.line for claim in claims if claim.key == "gpu" and claim.value is ABSENT), None)
        return Fact("gpu", Records(()), Origin(name, none), "given") if none is not None else None
    line, best = min(all_of, key=lambda number: (number[1].incomplete is not None, -len(number[1].items[0])))
    value: Value = best
    for other_line, other in all_of:
        if not _agree(best, other):
            words = []
            for number, gpus in ((line, best), (other_line, other)):
                names = ", ".join(sorted({str(item.get("name", "GPU")) for item in gpus.items}))
                words.append(Message("line {} of {} says {}", number, name, f"{len(gpus)} x {names}"))
            value = Unknown(joined(words, ", "))
            break
    return Fact("gpu", value, Origin(name, line), "given")


def _listed(claims: Sequence[Claim]) -> Iterator[Claim]:
    """Yield the lists of nvidia-smi and collect_env: each begins with index 0, or some lines of it were left out."""
    items: list[dict[str, Value]] = []
    first = 0
    for claim in (claim for claim in claims if claim.key.startswith("smi.")):
        index = claim.key.removeprefix("smi.")
        if index == "memory":
            if items:
                items[-1].setdefault("memory_gib", claim.value)
            continue
        if int(index) == 0:
            if items:
                yield _gpus(items, first)
            items, first = [], claim.line
        if int(index) != len(items):
            items = []
            continue
        items.append({"index": int(index), **({"name": claim.value} if claim.value else {})})
    if items:
        yield _gpus(items, first)


def _is_nameless(claim: Claim) -> bool:
    """Return whether a claim says of GPUs only their memory: what names them counts before it."""
    return isinstance(claim.value, Records) and all(item.keys() == {"memory_gib"} for item in claim.value.items)


def _typed(claims: Sequence[Claim]) -> Iterator[Claim]:
    """Yield ``GPU type`` with ``GPU number`` and ``GPU memory`` below it, as env commands print them."""
    for place, claim in enumerate(claims):
        if claim.key == "gpu.type":
            near = {below.key: below.value for below in claims[place + 1 : place + 4] if below.line - claim.line <= 3}
            item = {"name": claim.value} | {key[4:]: near[key] for key in ("gpu.memory_gib",) if key in near}
            count = near.get("gpu.count")
            doubt = Message("how many GPUs there are is not said") if count is None else None
            yield _gpus([item] * (int(str(count).split(".")[0]) if count is not None else 1), claim.line, doubt)


def _agree(gpus: Records, other: Records) -> bool:
    """Return whether two lists may be of the same GPUs: ``A100 80G`` and ``NVIDIA A100-SXM4-80GB`` may."""
    if gpus.incomplete is None and other.incomplete is None and len(gpus) != len(other):
        return False
    for pair in zip(gpus.items, other.items, strict=False):
        names = [str(item["name"]).lower() for item in pair if "name" in item]
        words = [re.findall(r"[a-z\d]+", name) for name in names]
        numbers = [
            {word for word in name if re.search(r"\d", word) and not re.fullmatch(r"\d+gb?", word)} for name in words
        ]
        first, *rest = numbers or [set()]
        if not all(first <= other or other <= first for other in rest):
            return False
    return True


_DIGIT = re.compile(r"\d")
#: Characters of sentences that are read of a report, and of one of them.
_CHARACTERS, _LONGEST = 30_000, 1_200
_STOP = re.compile(r"(?<=[.!?;])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)\s|(?<=[。！？；])|\n(?=[-*+•#]|\d\.)")
#: What a line of code, of a log or of a form begins with.
_NO_WORDS = re.compile(
    r"(?:File \"|Traceback|[\"'][\w.]{1,60}[\"']\s?:|from \w{1,60} import|import \w|>>>|[{(<|$]|\d{4}-\d\d"
    r"|\[(?:\d|rank|INFO|WARN|ERROR|DEBUG)"
    r"|\w{1,60}(?:\.\w{1,60}){0,4} ?= ?\w{1,60}[.(])"
)
#: ``Qwen2.5-7B``, ``org/name`` with what stands on around it (a path, an address); and ``Llama 3.1 8B Instruct``.
_NAME = re.compile(r"(?<![\w./\\@:-])[A-Za-z][\w./\\:-]{2,120}", re.ASCII)
_IN_WORDS = re.compile(
    r"(?<![\w./\\@:-])[A-Za-z]{2,12}(?:-?\d(?:\.\d)?)?(?: \d(?:\.\d)?)? \d{1,3}(?:\.\d)?[Bb]"
    r"(?: (?:Instruct|Chat|Base))?(?![\w/-])",
    re.ASCII,
)
#: ``per_device_eval_batch_size=2``, ``gpu_memory_utilization 0.95``.
_OPTION = re.compile(
    r"(?<![\w./-])(?:--)?([A-Za-z][a-z0-9]{0,20}(?:_[a-z0-9]{1,20}){1,5})[`'\"]?"
    r"(?:\s?[=:]\s?|\s(?:is |of |to |at |as )?|\s?(?:设为|设成|设置为|为|是)\s?)[`'\"]?"
    r"(true|false|\d{1,6}(?:\.\d{1,20})?(?:e-?\d{1,2})?)(?!\w|\.\d)",
    re.IGNORECASE | re.ASCII,
)


class Prose:
    """The part of the table ``report-forms`` about sentences, compiled for one report."""

    def __init__(self, matrix: Matrix, formats: Formats) -> None:
        self._matrix, self._formats, self._left = matrix, formats, _CHARACTERS
        words = matrix.part("report-forms", "prose")
        self._numbers: Mapping[str, int] = words["numbers"]
        self._doubt = re.compile(words["aside"], re.IGNORECASE)
        self._against = re.compile(words["against"], re.IGNORECASE)
        phrases = matrix.rows("report-forms", "phrase")
        self._phrases = [(row, re.compile(row["pattern"], re.I | re.A)) for row in phrases]

    def claims(self, rows: Sequence[tuple[int, str]]) -> Iterator[Claim]:
        """Yield what the sentences of lines that stand together say; each line comes with its number."""
        rows = [(number, text) for number, text in rows if not _NO_WORDS.match(text)]
        text = "\n".join(line for _, line in rows)[: self._left]
        self._left -= len(text)
        ends = sorted(match.start() for ends in (_STOP, self._against) for match in ends.finditer(text))
        for start, end in pairwise([0, *ends, len(text)]):
            sentence = text[start:end]
            if len(sentence) > _LONGEST or self._doubt.search(sentence):
                continue
            for _, same in groupby(sorted(self._claims_of(sentence), key=attrgetter("key")), attrgetter("key")):
                claims = list(same)
                first, *others = [claim for claim in claims if not _is_nameless(claim)] or claims
                if all(other.value == first.value for other in others):
                    yield first._replace(line=rows[text.count("\n", 0, start + first.line)][0])

    def _claims_of(self, sentence: str) -> Iterator[Claim]:
        """Yield claims, with their places in the sentence as lines."""
        for row, pattern in self._phrases:
            for match in pattern.finditer(sentence):
                groups = match.groupdict()
                value = row.get("says", groups.get("value"))
                if row["fact"] == "gpu.name":
                    yield from self._gpu(match.start(), groups)
                elif "more" in groups:
                    yield from self._claim(row["fact"], int(value) + int(groups["more"] or 0), match.start())
                else:
                    yield from self._claim(row["fact"], value, match.start())
        for match in _OPTION.finditer(sentence):
            meaning = self._options.get(match[1])
            if meaning is not None and (word := meaning.word(spelled(scalar(match[2])))):
                yield from self._claim(f"recipe.{meaning.field}", scalar(word), match.start())
        for match in (*_NAME.finditer(sentence), *_IN_WORDS.finditer(sentence)):
            name = match[0].rstrip(".:-").replace(" ", "-")
            if _DIGIT.search(name) and is_repo_name(name):
                yield from self._model(name, match.start())

    def _claim(self, key: str, value: object, place: int) -> Iterator[Claim]:
        spec = self._matrix.registry.find(key)
        with suppress(FactTypeError):
            if spec is not None and unlisted(spec, parsed := parse_value(spec, value)) is None:
                yield Claim(key, parsed, place)
                if key == "recipe.eval_batch_size":
                    yield Claim("recipe.batch_size", parsed, place)

    def _gpu(self, place: int, groups: Mapping[str, str | None]) -> Iterator[Claim]:
        """Yield the GPUs by the name that the tables have, with how many there are and their memory if that is said."""
        count, size = groups["count"] or groups["after"], groups["size"] or groups["before"]
        text = f"{groups['value']} {size}G" if size else f"{groups['value']}"
        if count:
            text = f"{self._numbers.get(count.lower(), count)} x {text}"
        yield from understood(Line((Claim("gpu.name", text, place),)), self._matrix).claims

    def _model(self, name: str, place: int) -> Iterator[Claim]:
        """Yield a model that the table of shapes has: as its repository if it is the only one of that name. Else its
        name, as that of a folder: of GLM-4 the repository with code of its own or that of transformers (``-hf``)."""
        shape = shape_of(name, self._shapes, self._matrix.rows("model-shapes", "suffix"))
        organisation, is_repo, _ = name.rpartition("/")
        copied = organisation in self._matrix.part("families", "copies")["organisations"]
        if shape is None or shape.bare or not (shape.vendor or copied) or (shape.unknown and not is_repo):
            return
        ported = any(f"{shape.like}-hf" in row["names"] for row in self._shapes)
        same = shape.like.lower().endswith(f"/{name.lower()}") and not ported
        if is_repo or same:
            yield Claim("model.repo", shape.like if same else name, place)
        else:
            yield Claim("model.path", name, place)

    @cached_property
    def _shapes(self) -> Sequence[Mapping[str, Any]]:
        return list(self._matrix.rows("model-shapes"))

    @cached_property
    def _options(self) -> Mapping[str, Meaning]:
        """Return what the keys of all formats mean that mean one thing, or what TrainingArguments mean by them."""
        fields: dict[str, set[str]] = {}
        chosen: dict[str, Meaning] = {}
        for form in (*self._formats, self._formats["hf-arguments"]):
            for key, meanings in form.keys.items():
                name = key.rpartition(".")[2].lower()
                for meaning in meanings[:1]:
                    fields.setdefault(name, set()).add(meaning.field)
                    chosen[name] = meaning
        own = self._formats["hf-arguments"].keys
        return {name: meaning for name, meaning in chosen.items() if len(fields[name]) == 1 or name in own}
