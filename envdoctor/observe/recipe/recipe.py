"""``--recipe FILE``: the normalised recipe as facts, each with the line that says it or the default that holds."""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from envdoctor.facts.registry import FactSpec, FactTypeError, parse_value, unlisted
from envdoctor.facts.values import ABSENT, Fact, Known, Origin, Records, Unknown, Value, spell
from envdoctor.observe.recipe.document import REST, Part, RecipeEntry
from envdoctor.observe.recipe.files import RecipeFile, read_files, with_code
from envdoctor.observe.recipe.formats import MISSPELLED, Format, Formats, Meaning, spelled
from envdoctor.system.message import Message, alike, said_by
from envdoctor.versions.pep440 import satisfies

# What the parts of a recipe say of its fields, one after the other, and what each key came to.

#: Why a field is unknown that the recipe says, but not as a constant.
COMPUTED = Message("the recipe computes it, or takes it from a variable")
#: Fields that code sets which makes the model, and their values where none does.
_OF_MODEL = {"method": None, "quantization": ABSENT, "gradient_checkpointing": False}
UNDECIDED = Message("set in a branch of a test that is not decided")
#: Fields that are no facts of their own.
_TEXTS = ("model", "revision", "file", "program", "gres", "devices", "exports", "chats")
_NUMBERS = ("nproc", "nnodes", "gpus", "each_gpu", "prompt_length", "answer_length", "global_batch")
HELPERS = {name: FactSpec(name, kind) for kind, names in (("text", _TEXTS), ("number", _NUMBERS)) for name in names}
#: Of so many keys an unknown one is compared with the known ones, which takes milliseconds each.
_COMPARED = 500
#: Keys that no field takes, and whose values the prediction of memory asks for; nobody keeps a secret in them.
_SHOWN = (
    r"(?:.*\.)?(?:beta|(?:lora_)?task_type|lisa_\w+|galore_quantization|(?:freeze|unfrozen)_\w+"
    r"|reward_model_type|(?:galore|apollo)_rank|optim_args"
    r"|(?:(?:ulysses_)?sequence|context|tensor|pipeline|expert)(?:_model)?_parallel(?:_size|_degree)?)"
)
#: Values with which an option of the script's own does nothing.
_OFF = (False, 0, "none", "None", "no")
_Here = dict[str, tuple[Fact, RecipeEntry]]


class _Statements:
    """What the parts of a recipe say, taken in one after the other.

    ``said`` holds the fact of each field, ``weak`` the one of a format's or a program's name, for fields without a key.
    ``keys`` are the items of ``recipe_key``, ``given`` all known keys, ``open`` the fields that a key leaves open.
    ``files`` has the first file of each format, ``calls`` its programs and calls. ``rests`` are the formats of scripts
    that hand on unknown keys, ``unread`` the keys that name a file by a variable, ``dividing`` the files for DeepSpeed
    or accelerate. ``apart`` are formats that a call takes without comparing them, ``compared`` those that another
    format compares. ``extra`` is added to the lengths of prompt and answer; ``elsewhere`` is the place of a script that
    may change the model in a way that was not followed.
    """

    def __init__(self, formats: Formats, called: Mapping[str, str]) -> None:
        self.called = called
        self.said: dict[str, Fact] = {}
        self.weak: dict[str, Fact] = {}
        self.keys: list[Mapping[str, Value]] = []
        self.files: dict[str, str] = {}
        self.calls: dict[str, set[str]] = {}
        self.given: set[str] = set()
        self.open: set[str] = set()
        self.unread: list[str] = []
        self.dividing = set[str]()
        self.apart, self.compared = set[str](), set[str]()
        self.elsewhere = ""
        self.rests: dict[str, Origin] = {}
        self.extra, self._likeness = 0, 0.6
        self.formats, self.registry = formats, formats.registry
        #: What no part says; asked when all were read.
        self.released = cache(lambda name: formats.released(formats[name], self.calls.get(name, ())))

    def read(self, file: str, part: Part, form: Format) -> None:
        """Take in a part: what it says stands before what was said until now, of one that must agree behind it."""
        self.files.setdefault(form.name, file)
        self.apart |= {*form.row.get("apart", ())}
        self.compared |= {*form.row.get("compares", ())}
        self.extra = max(self.extra, form.row.get("length_extra", 0))
        meaning = form.named(part.program) or {}
        beside = (form.row.get("beside"),) if part.line else ()
        self.calls.setdefault(form.name, set()).update(filter(None, (part.program, meaning.get("call"), *beside)))
        origin = part.entries[0].origin(file) if part.entries else file
        says = {**form.row.get("says", {}), **meaning}
        if "?" in says.values():
            self.elsewhere, says = self.elsewhere or origin, {}
        unknown = Unknown(Message("{} is called under a condition", part.program))
        for field, word in says.items():
            if field == "call":
                continue
            fact = self.fact(field, unknown if part.perhaps and field in meaning else word, origin)
            self.weak[field] = fact if field == "launcher" else self.weak.get(field, fact)  # the innermost launcher
        # A document may go to a script whose own class has more keys: what is merely alike is no hint.
        self._likeness = 0.6 if part.program or not any("call" in row for row in form.names.values()) else MISSPELLED
        here: _Here = {}
        doubtful = part.perhaps and "switch" in form.row
        for entry in part.entries:
            entry = entry._replace(computed=True, undecided=True) if doubtful else entry
            place = entry.origin(file)
            lookup = self.formats.find(form, entry.key)
            if entry.key.endswith(REST):
                owner, _, inner = lookup or (form, (), "")
                self.rests |= {owner.name: place} if inner == REST and "uncalled" not in owner.row else {}
                continue
            is_variable = form.name == "environment" and entry.key in self.registry.names("env")
            if is_variable and not entry.computed and entry.value is not None:
                self.said[f"env.{entry.key}"] = Fact(f"env.{entry.key}", spelled(entry.value), place, "recipe")
            if lookup is not None and (entry.key.startswith("#") or form.name == "environment"):
                self._take(entry, place, lookup[1], lookup[0], here)
            elif not entry.key.startswith("#"):
                taker = self.called.get(form.name) if not (part.program or entry.own) else None
                self._key(entry, place, form, meaning.get("call", taker), here)
        for field, (fact, entry) in here.items():
            # In a script the one call may be handed what another one makes.
            called = part.program > "" and not part.line and "launcher" not in says
            is_made = entry.computed and called and field in self.said
            if (form.authority >= 0 and not is_made) or field not in self.said:
                self.said[field] = _joined(self.said.get(field), fact) if field == "kernels" else fact

    def _key(self, entry: RecipeEntry, place: str, form: Format, call: str | None, here: _Here) -> None:
        """Add one item of ``recipe_key``, and what the key says."""
        lookup = self.formats.find(form, entry.key)
        if lookup is None and entry.key.startswith(("no_", "no-")) and entry.value is True:
            positive = entry._replace(key=entry.key[3:], value=False)
            if self.formats.find(form, positive.key) is not None:
                self._key(positive, place, form, call, here)
                return
        owner, inner, state, other = form, entry.key, "unknown", ""
        if lookup is None and entry.own:
            state = "own"
            if isinstance(entry.value, str) and inner.replace("-", "_") in form.row.get("own", {}).get("model", ()):
                self.weak.setdefault("model", self.fact("model", entry.value, place, "assumed"))
        elif lookup is None and len(self.keys) < _COMPARED:
            name = entry.key.rpartition(".")[2]
            other = alike(name, self.formats.known(form) - {name}, least=self._likeness) or ""
        elif lookup is not None:
            owner, meanings, inner = lookup
            self.given.add(inner)
            state, other = self._take(entry, place, meanings, owner, here)
            if state in ("read", "unused") and entry.text_number and form.row.get("yaml_text"):
                state = "text-number"
        # What is not used may be a secret.
        plain = inner.replace("-", "_")
        hidden = state in ("unknown", "own") and entry.value not in _OFF
        secret = hidden or (state == "unused" and not re.fullmatch(_SHOWN, plain))
        shown = "" if secret or entry.undecided or entry.value is None else spell(_plain(entry.value))[:80]
        # A key of a section is one of a dictionary that the call takes; one that the framework lists is its own.
        owned = "." in inner or (owner is not form and inner in form.unused) or "uncalled" in owner.row
        owned = owned or entry.perhaps or entry.own
        call = "" if owned else call or form.row.get("call", owner.row.get("call"))
        key = (inner if state == "contradicted" else entry.key.rpartition(".")[2]).replace("-", "_")
        item = {"call": call, "value": shown, "state": state, "other": other, "key": key, "format": form.name}
        self.keys.append({**{name: cell or ABSENT for name, cell in item.items()}, "place": (place,)})

    def _take(
        self, entry: RecipeEntry, place: str, meanings: Sequence[Meaning], owner: Format, here: _Here
    ) -> tuple[str, str]:
        """Take what the key's meanings say; return its state and what is to be said beside it. The first of two that
        contradict each other counts."""
        state, other = ("read" if meanings else "unused"), ""
        for meaning in meanings:
            field = meaning.field
            # A file that was read says what it says; "auto" is what the others say.
            if field == "file" and entry.computed:
                self.unread.append(entry.key)
            elif field == "file" and _DIVIDES.search(entry.key.replace("-", "_")):
                self.dividing.add(str(entry.value))
            if field == "file" or (owner.row.get("auto") and entry.value == "auto"):
                continue
            fact = self.fact_of(meaning, entry, place)
            if fact is None or field in self.open:
                continue
            if meaning.word(spelled(entry.value)) == "?":
                self.open.add(field)
                here[field] = (fact, entry)
                continue
            if isinstance(fact.value, Unknown) and not entry.computed:
                state, other = "unusable", fact.value.reason
                here.setdefault(field, (fact, entry))  # no default holds either
                continue
            before = here.get(field)
            against = before[0] if before is not None and before[1].key != entry.key else None
            if owner.authority < 0:
                against = self.said.get(field, against)
            if meaning.add and before is not None:
                fact = _joined(before[0], fact)
            elif field == "dialect" and before is not None:
                # Options of several generations may stand together: the newest tells which it is.
                words = list(getattr(self.registry.find(fact.key), "values", ()))
                newer = bool(words) and words.index(str(before[0].value)) < words.index(str(fact.value))
                fact = fact if newer else before[0]
            elif against is not None:
                if fact.value is ABSENT or owner.name in self.apart - self.compared:
                    continue
                doubtful = isinstance(against.value, Unknown) or isinstance(fact.value, Unknown)
                if against.value not in (ABSENT, fact.value) and not doubtful:
                    state, other = "contradicted", f"{spell(against.value)} ({against.origin})"
                    continue
            here[field] = (fact, entry)
        return state, other

    def fact_of(self, meaning: Meaning, entry: RecipeEntry, place: str) -> Fact | None:
        """Return what the key says of a field, None for nothing; unknown for what is not said or cannot be."""
        loaded = meaning.words.get(str(entry.value)) if entry.computed else None
        # Of a list of which an item is computed the others stand here, and are added where a field collects.
        some = meaning.add and isinstance(entry.value, tuple) and any(map(meaning.word, map(spelled, entry.value)))
        if entry.computed and loaded is None and not some:
            return self.fact(meaning.field, Unknown(UNDECIDED if entry.undecided else COMPUTED), place)
        if entry.value is None and meaning.words.get("false") == "":
            return None  # a switch that is left empty is not thrown
        raw = _plain(entry.value) if entry.value is not None or "" in meaning.words else None
        if meaning.words and raw is not None:
            words = [spelled(text) for text in (raw if isinstance(raw, tuple) else (raw,))]
            chosen = [word for text in words if (word := meaning.word(text))]
            if not chosen:
                return None
            raw = tuple(chosen) if isinstance(raw, tuple) else chosen[0]
            if raw == "?":
                return self.fact(meaning.field, Unknown(Message("{} leaves it open", entry.key)), place)
        return self.fact(meaning.field, raw, place)

    def fact(self, field: str, raw: Known | Unknown | None, origin: str, source: str = "recipe") -> Fact:
        """Return a fact of the registered type, or of a helper's; unknown for what cannot be, absent for None."""
        spec = self.registry.find(f"recipe.{field}") or HELPERS[field]
        if isinstance(raw, tuple) and spec.type != "texts":
            raw = raw[0] if len(set(raw)) == 1 else ", ".join(raw)
        elif spec.type in ("text", "texts") and isinstance(raw, (bool, int, float)):
            raw = spelled(raw)
        elif spec.type == "boolean" and raw in (0, 1):
            raw = bool(raw)  # as the parsers of arguments read it
        value: Value = ABSENT
        try:
            value = raw if isinstance(raw, Unknown) else parse_value(spec, raw)
            value = unlisted(spec, value) or value
        except FactTypeError as error:
            value = Unknown(said_by(error))
        return Fact(f"recipe.{field}", value, origin, source)


def _joined(before: Fact | None, fact: Fact) -> Fact:
    """Return a list with what was in it before."""
    if before is None or not isinstance(before.value, tuple) or not isinstance(fact.value, tuple):
        return fact
    return fact._replace(value=tuple(dict.fromkeys((*before.value, *fact.value))))


def _plain(value: object) -> Known:
    if isinstance(value, tuple):
        return tuple(spelled(item) for item in value)
    return value if isinstance(value, (str, int, float, bool)) else ""


#: What switches a variable of LLaMA-Factory on (llamafactory/extras/misc.py: is_env_enabled).
_ON = ("true", "y", "1")
#: How a file of DeepSpeed's or accelerate's is called by its stage.
_STAGE = re.compile(r"(?:zero[-_]?(?:stage[-_]?)?|ds[-_]z)([0-3])(?![0-9a-z])")
_NO_OFFLOAD = re.compile(r"(?<![a-z])(?:non?|without|w[-_]?o)[-_]?(?:[a-z]{1,9}[-_])?offload")
#: Keys that name such a file, and no file of the framework's own.
_DIVIDES = re.compile(r"deepspeed|ds_config|(?:\A|_)config_file")
#: How SLURM asks for GPUs (``gpu:a100:8``), and how DeepSpeed (``localhost:0,1``) and CUDA (``0,1``) name them.
_GPUS = re.compile(r"gpu(?::[\w.-]+)?:(\d+)\Z|(?:[\w.-]+:)?(\d+(?:,\d+)*)\Z")
#: What engines do that are no trainers.
_ENGINES = ("infer", "serve")
_WITH_REFERENCE = ("dpo", "kto", "ppo")


class Recipe(NamedTuple):
    """What the files say: facts ``recipe.*``, ``env.*``, ``recipe_file`` and ``recipe_key``; ``model`` and
    ``revision`` as the files name them; ``missing`` are files that they name and that could not be read: the name, the
    place, and why (a clause after "which"); ``code`` are scripts and notebooks among the files, or reached by them;
    ``runs`` are files with several training commands, each with their lines, that of the run first."""

    facts: tuple[Fact, ...]
    model: Fact | None
    revision: Fact | None
    missing: tuple[tuple[str, Origin, str], ...]
    code: tuple[str, ...] = ()
    runs: tuple[tuple[str, tuple[int, ...]], ...] = ()


def read_recipe(
    names: Sequence[str],
    cwd: str,
    formats: Formats,
    installed: Callable[[str], Value],
    code: Sequence[str] = (),
) -> Recipe:
    """Read the files that were given and those that they name; ``installed`` gives the facts of the environment, for
    defaults that changed with a release and for variables. ``code`` is beside the recipe: its parsers may read the
    documents.

    Raises :class:`RecipeFileError`.
    """
    packages = ((form, installed(f"pkg.{name}")) for form in formats for name in form.row.get("imports", ()))
    asked = {form.framework for form, value in packages if not (value is ABSENT or isinstance(value, Unknown))}
    files, called = with_code(list(read_files(names, cwd, formats, asked)), code, cwd, formats)
    return recipe_of(files, formats, installed, ", ".join(names), called)


def recipe_of(
    files: Sequence[RecipeFile],
    formats: Formats,
    installed: Callable[[str], Value],
    origin: str,
    called: Mapping[str, str] = {},
) -> Recipe:
    """Return what files that were taken apart say together; ``origin`` names them all, ``called`` is the class that
    takes the keys of a format's documents."""
    parts = [(file.name, part, form) for file in files for part, form in file.parts]
    scripts = {file.trains: file.name for file in files if file.name.endswith((".py", ".ipynb"))}
    if scripts and True not in scripts:
        # Of a script that hands its model to an engine, and trains nothing, the options are no Trainer's.
        engines = {form.name for _, part, form in parts if (form.named(part.program) or {}).get("method") in _ENGINES}
        parts = [each for each in parts if not engines or each[2].name in engines or each[2].row.get("aside")]
    statements = _Statements(formats, called)
    # A command line stands above the files that it names; what must agree with the others comes behind them.
    ranked = sorted(parts, key=lambda triple: (triple[2].authority < 0, triple[2].authority, triple[1].program > ""))
    for name, part, form in ranked:
        statements.read(name, part, form)
    missing = tuple(triple for file in files for triple in file.missing)

    there = [form for form in formats if form.name in statements.files]
    if scripts and True not in scripts and all(form.row.get("loop", not form.framework) for form in there):
        nobody = Unknown(Message("nothing is known to train in {}", scripts.get(None)))
        method = nobody if None in scripts else "infer"
        statements.weak.setdefault("method", statements.fact("method", method, next(iter(scripts.values()))))
    statements.dividing &= {name for name, _, reason in missing if reason == "is not there"}
    _complete(statements, there, installed, [*(name for name, *_ in missing), *statements.unread])
    variables = {form.name: f"env.{form.row.get('lenient', '')}" for form in there}
    fields = statements.said
    values = {name: fields[key].value if key in fields else installed(key) for name, key in variables.items()}
    lenient = {name for name, value in values.items() if str(value).lower() in _ON}
    keys = [{**item, "call": ABSENT} if item["format"] in lenient else item for item in statements.keys]
    pairs = dict.fromkeys((name, form.name) for name, _, form in parts if not form.row.get("aside"))
    beside = {form.name for form in there if any(name.startswith("#") for name in form.names)}  # lines of no program
    listed: dict[str, Value] = {
        "recipe.arguments": tuple(dict.fromkeys(str(item["key"]) for item in keys if item["format"] not in beside)),
        "recipe_file": Records(tuple({"path": name, "format": form} for name, form in pairs)),
        "recipe_key": Records(tuple(keys)),
    }
    facts = [fact for fact in statements.said.values() if formats.registry.find(fact.key) is not None]
    facts += [Fact(key, value, origin, "recipe") for key, value in listed.items()]
    code = tuple(name for file in files for name in file.code)
    runs = tuple((file.name, file.runs) for file in files if len(file.runs) > 1)
    return Recipe(tuple(facts), fields.get("model"), fields.get("revision"), missing, code, runs)


def gpus_named(words: str) -> int | None:
    """Return how many GPUs an option or ``CUDA_VISIBLE_DEVICES`` of a command names; None if it counts none."""
    match = _GPUS.match(words)
    return match and (int(match[1]) if match[1] else len(match[2].split(",")))


def _complete(
    statements: _Statements, forms: Sequence[Format], installed: Callable[[str], Value], unread: Sequence[str]
) -> None:
    """Add to what is said. ``forms`` are the recipe's formats, ``installed`` gives the facts of the environment, for
    defaults that changed with a release; ``unread`` are files that it names, or keys that do, and that nobody read."""
    facts, formats = statements.said, statements.formats

    # What a script calls, before what is known by its options alone: a loop of one's own has those of the Trainer.
    def by_options(form: Format) -> bool:
        return all(form.named(name) is None for name in statements.calls[form.name])

    framework = min((form for form in forms if form.framework), key=by_options, default=None)
    if framework is not None:
        # The settings of one library may go to the Trainer of transformers, or to one's own that is one.
        calls = (statements.calls[form.name] for form in forms if form.framework == framework.framework)
        others = "trainer" in statements.files and all(name.endswith("Config") for names in calls for name in names)
        form, name = (formats["hf-arguments"], "trainer") if others else (framework, framework.name)
        facts["framework"] = statements.fact("framework", form.framework, statements.files[name])
    for field, fact in statements.weak.items():
        facts[field] = _joined(facts.get(field), fact) if field == "kernels" else facts.get(field, fact)
    # A file that was not read may say anything of DeepSpeed, for which nearly all documents are; a script may make the
    # model in any way.
    of_deepspeed = {meaning.field for meanings in formats["deepspeed"].keys.values() for meaning in meanings}
    # A configuration of a framework's own, which a command changes, says all but what the program's name tells.
    changed = [form for form in forms if "overrides" in form.row]
    own = {meaning.field for form in changed for meanings in form.keys.values() for meaning in meanings}
    own -= {*_TEXTS, "method", "stage", "quantization", "other_models"}
    elsewhere = Message("the script may add adapters in a way that was not followed") if statements.elsewhere else None
    for name in unread:
        reason = Message("{} was not read", name)
        if name.endswith(".py"):
            elsewhere = reason
            continue
        called = name.lower().replace("\\", "/").rpartition("/")[2]
        if name in statements.dividing and (stage := _STAGE.search(called)):
            by_name = Message("{} was not read: by its name it is ZeRO-{}", name, stage[1])
            offload = "offload" in called and not _NO_OFFLOAD.search(called)
            states, weights = offload and "offload_param" not in called, offload and stage[1] == "3"
            offloads = {"offload_optimizer": "cpu" if states else None, "offload_param": "cpu" if weights else None}
            for field, value in {"zero_stage": stage[1], **offloads}.items():
                facts.setdefault(field, statements.fact(field, value, by_name))
        for field in of_deepspeed if name.endswith((".sh", ".json")) else of_deepspeed | own:
            facts.setdefault(field, statements.fact(field, Unknown(reason), ""))
    for field, helper in (("nproc", "gres"), ("gpus", "devices")):
        if helper in facts and (number := gpus_named(str(facts[helper].value))) is not None:
            facts.setdefault(field, statements.fact(field, number, facts[helper].origin))
    _compute(statements, "nproc", lambda gpus, each: gpus * each, "gpus", "each_gpu")
    # Behind the formats those whose keys stand among theirs: what they leave open those decide.
    defaults = list(forms)
    for form in defaults:  # it grows
        inner = [formats[name] for name in form.includes.values()]
        defaults += [other for other in inner if other not in defaults and other.authority >= 0]
    fields = ("nnodes", "global_batch", "method", *formats.kinds)
    _cut(statements, forms, facts)
    parts = [_number(facts, "prompt_length"), _number(facts, "answer_length")]
    if None not in parts and _number(facts, "max_length") in parts:
        del facts["max_length"]  # a tokenizer was called for one of the two parts
    _compute(statements, "max_length", lambda prompt, answer: prompt + answer + statements.extra,
             "prompt_length", "answer_length")  # fmt: skip
    for field in fields:
        adapters = field.startswith("lora_") and _value(facts, "method") not in ("lora", "qlora")
        if field not in facts and not adapters:
            default = _own(statements, field, defaults) or _default(statements, field, defaults, installed)
            facts |= {field: default} if default is not None else {}
    if elsewhere is not None and "method" not in facts:
        for field, none in _OF_MODEL.items():
            before = facts.get(field)
            if before is None or (before.source == "preset" and before.value == none):
                facts[field] = statements.fact(field, Unknown(elsewhere), statements.elsewhere)
    _compute(statements, "world_size", lambda each, nodes: each * nodes, "nproc", "nnodes")
    _compute(statements, "gradient_accumulation", lambda total, batch, world: max(1, total // (batch * world)),
             "global_batch", "train_batch_size", "world_size")  # fmt: skip
    _follow(statements, forms)


def _cut(statements: _Statements, forms: Sequence[Format], facts: dict[str, Fact]) -> None:
    """Set a length that a tokenizer says to the most that a call takes of it, unless the call may be told another."""
    keys = {*statements.given, *(str(item["key"]) for item in statements.keys)}
    for form, row in ((owner, limit) for owner in forms for limit in owner.row.get("at_most", ())):
        is_called = any(name.rpartition(".")[2] == row["of"] for name in statements.calls[form.name])
        if row["by"] not in statements.given or statements.rests or not (is_called and keys.isdisjoint(row["unless"])):
            continue
        if (_number(facts, row["field"]) or 0) > row["value"]:
            facts[row["field"]] = statements.fact(row["field"], row["value"], _default_of(form), "preset")


def _follow(statements: _Statements, forms: Sequence[Format]) -> None:
    """Set the reference model, QLoRA, and the batch size: that of evaluation counts when it evaluates."""
    facts = statements.said
    method = _value(facts, "method")
    reference = next((form for form in forms if "reference" in form.row), None)
    if reference is not None and isinstance(method, str) and _value(facts, "stage") in _WITH_REFERENCE:
        where = reference.row["reference"]["full" if method == "full" else "lora"]
        facts.setdefault("reference_model", statements.fact("reference_model", where, _default_of(reference), "preset"))
    if method == "lora" and str(_value(facts, "quantization")).startswith("bnb-"):
        facts["method"] = facts["method"]._replace(value="qlora")
    sizes = ["train_batch_size", *(["eval_batch_size"] if _value(facts, "eval_strategy") in ("steps", "epoch") else [])]
    batches = [facts[size] for size in sizes if _number(facts, size) is not None]
    if len(batches) == len(sizes):
        largest = max(batches, key=lambda fact: float(str(fact.value)))
        facts.setdefault("batch_size", largest._replace(key="recipe.batch_size"))


def _value(facts: dict[str, Fact], field: str) -> Value | None:
    return facts[field].value if field in facts else None


def _number(facts: dict[str, Fact], field: str) -> float | None:
    value = _value(facts, field)
    return value if isinstance(value, (int, float)) else None


def _compute(statements: _Statements, field: str, formula: Callable[..., int | float], *parts: str) -> None:
    values = [_number(statements.said, part) for part in parts]
    if isinstance(_value(statements.said, field), Unknown | None) and None not in values:
        facts = [statements.said[part] for part in parts]
        first = next((fact for fact in facts if fact.source != "preset"), facts[0])
        statements.said[field] = statements.fact(field, formula(*values), first.origin, first.source)


def _own(statements: _Statements, field: str, forms: Sequence[Format]) -> Fact | None:
    """Return the field as unknown if a key that no format has may say it: a switch of the script's own."""
    names = tuple(name for form in forms for name in form.row.get("own", {}).get(field, ()))
    for item in statements.keys if names else ():
        own = item["state"] in ("unknown", "own") and str(item["value"]) not in map(spelled, _OFF)
        if own and any(fnmatchcase(str(item["key"]), name) for name in names):
            place = item["place"]
            reason = Unknown(Message("{}, an option of the script's own, may say it", item["key"]))
            return statements.fact(field, reason, place[0] if isinstance(place, tuple) else "")
    return None


def _default(
    statements: _Statements, field: str, forms: Sequence[Format], installed: Callable[[str], Value]
) -> Fact | None:
    says = {form.name: {meaning.field for several in form.keys.values() for meaning in several} for form in forms}
    if open_in := next((name for name, fields in says.items() if name in statements.rests and field in fields), None):
        return statements.fact(field, Unknown(COMPUTED), statements.rests[open_in])
    for form in forms:
        for row in form.row.get("implied", ()):
            by, apart = statements.said.get(row["by"]), any(other.name in row.get("without", ()) for other in forms)
            if row["field"] == field and not apart and by is not None and spelled(by.value) in row["words"]:
                return statements.fact(field, row["value"], by.origin, by.source)
        if (fact := _released(statements, field, form, installed)) is not None:
            return fact._replace(source="preset")
        rows = [row for row in form.row.get("versioned", ()) if row["field"] == field]
        rows = [row for row in rows if statements.given.isdisjoint(row.get("unless", ()))]
        for row in rows:
            version = installed(f"pkg.{row['package']}")
            if isinstance(version, str) and satisfies(version, row["releases"]) is True:
                origin = Message("default with {} {}", row["package"], version)
                return statements.fact(field, row["value"], origin, "preset")
        if rows:
            return None  # which of its defaults holds is not known, and no other format's does
        if field in form.row.get("defaults", {}):
            return statements.fact(field, form.row["defaults"][field], _default_of(form), "preset")
    return None


def _released(statements: _Statements, field: str, form: Format, installed: Callable[[str], Value]) -> Fact | None:
    """Return what the installed release takes for the keys of a field that nobody writes: of several the first that
    says something. Unknown where releases that it may be differ; None where none says it."""
    rows, meanings = statements.released(form.name)
    otherwise = form.row.get("defaults", {}).get(field)
    for key, meaning in meanings.get(field, {}).items():
        if key in statements.given:
            continue
        facts: dict[Value | None, Fact | None] = {}
        for row in rows:
            package = row["package"]
            version = installed(f"pkg.{package}")
            is_known, origin = isinstance(version, str), Message("default of every {}", package)
            origin = Message("default of {} {}", package, version) if is_known else origin
            spans = row["defaults"].get(key, ())
            if not is_known and spans and f">={row['first']}" != spans[0]["releases"].partition(",")[0]:
                spans = [{"value": "none", "releases": ">=0"}, *spans]  # releases before leave it open
            for span in spans:
                if not is_known or satisfies(str(version), span["releases"]) is True:
                    value = None if span["value"] == "none" else span["value"]
                    entry = RecipeEntry(key, tuple(value) if isinstance(value, list) else value, ())
                    fact = statements.fact_of(meaning, entry, origin) if value is not None else None
                    if fact is None and otherwise is not None:
                        fact = statements.fact(field, otherwise, origin)
                    facts[fact.value if fact is not None else None] = fact
        packages = {row["package"] for row in rows}
        if any(row["field"] == field and row["package"] in packages for row in form.row.get("versioned", ())):
            return None  # the row says how it changed
        if len(facts) > 1:
            reason = Message("the default of {} changed between releases, and the release is unknown", key)
            return statements.fact(field, Unknown(reason), _default_of(form))
        if fact := next(iter(facts.values()), None):
            return fact
    return None


def _default_of(form: Format) -> str:
    return Message("default of {}", form.row["title"])
