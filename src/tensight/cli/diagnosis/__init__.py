"""What `tensight diagnose` shows, in each of its formats: all of them show a `Report`."""
