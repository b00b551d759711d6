"""What several rooms use and none owns. Stands on the standard library alone."""
