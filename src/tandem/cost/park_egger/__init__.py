"""Split points inside a decoder layer between CPU and GPU (Park and Egger, 2026)."""
