"""A setting in the words of the user's own recipe: ``recipe.attn=sdpa`` is ``flash_attn: sdpa`` there; and the recipe
with the setting, one value of its text changed and nothing else."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet, View
from envdoctor.facts.values import Origin
from envdoctor.matrix.matrix import Matrix
from envdoctor.versions.pep440 import satisfies

_DEEPEST = 4


class _Key(NamedTuple):
    """A key of a format, below its ``section``, and what it says; ``place`` is where the recipe has such keys. An
    ``optional`` one is there where it is used: an option that scripts may have of their own; one that ``commands``
    alone have is of no call in a script. ``override``: a command has it as ``key=value`` (Hydra). ``apart``: its
    section is another file, which an option names. ``releases`` have it, and the installed release is unknown."""

    section: str
    name: str
    meaning: Any
    optional: bool
    commands: bool
    override: bool = False
    apart: bool = False
    place: str = ""
    releases: str = ""

    @property
    def dotted(self) -> str:
        """Return the key as a file of sections has it: ``training_args.gradient_checkpointing``."""
        return f"{self.section}.{self.name}" if self.section else self.name


def own_keys(settings: Mapping[str, str], facts: FactSet, matrix: Matrix) -> dict[str, str]:
    """Return the line by which the recipe writes each setting, if one of its formats has a key for it. A key that the
    recipe uses comes first, then those of its framework."""
    records = [View.of(item) for item in facts.items("recipe_key")] if settings else []
    if not records:
        return {}
    used = {str(item.text("key")).replace("-", "_"): item for item in records}
    # A call in a script takes each key; of options a script has those that it declares.
    calls = (item for item in records if item.text("call") and _is_script((item.words("place") or ("",))[0]))
    places = {str(item.text("format")): (item.words("place") or ("",))[0] for item in (*reversed(records), *calls)}
    forms = {row["name"]: row for row in matrix.rows("recipe-formats", "format")}
    framework = facts.value("recipe.framework")
    # If a framework has several formats, those that the recipe has.
    names = [name for name, row in forms.items() if row.get("framework") == framework]
    own = [name for name in names if name in places] or names
    first = next(places[name] for name in (*own, *places) if name in places)
    keys = [
        key._replace(place=places.get(name, first))
        for name in dict.fromkeys((*own, *places))
        for key in _keys(name, forms, facts)
        if key.name in used or not (key.optional or (key.commands and _is_script(places.get(name, first))))
    ]
    written: dict[str, str] = {}
    for fact, value in settings.items():
        words = ((key, _written_for(key.meaning, fact.partition(".")[2], value)) for key in keys)
        fitting = [(key, word) for key, word in words if word is not None]
        fitting.sort(key=lambda one: one[0].name.rpartition(".")[2] not in used)
        others = fitting[0][0].releases if fitting and fitting[0][0].name not in used else ""
        if others:  # whichever release is here has to have a key for it
            fitting = [one for one in fitting if one[0].releases]
            asked = {key.releases for key in keys if _says(key.meaning, fact.partition(".")[2])} - {""}
            fitting = fitting if asked <= {key.releases for key, _ in fitting} else []
        for key, word in fitting if others else fitting[:1]:
            record = used.get(key.name.rpartition(".")[2])
            of_it = forms.get(str(record.text("format")), {}).get("keys", ()) if record is not None else ()
            # Where the recipe has it and as it is written there: in its section, with its dashes. LLaMA-Factory's stage
            # is not DeepSpeed's zero_optimization.stage.
            if record is not None and ("." not in key.name or key.name in of_it):
                name = f"{key.name.rpartition('.')[0]}.{record.text('key')}".lstrip(".")
                key = key._replace(section="", name=name, place=(record.words("place") or ("",))[0])
            line = f"{_line_for(key, word)} ({key.releases})" if others else _line_for(key, word)
            written[fact] = f"{written[fact]}; {line}" if fact in written else line
    if settings.keys() - written.keys() >= {"recipe.max_length"}:
        parts = []
        for field in ("prompt_length", "answer_length"):
            matches = [key for key in keys if key.name in used and _written_for(key.meaning, field, "1") is not None]
            parts.append(matches[0].name if matches else "")
        if all(parts):
            extra = next((int(forms[name].get("length_extra", 0)) for name in own), 0)
            written["recipe.max_length"] = f"{' + '.join(parts)} = {int(settings['recipe.max_length']) - extra}"
    return written


def _keys(
    name: str, forms: Mapping[str, Any], facts: FactSet, section: str = "", depth: int = 0, *, apart: bool = False
) -> Iterator[_Key]:
    """Yield the keys of a format that the release has, and of those that stand beside its own or in a section of it."""
    row = forms.get(name, {})
    of_scripts = [*row.get("of_scripts", ()), *(row.get("keys", ()) if row.get("uncalled") else ())]
    for key, meaning in row.get("keys", {}).items():
        package, specifier = row.get("releases", {}).get(key, ("", ""))
        version = facts.text(f"pkg.{package}")
        if version is None or satisfies(version, specifier):
            releases = f"{package}{specifier}" if package and version is None else ""
            kind = key in of_scripts, "beside" in row, "overrides" in row, apart
            yield _Key(section, key, meaning, *kind, releases=releases)
    for inner, other in row.get("includes", {}).items() if depth < _DEEPEST else ():
        named = apart or row.get("keys", {}).get(inner) == "file"
        yield from _keys(other, forms, facts, f"{section}.{inner}".strip("."), depth + 1, apart=named)


def _written_for(meaning: Any, field: str, value: str) -> str | None:
    """Return the text behind a key that gives the field this value; None if the key says nothing about it."""
    for entry in meaning if isinstance(meaning, list) else [meaning]:
        said_of, words = (entry["field"], entry.get("words", {})) if isinstance(entry, dict) else (entry, {})
        if said_of == field:
            if value in ("true", "false") and not words.keys() & {value, "*"}:
                return value
            label = next((word for word, sense in words.items() if sense == value and word and "*" not in word), None)
            as_it_is = value != "absent" and not words.keys() & {"true", "false", "*"}
            return label or (value if as_it_is else None)
    return None


def _says(meaning: Any, field: str) -> bool:
    several = meaning if isinstance(meaning, list) else [meaning]
    return any(field == (one["field"] if isinstance(one, dict) else one) for one in several)


def _is_script(place: str) -> bool:
    return str(getattr(place, "path", place)).endswith((".py", ".ipynb"))


def _line_for(key: _Key, word: str) -> str:
    file = str(getattr(key.place, "path", key.place))
    bare = word in ("true", "false") or re.fullmatch(r"-?[0-9.]+(?:e-?[0-9]+)?", word) is not None
    quoted = word if bare else f'"{word}"'
    if file.endswith((".yaml", ".yml")):
        return f'{key.section}: FILE ("{key.name}": {quoted})' if key.apart and key.section else f"{key.dotted}: {word}"
    if file.endswith((".json", ".jsonc")):
        return f'"{key.dotted}": {quoted}'
    if key.section:  # of another file, which an option names
        return f'{key.section}: "{key.name}": {quoted}'
    if _is_script(key.place):
        return f"{key.name}={word.capitalize() if bare else quoted}"
    if key.override:
        return f"{key.name}={word}"
    return f"--{key.name}" if word == "true" else f"--{key.name} {word}"


#: By the form of the new line: what stands between a key and its value, and the characters that end a bare value.
_FORMS = {'": ': ('"', ":", ",}] \t\n"), ": ": ("", ":", "#\n"), "=": ("", "=", ",)# \t\n"), " ": ("", "= ", " \t\n\\")}


def with_settings(texts: Mapping[str, str], origins: Mapping[str, str], lines: Mapping[str, str]) -> dict[str, str]:
    """Return the changed texts by path. ``texts`` are the recipe's files, ``origins`` say where each setting stands,
    and ``lines`` how it is to be written (``flash_attn: sdpa``). A key that no file has is added only to a recipe of
    one YAML file, as a line at its end. Other settings are left out."""
    new = dict(texts)
    for setting, line in lines.items():
        origin, key = origins.get(setting, ""), line.partition(": ")[0]
        if isinstance(origin, Origin) and origin.path in new:
            new[origin.path] = _edited(new[origin.path], origin, line)
        elif len(new) == 1 and key.isidentifier() and next(iter(new)).endswith((".yaml", ".yml")):
            path, text = next(iter(new.items()))
            new[path] = f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n"
    return {path: text for path, text in new.items() if text != texts[path]}


def _edited(text: str, origin: Origin, line: str) -> str:
    """Return the text with the value of ``line`` at its key, which stands at ``origin``; the same text if the value is
    not on the key's own line."""
    form = next((form for form in _FORMS if form in line), None)
    lines = text.splitlines(keepends=True)
    if form is None or origin.cell is not None or not 0 < origin.line <= len(lines):
        return text
    quote, between, ends = _FORMS[form]
    name, value = line.split(form, 1)
    key, old = name.strip(' "-').rpartition(".")[2], lines[origin.line - 1]
    at = old.replace("-", "_").find(key.replace("-", "_"))
    start = begin = at + len(key) + len(quote)
    while begin < len(old) and old[begin] in f"{between} \t":
        begin += 1
    is_whole = old[:at].endswith("--") if form == " " else not old[:at][-1:].isidentifier()
    if at < 0 or not is_whole or not any(sign in old[start:begin] for sign in between) or not old[begin:].strip():
        return text
    end = begin + 1
    if old[begin] in "\"'":
        end = old.find(old[begin], end) + 1 or end
    else:
        while end < len(old) and old[end] not in ends:
            end += 1
        end = begin + len(old[begin:end].rstrip())
    lines[origin.line - 1] = old[:begin] + value + old[end:]
    return "".join(lines)
