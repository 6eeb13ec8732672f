"""Questions about parallel training that are answered by runs: a file each in ``scenarios/studies``."""
