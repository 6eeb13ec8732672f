"""Steps for other simulators and analysers."""
