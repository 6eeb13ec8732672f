"""Why a step takes as long as it does, where each figure comes from, and what would shorten the step."""
