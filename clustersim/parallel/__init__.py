"""Place ranks, split tensors, schedule micro-batches, count memory; lower all that to a Program."""
