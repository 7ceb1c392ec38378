"""Debugging sessions: the state of a debugged run, live or offline, behind one interface."""
