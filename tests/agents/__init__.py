"""Agents in trainings: what all adapters share, and NumPy, PyTorch and MindSpore in folders of their own."""
