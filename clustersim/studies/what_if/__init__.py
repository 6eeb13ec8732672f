"""What would be if: cases against a base, where they break even, and how sure the decision between them is."""
