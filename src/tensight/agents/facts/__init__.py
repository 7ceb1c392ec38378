"""What the facts of all frameworks have in common: rows of `tensight.diagnosis.facts`, from NumPy arrays."""
