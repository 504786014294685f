"""``--recipe FILE``: the normalised recipe as facts, each with the line that says it or the default that holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.registry import FactSpec, FactTypeError, Registry, parse_value, unlisted
from envdoctor.facts.values import ABSENT, NOT_GIVEN, Fact, Known, Records, Unknown, Value, spell
from envdoctor.observe.recipe.files import RecipeFile, RecipeFileError, read_files
from envdoctor.observe.recipe.formats import Format, Formats, Meaning, spelled
from envdoctor.observe.recipe.reading.part import Entry, Part
from envdoctor.text.nearest import did_you_mean
from envdoctor.versions.pep440 import satisfies

__all__ = ["HELPERS", "Recipe", "RecipeFileError", "read_recipe"]

#: Fields that are no facts of their own.
_TEXTS, _NUMBERS = (
    ("model", "revision", "file", "gres"),
    ("nproc", "nnodes", "prompt_length", "answer_length", "global_batch"),
)
HELPERS = {name: FactSpec(name, "text") for name in _TEXTS} | {name: FactSpec(name, "number") for name in _NUMBERS}
_GPUS = re.compile(r"gpu(?::[\w.-]+)?:(\d+)\Z")


class Recipe(NamedTuple):
    """What the files say: facts ``recipe.*``, ``env.*``, ``recipe_file`` and ``recipe_key``; ``model`` and
    ``revision`` as the files name them; ``missing`` are files that they name and that could not be read: name, place, why."""

    facts: tuple[Fact, ...]
    model: Fact | None
    revision: Fact | None
    missing: tuple[tuple[str, str, str], ...]


def read_recipe(
    given: Sequence[str],
    cwd: str,
    rows: Iterable[Mapping[str, object]],
    registry: Registry,
    installed: Callable[[str], Value],
) -> Recipe:
    """Read the files that were given and those that they name; ``rows`` are the formats, ``installed`` gives the facts
    of the environment, for defaults that changed with a release.

    Raises :class:`RecipeFileError`.
    """
    formats = Formats(rows)
    kinds = {spec.key[7:]: spec.type for spec in registry if spec.key.startswith("recipe.")}
    files = list(read_files(given, cwd, formats, kinds))
    settled = _Settled(formats, registry)
    parts = [(file, part, form) for file in files for part, form in file.parts]
    # A command line stands above the files that it names; what must agree with the others comes behind them.
    for file, part, form in sorted(
        parts, key=lambda one: (one[2].authority < 0, one[2].authority, bool(one[1].program))
    ):
        settled.read(file, part, form)
    missing = tuple(one for file in files for one in file.missing)
    settled.without([name for name, *_ in missing])
    settled.complete([form for form in formats if any(form is other for _, _, other in parts)], installed)
    facts = [fact for fact in settled.facts() if registry.find(fact.key) is not None]
    records = Records(tuple({"path": file.name, "format": form.name} for file in files for form in _forms(file)))
    facts.append(Fact("recipe_file", records, ", ".join(given), "recipe"))
    facts.append(Fact("recipe_key", Records(tuple(settled.keys)), ", ".join(given), "recipe"))
    return Recipe(tuple(facts), settled.said.get("model"), settled.said.get("revision"), missing)


def _forms(file: RecipeFile) -> list[Format]:
    forms = {form.name: form for _, form in file.parts if form.name != "environment"}
    return list(forms.values())


class _Settled:
    """What is said of each field so far."""

    def __init__(self, formats: Formats, registry: Registry) -> None:
        self.said: dict[str, Fact] = {}
        self.keys: list[dict[str, Value]] = []
        self._formats, self._registry = formats, registry
        self._weak: dict[str, Fact] = {}
        self._files: dict[str, str] = {}
        self._extra = 0

    def read(self, file: RecipeFile, part: Part, form: Format) -> None:
        """Take in a part; what it says stands before what was said until now, of one that must agree behind it."""
        named = form.named(part.program) or {}
        origin = f"{file.name}:{part.entries[0].place}" if part.entries else file.name
        self._files.setdefault(form.name, file.name)
        for field, word in {**form.row.get("says", {}), **named}.items():
            if field != "call":
                self._weak.setdefault(field, self._fact(field, str(word), origin))
        self._extra = max(self._extra, form.row.get("length_extra", 0))
        here: dict[str, tuple[Fact, Entry]] = {}
        for entry in part.entries:
            if form.name == "environment":
                self._variable(entry, file)
            if not entry.key.startswith("#") and (form.name != "environment" or entry.key in form.keys):
                self._key(entry, file, form, named.get("call"), here)
            elif (found := self._formats.find(form, entry.key)) is not None:
                self._take(entry, file, found[1], found[0], here)
        for field, (fact, _) in here.items():
            if form.authority >= 0 or field not in self.said:
                self.said[field] = self._joined(field, fact)

    def _variable(self, entry: Entry, file: RecipeFile) -> None:
        if (
            entry.key in self._registry.names("env")
            and not entry.computed
            and isinstance(entry.value, (str, int, float))
        ):
            self.said[f"env.{entry.key}"] = Fact(f"env.{entry.key}", spelled(entry.value), f"{file.name}:{entry.place}", "recipe")  # fmt: skip

    def _key(
        self, entry: Entry, file: RecipeFile, form: Format, call: str | None, here: dict[str, tuple[Fact, Entry]]
    ) -> None:
        """One item of ``recipe_key``, and what the key says."""
        found = self._formats.find(form, entry.key)
        if found is None and entry.key.replace("-", "_").startswith("no_") and entry.value is True:
            positive = entry._replace(key=entry.key[3:], value=False)
            if self._formats.find(form, positive.key) is not None:
                return self._key(positive, file, form, call, here)
        place = f"{file.name}:{entry.place}"
        state, other, owner, inner = "unknown", "", form, entry.key
        if found is None:
            near = did_you_mean(entry.key, self._formats.known(form), "")
            other = near.removeprefix("did you mean ").rstrip("?")
        else:
            owner, meanings, inner = found
            state, other = self._take(entry, file, meanings, owner, here)
            if state in ("read", "unused") and entry.text_number and form.row.get("yaml_text"):
                state = "text-number"
        shown = "" if state in ("unused", "unknown") else spell(_plain(entry.value))[:80]
        # A key of a section is one of a dictionary that the call takes; one that the framework lists is its own.
        owned = "." in inner or (owner is not form and inner in form.unused)
        call = "" if owned else call or form.row.get("call", owner.row.get("call"))
        self.keys.append(
            {
                "key": entry.key.rpartition(".")[2].replace("-", "_"),
                "call": str(call) if call else ABSENT,
                "value": shown or ABSENT,
                "state": state,
                "other": other or ABSENT,
                "format": form.name,
                "place": (place,),
            }
        )
        return None

    def _take(
        self,
        entry: Entry,
        file: RecipeFile,
        meanings: Sequence[Meaning],
        owner: Format,
        here: dict[str, tuple[Fact, Entry]],
    ) -> tuple[str, str]:
        """What the key's meanings say; the state of the key, and what is to be said beside it. Of two keys that speak
        against each other the first counts."""
        state, other = ("read" if meanings else "unused"), ""
        for meaning in meanings:
            if owner.row.get("auto") and entry.value == "auto":
                continue
            if meaning.field == "file":
                # A file that was read says what it says; of one that was not nothing is known.
                continue
            fact = self._fact_of(meaning, entry, f"{file.name}:{entry.place}")
            if fact is None:
                continue
            if isinstance(fact.value, Unknown) and not entry.computed:
                state, other = "unusable", fact.value.reason
                continue
            before = here.get(meaning.field)
            against = before[0] if before and before[1].key != entry.key else None
            if owner.authority < 0:
                against = self.said.get(meaning.field) or against
            differs = against is not None and fact.value != against.value and ABSENT not in (fact.value, against.value)
            if against is not None and differs and not meaning.add and meaning.field != "dialect":
                if not isinstance(fact.value, Unknown) and not isinstance(against.value, Unknown):
                    state, other = "contradicted", f"{spell(against.value)} ({against.origin})"
                    continue
            if (
                meaning.add
                and before is not None
                and isinstance(before[0].value, tuple)
                and isinstance(fact.value, tuple)
            ):
                fact = fact._replace(value=tuple(dict.fromkeys((*before[0].value, *fact.value))))
            if meaning.field == "dialect" and before is not None:
                fact = max(before[0], fact, key=lambda one: self._order("dialect", one.value))
            if not (fact.value is ABSENT and against is not None and before is not None):
                here[meaning.field] = (fact, entry)
        return state, other

    def _order(self, field: str, value: Value) -> int:
        spec = self._registry.find(f"recipe.{field}")
        return list(spec.values).index(value) if spec is not None and value in spec.values else -1

    def _joined(self, field: str, fact: Fact) -> Fact:
        before = self.said.get(field)
        if (
            field == "kernels"
            and before is not None
            and isinstance(before.value, tuple)
            and isinstance(fact.value, tuple)
        ):
            return fact._replace(value=tuple(dict.fromkeys((*before.value, *fact.value))))
        return fact

    def _fact_of(self, meaning: Meaning, entry: Entry, origin: str) -> Fact | None:
        """The fact; its value is unknown when the file does not say it, or says what cannot be."""
        if entry.computed:
            return self._fact(meaning.field, Unknown("the recipe computes it, or takes it from a variable"), origin)
        raw: object = _plain(entry.value)
        if meaning.words and raw is not None:
            words = [spelled(one) for one in (raw if isinstance(raw, tuple) else (raw,))]
            chosen = [word for one in words if (word := meaning.word(one))]
            if not chosen:
                return None
            raw = tuple(chosen) if isinstance(raw, tuple) else chosen[0]
        return self._fact(meaning.field, raw, origin)

    def _fact(self, field: str, raw: object, origin: str) -> Fact:
        """A fact of the registered type, or of a helper's."""
        spec = self._registry.find(f"recipe.{field}") or HELPERS[field]
        value: Value = raw if isinstance(raw, Unknown) else ABSENT
        if raw is not None and not isinstance(raw, Unknown):
            if isinstance(raw, tuple) and spec.type != "texts":
                raw = raw[0] if len(set(raw)) == 1 else ", ".join(raw)
            elif spec.type in ("text", "texts") and not isinstance(raw, (str, tuple)):
                raw = spelled(raw)
            try:
                value = parse_value(spec, raw)
                word = unlisted(spec, value)
                if word is not None:
                    value = Unknown(f"{word[:60]!r} is none of {', '.join(spec.values)}")
            except FactTypeError as error:
                value = Unknown(str(error))
        return Fact(f"recipe.{field}", value, origin, "recipe")

    def without(self, files: Sequence[str]) -> None:
        """A file that was not read may say anything of DeepSpeed, for which nearly all such files are."""
        meanings = [meaning for said in self._formats["deepspeed"].keys.values() for meaning in said]
        for field in [meaning.field for meaning in meanings] if files else ():
            self.said.setdefault(field, self._fact(field, Unknown(f"{files[0]} was not read"), ""))

    def complete(self, forms: Sequence[Format], installed: Callable[[str], Value]) -> None:
        """What follows, then the defaults of the formats for what no file says."""
        framework = next((form for form in forms if form.framework), None)
        if framework is not None:
            self.said["framework"] = self._fact("framework", framework.framework, self._files[framework.name])
        for field, fact in self._weak.items():
            if field == "kernels" or field not in self.said:
                self.said[field] = self._joined(field, fact)
        nnodes = self._default("nnodes", forms, installed)
        gres = self.said.get("gres")
        if gres is not None and "nproc" not in self.said and (found := _GPUS.match(str(gres.value))):
            self.said["nproc"] = gres._replace(value=int(found[1]))
        self._compute("world_size", lambda n, m: n * m, self.said.get("nproc"), nnodes)
        self._compute("max_length", lambda p, a: p + a + self._extra, *map(self.said.get, ("prompt_length", "answer_length")))  # fmt: skip
        method = self._default("method", forms, installed)
        for field in [spec.key[7:] for spec in self._registry if spec.key.startswith("recipe.")]:
            adapters = field.startswith("lora_") and (method is None or method.value not in ("lora", "qlora"))
            if field not in self.said and not adapters and (fact := self._default(field, forms, installed)) is not None:
                self.said[field] = fact
        batch, world = self.said.get("train_batch_size"), self.said.get("world_size")
        total = self.said.get("global_batch") or self._default("global_batch", forms, installed)
        if total is not None and batch is not None and world is not None:
            self._compute("gradient_accumulation", lambda t, b, w: max(1, t // (b * w)), total, batch, world)
        self._reference(forms, method)
        quantized = str(self.said["quantization"].value).startswith("bnb-") if "quantization" in self.said else False
        if method is not None and method.value == "lora" and quantized:
            self.said["method"] = method._replace(value="qlora")
        self._batch()

    def _batch(self) -> None:
        """``batch_size``: that of evaluation counts when it evaluates."""
        train, evaluation, strategy = map(self.said.get, ("train_batch_size", "eval_batch_size", "eval_strategy"))
        if train is None or isinstance(train.value, Unknown):
            return
        largest = train
        if strategy is not None and strategy.value in ("steps", "epoch") and evaluation is not None:
            largest = max(train, evaluation, key=lambda fact: fact.value if isinstance(fact.value, (int, float)) else 0)
        self.said.setdefault("batch_size", largest._replace(key="recipe.batch_size"))

    def _reference(self, forms: Sequence[Format], method: Fact | None) -> None:
        stage = self.said.get("stage")
        if stage is None or stage.value not in ("dpo", "kto", "ppo") or "reference_model" in self.said:
            return
        for form in forms:
            where = form.row.get("reference", {}).get(
                "full" if method is not None and method.value == "full" else "lora"
            )
            if where is not None and method is not None and isinstance(method.value, str):
                self.said["reference_model"] = self._fact("reference_model", where, _default_of(form))
                return

    def _compute(self, field: str, formula: Callable[..., int | float], *parts: Fact | None) -> None:
        if field in self.said or any(part is None for part in parts):
            return
        values = [part.value for part in parts if part is not None]
        origin = next((part.origin for part in parts if part is not None and ":" in part.origin), "")
        if all(isinstance(value, (int, float)) for value in values):
            self.said[field] = self._fact(field, formula(*values), origin)

    def _default(self, field: str, forms: Sequence[Format], installed: Callable[[str], Value]) -> Fact | None:
        if field in self.said:
            return self.said[field]
        for form in self._with_included(forms):
            if field in form.row.get("defaults", {}):
                return self._fact(field, form.row["defaults"][field], _default_of(form))
            for row in form.row.get("versioned", ()):
                version = installed(f"pkg.{row['package']}")
                if row["field"] == field and isinstance(version, str) and satisfies(version, row["releases"]) is True:
                    return self._fact(field, row["value"], f"default with {row['package']} {version}")
        return None

    def _with_included(self, forms: Sequence[Format]) -> list[Format]:
        """The formats, behind them those whose keys stand among theirs: what they leave open those decide."""
        found = list(forms)
        for form in found:  # it grows
            inner = [self._formats[name] for name in form.includes.values()]
            found += [other for other in inner if other not in found and other.authority >= 0]
        return found

    def facts(self) -> list[Fact]:
        """All that is known, and the names of all arguments."""
        arguments = tuple(dict.fromkeys(str(item["key"]) for item in self.keys))
        named = Fact(
            "recipe.arguments", arguments, ", ".join(dict.fromkeys(_file(item) for item in self.keys)), "recipe"
        )
        return [*(fact for fact in self.said.values() if fact.value is not NOT_GIVEN), named]


def _file(item: Mapping[str, Value]) -> str:
    place = item["place"]
    return str(place[0] if isinstance(place, tuple) else place).rpartition(":")[0]


def _default_of(form: Format) -> str:
    return f"default of {form.row['title']}"


def _plain(value: object) -> Known | None:
    if isinstance(value, tuple):
        return tuple(spelled(item) for item in value)
    return value if isinstance(value, (str, int, float, bool)) else None
