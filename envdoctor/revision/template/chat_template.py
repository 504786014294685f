"""Chat templates, compared by rendering: what a tokenizer would hand to the model, before and after.

``symbol`` is the template's name: ``default``, ``tool_use``, ``processor`` for chat_template.json. Of the kinds:

* ``rendering-changed``: before and after show the first conversation that differs. If only these differ it is
  ``generation-prompt-changed`` (what is added for the answer to come), ``tools-rendering-changed``, or
  ``rare-rendering-changed`` (empty content, content in parts, reasoning, system only);
* ``generation-marks-changed``: the same renderings, but other parts are marked as the assistant's, for a loss on them;
* ``template-moved``: the same text in a file which older transformers may not read; ``template-sources-differ``: two
  texts in the new revision, in tokenizer_config.json and chat_template.jinja.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from envdoctor.judge.finding import Text
from envdoctor.revision import comparer
from envdoctor.revision.comparer import outcome
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.system.message import Message, as_message, unpacked

# Rendering one chat template for a fixed suite of conversations, in a bounded child.

#: For all conversations together. Real templates take a few milliseconds each; the rest is the start of Python.
SECONDS = 8.0
_CHILD = "envdoctor.revision.template.parts.render_suite:answer"


class _Rendered(NamedTuple):
    """The outcome for one conversation, as render_suite.py gives it; two of text, refused and problem are None."""

    text: str | None = None
    digest: str | None = None
    refused: str | None = None
    problem: Message | None = None
    marks: str | None = None

    def same(self, other: "_Rendered") -> bool:
        """Return whether both are the same text, or both refuse, or both fail in the same way."""
        if self.text is not None or other.text is not None:
            return self.digest == other.digest
        return (self.refused is None) == (other.refused is None) and self.problem == other.problem


Conversations: TypeAlias = Sequence[Mapping[str, Any]]


def render(
    template: str, variables: Mapping[str, str], suite: Conversations, *, seconds: float = SECONDS
) -> list[_Rendered] | Message:
    """Return the outcomes of a template for each conversation of the suite, or why there are none at all. ``variables``
    are special tokens such as ``bos_token``. Nothing that the template does can hold the caller up for longer than
    ``seconds``. What was rendered before a limit was hit is kept; the conversation that hit it and those after it carry
    the problem."""
    from envdoctor.system.asking import ChildProblem, Limits, ask

    question = {"template": template, "variables": dict(variables)}
    limits = Limits(seconds, mib=256, output=2 << 20)
    questions = [
        {"messages": item["messages"], "tools": item.get("tools"), "add_generation_prompt": item.get("prompt", False)}
        for item in suite
    ]
    answers = list(ask(_CHILD, [({**question, "given": item}, None) for item in questions], limits, packages=True))
    first = answers[0]
    if isinstance(first, ChildProblem) and first.kind == "failed":
        return Message("it could not be rendered here: {}", first.tail)
    if isinstance(first, dict) and "invalid" in first:
        return as_message(unpacked(first["invalid"]))
    outcomes = [{"problem": item.said()} if isinstance(item, ChildProblem) else item for item in answers]
    return [_Rendered(**{name: unpacked(value) for name, value in item.items()}) for item in outcomes]


_TOKENIZER = "tokenizer_config.json"
_JINJA = "chat_template.jinja"
_PROCESSOR = "chat_template.json"
#: Named chat templates are saved in this folder, one ``<name>.jinja`` each.
_FOLDER = "additional_chat_templates/"
_LIMIT = 1 << 20
_MOST = 20
#: What a token can be for.
_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
_TOO_MANY = Message("only {} files of this kind are compared", _MOST)

_change = partial(comparer.Change, "template")


class _Template(NamedTuple):
    text: str
    path: str


class _Side(NamedTuple):
    """The templates of one snapshot: those in force, and a text in tokenizer_config.json that is not."""

    templates: dict[str, _Template]
    hidden: _Template | None
    variables: Mapping[str, str] | None


def templates_in(value: object) -> dict[str, str] | None:
    """Return ``chat_template`` by name: of one text (``default``), a list of named texts, or a table; else None."""
    match value:
        case None:
            return {}
        case str():
            return {"default": value}
        case dict():
            pairs = list(value.items())
        case list() if all(isinstance(item, dict) for item in value):
            pairs = [(item.get("name"), item.get("template")) for item in value]
        case _:
            return None
    templates = {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
    return templates if len(templates) == len(pairs) else None


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens of the configuration by the names that templates know."""
    tokens: dict[str, str] = {}
    for name in _ROLES:
        match config.get(name):
            case str(token) | {"content": str(token)}:
                tokens[name] = token[:200]
    return tokens


def wants(path: str) -> bool:
    """Return whether the file may hold a chat template, wherever transformers keeps them."""
    return path in (_TOKENIZER, _JINJA, _PROCESSOR) or (path.startswith(_FOLDER) and path.endswith(".jinja"))


def compare(revisions: comparer.Revisions) -> comparer.Compared:
    """Return the changes of the chat templates."""
    templates = [path for path in revisions.files if path.startswith(_FOLDER)]
    paths = [_TOKENIZER, _JINJA, _PROCESSOR, *templates[:_MOST]]
    changed = revisions.changed()
    if not changed or (changed == [_TOKENIZER] and revisions.same(_JINJA)):
        # With a chat_template.jinja the text in tokenizer_config.json does not count.
        return comparer.Compared(equal=(Message("chat templates"),) if revisions.files else ())
    unread = [Unread(path, _TOO_MANY) for path in revisions.changed(templates[_MOST:])][:1]
    first, second = (_side(snapshot, paths, unread) for snapshot in (revisions.old, revisions.new))
    if unread:
        return comparer.Compared(unread=tuple(dict.fromkeys(unread)))
    if not first.templates and not second.templates:
        return comparer.Compared()
    suite = revisions.matrix.rows("chat-conversations", "conversation")
    changes = [*_differences(first, second, suite)]
    was, now = (side.hidden and (side.hidden.text, side.templates["default"].text) for side in (first, second))
    if now and now[0] != now[1] and not (was and was[0] != was[1]):
        detail = Message("{} (before) and {} (after) of the new revision", _TOKENIZER, _JINJA)
        changes.append(_change("template-sources-differ", _JINJA, "default", *comparer.around(*now), detail=detail))
    return outcome(changes, Message("chat templates"), harmless=("template-moved",))


def _side(snapshot: Snapshot, paths: list[str], unread: list[Unread]) -> _Side:
    templates: dict[str, _Template] = {}
    inline: dict[str, _Template] = {}
    variables: dict[str, str] | None = None
    for path in paths:
        if path not in snapshot.files:
            continue
        table = snapshot.read(path, _LIMIT) if path.endswith(".jinja") else comparer.read_json(snapshot, path)
        if isinstance(table, bytes):
            name = "default" if path == _JINJA else posixpath.basename(path).removesuffix(".jinja")
            templates[name] = _Template(table.decode("utf-8-sig", "replace"), path)
            continue
        if table is None or isinstance(table, Unread):
            unread += [table] if table else []
            continue
        texts = templates_in(table.data.get("chat_template"))
        if texts is None:
            unread.append(Unread(path, Message("its chat_template is neither a text nor a list of named texts")))
        by_name = {name: _Template(text, path) for name, text in (texts or {}).items()}
        if path == _TOKENIZER:
            inline, variables = by_name, special_tokens(table.data)
        elif "default" in by_name:
            templates["processor"] = by_name["default"]
    hidden = inline.get("default") if "default" in templates else None
    if "processor" in templates and "default" in templates:
        # Processors, like tokenizers, prefer chat_template.jinja.
        templates["processor"] = templates["default"]
    return _Side({**inline, **templates}, hidden, variables)


def _differences(first: _Side, second: _Side, suite: Conversations) -> Iterator[comparer.Change | Unread]:
    # Both texts are rendered with the same tokens: what a token is called is a matter of the tokenizer area.
    variables = {"bos_token": "<bos>", "eos_token": "<eos>", **(second.variables or first.variables or {})}
    sides = first.templates, second.templates
    names = [name for name in dict.fromkeys([*sides[0], *sides[1]]) if sides[0].get(name) != sides[1].get(name)]
    yield from (Unread((sides[1].get(name) or sides[0][name]).path, _TOO_MANY) for name in names[_MOST:][:1])
    for name in names[:_MOST]:
        before, after = (side.get(name) for side in sides)
        if before is None and after is not None:
            yield _change("template-added", after.path, name, None, f"{len(after.text)} characters")
        elif before is not None and after is None and name != "processor":
            # Processors read chat_template.jinja where chat_template.json is gone.
            yield _change("template-removed", before.path, name, f"{len(before.text)} characters")
        elif before is not None and after is not None and before.text != after.text:
            yield from _rendered(name, before, after, variables, suite)
        elif before is not None and after is not None and before.path != after.path:
            yield _change("template-moved", after.path, name, before.path, after.path)


def _rendered(
    name: str, before: _Template, after: _Template, tokens: Mapping[str, str], suite: Conversations
) -> Iterator[comparer.Change | Unread]:
    """Yield the changes between the outcomes of two templates."""
    change = partial(_change, path=after.path, symbol=name, hunk=comparer.template_hunk(before.text, after.text))
    old, new = (render(side.text, tokens, suite) for side in (before, after))
    if isinstance(new, Message):
        neither = Message("neither chat template {} can be rendered: {}", comparer.short(name), new)
        fails = change("rendering-fails", before="renders", after=comparer.short(new))
        yield Unread(after.path, neither) if isinstance(old, Message) else fails
        return
    if isinstance(old, Message):
        reason = Message("chat template {} of the old revision cannot be rendered: {}", comparer.short(name), old)
        yield Unread(before.path, reason)
        return
    pairs = [*zip(suite, old, new, strict=True)]
    broken = [now.problem for _, was, now in pairs if now.problem is not None and was.problem is None]
    if broken and len(broken) == sum(was.problem is None for _, was, _ in pairs):
        yield change("rendering-fails", before="renders", after=comparer.short(broken[0]), count=len(broken))
        return
    if all(was.problem is not None or now.problem is not None for _, was, now in pairs):
        reason = Message("chat template {} cannot be compared: {}", comparer.short(name), pairs[0][2].problem)
        yield Unread(after.path, reason)
        return
    marks = [(was.marks, now.marks) for _, was, now in pairs if was.same(now)]
    if any(was != now for was, now in marks):
        counts = [sum(mark is not None for mark in side) for side in zip(*marks, strict=True)]
        texts = [Message("answers marked in {} of {} conversations", count, len(marks)) for count in counts]
        yield change("generation-marks-changed", before=texts[0], after=texts[1])
    differing = [(c, was, now) for c, was, now in pairs if not was.same(now)]
    if not differing:
        if all(was == now for was, now in marks):
            first, second = comparer.around(before.text, after.text)
            yield change("text-changed-rendering-equal", before=first, after=second)
        return
    conversation, was, now = differing[0]
    counts = [len(differing), len(suite)]
    title = Text(**conversation["name"])
    detail = Message('conversation "{}"; {} of {} conversations render differently', title, *counts)
    shown: tuple[str, str] = _said(was), _said(now)
    if was.text is not None and was.text == now.text:
        shown = Message("equal in its first 20,000 characters"), Message("different after them")
    elif was.text is not None and now.text is not None:
        shown = comparer.around(was.text, now.text)
    yield change(conversation["kind"], before=shown[0], after=shown[1], count=len(differing), detail=detail)


def _said(outcome: _Rendered) -> str:
    if outcome.text is not None:
        return comparer.short(comparer.visible(outcome.text)) if outcome.text else "(empty)"
    return comparer.short(f"refuses: {outcome.refused}" if outcome.refused is not None else f"fails: {outcome.problem}")
