"""Trainings on PyTorch: healthy ones, and ones with a planted fault."""
