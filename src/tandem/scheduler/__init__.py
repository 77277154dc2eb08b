"""Who runs next: pure strategies, and the one owner of all mutable scheduling state. No torch."""
