"""What changed between two snapshots, as records of one shape. Nothing here judges: rules do."""
