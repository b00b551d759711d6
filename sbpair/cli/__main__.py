"""`python -m sbpair.cli`, for where the script is not on the path."""

from sbpair.cli.group import main

main()
