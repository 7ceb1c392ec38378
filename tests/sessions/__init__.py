"""Sessions, live and recorded."""
