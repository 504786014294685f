"""A page of text: its language and width, and how facts are called there: ``pkg.torch`` is "torch"."""

from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.facts.registry import FactSpec, Registry
from envdoctor.facts.values import NOT_GIVEN
from envdoctor.judge.finding import Finding
from envdoctor.report.layout import shortened, wrap, wrap_items
from envdoctor.text.language import say, sentence

#: Columns of the labels at the left margin.
LABEL = 13
_LONGEST_VALUE = 200


class Page(NamedTuple):
    """``lang`` is en or zh; ``width`` the columns to wrap at, None for pipes; ``verbosity`` as for the terminal.

    ``whole_commands``: they stay on one line, because the shells of Windows do not continue one with a backslash."""

    registry: Registry
    lang: str = "en"
    width: int | None = None
    verbosity: int = 0
    whole_commands: bool = False

    def say(self, template: str, n: int | None = None, /, **values: object) -> str:
        """A phrase of the interface; see :func:`envdoctor.text.language.say`."""
        return say(self.lang, template, n, **values)

    def sentence(self, text: str) -> str:
        """A finished English sentence in the page's language."""
        return sentence(self.lang, text)

    def separated(self, items: list[str]) -> str:
        """``a, b, c``"""
        return self.say(", ").join(items)

    def bracket(self, text: str, more: str) -> str:
        """``text (more)``, or whichever of the two there is."""
        return self.say("{text} ({more})", text=text, more=more) if text and more else text or more

    def lines(self, text: str, first: str = "  ", rest: str = "    ") -> list[str]:
        """The text, wrapped to the page."""
        return wrap(text, self.width, first, rest)

    def items(
        self, items: Sequence[str], first: str = "  ", rest: str = "  ", separator: str | None = None
    ) -> list[str]:
        """Items that are separated, wrapped to the page."""
        return wrap_items(items, self.width, first, rest, self.say(", ") if separator is None else separator)

    def message(self, finding: Finding) -> str:
        """What is wrong, and for which of several targets; sentences that the rule took from facts are in the page's
        language too."""
        text = finding.message.in_language(self.lang)
        for fact in finding.facts if self.lang != "en" else ():
            if " " in fact.value:
                text = text.replace(fact.value, self.sentence(fact.value))
        only = self.say("only for {targets}", targets="; ".join(finding.targets)) if finding.targets else ""
        return self.bracket(text, only)

    # --- facts ---------------------------------------------------------------------------------------------------

    def name(self, key: str) -> str:
        """What a fact is called: its label, or for a package and a variable its own name."""
        spec = self.registry.find(key)
        if spec is None or spec.key.endswith(".*"):
            return shortened(key.partition(".")[2] if spec is not None else key, 100)
        return spec.label.get(self.lang) or spec.label.get("en") or key

    def value(self, key: str, value: str) -> str:
        """A value as spelled by :func:`envdoctor.facts.values.spell`, by its name where the registry has one."""
        spec = self.registry.find(key)
        if spec is not None and spec.values:
            return ", ".join(self._named(spec, part) for part in value.split(", "))
        if spec is not None and spec.type == "boolean" and value in ("true", "false"):
            return self.say("yes" if value == "true" else "no")
        value = self.sentence(value) if " " in value else value
        return _size(value) if key.endswith("_gib") else shortened(value, _LONGEST_VALUE)

    def fact(self, key: str, value: str) -> str:
        """The fact in words: "torch 2.5.0", "flash-attn not installed", "GPU memory 79.1 GiB", "remote code: no"."""
        name, spec = self.name(key), self.registry.find(key)
        if value == "absent":
            absent = spec.absent.get(self.lang) if spec is not None else None
            return self.say("{name} {absent}", name=name, absent=absent) if absent else self.say("no {name}", name=name)
        if value == "unknown":
            return self.say("{name} not known", name=name)
        if key.startswith("env."):
            return f"{name}={shortened(value, _LONGEST_VALUE)}"
        if spec is not None and spec.type == "records":
            number = value.partition(" ")[0]
            return f"{number} {name}" if number.isdigit() else shortened(value, _LONGEST_VALUE)
        text = self.value(key, value)
        if (spec is not None and spec.type == "boolean") or not text.isascii():
            return self.say("{name}: {value}", name=name, value=text)
        return self.say("{name} {value}", name=name, value=text)

    def not_known(self, name: str, reason: str = "") -> str:
        """``GPU not known (NVML gave up)``; that nobody gave it needs no words."""
        if reason in ("", NOT_GIVEN.reason):
            return self.say("{name} not known", name=name)
        return self.say("{name} not known ({reason})", name=name, reason=self.sentence(reason))

    def _named(self, spec: FactSpec, value: str) -> str:
        names = spec.values.get(value, {})
        return names.get(self.lang) or names.get("en") or shortened(value, _LONGEST_VALUE)


def _size(gib: str) -> str:
    """A size in GiB, in MiB below one."""
    try:
        mib = float(gib) * 1024
    except ValueError:
        return f"{gib} GiB"
    return f"{mib:.0f} MiB" if 0 < mib < 1024 else f"{gib} GiB"
