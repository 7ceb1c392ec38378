"""Trainings on MindSpore, each in a process of its own, and dumps that MindSpore writes."""
