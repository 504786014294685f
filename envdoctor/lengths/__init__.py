"""How long the samples of a data file are, in tokens of a model, without tokenising all of them."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "read_data": "DataProblem",
        "summary": "DataError DataSection Padding fed_length measure",
    },
)
