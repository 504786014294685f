"""The public Python API: one module a command, each a page that joins the floors below.

>>> from envdoctor.app.check import check
>>> from envdoctor.app.facts import Sources
>>> report = check(Sources(model="THUDM/glm-4-9b-chat-hf", assignments=["recipe.batch_size=2"]))  # doctest: +SKIP
"""
