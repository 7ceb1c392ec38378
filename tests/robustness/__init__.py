"""Damaged and hostile dumps."""
