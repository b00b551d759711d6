"""Configuration files: the namespaces, entities, rules and policies that a broker starts with."""

from __future__ import annotations

from .emulator_file import read_emulator_file
from .plan import NamespacePlan, SubscriptionPlan, TopicPlan
from .table import BadConfigurationError
from .toml_file import read_namespaces
from .written import write_emulator_file, write_toml

__all__ = [
    "BadConfigurationError",
    "NamespacePlan",
    "SubscriptionPlan",
    "TopicPlan",
    "read_emulator_file",
    "read_namespaces",
    "write_emulator_file",
    "write_toml",
]
