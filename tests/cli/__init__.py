"""Commands, run as a shell would run them."""
