"""Readers and writers of dumps of every layout."""
