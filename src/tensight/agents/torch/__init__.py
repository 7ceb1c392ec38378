"""The adapter for PyTorch."""
