"""What can be asked for at which path, by subject."""
