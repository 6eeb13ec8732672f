"""Which of several clusters to buy or rent for a training: days, cost, and what the order turns on."""
