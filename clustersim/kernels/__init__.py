"""Duration of operators on an accelerator, in seconds."""
