"""`python -m sbpair`, for environments without the script on the path."""

from sbpair.pair.cli import main

if __name__ == "__main__":
    main()
