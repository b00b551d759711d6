"""What holds for every test."""

from hypothesis import HealthCheck, settings

# Six workers share the cores: how long an example takes says nothing of the code.
settings.register_profile("beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside others")
