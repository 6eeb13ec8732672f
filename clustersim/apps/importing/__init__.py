"""Files of training frameworks read as scenarios: one reader over formats, one table for each framework (``scenarios/imports``)."""
