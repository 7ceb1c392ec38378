"""One person debugging one run: the state of a debugged run, online and offline behind one interface."""
