"""Reports of comparisons for browsers, each a self-contained HTML file."""
