"""Watching a training run for numbers that are not finite, at less than one per cent of a step.

    trainer = Trainer(..., callbacks=[envdoctor.Watch()])

    with envdoctor.Watch(model, optimizer):  # around a plain loop

On the first step with a loss or gradient that is not finite it runs that batch once more with hooks, says which module
and which operation gave the first bad number and whether another attention kernel cures it, writes a flight record, and
stops the run before weights are written. It also reads the Trainer's own log for what that hides (``loss: 0.0`` beside
``grad_norm: nan``) and compares the memory of batches of one shape.

Needs torch, which a training script has; nothing else of envdoctor imports this package.
"""

from envdoctor.experiments.watch.callback import RunStopped, Watch

__all__ = ["RunStopped", "Watch"]
