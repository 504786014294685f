"""The Chinese README says what the English one says: the same sections, commands and links, none out of date.

Under each Chinese heading stands which text of the English section it was translated from (``<!-- of: … -->``).
"""

from __future__ import annotations

import re
import shlex
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
LANGUAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in (ENGLISH, CHINESE)}
BLOCK = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")


def sections(name: str) -> list[str]:
    """Each heading with the text up to the next; a line of a block that starts with # is no heading."""
    blocks = BLOCK.sub(lambda block: block[0].replace("\n#", "\n\0#"), LANGUAGES[name])
    return [text.replace("\0", "") for text in re.split(r"(?m)^(?=#+ )", blocks) if text]


def digest(section: str) -> str:
    """Of a section without the examples: what the program prints is compared with both READMEs (test_readme.py)."""
    text = re.sub(r"<!-- (lock )?example -->.*?<!-- end -->", "", section, flags=re.DOTALL)
    return sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def typed(section: str) -> list[list[str]]:
    """The blocks as a shell or a parser takes them, without comments; of a console only its commands."""
    found = []
    for language, text in BLOCK.findall(section):
        code = "\n".join(re.findall(r"(?m)^\$ ((?:.*\\\n)*.*)", text)) if language == "console" else text
        code = re.sub(r"(?m)(^|\s)#.*$", "", code)
        found.append([language, *(shlex.split(code) if language in ("sh", "console") else code.split())])
    return found


def spans(section: str) -> set[str]:
    """What stands in backticks outside of blocks: commands, options, names."""
    return {" ".join(span.split()) for span in re.findall(r"`([^`]+)`", BLOCK.sub("", section))}


PAIRS = list(zip(sections(ENGLISH), sections(CHINESE), strict=False))


def title(section: str) -> str:
    return section.partition("\n")[0]


def test_the_headings_have_the_same_levels():
    english, chinese = ([title(section).split()[0] for section in sections(name)] for name in (ENGLISH, CHINESE))
    assert len(english) > 20 and english == chinese


@pytest.mark.parametrize(("english", "chinese"), PAIRS, ids=[title(english) for english, _ in PAIRS])
def test_a_section_is_translated_from_what_the_english_one_says_today(english, chinese):
    mark = f"<!-- of: {digest(english)} -->"
    assert chinese.splitlines()[1] == mark, (
        f"'{title(english)}' of {ENGLISH} changed: bring '{title(chinese)}' of {CHINESE} up to date, then write"
        f" {mark} under its heading"
    )


@pytest.mark.parametrize(("english", "chinese"), PAIRS, ids=[title(english) for english, _ in PAIRS])
def test_a_section_has_the_same_commands_and_names(english, chinese):
    assert typed(english) == typed(chinese)
    assert not spans(english) - spans(chinese)


def test_the_two_have_the_same_links_and_lead_to_each_other():
    english, chinese = (re.findall(r"\]\(([^)]+)\)", LANGUAGES[name]) for name in (ENGLISH, CHINESE))
    assert english[0] == CHINESE and chinese[0] == ENGLISH
    assert english[1:] == chinese[1:]
