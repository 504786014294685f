"""Facts: what is known of an environment, a machine, a model and a recipe, and where each piece comes from."""
