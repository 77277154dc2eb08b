"""What the cost models say beside what the papers published, cell by cell."""
