"""Checks of a syphon besides forwarding: claims, levels of backlogs, dead letters."""
