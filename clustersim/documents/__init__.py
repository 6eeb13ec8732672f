"""Read YAML files, remember where everything stands, and check them against a model."""
