"""`python -m tensight` is the same as `tensight`."""

from tensight.cli import main

if __name__ == "__main__":
    main()
