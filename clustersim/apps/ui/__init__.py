"""A local page on which a scenario is changed and its result seen at once."""
