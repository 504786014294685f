"""Chat templates, compared by rendering: what a tokenizer would hand to the model, before and after.

Kinds of changes (``symbol`` is the template's name: ``default``, ``tool_use``, ``processor`` for chat_template.json):

``rendering-changed``            conversations without tools render differently; before and after show the first one
``generation-prompt-changed``    only what is added for the answer to come differs
``tools-rendering-changed``      only conversations with tools differ
``rare-rendering-changed``       only unusual shapes differ (empty content, content in parts, reasoning, system only)
``text-changed-rendering-equal`` another text, the same renderings
``template-added``, ``template-removed``
``template-moved``               the same text in another file (which older transformers may not read)
``template-sources-differ``      two different texts in the new revision: tokenizer_config.json and chat_template.jinja
``rendering-fails``              the new template cannot be rendered (it loops, needs too much memory, uses forbidden
                                 attributes, is not valid); ``after`` says why
"""

import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.comparer import Change, Compared, Revisions, read_json
from envdoctor.revision.short_text import around, short, visible
from envdoctor.revision.template.parts.conversations import SUITE
from envdoctor.revision.template.parts.rendering import Rendered, render
from envdoctor.revision.template.parts.settings import special_tokens, templates_in
from envdoctor.text.message import Message

AREA = "template"
_TOKENIZER = "tokenizer_config.json"
_JINJA = "chat_template.jinja"
_PROCESSOR = "chat_template.json"
#: Named chat templates are saved in this folder, one ``<name>.jinja`` each.
_FOLDER = "additional_chat_templates/"
_LIMIT = 1 << 20
_MOST = 20
#: From what everybody meets to what few do, with the kind of a difference that begins there.
_KINDS = (
    ("chat", "rendering-changed"),
    ("prompt", "generation-prompt-changed"),
    ("tools", "tools-rendering-changed"),
    ("rare", "rare-rendering-changed"),
)


class _Template(NamedTuple):
    text: str
    path: str


class _Side(NamedTuple):
    """The templates of one snapshot: those in force, and a text in tokenizer_config.json that is not."""

    templates: dict[str, _Template]
    hidden: _Template | None
    variables: Mapping[str, str] | None


def wants(path: str) -> bool:
    """Chat templates, wherever transformers keeps them."""
    return path in (_TOKENIZER, _JINJA, _PROCESSOR) or (path.startswith(_FOLDER) and path.endswith(".jinja"))


def compare(revisions: Revisions) -> Compared:
    """The changes of the chat templates."""
    named = [path for path in revisions.files if path.startswith(_FOLDER)][:_MOST]
    paths = [_TOKENIZER, _JINJA, _PROCESSOR, *named]
    present = [path for path in paths if path in revisions.files]
    changed = revisions.changed(present)
    if not changed or (changed == [_TOKENIZER] and revisions.same(_JINJA)):
        # With a chat_template.jinja the text in tokenizer_config.json does not count.
        return Compared(equal=(Message("chat templates"),) if present else ())
    unread: list[Unread] = []
    first, second = (_side(snapshot, paths, unread) for snapshot in (revisions.old, revisions.new))
    if unread:
        return Compared(unread=tuple(dict.fromkeys(unread)))
    if not first.templates and not second.templates:
        return Compared()
    # Both texts are rendered with the same tokens: what a token is called is a matter of the tokenizer area.
    variables = {"bos_token": "<bos>", "eos_token": "<eos>", **(second.variables or first.variables or {})}
    changes: list[Change] = []
    for name in list(dict.fromkeys([*first.templates, *second.templates]))[:_MOST]:
        before, after = first.templates.get(name), second.templates.get(name)
        if before is None or after is None:
            changes += _one_sided(name, before, after)
        elif before.text == after.text:
            if before.path != after.path:
                changes.append(Change(AREA, "template-moved", after.path, name, before.path, after.path))
        else:
            match _rendered(name, before, after, variables):
                case Change() as change:
                    changes.append(change)
                case Unread() as problem:
                    unread.append(problem)
    changes += _sources(first, second)
    settled = not unread and not any(change.kind != "template-moved" for change in changes)
    return Compared(tuple(changes), tuple(unread), equal=(Message("chat templates"),) if settled else ())


def _side(snapshot: Snapshot, paths: list[str], unread: list[Unread]) -> _Side:
    templates: dict[str, _Template] = {}
    inline: dict[str, _Template] = {}
    variables: dict[str, str] | None = None
    for path in paths:
        if path not in snapshot.files:
            continue
        if path.endswith(".jinja"):
            content = snapshot.read(path, _LIMIT)
            if isinstance(content, Unread):
                unread.append(content)
                continue
            name = "default" if path == _JINJA else posixpath.basename(path)[: -len(".jinja")]
            templates[name] = _Template(content.decode("utf-8-sig", "replace"), path)
            continue
        table = read_json(snapshot, path)
        if isinstance(table, Unread):
            unread.append(table)
        elif table is not None and path == _TOKENIZER:
            variables = special_tokens(table.data)
            inline = _inline(table.data.get("chat_template"), path, unread)
        elif table is not None:
            inline_processor = _inline(table.data.get("chat_template"), path, unread)
            if "default" in inline_processor:
                templates["processor"] = inline_processor["default"]
    hidden = inline.get("default") if "default" in templates else None
    if "processor" in templates and "default" in templates:
        # Processors, like tokenizers, prefer chat_template.jinja.
        templates["processor"] = templates["default"]
    return _Side({**inline, **templates}, hidden, variables)


def _inline(value: object, path: str, unread: list[Unread]) -> dict[str, _Template]:
    found = templates_in(value)
    if found is None:
        unread.append(Unread(path, Message("its chat_template is neither a text nor a list of named texts")))
    return {name: _Template(text, path) for name, text in list((found or {}).items())[:_MOST]}


def _one_sided(name: str, before: _Template | None, after: _Template | None) -> list[Change]:
    if before is None and after is not None:
        return [Change(AREA, "template-added", after.path, name, None, f"{len(after.text)} characters")]
    if before is not None and name != "processor":
        return [Change(AREA, "template-removed", before.path, name, f"{len(before.text)} characters")]
    return []  # processors read chat_template.jinja where chat_template.json is gone


def _sources(first: _Side, second: _Side) -> list[Change]:
    if second.hidden is None or second.hidden.text == second.templates["default"].text:
        return []
    if first.hidden is not None and first.hidden.text != first.templates["default"].text:
        return []  # it was so before
    shown = around(second.hidden.text, second.templates["default"].text)
    where = Message("{} (before) and {} (after) of the new revision", _TOKENIZER, _JINJA)
    return [Change(AREA, "template-sources-differ", _JINJA, "default", *shown, detail=where)]


def _rendered(name: str, before: _Template, after: _Template, variables: Mapping[str, str]) -> Change | Unread:
    one, two = (render(side.text, variables) for side in (before, after))
    if two.failure is not None:
        if one.failure is not None:
            return Unread(after.path, Message("neither chat template {} can be rendered: {}", short(name), two.failure))
        return Change(AREA, "rendering-fails", after.path, name, "renders", short(two.failure))
    if one.failure is not None:
        return Unread(
            before.path,
            Message("chat template {} of the old revision cannot be rendered: {}", short(name), one.failure),
        )
    pairs = [(c, one.outcomes[c.name], two.outcomes[c.name]) for c in SUITE]
    broken = [(c, was, now) for c, was, now in pairs if now.problem is not None and was.problem is None]
    if broken and len(broken) == sum(was.problem is None for _, was, _ in pairs):
        problem = short(broken[0][2].problem)
        return Change(AREA, "rendering-fails", after.path, name, "renders", problem, len(broken))
    if all(was.problem is not None or now.problem is not None for _, was, now in pairs):
        return Unread(after.path, Message("chat template {} cannot be compared: {}", short(name), pairs[0][2].problem))
    differing_pairs = [(c, was, now) for c, was, now in pairs if not was.same(now)]
    if not differing_pairs:
        texts = around(before.text, after.text)
        return Change(AREA, "text-changed-rendering-equal", after.path, name, *texts)
    uses = {c.use for c, _, _ in differing_pairs}
    use, kind = next((use, kind) for use, kind in _KINDS if use in uses)
    conversation, was, now = next(item for item in differing_pairs if item[0].use == use)
    count = len(differing_pairs)
    detail = Message(
        'conversation "{}"; {} of {} conversations render differently', conversation.name, count, len(SUITE)
    )
    return Change(AREA, kind, after.path, name, *_shown(was, now), count=count, detail=detail)


def _shown(was: Rendered, now: Rendered) -> tuple[str, str]:
    if was.text is not None and now.text is not None:
        if was.text == now.text:
            return Message("equal in its first 20,000 characters"), Message("different after them")
        return around(was.text, now.text)
    return _said(was), _said(now)


def _said(outcome: Rendered) -> str:
    if outcome.text is not None:
        return short(visible(outcome.text)) if outcome.text else "(empty)"
    if outcome.refused is not None:
        return short(f"refuses: {outcome.refused}")
    return short(f"fails: {outcome.problem}")
