"""No pattern takes more than a bounded number of looks at a character, whatever stands in the text."""

from math import inf

import pytest
from pattern_growth import work
from patterns import patterns, supplied

#: Looks at one character of the text, at most.
LIMIT = 128

#: Calls whose pattern is only known while they run, by file: why they are bounded all the same.
ELSEWHERE = {
    "envdoctor/matrix/linting.py": "the lint of the tables' own patterns, which `supplied` brings",
    "envdoctor/observe/documents/locks/opening.py": "names of the table's modules, one or the other",
    "envdoctor/observe/documents/locks/dockerfile.py": "the table's own patterns, which `supplied` brings",
    "envdoctor/observe/documents/reports/claims.py": "the table's own patterns, which `supplied` brings",
    "envdoctor/observe/documents/reports/lines.py": "the table's own patterns, which `supplied` brings",
    "envdoctor/observe/recipe/script_calls.py": "asked of names of 200 characters at most",
    "envdoctor/revision/code/parts/training.py": "the table's own patterns, of statements of 400 characters at most",
    "envdoctor/revision/code/parts/tree.py": "a name without a repeat, asked of statements of 400 characters at most",
    "envdoctor/source/names.py": "with one repeat at most, asked of names of 500 characters at most",
}


def test_every_pattern_of_the_package_is_linear():
    written, unread = patterns()
    assert len(written) > 380
    assert {place.partition(":")[0] for place in unread} == set(ELSEWHERE)
    too_much = {
        f"{pattern.place}: {looks} looks at a character of a text that is asked with {pattern.how}: {pattern.text!r}"
        for pattern in [*written, *supplied()]
        if (looks := work(pattern.text, pattern.flags, pattern.how)) > LIMIT
    }
    assert too_much == set()


@pytest.mark.parametrize(
    ("pattern", "how", "looks"),
    [
        (r"\S*@", "search", inf),  # begins anywhere, and runs to the end
        (r"\S*@", "match", 1),
        (r"(?:^|\s+)#.*", "search", inf),
        (r"(?<!\S)#.*", "search", 1),
        (r"\w+", "search", 1),  # never fails
        (r"\s*\Z", "search", inf),
        (r"(\w+)+b", "match", inf),
        (r"(?:a|a)*b", "match", inf),
        (r"(?:ab|a|b)*c", "match", inf),
        (r"(?:\w+\.)+\w+\Z", "match", 1),
        (r"a.*b.*c", "match", inf),
        (r"\{\{(.*?)\}\}", "search", inf),
        (r"\{\{([^{}]*)\}\}", "search", 1),
        (r"^[^\n]*x", "search", 1),  # begins once
        (r"(?m)^[^\n]*x", "search", 1),
        (r"\b[a-z]\w*\(", "search", 1),
        (r"\"(?:\\.|[^\"\\])*\"", "search", inf),  # a text of \" begins everywhere
        (rb"[0-9]{4301}", "search", 4301),
        (rb"(?<![0-9])[0-9]{4301}", "search", 1),
        (r"(['\"])[^'\"]*\1x", "search", 1),
        (r"(?=\w+\Z)\w*?[a-z][A-Z]", "match", 1),
        # Four neighbours that all take a blank: 0.7 s for a line of 300.
        (r"\s{0,40}(?:- )?([^:=|`]{1,60}) ?[^:=|]{0,50}?\s{0,60}[:=]", "match", 118_000),
    ],
)
def test_the_proof_tells_growing_patterns_from_others(pattern, how, looks):
    assert work(pattern, 0, how) == looks
