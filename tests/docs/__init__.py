"""Every code block of the documentation, run as a reader would."""
