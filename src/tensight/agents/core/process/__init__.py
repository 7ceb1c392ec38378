"""The process in which a training runs: its end, its forks, its memory and its workers."""
