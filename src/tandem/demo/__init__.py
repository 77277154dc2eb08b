"""`tandem demo`: what Tandem is for, in a minute, on any machine."""
