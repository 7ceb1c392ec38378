"""Where the facts of a MindSpore training come from (`tensight.diagnosis.facts`)."""
