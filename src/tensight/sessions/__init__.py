"""One person debugging one run: the state of a debugged run, live and offline behind one interface."""
