"""Steps written to disk: recordings, traces, and the comparison of a run with a trace."""
