"""Will it fit: the peak of GPU memory of a recipe, before it runs."""
