"""Choice among several clusters for a training: days, cost, and the sensitivity of their order."""
