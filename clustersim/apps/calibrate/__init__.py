"""From measurements to a calibration file."""
