"""The operations of the HTTP API, by subject."""
