"""What the parts of a recipe say of its fields, one after the other, and what each key came to."""

from collections.abc import Mapping, Sequence

from envdoctor.facts.registry import FactSpec, FactTypeError, Registry, parse_value, unlisted
from envdoctor.facts.values import ABSENT, Fact, Known, Origin, Unknown, Value, spell
from envdoctor.observe.recipe.formats import Format, Formats, Meaning, spelled
from envdoctor.observe.recipe.reading.part import Entry, Part
from envdoctor.text.message import Message, said_by
from envdoctor.text.nearest import alike

#: Fields that are no facts of their own.
HELPERS = {name: FactSpec(name, "text") for name in ("model", "revision", "file", "gres", "exports", "chats")} | {
    name: FactSpec(name, "number") for name in ("nproc", "nnodes", "prompt_length", "answer_length", "global_batch")
}
#: Of so many keys an unknown one is compared with the known ones, which takes milliseconds each.
_COMPARED = 500
_Here = dict[str, tuple[Fact, Entry]]


class Statements:
    """``said`` is what holds so far, by field; ``keys`` the items of ``recipe_key``; ``weak`` what a format or the name
    of a program says, for what no key says; ``files`` the first file of each format, ``calls`` its programs and calls;
    ``given`` every known key; ``open`` the fields of which a key says that nobody knows them; ``extra`` what is added
    to the lengths of prompt and answer."""

    def __init__(self, formats: Formats, registry: Registry) -> None:
        self.said: dict[str, Fact] = {}
        self.weak: dict[str, Fact] = {}
        self.keys: list[Mapping[str, Value]] = []
        self.files: dict[str, str] = {}
        self.calls: dict[str, set[str]] = {}
        self.given: set[str] = set()
        self.open: set[str] = set()
        self.extra = 0
        self.formats, self.registry = formats, registry

    def read(self, file: str, part: Part, form: Format) -> None:
        """Take in a part: what it says stands before what was said until now, of one that must agree behind it."""
        self.files.setdefault(form.name, file)
        self.extra = max(self.extra, form.row.get("length_extra", 0))
        named = form.named(part.program) or {}
        beside = (form.row.get("beside"),) if part.line else ()
        self.calls.setdefault(form.name, set()).update(filter(None, (part.program, named.get("call"), *beside)))
        origin = Origin(file, *part.entries[0].place) if part.entries else file
        for field, word in {**form.row.get("says", {}), **named}.items():
            if part.perhaps and field in named and field != "call":
                unknown = Unknown(Message("{} is called under a condition", part.program))
                self.weak.setdefault(field, self.fact(field, unknown, origin))
            elif field == "launcher":  # the innermost of several
                self.weak[field] = self.fact(field, word, origin)
            elif field != "call":
                self.weak.setdefault(field, self.fact(field, word, origin))
        here: _Here = {}
        for entry in part.entries:
            place = Origin(file, *entry.place)
            found = self.formats.find(form, entry.key)
            is_variable = form.name == "environment" and entry.key in self.registry.names("env")
            if is_variable and not entry.computed and entry.value is not None:
                self.said[f"env.{entry.key}"] = Fact(f"env.{entry.key}", spelled(entry.value), place, "recipe")
            if found is not None and (entry.key.startswith("#") or form.name == "environment"):
                self._take(entry, place, found[1], found[0], here)
            elif not entry.key.startswith("#"):
                self._key(entry, place, form, named.get("call"), here)
        for field, (fact, entry) in here.items():
            # In a script the one call may be handed what another one makes.
            made = entry.computed and not part.line and part.program > "" and field in self.said
            if (form.authority >= 0 and not made) or field not in self.said:
                self.said[field] = joined(self.said.get(field), fact) if field == "kernels" else fact

    def _key(self, entry: Entry, place: str, form: Format, call: str | None, here: _Here) -> None:
        """One item of ``recipe_key``, and what the key says."""
        found = self.formats.find(form, entry.key)
        if found is None and entry.key.startswith(("no_", "no-")) and entry.value is True:
            positive = entry._replace(key=entry.key[3:], value=False)
            if self.formats.find(form, positive.key) is not None:
                self._key(positive, place, form, call, here)
                return
        owner, inner, state, other = form, entry.key, "unknown", ""
        if found is None and len(self.keys) < _COMPARED:
            other = alike(entry.key.rpartition(".")[2], self.formats.known(form)) or ""
        elif found is not None:
            owner, meanings, inner = found
            self.given.add(inner)
            state, other = self._take(entry, place, meanings, owner, here)
            if state in ("read", "unused") and entry.text_number and form.row.get("yaml_text"):
                state = "text-number"
        # What is not used may be a secret.
        shown = "" if state in ("unused", "unknown") or entry.value is None else spell(_plain(entry.value))[:80]
        # A key of a section is one of a dictionary that the call takes; one that the framework lists is its own.
        owned = "." in inner or (owner is not form and inner in form.unused) or "uncalled" in owner.row
        owned = owned or entry.perhaps
        call = "" if owned else call or form.row.get("call", owner.row.get("call"))
        item = {"call": call, "value": shown, "state": state, "other": other}
        item |= {"key": entry.key.rpartition(".")[2].replace("-", "_"), "format": form.name}
        self.keys.append({**{name: cell or ABSENT for name, cell in item.items()}, "place": (place,)})

    def _take(
        self, entry: Entry, place: str, meanings: Sequence[Meaning], owner: Format, here: _Here
    ) -> tuple[str, str]:
        """What the key's meanings say; the state of the key, and what is to be said beside it. Of two keys that speak
        against each other the first counts."""
        state, other = ("read" if meanings else "unused"), ""
        for meaning in meanings:
            field = meaning.field
            # A file that was read says what it says; "auto" is what the others say.
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
                fact = joined(before[0], fact)
            elif field == "dialect" and before is not None:
                fact = max(before[0], fact, key=self._age)
            elif against is not None and fact.value is ABSENT:
                continue
            elif against is not None and _differ(fact.value, against.value):
                state, other = "contradicted", f"{spell(against.value)} ({against.origin})"
                continue
            here[field] = (fact, entry)
        return state, other

    def _age(self, fact: Fact) -> int:
        """Options of several generations may stand together: the newest tells which it is."""
        spec = self.registry.find(fact.key)
        return list(spec.values).index(str(fact.value)) if spec is not None else 0

    def fact_of(self, meaning: Meaning, entry: Entry, place: str) -> Fact | None:
        """What the key says of a field, None for nothing; unknown when the file does not say it, or what cannot be."""
        if entry.computed:
            return self.fact(
                meaning.field, Unknown(Message("the recipe computes it, or takes it from a variable")), place
            )
        if entry.value is None and meaning.words.get("false") == "":
            return None  # a switch that is left empty is not thrown
        raw = _plain(entry.value) if entry.value is not None else None
        if meaning.words and raw is not None:
            words = [spelled(one) for one in (raw if isinstance(raw, tuple) else (raw,))]
            chosen = [word for one in words if (word := meaning.word(one))]
            if not chosen:
                return None
            raw = tuple(chosen) if isinstance(raw, tuple) else chosen[0]
            if raw == "?":
                return self.fact(meaning.field, Unknown(Message("{} leaves it open", entry.key)), place)
        return self.fact(meaning.field, raw, place)

    def fact(self, field: str, raw: Known | Unknown | None, origin: str, source: str = "recipe") -> Fact:
        """A fact of the registered type, or of a helper's; unknown for what cannot be, absent for None."""
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


def joined(before: Fact | None, fact: Fact) -> Fact:
    """A list with what was in it before."""
    if before is None or not isinstance(before.value, tuple) or not isinstance(fact.value, tuple):
        return fact
    return fact._replace(value=tuple(dict.fromkeys((*before.value, *fact.value))))


def _differ(one: Value, other: Value) -> bool:
    return one != other and not isinstance(one, Unknown) and not isinstance(other, Unknown) and other is not ABSENT


def _plain(value: object) -> Known:
    if isinstance(value, tuple):
        return tuple(spelled(item) for item in value)
    return value if isinstance(value, (str, int, float, bool)) else ""
