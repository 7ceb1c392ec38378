"""What every adapter for an eager framework shows of the same trainings."""
