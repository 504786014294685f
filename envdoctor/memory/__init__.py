"""Will it fit: the peak of GPU memory of a recipe, before it runs."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "closed_form": "ClosedForm Residual",
        "prediction": "model_of predict",
        "recipe": "batch_of engine_of settings_of",
        "section": "MemoryProblem MemorySaving MemorySection",
        "serving": "predict_serving",
        "shipped": "OnCuda Shipped",
        "stages": "Stage Staged",
        "stored": "Counted Packed stored_parameters",
        "tracing": "FirstOf Source Trace Tracer",
    },
)
