"""The client in Python, with real servers."""
