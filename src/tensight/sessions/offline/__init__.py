"""Sessions on dumps, and on the recordings of ended trainings."""
