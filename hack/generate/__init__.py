"""Generated files: CRDs and the tables in docs/reference, from the types and lists in the code."""
