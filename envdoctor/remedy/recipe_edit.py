"""Change a setting in the user's own recipe: one value of its text, and nothing else in it."""

from collections.abc import Mapping

from envdoctor.facts.values import Origin

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
