"""Writes all rules as one HTML page that can be searched: by id, package, model and what a log says.

    python tools/rule_matrix.py FILE

The page is whole: nothing is loaded, and its policy lets nothing else run than its own script. Without scripts it is
the list of all rules, which a browser's own search finds things in. It is not kept in the repository.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from envdoctor.judge import title_of  # noqa: E402
from envdoctor.matrix import (  # noqa: E402
    SEVERITIES,
    Matrix,
    Rule,
    load_matrix,
    spelled,
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>envdoctor: what it knows</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>What envdoctor knows</h1>
<p class="soft">{count} rules, {version}. Search for a package, a model, or a line of a log; press / to begin.</p>
</header>
<main>
<form role="search" hidden>
<input type="search" aria-label="Search the rules" placeholder="torch, glm4, CUDA error: ..." autocomplete="off">
<select aria-label="Severity"><option value="">any severity</option>{severities}</select>
<select aria-label="Subject"><option value="">any subject</option>{subjects}</select>
<output aria-live="polite"></output>
</form>
<ul id="rules">
{rules}
</ul>
</main>
<script>{script}</script>
</body>
</html>
"""
POLICY = (
    "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; form-action 'none'"
)


def page(matrix: Matrix) -> str:
    """Return the page of all rules."""
    rules = sorted(matrix.rules, key=lambda rule: (-SEVERITIES.index(rule.severity), rule.id))
    style, script = ((HERE / f"rule_matrix.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return PAGE.format(
        policy=POLICY.format(style=_digest(style), script=_digest(script)),
        style=style,
        script=script,
        count=len(rules),
        version=escape(f"matrix {matrix.version}"),
        severities=_options(reversed(SEVERITIES)),
        subjects=_options(sorted({subject(rule) for rule in rules})),
        rules="\n".join("".join(_rule(rule, matrix.texts(rule))) for rule in rules),
    )


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _options(values: Iterator[str] | list[str]) -> str:
    return "".join(f"<option>{escape(value)}</option>" for value in values)


def subject(rule: Rule) -> str:
    """The folder that its file lies in."""
    return rule.origin.split("/")[-2]


def _rule(rule: Rule, texts: Mapping[str, Any]) -> Iterator[str]:
    title, about = title_of(texts), subject(rule)
    yield f'<li id="{rule.id}" class="{rule.severity}" data-subject="{about}"><details>'
    yield f"<summary><h2>{escape(title.en)}</h2>"
    yield f'<span class="chips"><b>{rule.severity}</b> · <code>{rule.id}</code> · {rule.effect} · {about}</span>'
    yield "</summary><div>"
    chinese = (title.zh, texts["why"].get("zh"))
    for text, lang in ((texts["why"]["en"], "en"), *((text, "zh-Hans") for text in chinese)):
        yield f'<p lang="{lang}">{escape(text)}</p>' if text else ""
    for heading, lines in (
        ("A log says", [f"<pre>{escape(one['seen'])}</pre>" for one in texts.get("symptom", ())]),
        ("It holds for", [f"<li><code>{escape(line)}</code></li>" for line in conditions(rule)]),
        ("What to do", [f"<li>{escape(one['summary']['en'])}</li>" for one in texts["fix"]]),
        (f"Evidence ({rule.confidence})", [_evidence(one) for one in texts["evidence"]]),
    ):
        items = "".join(lines)
        yield f'<p class="soft">{heading}</p>' if lines else ""
        yield f"<ul>{items}</ul>" if items.startswith("<li>") else items
    yield f'<p class="soft"><a href="#{rule.id}">#{rule.id}</a></p></div></details></li>'


def conditions(rule: Rule) -> Iterator[str]:
    """A line a clause: any of the first kind holds, and none of the second."""
    for head, clauses in (("", rule.affects), ("unless ", rule.unless)):
        for clause in clauses:
            yield head + "; ".join(f"{key} {' or '.join(map(spelled, values))}" for key, _, _, values in clause)


def _evidence(one: Mapping[str, Any]) -> str:
    url = escape(one["url"])
    link = f'<a href="{url}" rel="noreferrer">{url}</a>' if url.startswith("https://") else f"<code>{url}</code>"
    return f"<li>{escape(one['kind'])}: {link}: {escape(one['shows'])} ({escape(str(one['checked']))})</li>"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Path(sys.argv[1]).write_text(page(load_matrix()), encoding="utf-8")
