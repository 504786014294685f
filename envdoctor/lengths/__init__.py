"""How long the samples of a data file are, in tokens of a model, without tokenising all of them."""
