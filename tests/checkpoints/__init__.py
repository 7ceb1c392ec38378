"""Files of checkpoints."""
