"""Models as layers and operators with FLOPs, bytes, parameters and activations."""
