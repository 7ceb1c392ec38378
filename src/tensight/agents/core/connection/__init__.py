"""The connection of a training to a debug server: attaching, what is sent, and the commands that arrive."""
