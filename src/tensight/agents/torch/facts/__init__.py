"""Where the facts of a PyTorch training come from (`tensight.diagnosis.facts`)."""
