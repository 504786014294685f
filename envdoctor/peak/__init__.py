"""Will it fit: the peak of GPU memory of a recipe before it runs, and how long the samples of its data are.

In: the facts of a recipe, a model and a GPU; a data file. Out: a point, an interval, a verdict, and changes that
fit. Imports ``revision`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "closed_form": "ClosedForm Residual",
        "model": "model_of words_of",
        "prediction": "predict",
        "read_data": "DataProblem",
        "recipe": "Stage batch_of engine_of recipe_of settings_of staged",
        "run": "Size as_loaded as_trained counted divided packed_weights sizes stored_parameters trained_as_loaded",
        "section": "MemoryProblem MemorySaving MemorySection",
        "serving": "predict_serving",
        "shipped": "OnCuda Shipped",
        "summary": "DataError DataSection Padding fed_length measure",
        "tower": "IMAGES Tower tower_of trained_tower with_images",
        "tracing": "TraceSource Trace Tracer first_of rehearsed",
    },
)
