"""How long operators take on an accelerator."""
