"""The logs of benchmarks/logs.py."""
