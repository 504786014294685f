"""How long the samples of a data file are, in tokens of a model, without tokenising all of them."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "measuring": "DataError measure tokenizer_in",
        "section": "DataSection Padding",
        "shapes": "RowProblem",
        "summary": "fed_length",
    },
)
