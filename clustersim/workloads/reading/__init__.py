"""Descriptions of models, as files and configurations have them."""
