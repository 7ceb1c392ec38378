"""Code shared by the adapters of all eager frameworks, which run operators as the script calls them."""
