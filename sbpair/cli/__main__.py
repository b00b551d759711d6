"""`python -m sbpair.cli`, for environments without the script on the path."""

from sbpair.cli import main

main()
