"""Runs in motion: the messages between a training process and the debug server, and what they mean."""
