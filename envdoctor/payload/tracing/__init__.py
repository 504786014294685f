"""How much memory a step of training or a prompt takes: the installed modeling code, run on tensors without data."""
