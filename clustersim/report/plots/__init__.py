"""Pictures of runs, tables and answers. Only the modules that draw import matplotlib."""
