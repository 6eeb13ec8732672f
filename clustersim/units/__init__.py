"""Turn text with a unit into an SI float and back."""
