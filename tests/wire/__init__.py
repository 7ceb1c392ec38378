"""The messages between agent and server."""
