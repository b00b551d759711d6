"""What a syphon checks beside forwarding: claims, levels of backlogs, dead letters."""
