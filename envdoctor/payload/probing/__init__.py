"""Code that several probes share. It runs inside the target interpreter only."""
