"""What the syntaxes of recipes have in common: settings with their lines, in the parts that a file has."""

from typing import NamedTuple

from envdoctor.observe.errors import ObservationError

Scalar = str | int | float | bool | None
#: Settings of one file. The largest recipes of the frameworks' own examples have about 150.
MOST_ENTRIES = 2000


class RecipeError(ObservationError):
    """A file is no recipe that can be read; the message is what follows the file's name in a sentence."""


class Entry(NamedTuple):
    """One setting. ``key`` is dotted (``training_args.max_steps``), of an option without its dashes, of the n-th
    argument of a command that belongs to no option ``#n``. ``place`` is the line and, in a
    notebook, the cell. ``text_number``: a number that YAML 1.1, and so PyYAML, reads as text (5e-4);
    ``computed``: the file does not say the value, a variable or an expression stands for it; ``perhaps``: the key is
    given under a condition only."""

    key: str
    value: Scalar | tuple[Scalar, ...]
    place: tuple[int, ...]
    text_number: bool = False
    computed: bool = False
    perhaps: bool = False


class Part(NamedTuple):
    """Settings that go to one program. ``program`` is the command's (``trl sft``), the called name
    (``AutoModelForCausalLM.from_pretrained``), ``#SBATCH`` or ``environment``; empty for a document. Of a
    command ``line`` is that of the program, ``words`` stand behind it, None for one that is computed; ``module``: it
    is named as a module (``-m``). A call is made under a condition only with ``perhaps``."""

    program: str
    entries: tuple[Entry, ...]
    line: int = 0
    words: tuple[str | None, ...] = ()
    module: bool = False
    perhaps: bool = False
