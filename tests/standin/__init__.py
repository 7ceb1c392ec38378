"""A stand-in for old MindSpore processes, and for a person with an HTTP client."""
