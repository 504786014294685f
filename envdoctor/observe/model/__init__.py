"""The model: what its files on this machine say, as facts. Nothing is downloaded and nothing of it is run.

Files are hostile until read: sizes are bounded, a wrong type is a reason, and a ``config.json`` that is no
configuration at all is an :class:`~envdoctor.observe.errors.ObservationError`.
"""
