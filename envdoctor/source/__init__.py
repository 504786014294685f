"""Python source as syntax trees: what a module offers, what it takes, what a script uses. Nothing of it is run.

In: source texts, and who reads a module by its name. Out: names, signatures, uses, and what an import would fail
with. Imports ``facts`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "deciding": "OutOfBudget",
        "definitions": "attributes_of methods_of siblings_of",
        "importing": "Importing",
        "inheriting": "Inheriting",
        "library": "Library Unreadable",
        "names": "Names",
        "notebook": "NotANotebook parse_code",
        "signatures": "can_be_called spelled",
        "uses": "FoundUses TooMuch Use uses_of",
        "values": "Stop UNKNOWN World",
    },
)
