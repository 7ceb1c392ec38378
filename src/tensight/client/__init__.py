"""The Python client of the HTTP API: a notebook or a CI job can do all that a person can."""
