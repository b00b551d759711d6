"""The fixtures of all tests of commands."""

from tests.pair.cli.conftest import *  # noqa: F403
