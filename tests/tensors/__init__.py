"""Statistics and comparisons of tensors, against plain NumPy."""
