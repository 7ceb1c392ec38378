"""The page in Chromium, used as a person would."""
