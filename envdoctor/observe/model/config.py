"""What ``--model`` says and what its folder does: ``config.json`` (type, architectures, dtype, quantisation, sizes),
the tokenizer's class and the side it pads on, and formats of weights by names of files.

The shape of a model whose files are not here is told by its name: the table model-shapes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.files import read_object
from envdoctor.observe.model.names import cache_folder, closed_part
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, said_by

#: Longer names than the Hub's are nobody's.
_LONGEST = 200
#: Another size (7b, 8x7b, a3b; 1m tokens); and a day or a month, which tell nothing.
_OTHER, _DAY = r"(?:\d+x)?[ae]?\d+[bm]", r"v?\d|\d{4}|\d{6}|\d{8}"
#: Types with plain layers and attention: the others are not what a number of parameters alone means.
_PLAIN = ("qwen2", "llama", "qwen3", "mistral")

Rows = Iterable[Mapping[str, Any]]


class Shape(NamedTuple):
    """What a name tells of a model.

    ``config`` are the sizes as config.json gives them, those of ``like``, a name in the table, read at ``source``.
    ``quantized`` is the method in the name, "" if it names none, None if the weights are not quantised; ``bits`` are
    those of a weight, or 0. ``vendor``: the organisation is one of the model's own. ``unknown`` are words without an
    explanation. ``bare``: the name is a number of parameters alone, or has words of another shape, which is ``unlike``
    a plain model; then ``vocabulary`` is the largest one of models of that number.
    """

    config: Mapping[str, Any]
    like: str
    source: str
    quantized: str | None = None
    vendor: bool = True
    unknown: tuple[str, ...] = ()
    bare: bool = False
    bits: int = 0
    unlike: bool = False
    vocabulary: int = 0


@lru_cache(maxsize=2048)  # each name of the table, for each name that a recipe may mean
def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name without its organisation: ``Qwen2.5-7B``, ``qwen-2_5-7b`` are qwen, 2, 5, 7b."""
    last = name.lower().rpartition("/")[2].removeprefix("meta-")
    parted = re.sub(r"\b(?!int|mxfp|nvfp)([a-z]{3,})(?=\d)", r"\1-", last.replace("_", "-"))
    return tuple(word for word in re.split(r"[-.]+", parted) if word)


def shape_of(name: str, rows: Rows, suffixes: Sequence[Mapping[str, Any]]) -> Shape | None:
    """Return the shape of the model called ``name``; None if the table has none for it.

    ``rows`` and ``suffixes`` are those parts of the table model-shapes. The longest known beginning of the name counts,
    or a family with its size in it (``OpenHermes-2.5-Mistral-7B``). Other words may tell how the weights are stored, or
    nothing of the shape; another size, family or architecture makes it another model. A name with none of these, or one
    that tells of another shape, is ``bare``: a plain model of its number of parameters.
    """
    words, rows = words_of(name[: _LONGEST + 1]), list(rows)
    if len(name) > _LONGEST or not words:
        return None
    meanings: dict[str, list[Mapping[str, Any]]] = {}
    for suffix in suffixes:
        for word in suffix["words"]:
            meanings.setdefault(word, []).append(suffix)
    by_words: dict[tuple[str, ...], tuple[str, Mapping[str, Any]]] = {}
    for row in rows:
        for label in row["names"]:
            by_words.setdefault(words_of(label), (label, row))
    sizes: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}
    for whole, (_, row) in by_words.items():
        for end in range(1, len(whole)):
            sizes.setdefault(whole[:end], set()).add(tuple(row["config"].get(key) for key in _DEPTH_AND_WIDTH[1:]))
    for whole, entry in list(by_words.items()):  # Llama-2-7b is Llama-2-7b-hf; e5 is not e5-base, because of e5-large
        while len(sizes.get(whole[:-1], ())) == 1 and any(
            suffix["means"] == "same" for suffix in meanings.get(whole[-1], ())
        ):
            by_words.setdefault(whole := whole[:-1], entry)
    start, end = 0, next((end for end in range(len(words), 0, -1) if words[:end] in by_words), 0)
    model = by_words[words[:end]] if end else None
    past = rf"{_OTHER}|\d{{1,2}}" if model else _OTHER  # where one release is known, another is another model
    if model is None:
        start, end, model = _kin(words, by_words) or (0, 0, _of_size(name, rows))
    shapes = {word for suffix in suffixes if suffix["means"] == "another shape" for word in suffix["words"]}
    unlike = not shapes.isdisjoint((*words[:start], *words[end:]))
    if unlike:
        start, end, model = 0, 0, _of_size(name, rows)
    if model is None:
        return None
    like, row = model
    organisation = name.lower().rpartition("/")[0]
    vendor = organisation in {"", *(label.lower().rpartition("/")[0] for label in row["names"])}
    quantized, unknown, bits = None, [], 0
    for at, word in enumerate(words):
        if start <= at < end:
            continue
        means = {suffix["means"] for suffix in meanings.get(word, ())}
        family = not means and any(word == label[0] for label in by_words)
        other = at >= end > 0 and (re.fullmatch(past, word) or family)
        merged = at < start and re.fullmatch(_OTHER, word)  # 4x7B-Mistral-7B
        if "another model" in means or other or merged:
            return None
        if "quantized" in means:
            by = [suffix for suffix in meanings[word] if vendor or organisation in suffix.get("by", (organisation,))]
            quantized = quantized or next((suffix["method"] for suffix in by if "method" in suffix), "")
            bits = bits or next((suffix["bits"] for suffix in meanings[word] if "bits" in suffix), 0)
        elif means <= {"no family"} and not re.fullmatch(_DAY, word):
            unknown.append(word)
    shape = Shape(row["config"], like, row["source"], quantized, vendor, tuple(unknown), not end, bits, unlike)
    return shape if end else shape._replace(vocabulary=_vocabulary(name, rows))


def _kin(words: tuple[str, ...], names: Mapping[tuple[str, ...], tuple[str, Any]]) -> tuple[int, int, Any] | None:
    """Return where in a name the longest family with its size stands, with the first model of it; None if there is
    none, or those that have both (``qwen``, ``7b``) are not of one depth and width."""
    for end in range(len(words), 1, -1):
        for start in range(end - 1) if re.fullmatch(r"\d+b", words[end - 1]) else ():
            first, run = words[start], words[start:end]
            kin = [model for whole, model in names.items() if whole[0] == first and _has(whole, run)]
            if len({tuple(row["config"].get(key) for key in _DEPTH_AND_WIDTH) for _, row in kin}) == 1:
                return start, end, kin[0]
    return None


def _has(whole: Sequence[str], run: Sequence[str]) -> bool:
    """Return whether a name has all words of a run; Qwen2-VL-7B is another release than Qwen2.5-VL-7B."""
    rest = iter(whole)
    if not all(word in rest for word in run):
        return False
    numbers = [word for word in run if word.isdigit()]
    return numbers in ([], [word for word in whole[: whole.index(run[-1])] if word.isdigit()])


_DEPTH_AND_WIDTH = ("model_type", "num_hidden_layers", "hidden_size", "d_model")
#: From which share of the parameters on a plain model is taken deeper or less deep, and up to which one.
_NEAR, _FURTHEST = 0.15, 0.35


def _of_size(name: str, rows: Rows) -> tuple[str, Mapping[str, Any]] | None:
    """Return the first plain model, with its name, whose number of parameters is near to the one that a name tells.
    Parameters of which not all are active (``30B-A3B``, ``8x7B``, ``1B-7B``) are those of no plain model."""
    several = re.search(r"(?i)[aex]\d{1,4}(?:\.\d{1,4})?[bm]|\d[bm]-(?:\d{1,4}b|\d{2,4}m)", name)
    billions = None if several else _billions(name)
    plain = [row for row in rows if row["config"]["model_type"] in _PLAIN]
    sizes = [_billions(row["names"][0]) or 0.0 for row in plain]
    if not billions or not plain:
        return None
    far, size, at = min((round(abs(size / billions - 1), 3), size, at) for at, size in enumerate(sizes))
    if far > _FURTHEST:
        return None
    row, config = plain[at], plain[at]["config"]
    if far > _NEAR:  # as deep as makes the number
        row = {**row, "config": {**config, "num_hidden_layers": round(config["num_hidden_layers"] * billions / size)}}
    return row["names"][0], row


def _vocabulary(name: str, rows: Rows) -> int:
    """Return the largest vocabulary of the models that have about as many parameters as a name tells."""
    billions, sizes = _billions(name) or 0.0, ((_billions(row["names"][0]) or 0.0, row["config"]) for row in rows)
    near = (config for size, config in sizes if abs(size - billions) <= _FURTHEST * billions)
    vocabularies = (_number([*_text_parts(config), config], "vocab_size", "padded_vocab_size") for config in near)
    return max((size for size in vocabularies if isinstance(size, int)), default=0)


def _billions(name: str) -> float | None:
    match = re.search(r"(?<![\w.])(?:(\d+(?:\.\d+)?)b|(\d{2,3})m)(?![a-z])", name.lower())
    return float(match[1] or int(match[2]) / 1000) if match else None


_MAX_KEYS = 2000
_MAX_TEXT = 4096
_MAX_NUMBER = 10**12
#: Where multimodal configurations keep the language model's part; the sizes in it are the ones that count.
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
#: What a size is called, the name that is told first.
_HIDDEN_SIZE = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,5}((a|b|rc|\.?dev|\.?post)\d{0,9}){0,3}(\+[A-Za-z0-9.]{1,64})?\Z")

Config = Mapping[str, Any]


def _text_parts(config: Config) -> list[Config]:
    parts: list[Config] = []
    for name in _TEXT_PARTS:
        match config.get(name):
            case {"text_config": dict(inner)}:
                parts += [inner, config[name]]
            case dict(part):
                parts.append(part)
    return parts


def _text(config: Config, name: str) -> Value:
    match config.get(name):
        case None | "":
            return ABSENT
        case str(text) if len(text) > _MAX_TEXT:
            return Unknown(Message("{} of config.json is {} characters long", name, len(text)))
        case str(text):
            return _valid(text)
    return Unknown(Message("{} of config.json is not text", name))


def _texts(config: Config, name: str) -> Value:
    value = config.get(name)
    if value is None:
        return ABSENT
    short = isinstance(value, list) and len(value) <= 100
    if not short or not all(isinstance(item, str) and len(item) <= _MAX_TEXT for item in value):
        return Unknown(Message("{} of config.json is not a short list of text", name))
    return tuple(_valid(item) for item in value)


def _valid(text: str) -> str:
    """JSON can spell half of a surrogate pair, and a path hold one, which no output can encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _dtype(config: Config, parts: Sequence[Config]) -> Value:
    # The top level comes first, and in it the present name: transformers reads torch_dtype only where dtype is missing.
    values = (_text(part, name) for part in (config, *parts) for name in ("dtype", "torch_dtype"))
    dtype = next((value for value in values if value is not ABSENT), ABSENT)
    return dtype.removeprefix("torch.") if isinstance(dtype, str) else dtype


def _quantization(config: Config, parts: Sequence[Config]) -> Value:
    for part in (config, *parts):
        for name in ("quantization_config", "compression_config"):
            settings = part.get(name)
            if settings is None:
                continue
            if not isinstance(settings, dict):
                return Unknown(Message("{} of config.json is not a table", name))
            method = _text(settings, "quant_method")
            if method is not ABSENT:
                return method
            # As in transformers: the first bitsandbytes configurations did not name their method.
            if settings.get("load_in_4bit") is True or settings.get("load_in_8bit") is True:
                return "bitsandbytes"
            return Unknown(Message("{} of config.json does not name its quant_method", name))
    if config.get("quantization_bit"):
        return Unknown(Message("quantization_bit of config.json is set: a quantisation of the repository's own code"))
    return ABSENT


def _remote_code(config: Config, _: Sequence[Config]) -> Value:
    auto_map = config.get("auto_map")
    if auto_map is not None and not isinstance(auto_map, dict):
        return Unknown(Message("auto_map of config.json is not a table"))
    return bool(auto_map)


def _transformers_version(config: Config, _: Sequence[Config]) -> Value:
    value = _text(config, "transformers_version")
    if isinstance(value, str) and not _VERSION.match(value):
        return Unknown(Message("transformers_version of config.json is not a version"))
    return value


def _config_keys(config: Config, _: Sequence[Config]) -> Value:
    if len(config) <= _MAX_KEYS and all(len(key) <= 200 for key in config):
        return tuple(sorted(_valid(key) for key in config))
    return Unknown(Message("config.json has {} keys, or very long ones; at most {} are read", len(config), _MAX_KEYS))


def _number(parts: Sequence[Config], *names: str) -> Value | None:
    """Return the first of the names that a part gives a number for; None when none of them is there or all are null."""
    for part in parts:
        for name in names:
            value = part.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
                return Unknown(Message("{} of config.json is not a count", name))
            return value
    return None


def _size(parts: Sequence[Config], *names: str) -> Value:
    value = _number(parts, *names)
    if value is None:
        return Unknown(Message("config.json does not give {}: the default of the model's class holds", names[0]))
    return value


def _key_value_heads(_: Config, parts: Sequence[Config]) -> Value:
    value = _number(parts, "num_key_value_heads", "num_kv_heads", "n_head_kv")
    if value is not None:
        return value
    for part in parts:
        grouped = part.get("multi_query_attention", part.get("multi_query"))
        if grouped is True:
            # ChatGLM names the number of groups; where multi-query is all that is said, there is one head.
            return _size(parts, "multi_query_group_num") if "multi_query_attention" in part else 1
        if grouped is False or "num_key_value_heads" in part:
            return _size(parts, *_HEADS)
    return _size((), "num_key_value_heads")


def _head_dim(_: Config, parts: Sequence[Config]) -> Value:
    value = _number(parts, "head_dim", "kv_channels")
    if value is not None:
        return value
    if any(part.get("qk_rope_head_dim") is not None for part in parts):
        return Unknown(Message("multi-head latent attention has heads of several sizes (qk_nope_head_dim, v_head_dim)"))
    hidden, heads = _size(parts, *_HIDDEN_SIZE), _size(parts, *_HEADS)
    if not isinstance(hidden, int) or not isinstance(heads, int):
        return hidden if isinstance(hidden, Unknown) else heads
    if not heads or hidden % heads:
        return Unknown(Message("hidden_size of config.json is not a multiple of num_attention_heads"))
    return hidden // heads


def _experts(_: Config, parts: Sequence[Config]) -> Value:
    value = _number(parts, "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    if value is not None:
        return ABSENT if value == 0 else value
    for part in parts:
        nested = [key for table in part.values() if isinstance(table, dict) for key in table if isinstance(key, str)]
        keys = [key for key in part if part[key] is not None]
        if any("expert" in key or key.startswith("moe_") for key in (*keys, *nested)):
            return Unknown(Message("config.json speaks of experts and does not give their number under a known name"))
    return ABSENT


#: How each fact is read: from the configuration, and from its parts that hold the sizes of the language model.
_READ: dict[str, Callable[[Config, Sequence[Config]], Value]] = {
    "model.type": lambda config, _: _text(config, "model_type"),
    "model.architectures": lambda config, _: _texts(config, "architectures"),
    "model.dtype": _dtype,
    "model.quantization": _quantization,
    "model.remote_code": _remote_code,
    "model.transformers_version": _transformers_version,
    "model.config_keys": _config_keys,
    "model.hidden_size": lambda _, parts: _size(parts, *_HIDDEN_SIZE),
    "model.num_layers": lambda _, parts: _size(parts, "num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    "model.num_attention_heads": lambda _, parts: _size(parts, *_HEADS),
    "model.num_key_value_heads": _key_value_heads,
    "model.head_dim": _head_dim,
    "model.num_experts": _experts,
    "model.vocab_size": lambda _, parts: _size(parts, "vocab_size", "padded_vocab_size"),
}
#: What the table model-shapes has of a model; the rest stands in its files alone.
_OF_A_SHAPE = (
    *("model.type", "model.dtype", "model.quantization", "model.hidden_size", "model.num_layers", "model.head_dim"),
    *("model.num_attention_heads", "model.num_key_value_heads", "model.num_experts", "model.vocab_size"),
)


@observes("model", " ".join(_READ))
def config(request: Request) -> Found:
    """Return what config.json says; without one what the model's name tells, by the table model-shapes.

    Raises :class:`~envdoctor.observe.request.ObservationError` when it is not JSON or not an object.
    """
    source = request.source
    if source.folder is None:
        shapes, suffixes = request.rows("model-shapes"), request.rows("model-shapes", "suffix")
        shape = shape_of(source.repo or source.given, shapes, suffixes)
        unread = source.unread(_READ)
        return unread if shape is None or shape.bare else _by_name(shape, unread)
    content = read_object(source.folder, "config.json", source.repo or source.given)
    if isinstance(content, Unknown):
        return [(key, content, "config.json") for key in _READ]
    parts = [*_text_parts(content), content]
    return [(key, reader(content, parts), "config.json") for key, reader in _READ.items()]


def _by_name(shape: Shape, unread: Iterable[tuple[str, Value, str]]) -> Iterator[tuple[str, Value, str]]:
    """Yield what a shape tells. What a copy may have otherwise is known of the vendor's own model alone."""
    parts = [*_text_parts(shape.config), shape.config]
    own = shape.vendor and not shape.unknown
    for key, missing, origin in unread:
        value = _READ[key](shape.config, parts) if key in _OF_A_SHAPE else missing
        if key == "model.quantization" and shape.quantized is not None:
            value = shape.quantized or Unknown(Message("the model's name tells that it is quantised, and not how"))
        elif key in ("model.quantization", "model.dtype") and not own:
            value = missing
        if key == "model.dtype" and (value is ABSENT or shape.quantized is not None):
            value = missing
        yield key, value, origin if value is missing else Message("by name, as {}: {}", shape.like, shape.source)


_TOKENIZER = "tokenizer_config.json"
#: training_args.bin, optimizer.bin and the like are no weights.
_BIN = re.compile(r"(pytorch_model|adapter_model|consolidated|model)([-.][\w.-]+)?\.bin\Z")


@observes("model", "model.padding_side model.tokenizer_class model.weight_formats")
def tokenizer_and_weights(request: Request) -> Found:
    """Find formats of weights, by names of files (a cached snapshot without any tells nothing), and the tokenizer's
    class and side: ABSENT where its file names none, unknown where it cannot be read."""
    source = request.source
    if source.folder is None:
        return source.unread(tokenizer_and_weights.keys)
    formats = "model.weight_formats", _formats(source.folder, source.cached), Message("file names")
    try:
        settings = read_object(source.folder, _TOKENIZER, Message("the model"))
    except ObservationError as error:
        # A model is judged by its configuration; a broken tokenizer file leaves what it would have told unknown.
        settings = Unknown(said_by(error))
    if isinstance(settings, Unknown):
        return [*((key, settings, _TOKENIZER) for key in tokenizer_and_weights.keys[:2]), formats]
    side: Value = ABSENT if settings.get("padding_side") is None else settings["padding_side"]
    if side is not ABSENT and side not in ("left", "right"):
        side = Unknown(Message("padding_side of {} is neither left nor right", _TOKENIZER))
    kind: Value = ABSENT if settings.get("tokenizer_class") is None else settings["tokenizer_class"]
    if kind is not ABSENT and not (isinstance(kind, str) and kind.isprintable() and len(kind) <= 200):
        kind = Unknown(Message("tokenizer_class of {} is not a name", _TOKENIZER))
    return [("model.padding_side", side, _TOKENIZER), ("model.tokenizer_class", kind, _TOKENIZER), formats]


def _formats(folder: str, cached: bool) -> Value:
    try:
        names = Files().names(folder)
    except OSError as error:
        return Unknown(Message("the model's folder cannot be listed: {}", because_of(error)))
    formats = {"safetensors" for name in names if name.endswith(".safetensors")}
    formats |= {"gguf" for name in names if name.endswith(".gguf")}
    formats |= {"bin" for name in names if _BIN.match(name)}
    if cached and not formats:
        return Unknown(Message("the Hub cache holds none of the repository's weights"))
    return tuple(sorted(formats))


@observes("model", "model.repo model.revision model.path model.cache_closed")
def named(request: Request) -> Found:
    """Return what ``--model`` itself says: repository, revision and folder; and where no download can be stored."""
    source, closed = request.source, closed_part(cache_folder(request.cwd, request.environ))
    path: Value = ABSENT
    revision: Value = Unknown(source.missing)
    if source.folder is not None:
        path = _valid(source.folder)
        revision = source.revision or Unknown(Message("the folder does not say which commit its files are of"))
    repo = source.repo or Unknown(Message("a folder was given, which does not say which repository it came from"))
    if source.repo is not None and source.folder is None and "/" not in source.repo:
        ends = f"/{source.repo}".lower()
        rows = request.rows("model-shapes")
        repos = [row["names"][0] for row in rows if any(name.lower().endswith(ends) for name in row["names"])]
        repo = repos[0] if len(repos) == 1 else repo
    values = (repo, revision, path, _valid(closed) if closed else ABSENT)
    return [(key, value, source.origin) for key, value in zip(named.keys, values, strict=True)]
